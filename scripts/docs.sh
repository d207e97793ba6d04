#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# Builds the documentation as a website in target/docs/book, and checks its links.
set -eu
cd "$(dirname "$0")/.."
. scripts/prerequisites.sh

MDBOOK=0.4.52

tools cpio linkchecker
cargo_tool mdbook "$MDBOOK" mdbook

# Pages link to source files, so the book has the whole tree. Links in SUMMARY.md are
# relative to docs/ for readers on a code host, and to the root of the tree in mdBook.
dir=target/docs
rm -rf "$dir"
mkdir -p "$dir/src"
git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null |
	cpio -p -d --quiet "$dir/src"
sed -e 's|](|](docs/|' -e 's|](docs/\.\./|](|' docs/SUMMARY.md >"$dir/src/SUMMARY.md"
cp docs/book.toml "$dir"
mdbook build "$dir"
linkchecker --no-status --no-warnings "$dir/book/index.html"
say "target/docs/book/index.html"

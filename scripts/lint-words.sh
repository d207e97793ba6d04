#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# Checks documents, comments and messages for the words of scripts/words.txt, and the
# subjects of commits that are not on the upstream branch yet.
set -eu
cd "$(dirname "$0")/.."

status=0
words=$(mktemp)
trap 'rm -f "$words"' EXIT
grep -v '^#' scripts/words.txt >"$words"
while read -r line; do
	pattern=${line% | *}
	instead=${line##* | }
	found=$(git grep -nIiE -e "$pattern" -- . ':!scripts/words.txt' ':!docs/results.md' ':!*.lock') || {
		[ $? = 1 ] && continue
		echo "scripts/words.txt: git grep does not accept '$pattern'" >&2
		exit 1
	}
	printf '%s\n  write instead: %s\n' "$found" "$instead" >&2
	status=1
done <"$words"

# commits since the branch that they will be merged into, or the last one
base=$(git rev-parse -q --verify '@{upstream}' 2>/dev/null || git rev-parse -q --verify 'HEAD~1' || :)
git log --no-merges --format=%s "${base:+$base..}HEAD" | while read -r subject; do
	length=$(printf %s "$subject" | wc -m)
	verb=${subject%% *}
	case $verb in
	Bring | Embed | Feed | Ping | Speed) reason= ;;
	*ed | *ing | [a-z]*) reason="begins with '$verb': use the imperative, such as 'Add'" ;;
	*) reason= ;;
	esac
	[ "$length" -le 72 ] || reason="has $length characters: at most 72"
	[ -z "$reason" ] || {
		printf 'commit subject %s\n  %s\n' "$reason" "$subject" >&2
		exit 1
	}
done || status=1
exit $status

#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# package [--test]: builds xcp and xcp-lab and makes packages in target/package.
# debs FOLDER [OPTION...]: makes only the Debian packages, from an existing build.
set -eu
cd "$(dirname "$0")/.."
. scripts/prerequisites.sh

CARGO_DEB=3.8.0
CARGO_CYCLONEDX=0.5.9

# Makes Debian packages from an existing build, in a folder, with options of cargo deb.
debs() {
	[ $# -gt 0 ] || die "usage: ./x debs FOLDER [OPTION...]"
	folder=$1
	shift
	stage=target/stage
	xcp=${CARGO_TARGET_DIR:-target}/release/xcp
	rm -rf "$stage"
	rm -f "$folder"/xcp_*.deb "$folder"/xcp-lab_*.deb
	mkdir -p "$stage/man/xcp-lab" "$stage/completions" "$stage/units" "$stage/rules" "$folder"
	"$xcp" man --out "$stage/man/xcp" >/dev/null
	mv "$stage"/man/xcp/xcp-lab*.1 "$stage/man/xcp-lab"
	"$xcp" completions bash >"$stage/completions/xcp"
	"$xcp" completions zsh >"$stage/completions/_xcp"
	"$xcp" completions fish >"$stage/completions/xcp.fish"
	for unit in systemd/*.service; do
		sed 's|/usr/local/bin|/usr/bin|' "$unit" >"$stage/units/${unit##*/}"
	done
	cp systemd/80-xcp.rules "$stage/rules"
	cargo_tool cargo-deb "$CARGO_DEB" cargo deb
	for name in xcp xcp-lab; do
		cargo deb --quiet --locked --no-build --no-strip -p "$name" --output "$folder" "$@"
	done
}

# Writes the components of each package in CycloneDX format. The tool writes its output to
# the folder of each Cargo.toml.
bills_of_materials() {
	cargo_tool cargo-cyclonedx "$CARGO_CYCLONEDX" cargo cyclonedx
	cargo cyclonedx --quiet --format json --spec-version 1.5
	for name in xcp xcp-lab; do
		sed "s|$PWD|/usr/src/xcp|g" "crates/$name/$name.cdx.json" >"$packages/$name.cdx.json"
	done
	rm -f crates/*/*.cdx.json
}

# Makes an RPM with the files of the Debian package xcp.
rpm_package() {
	packages rpm
	rpm=$(mktemp -d)
	dpkg-deb -x "$packages"/xcp_*.deb "$rpm/tree"
	rpmbuild --quiet -bb packaging/rpm/xcp.spec --define "_topdir $rpm" \
		--define "tree $rpm/tree" \
		--define "xcp_version $("$xcp" --version | cut -d' ' -f2)"
	cp "$rpm"/RPMS/*/*.rpm "$packages"
	rm -rf "$rpm"
}

# Makes all packages in target/package.
package() {
	test=${1:-}
	case $test in
	'' | --test) ;;
	*) die "package: unknown option '$test'" ;;
	esac
	tools dpkg-dev
	# builds are reproducible: the bytes do not depend on folder and time
	export CARGO_TARGET_DIR="$PWD/target/packaged"
	libraries="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/usr/src/cargo"
	export RUSTFLAGS="--remap-path-prefix=$PWD=/usr/src/xcp $libraries"
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
	export SOURCE_DATE_EPOCH
	build
	packages=target/package
	rm -rf "$packages"
	debs "$packages"
	rpm_package
	bills_of_materials
	(cd "$packages" && sha256sum ./*.deb ./*.rpm ./*.json >SHA256SUMS && cat SHA256SUMS)
	if [ "$test" ]; then
		packages git lintian mmdebstrap python3
		as_root packaging/test-packages
		again=$(mktemp -d)
		git clone -q . "$again/xcp"
		(cd "$again/xcp" && ./x package >/dev/null)
		cmp "$packages/SHA256SUMS" "$again/xcp/target/package/SHA256SUMS" ||
			die "a build in another folder gives different packages: see $again/xcp"
		rm -rf "$again"
		say "a build in another folder gives the same bytes"
	fi
}

command=${1-}
[ $# = 0 ] || shift
case $command in
debs) debs "$@" ;;
package) package "$@" ;;
*) die "usage: $0 package [--test] | debs FOLDER [OPTION...]" ;;
esac

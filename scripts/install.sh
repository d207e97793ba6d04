#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# install: builds, and installs the commands, man pages, completions and units under
# $PREFIX; uninstall: removes them again.
set -eu
cd "$(dirname "$0")/.."
. scripts/prerequisites.sh

prefix=${PREFIX:-/usr/local}
completions="bash:share/bash-completion/completions/xcp
	zsh:share/zsh/site-functions/_xcp
	fish:share/fish/vendor_completions.d/xcp.fish"

units=lib/systemd/system
rules=lib/udev/rules.d/80-xcp.rules

# Runs a command, as root if the prefix is not writable.
into_prefix() {
	if mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ]; then
		"$@"
	else
		as_root "$@"
	fi
}

# shellcheck disable=SC2119 # needs only the packages of the build
install_all() {
	tools
	build
	stage=$(mktemp -d)
	trap 'rm -rf "$stage"' EXIT
	xcp=target/release/xcp
	"$xcp" man --out "$stage" >/dev/null
	into_prefix install -D -m 755 "$xcp" "$prefix/bin/xcp"
	into_prefix install -D -m 755 "$xcp-lab" "$prefix/bin/xcp-lab"
	for guest in xcp-guest xcp-guest-checks; do
		into_prefix install -D -m 755 "${xcp%/*}/$guest" "$prefix/libexec/xcp/$guest"
	done
	for unit in xcp xcp-edged xcp-gateway xcp-metrics; do
		sed "s|/usr/local/bin|$prefix/bin|" "systemd/$unit.service" >"$stage/unit"
		into_prefix install -D -m 644 "$stage/unit" "$prefix/$units/$unit.service"
	done
	into_prefix install -D -m 644 systemd/80-xcp.rules "$prefix/$rules"
	for page in "$stage"/*.[15]; do
		into_prefix install -D -m 644 "$page" \
			"$prefix/share/man/man${page##*.}/${page##*/}"
	done
	for pair in $completions; do
		"$xcp" completions "${pair%%:*}" >"$stage/completion"
		into_prefix install -D -m 644 "$stage/completion" "$prefix/${pair#*:}"
	done
	say "installed $prefix/bin/xcp and xcp-lab, man pages, completions and systemd units"
}

# Ends what the installed units and command do on this system.
turn_off() {
	[ -x "$prefix/bin/xcp" ] || return 0
	unit=$(systemctl show -P FragmentPath xcp.service 2>/dev/null || true)
	case $unit in
	"$prefix/$units/xcp.service")
		as_root systemctl --quiet disable --now xcp-metrics xcp-gateway xcp-edged xcp
		;;
	?*)
		say "XCP is not switched off: the units are those of another copy, $unit"
		return
		;;
	esac
	for command in "gateway off" "host off" "apply /dev/null"; do
		# shellcheck disable=SC2086 # two words
		(as_root "$prefix/bin/xcp" $command) >/dev/null 2>&1 || true
	done
}

uninstall_all() {
	turn_off
	into_prefix rm -rf "$prefix/libexec/xcp"
	into_prefix rm -f "$prefix/bin/xcp" "$prefix/bin/xcp-lab" "$prefix/$rules" \
		"$prefix/$units/xcp.service" "$prefix/$units"/xcp-*.service \
		"$prefix"/share/man/man1/xcp.1 "$prefix"/share/man/man1/xcp-*.1 \
		"$prefix/share/man/man5/xcp.toml.5"
	for pair in $completions; do
		into_prefix rm -f "$prefix/${pair#*:}"
	done
	say "removed xcp from $prefix"
}

case ${1-} in
install) install_all ;;
uninstall) uninstall_all ;;
*) die "usage: $0 install|uninstall" ;;
esac

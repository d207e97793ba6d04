# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# Installs the packages that the project's commands need. Source it in the project's
# folder.

PATH="$PWD/target/tools/bin:$HOME/.cargo/bin:/usr/lib/cargo/bin:$PATH:/usr/sbin:/sbin"

OLDEST_RUST=88 # 1.88
BUILD="make gcc libc6-dev linux-libc-dev autoconf automake libtool gettext
	autopoint flex bison gawk pkg-config"

say() {
	printf 'x: %s\n' "$*" >&2
}

die() {
	say "$@"
	exit 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "'$*' needs root, and sudo is not installed: run it as root"
	fi
}

apt_version() {
	apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9].*\)/\1/p'
}

# Installs the given packages if they are missing. A lock excludes other ./x commands.
packages() {
	mkdir -p target
	(
		flock 9
		install_packages "$@"
	) 9>target/packages.lock
}

install_packages() {
	command -v dpkg-query >/dev/null || {
		say "apt is not available: make sure that these packages are installed: $*"
		return
	}
	missing=
	for package in "$@"; do
		dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null |
			grep -qx installed || missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	say "installing with apt:$missing"
	as_root apt-get -q update >&2
	# shellcheck disable=SC2086 # a list
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -q install -y --no-install-recommends $missing >&2
}

# Prints the first package of a list of alternatives that apt knows.
first_of() {
	for package in "$@"; do
		[ -z "$(apt_version "$package")" ] || break
	done
	printf '%s' "$package"
}

have_clang() {
	for clang in "${CLANG:-clang}" clang-19 clang-18 clang-17 clang-16; do
		major=$("$clang" -dumpversion 2>/dev/null | cut -d. -f1) || continue
		[ "${major:-0}" -lt 16 ] || return 0
	done
	return 1
}

have_rust() {
	minor=$(cargo --version 2>/dev/null | cut -d. -f2) || return 1
	[ "${minor:-0}" -ge "$OLDEST_RUST" ]
}

rust() {
	for package in cargo cargo-web; do
		minor=$(apt_version "$package" | cut -d. -f2)
		if [ "${minor:-0}" -ge "$OLDEST_RUST" ]; then
			packages "$package"
			return
		fi
	done
	packages curl ca-certificates
	say "installing Rust for $(id -un), with rustup from static.rust-lang.org"
	curl -fsS --proto '=https' https://static.rust-lang.org/rustup/rustup-init.sh |
		sh -s -- -q -y --profile minimal --no-modify-path >&2
}

need_clang() {
	have_clang || packages "$(first_of clang-19 clang-18 clang-17 clang-16)"
}

tools() {
	# shellcheck disable=SC2086 # lists
	packages $BUILD "$@"
	need_clang
	have_rust || rust
	have_rust || die "Rust 1.$OLDEST_RUST or later is needed: see https://rustup.rs"
}

build() {
	cargo build --release --locked
}

# Installs a tool under target/tools, unless the command has this version.
cargo_tool() { # CRATE VERSION COMMAND...
	crate=$1
	version=$2
	shift 2
	case $("$@" --version 2>/dev/null) in
	*"$version") ;;
	*)
		cargo install --quiet --locked --force --root target/tools "$crate@$version" ||
			die "$crate cannot be installed"
		;;
	esac
}

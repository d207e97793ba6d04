#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# systemd runs this script, followed by the script of a test, when the virtual machine
# has booted. Each check prints a line "ok: ..." or "FAILED: ...".
PATH=$PATH:/usr/local/bin

result() { # WHAT, and the arguments of test(1)
	what=$1
	shift
	if [ "$@" ]; then echo "ok: $what"; else echo "FAILED: $what: $*" | tee -a /tmp/failed; fi
}

in_force() {
	xcp config show --json | tr -d ' \n'
}

# Waits until this configuration is in force, for 10 s at most.
becomes() { # WHAT, JSON
	for _ in $(seq 100); do
		[ "$(in_force)" = "$2" ] && break
		sleep 0.1
	done
	result "$1" "$(in_force)" = "$2"
}

finish() {
	[ ! -e /tmp/failed ] || journalctl -u xcp -o cat
	echo "done"
	systemctl poweroff -f
	exit
}

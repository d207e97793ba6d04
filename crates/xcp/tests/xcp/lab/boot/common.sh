#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# Run by systemd in a virtual machine once it has booted, with another script behind it:
# a line "ok: ..." or "FAILED: ..." for each thing that a test wants to know.
PATH=$PATH:/usr/local/bin

result() { # WHAT, as test(1) has it
	what=$1
	shift
	if [ "$@" ]; then echo "ok: $what"; else echo "FAILED: $what: $*" | tee -a /tmp/failed; fi
}

in_force() {
	xcp config show --json | tr -d ' \n'
}

# Waits until this configuration is in force, 10 s at most.
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

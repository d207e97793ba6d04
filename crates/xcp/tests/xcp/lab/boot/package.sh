#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# Installs and removes the packages /first.deb and /second.deb, of different builds,
# during a connection from the network namespace s to d; the machine is their router.
echo 1 >/proc/sys/net/ipv4/ip_forward
node() { # NAME SUBNET
	ip netns add "$1"
	ip link add "to-$1" type veth peer name eth0 netns "$1"
	ip address add "10.0.$2.1/24" dev "to-$1"
	ip link set "to-$1" up
	ip -n "$1" address add "10.0.$2.2/24" dev eth0
	ip -n "$1" link set eth0 up
	ip -n "$1" route add default via "10.0.$2.1"
}
node s 1
node d 2
tc -n d qdisc add dev eth0 root netem delay 20ms
# while the package does not shape, unlimited traffic would use all CPU time
tc -n s qdisc add dev eth0 root netem rate 1mbit limit 1000

# Writes what d receives on a port to a file.
receive() { # PORT FILE
	# shellcheck disable=SC2016 # variables of perl
	ip netns exec d perl -MIO::Socket -e '
		$socket = IO::Socket::INET->new(Listen => 1, LocalPort => shift) or die;
		$socket = $socket->accept;
		print while read $socket, $_, 4096' "$1" >"$2" &
	until ip netns exec d ss -Hltn | grep -q ":$1 "; do sleep 0.1; done
}

# Sends numbers on a connection until /stop exists, and writes them to a file.
send() { # PORT FILE
	# shellcheck disable=SC2016 # variables of the shell in s
	ip netns exec s bash -c '
		for ((number = 0; ; number += 10000)); do
			[ ! -e /stop ] || break
			seq $number $((number + 9999))
		done | tee "$1" >"/dev/tcp/10.0.2.2/$0"' "$1" "$2" &
}

connection() {
	ip netns exec s ss -Htin dport = :5000
}
local_port() {
	connection | sed -n '1s/.*10\.0\.1\.2:\([0-9]*\).*/\1/p'
}
sockets() {
	ip netns exec s ss -Htn dport = :5000 | wc -l
}
acknowledged() {
	connection | sed -n 's/.* bytes_acked:\([0-9]*\).*/\1/p'
}
# How many connections of s use XCP. Counters cannot tell: the metrics unit connects to
# itself when it stops, and its listener may be older than XCP.
with_xcp() {
	nsenter --net=/run/netns/s xcp host show --json --connections | grep -c '"fallback": *null'
}
goes_on() { # WHEN
	before=$(acknowledged)
	for _ in $(seq 100); do
		[ "$(acknowledged)" -gt $((before + 30000)) ] && break
		sleep 0.1
	done
	result "$1: the connection continues" "$(acknowledged)" -gt $((before + 30000))
}

# The builds of the programs in the kernel.
builds() {
	(cd /sys/fs/bpf/xcp && echo host/build/* router/*/complete/*)
}
since() { # PROPERTY of the unit
	systemctl show xcp -p "$1" --value
}
installed() { # FILE
	dpkg -i "$1" </dev/null >/dev/null 2>/tmp/said
	result "$1 is installed" "$?" = 0
	result "$1: dpkg warns only of a downgrade" -z "$(grep -v '^dpkg: warning: downgrading' /tmp/said)"
}

installed /first.deb
result "no unit is started" "$(systemctl is-active xcp xcp-metrics | xargs)" = "inactive inactive"
result "no unit is enabled" "$(systemctl is-enabled xcp xcp-metrics | xargs)" = "disabled disabled"
cat >/etc/xcp/xcp.toml <<-'END'
	[host]
	default = true

	[[router]]
	device = "to-d"
	capacity = "2mbit"
	shape = "2mbit"
END
systemctl enable --now xcp xcp-metrics 2>/dev/null
result "enabled and started" "$?" = 0
[ ! -e /tmp/failed ] || finish
configured=$(in_force)
first=$(builds)
started=$(since ActiveEnterTimestampMonotonic)
metrics=$(systemctl show xcp-metrics -p MainPID --value)
receive 5000 /tmp/received
send 5000 /tmp/sent
until [ "$(sockets)" = 1 ]; do sleep 0.1; done
port=$(local_port)
goes_on "first"
[ ! -e /tmp/failed ] || finish

same() { # WHEN DESCRIPTION
	goes_on "$1"
	result "$1: the connection is the same" "$(local_port)" = "$port"
	result "$1: the connection has no losses" -z "$(connection | grep -o retrans)"
	result "$1: the connection did not fall back" "$(with_xcp)" = 1
	result "$1: the configuration is the same" "$(in_force)" = "$configured"
	result "$1: the unit is active" "$(systemctl is-active xcp)" = active
	result "$1: the unit is enabled" "$(systemctl is-enabled xcp)" = enabled
	result "$1: the unit was not stopped" "$(since ActiveEnterTimestampMonotonic)" = "$started"
	result "$1: the unit is from this package" "$(since Description)" = "$2"
	result "$1: the reload of the unit succeeded" -z "$(journalctl -u xcp -p err -o cat)"
	result "$1: the metrics unit runs" "$(systemctl is-active xcp-metrics)" = active
	now=$(systemctl show xcp-metrics -p MainPID --value)
	result "$1: the metrics unit was restarted" "$now" != "$metrics"
	metrics=$now
}

description=$(since Description)
installed /second.deb
same "upgraded" "another build"
result "upgraded: the programs are those of the second build" "$(builds)" != "$first"
installed /first.deb
same "downgraded" "$description"
result "downgraded: the programs are those of the first build" "$(builds)" = "$first"

dpkg -r xcp >/tmp/said 2>&1
result "removed" "$?" = 0
result "removed: the units are gone" "$(systemctl is-active xcp xcp-metrics | xargs)" = "inactive inactive"
result "removed: nothing is pinned" -z "$(ls /sys/fs/bpf)"
goes_on "removed"
installed /second.deb
result "installed again: the unit is still enabled" "$(systemctl is-enabled xcp)" = enabled
systemctl start xcp
result "installed again: the old configuration is in force" "$(in_force)" = "$configured"

dpkg -P xcp >/tmp/said 2>&1
result "purged" "$?" = 0
result "purged: nothing is pinned" -z "$(ls /sys/fs/bpf)"
left=$(find / -xdev -name '*xcp*')
result "purged: no file is left" -z "$left"
left=$(find / -xdev -xtype l -lname '*xcp*')
result "purged: no symbolic link is left" -z "$left"
result "purged: systemd does not know the unit" "$(since LoadState)" = not-found
goes_on "purged"

touch /stop
wait
result "data was sent" -s /tmp/sent
cmp /tmp/sent /tmp/received
result "all data arrived as it was sent" "$?" = 0
receive 5001 /tmp/received
rm /stop
send 5001 /tmp/sent
sleep 2
result "a new connection has the default congestion control" \
	"$(ip netns exec s ss -Htin dport = :5001 | grep -o -w cubic)" = cubic
touch /stop
wait
cmp /tmp/sent /tmp/received
result "the new connection carries data" "$?" = 0
finish

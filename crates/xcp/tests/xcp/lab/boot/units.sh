#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
# xcp.service was enabled before the machine booted.
CONFIG=/etc/xcp/xcp.toml

now_ms() {
	read -r seconds _ </proc/uptime
	echo "${seconds/./}0"
}

host='{"host":{"default":true}}'
router() { # DEVICE CAPACITY
	echo '{"host":{"default":true},"router":[{"device":"'"$1"'","capacity":"'"$2"'"}]}'
}

result "active after boot" "$(systemctl is-active xcp)" = active
result "configured after boot" "$(in_force)" = "$host"

ip link add eth7 type dummy
began_ms=$(now_ms)
until xcp router show eth7 >/dev/null 2>&1 || [ $(($(now_ms) - began_ms)) -gt 10000 ]; do
	sleep 0.02
done
took_ms=$(($(now_ms) - began_ms))
becomes "a device that appears becomes a router" "$(router eth7 10mbit)"
result "the device becomes a router within a second" "$took_ms" -lt 1000

exported() { # METRIC
	exec 3<>/dev/tcp/127.0.0.1/9920 && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 &&
		grep -c "^$1" <&3
}
systemctl start xcp-metrics
for _ in $(seq 100); do
	exported xcp_build_info >/dev/null 2>&1 && break
	sleep 0.1
done
result "the metrics unit exports routers" "$(exported 'xcp_router_flows{device="eth7"}')" = 1

ip link set eth7 name wan3
becomes "a renamed device is configured by its new name" "$(router wan3 20mbit)"
ip link del wan3
becomes "a device that disappears leaves the host configured" "$host"
ip link add eth7 type dummy
becomes "a device that reappears becomes a router again" "$(router eth7 10mbit)"

printf '[host]\ndefault = true\n[[router]]\ndevice = "eth7"\ncapacity = "5mbit"\n' >$CONFIG
systemctl reload xcp
result "reload succeeds" "$?" = 0
result "the reloaded file is in force" "$(in_force)" = "$(router eth7 5mbit)"
systemctl restart systemd-networkd
becomes "the configuration survives a restart of systemd-networkd" "$(router eth7 5mbit)"

echo 'speed = 1' >>$CONFIG
systemctl reload xcp 2>/dev/null
result "a file with an error is refused" "$?" = 1
result "a file with an error changes nothing" "$(in_force)" = "$(router eth7 5mbit)"
result "the journal names line and column" "$(journalctl -u xcp -o cat | grep -c 'xcp.toml:6:1: unknown')" = 1

systemctl stop xcp
result "stop succeeds" "$?" = 0
result "nothing configured is left" "$(in_force)" = '{}'
result "nothing pinned is left" -z "$(ls /sys/fs/bpf)"
finish

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The maps and globals that the programs of a host share. User space pins those
 * of option.bpf.c, and the other programs use them under the same names.
 * XCP_MAP and XCP_DATA define those that a program uses.
 */
#ifndef XCP_BPF_MAPS_HOST_H
#define XCP_BPF_MAPS_HOST_H

#include "abi.h"
#include "kernel.h"

extern struct xcp_host_config config SEC(".data.config");

extern struct sockets_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct xcp_socket);
} sockets SEC(".maps");

extern struct counters_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct xcp_host_counters);
} counters SEC(".maps");

extern struct fallback_reasons_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32); /* enum xcp_fallback */
} fallback_reasons SEC(".maps");

extern struct peers_map {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct xcp_peer_key);
	__type(value, __u8); /* enum xcp_wire, XCP_WIRE_DISABLED */
} peers SEC(".maps");

/*
 * The cache of handshakes in which the peer sent a header. A full map evicts
 * the oldest.
 */
extern struct handshake_cache_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct xcp_flow_key);
	__type(value, struct xcp_cached_handshake);
} handshake_cache SEC(".maps");

/* The sockets opened with XCP's protocol number: socket_mark.h. */
extern struct chosen_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} chosen SEC(".maps");

/*
 * The callbacks that option.bpf.c has enabled for a socket; those that other
 * programs enable stay unchanged. An accepted socket inherits its listener's.
 */
extern struct callbacks_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u32);
} callbacks SEC(".maps");

#endif

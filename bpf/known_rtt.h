/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The RTT of earlier connections, by peer. A server whose connection is opened
 * by a SYN with data (TCP Fast Open, as between gateways) sends its first
 * window before any packet is acknowledged. Without an RTT, its packets would
 * carry none, and routers would grant that window nothing. The first sample
 * replaces this RTT, so a wrong one is wrong for the first window only.
 */
#ifndef XCP_BPF_KNOWN_RTT_H
#define XCP_BPF_KNOWN_RTT_H

#include "abi.h"
#include "ip.h"
#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct xcp_address);
	__type(value, __u64); /* ticks */
} known_rtts SEC(".maps");

static __always_inline struct xcp_address peer_of(const struct sock *sk)
{
	struct xcp_address peer;

	if (sk->__sk_common.skc_family == AF_INET)
		address_of_ipv4(&peer, sk->__sk_common.skc_daddr);
	else
		__builtin_memcpy(&peer, &sk->__sk_common.skc_v6_daddr,
				 sizeof(peer));
	return peer;
}

/* Ticks; 0: unknown. */
static __always_inline __u64 known_rtt(const struct sock *sk)
{
	struct xcp_address peer = peer_of(sk);
	__u64 *ticks = bpf_map_lookup_elem(&known_rtts, &peer);

	return ticks ? *ticks : 0;
}

static __always_inline void learn_rtt(const struct sock *sk, __u64 ticks)
{
	struct xcp_address peer = peer_of(sk);

	bpf_map_update_elem(&known_rtts, &peer, &ticks, BPF_ANY);
}

#endif

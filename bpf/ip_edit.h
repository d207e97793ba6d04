/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Changes to the IP header of a packet. The kernel's sum over the packet stays
 * correct: in IPv4 the header's own checksum compensates a change, in IPv6 the
 * sum is updated.
 */
#ifndef XCP_BPF_IP_EDIT_H
#define XCP_BPF_IP_EDIT_H

#include "kernel.h"

/* A TCP packet that this host sends. */
struct sent {
	__u32 l3;
	__u32 l4;
	__u32 header_len; /* of TCP */
	__u32 payload; /* bytes behind the TCP header */
	__u8 flags;
	__u8 ttl;
};

static __always_inline bool is_v4(const struct sent *p)
{
	return p->l4 - p->l3 == IPV4_LEN;
}

/* Writes two bytes of an IP header. */
static __always_inline void set_ip_word(struct __sk_buff *skb, __u32 l3,
					bool v4, __u32 at, __be16 before,
					__be16 after)
{
	bpf_skb_store_bytes(skb, at, &after, 2, v4 ? 0 : BPF_F_RECOMPUTE_CSUM);
	if (v4)
		bpf_l3_csum_replace(skb, l3 + IPV4_CHECK, before, after, 2);
}

/* Adds `by`, which may be negative, to the length in an IP header. */
static __always_inline void set_ip_length(struct __sk_buff *skb, __u32 l3,
					  bool v4, __s32 by)
{
	__u32 at = l3 + (v4 ? 2 : 4);
	__be16 before;

	if (bpf_skb_load_bytes(skb, at, &before, 2))
		return;
	set_ip_word(skb, l3, v4, at, before,
		    bpf_htons((__u16)(bpf_ntohs(before) + by)));
}

/* Changes the protocol in an IP header. */
static __always_inline void set_ip_protocol(struct __sk_buff *skb, __u32 l3,
					    bool v4, __u8 protocol)
{
	__u32 at = l3 + (v4 ? 8 : 6);
	__be16 before;
	__u16 word;

	if (bpf_skb_load_bytes(skb, at, &before, 2))
		return;
	/* the protocol is behind the TTL, or before the hop limit */
	word = bpf_ntohs(before);
	word = v4 ? (word & 0xff00) | protocol
		  : (word & 0xff) | (__u16)(protocol << 8);
	set_ip_word(skb, l3, v4, at, before, bpf_htons(word));
}

#endif

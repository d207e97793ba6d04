/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The number of wire packets n that a packet stands for. The kernel stores it
 * in gso_segs, except for packets from a guest (KVM, GUEST_TSO) or a tap device
 * and GSO packets that a program has changed. These have only gso_size, the
 * payload of each wire packet: n = ceil(payload / gso_size).
 *
 * Fraglist GRO (ethtool's rx-gro-list) chains packets instead of merging them:
 * the first is the head, the others are in its frag_list, each with headers of
 * its own in front of its data, where no program can write. Segmentation sends
 * these as they arrived. But once all data has been pulled into the head, the
 * kernel segments the head like any other GSO packet, with copies of its header
 * (tcp4_gso_segment() and tcp6_gso_segment() compare its length with gso_size,
 * from Linux 6.12 on). No other data is lost: GRO chains only packets whose TCP
 * options are the same.
 */
#ifndef XCP_BPF_SEGMENTS_H
#define XCP_BPF_SEGMENTS_H

#include "ip.h"
#include "../core/xcp_fixed.h"

#define UDP_HEADER_LEN 8
#define TCP_DATA_OFFSET 12
#define SEGMENTS_MAX 65535

/* Bytes of the headers, from `ip` on, that each wire packet has. */
static __always_inline __u32 headers_length(const __u8 *ip)
{
	__u8 head[IP_FIELDS_LEN] = {}, offset = 0;
	struct ip_fields f;

	if (bpf_probe_read_kernel(head, sizeof(head), ip))
		return 0;
	f = read_ip(head);
	if (f.protocol != IPPROTO_TCP)
		return f.header_len + UDP_HEADER_LEN;
	bpf_probe_read_kernel(&offset, 1, ip + f.header_len + TCP_DATA_OFFSET);
	return f.header_len + (offset >> 4) * 4;
}

/* Counts the wire packets if the kernel has not counted them. */
static __noinline __u32 count_segments(const __u8 *ip, __u32 length, __u32 size)
{
	__u32 n = (length - headers_length(ip) + size - 1) / (size ? size : 1);

	return n && n <= SEGMENTS_MAX ? n : 1;
}

static __always_inline __u32 segments_of(const struct sk_buff *skb)
{
	const struct skb_shared_info *info =
		bpf_core_cast(skb->head + skb->end, struct skb_shared_info);
	__u64 ip = (__u64)skb->head + skb->network_header;

	if (XCP_LIKELY(info->gso_segs || !info->gso_size))
		return info->gso_segs ? info->gso_segs : 1;
	return count_segments((const __u8 *)ip,
			      skb->len - (__u32)(ip - (__u64)skb->data),
			      info->gso_size);
}

/* Is it a chain of fraglist GRO whose packets are not yet merged? */
static __always_inline bool is_chain(const struct sk_buff *skb)
{
	const struct skb_shared_info *info =
		bpf_core_cast(skb->head + skb->end, struct skb_shared_info);

	return (info->gso_type & SKB_GSO_FRAGLIST) && info->frag_list;
}

/* The number of wire packets, for a tc program. */
static __always_inline __u32 wire_packets(const struct __sk_buff *skb,
					  const struct sk_buff *kskb)
{
	if (skb->gso_segs)
		return skb->gso_segs;
	return skb->gso_size ? segments_of(kskb) : 1;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * How many wire packets a packet stands for. The kernel says that (gso_segs),
 * except of what it has from a guest (KVM, GUEST_TSO) or through a tap device,
 * and of super-packets that a program has changed: of those it says only how
 * much payload each wire packet has. Then n = ceil(payload / gso_size).
 *
 * Fraglist GRO (ethtool's rx-gro-list) chains packets instead of merging them:
 * the first is the head, the others are in its frag_list, each with headers of
 * its own in front of its data, where no program can write. Segmentation sends
 * these as they arrived. But once all data has been pulled into the head, the
 * kernel segments the head as any other GSO packet, with copies of its header
 * (tcp4_gso_segment() and tcp6_gso_segment() compare its length with gso_size,
 * from Linux 6.12 on). Nothing else gets lost: GRO chains only packets whose
 * TCP options are the same.
 */
#ifndef XCP_BPF_SEGMENTS_H
#define XCP_BPF_SEGMENTS_H

#include "ip.h"
#include "../core/xcp_fixed.h"

#define UDP_HEADER_LEN 8
#define TCP_DATA_OFFSET 12
#define SEGMENTS_MAX 65535

/* Bytes of the headers from `ip` on, as far as each wire packet has them. */
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

/* Where the kernel has counted nothing. */
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

/* Did fraglist GRO chain it, and are its packets still apart? */
static __always_inline bool is_chain(const struct sk_buff *skb)
{
	const struct skb_shared_info *info =
		bpf_core_cast(skb->head + skb->end, struct skb_shared_info);

	return (info->gso_type & SKB_GSO_FRAGLIST) && info->frag_list;
}

/* The same, of what a program was given. */
static __always_inline __u32 wire_packets(const struct __sk_buff *skb,
					  const struct sk_buff *kskb)
{
	if (skb->gso_segs)
		return skb->gso_segs;
	return skb->gso_size ? segments_of(kskb) : 1;
}

#endif

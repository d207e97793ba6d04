/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The slow path to a packet's XCP header: through VLAN tags, extension headers
 * and TCP options, on copies of their bytes.
 */
#ifndef XCP_BPF_PARSE_H
#define XCP_BPF_PARSE_H

#include "ip.h"
#include "kernel.h"
#include "tcp.h"
#include "../core/xcp_wire.h"

#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88A8

/* Where a packet's headers are, and its XCP header or option. */
struct found {
	enum xcp_kind kind;
	__u32 ip; /* offset in the packet */
	__u32 l4;
	__u32 l4_len;
	__u32 option; /* offset of the option in the TCP header */
	__u8 protocol; /* TCP, or the one of XCP headers */
	__u8 ttl;
};

/* Skips VLAN tags; returns the network protocol, -1 if they are truncated. */
static __always_inline int find_network(struct __sk_buff *skb, __u32 *at)
{
	__u16 proto = bpf_ntohs((__u16)skb->protocol), tag[2];
	int i;

	for (i = 0; i < 2; i++) {
		if (proto != ETH_P_8021Q && proto != ETH_P_8021AD)
			break;
		if (bpf_skb_load_bytes(skb, *at, tag, 4))
			return -1;
		proto = bpf_ntohs(tag[1]);
		*at += 4;
	}
	return proto;
}

/* Routers read TCP and the protocol of XCP headers. */
static __always_inline bool is_ours(__u8 protocol, __u32 ip_proto)
{
	return protocol == IPPROTO_TCP || protocol == ip_proto;
}

/*
 * Reads an IPv4 header. If routers read the protocol behind it, returns
 * XCP_FORWARD and sets where that is; else XCP_NONE or XCP_MALFORMED.
 */
static __always_inline enum xcp_kind find_ipv4(struct __sk_buff *skb, __u32 at,
					       __u32 ip_proto, struct found *f)
{
	__u8 bytes[IPV4_LEN];
	struct ip_fields ip;

	if (bpf_skb_load_bytes(skb, at, bytes, sizeof(bytes)))
		return XCP_MALFORMED;
	f->ip = at;
	ip = read_ipv4(bytes);
	if (IP_VERSION(bytes) != 4 || ip.header_len < IPV4_LEN)
		return XCP_MALFORMED;
	if (!ip.total_len)
		ip.total_len = skb->len - at;
	if (ip.total_len < ip.header_len || at + ip.total_len > skb->len)
		return XCP_MALFORMED;
	/* routers do not read other protocols, or fragments */
	if (!is_ours(ip.protocol, ip_proto) || ip.fragment)
		return XCP_NONE;
	f->protocol = ip.protocol;
	f->ttl = ip.ttl;
	f->l4 = at + ip.header_len;
	f->l4_len = ip.total_len - ip.header_len;
	return XCP_FORWARD;
}

/* The same for IPv6. */
static __always_inline enum xcp_kind find_ipv6(struct __sk_buff *skb, __u32 at,
					       __u32 ip_proto, struct found *f)
{
	__u8 bytes[IPV6_LEN], next, ext[2];
	struct ip_fields ip;
	__u32 left, length;
	int i;

	if (bpf_skb_load_bytes(skb, at, bytes, sizeof(bytes)))
		return XCP_MALFORMED;
	f->ip = at;
	ip = read_ipv6(bytes);
	if (IP_VERSION(bytes) != 6)
		return XCP_MALFORMED;
	if (!ip.total_len)
		ip.total_len = skb->len - at;
	if (at + ip.total_len > skb->len)
		return XCP_MALFORMED;
	at += IPV6_LEN;
	left = ip.total_len - IPV6_LEN;
	next = ip.protocol;
	for (i = 0; i < 8; i++) {
		/* hop-by-hop, routing and destination options */
		if (next != 0 && next != 43 && next != 60)
			break;
		if (left < 8 || bpf_skb_load_bytes(skb, at, ext, 2))
			return XCP_MALFORMED;
		length = (ext[1] + 1) * 8;
		if (length > left)
			return XCP_MALFORMED;
		next = ext[0];
		at += length;
		left -= length;
	}
	if (!is_ours(next, ip_proto))
		return XCP_NONE;
	f->protocol = next;
	f->ttl = ip.ttl;
	f->l4 = at;
	f->l4_len = left;
	return XCP_FORWARD;
}

/* Finds the XCP header on the slow path. */
__noinline int find_slow_path(struct __sk_buff *skb, struct found *f,
			      __u32 l2_len, __u32 ip_proto)
{
	__u32 at = l2_len;
	struct tcp_copy tcp = {};
	enum xcp_kind kind;
	int proto;

	if (!f)
		return XCP_NONE;
	proto = find_network(skb, &at);
	if (proto < 0)
		return XCP_MALFORMED;
	if (proto == ETH_P_IP)
		kind = find_ipv4(skb, at, ip_proto, f);
	else if (proto == ETH_P_IPV6)
		kind = find_ipv6(skb, at, ip_proto, f);
	else
		return XCP_NONE;
	if (kind == XCP_FORWARD && f->protocol == IPPROTO_TCP) {
		kind = find_in_tcp(skb, f->l4, f->l4_len, &tcp);
		f->option = tcp.option;
	}
	return kind;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* Fields of an IP header, all in its first IP_FIELDS_LEN bytes. */
#ifndef XCP_BPF_IP_H
#define XCP_BPF_IP_H

#include "abi.h"
#include "kernel.h"

#define IP_FIELDS_LEN 10
#define IP_VERSION(ip) ((ip)[0] >> 4)
#define IPV4_PLAIN 0x45 /* its first byte without options */
#define IPV4_SOURCE 12
#define IPV6_SOURCE 8
#define IPV6_DESTINATION 24

struct ip_fields {
	__u32 header_len; /* without extension headers of IPv6 */
	__u32 total_len; /* 0 on packets of more than 64 KB */
	__u8 protocol; /* next header in IPv6 */
	__u8 ttl; /* hop limit in IPv6 */
	bool fragment;
};

static __always_inline struct ip_fields read_ipv4(const __u8 *ip)
{
	struct ip_fields f = {
		.header_len = (ip[0] & 15) * 4,
		.total_len = (__u32)ip[2] << 8 | ip[3],
		.protocol = ip[9],
		.ttl = ip[8],
		.fragment = (ip[6] & 0x3f) || ip[7],
	};

	return f;
}

/* A payload length of 0 is that of a packet of more than 64 KB. */
static __always_inline struct ip_fields read_ipv6(const __u8 *ip)
{
	__u32 payload = (__u32)ip[4] << 8 | ip[5];
	struct ip_fields f = {
		.header_len = IPV6_LEN,
		.total_len = payload ? IPV6_LEN + payload : 0,
		.protocol = ip[6],
		.ttl = ip[7],
	};

	return f;
}

static __always_inline struct ip_fields read_ip(const __u8 *ip)
{
	return IP_VERSION(ip) == 4 ? read_ipv4(ip) : read_ipv6(ip);
}

/* Is it IPv4 without options, unfragmented? Sets a constant header length. */
static __always_inline bool is_plain_ipv4(const __u8 *ip, struct ip_fields *f)
{
	*f = read_ipv4(ip);
	f->header_len = IPV4_LEN;
	return ip[0] == IPV4_PLAIN && !f->fragment;
}

static __always_inline bool is_plain_ipv6(const __u8 *ip, struct ip_fields *f)
{
	*f = read_ipv6(ip);
	return IP_VERSION(ip) == 6;
}

/*
 * Loads a packet's IP header, if this protocol is right behind its 20 or 40
 * bytes. Sets `l4` to the protocol's offset, and `ttl`.
 */
static __always_inline bool load_plain_ip(struct __sk_buff *skb, __u32 l3,
					  __u32 protocol, __u32 *l4, __u8 *ttl)
{
	__u8 ip[IPV6_LEN] = {};
	struct ip_fields f;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, l3, ip, IPV4_LEN) ||
		    !is_plain_ipv4(ip, &f) || f.protocol != protocol)
			return false;
		*l4 = l3 + IPV4_LEN;
		*ttl = f.ttl;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, l3, ip, IPV6_LEN))
			return false;
		f = read_ipv6(ip);
		if (f.protocol != protocol)
			return false;
		*l4 = l3 + IPV6_LEN;
		*ttl = f.ttl;
	} else {
		return false;
	}
	return true;
}

/* An IPv4 address as an IPv6 address: ::ffff:a.b.c.d. */
static __always_inline void address_of_ipv4(struct xcp_address *a, __u32 ip)
{
	__builtin_memset(a, 0, sizeof(*a));
	a->bytes[10] = 0xff;
	a->bytes[11] = 0xff;
	__builtin_memcpy(a->bytes + 12, &ip, 4);
}

#endif

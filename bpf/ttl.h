/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * TTL of IPv4 or hop limit of IPv6, which is used to count routers without XCP.
 */
#ifndef XCP_BPF_TTL_H
#define XCP_BPF_TTL_H

#include "ip.h"
#include "route.h"

#define TTL_MAX 255

/* The TTL of a received packet. */
static __always_inline __u8 received_ttl(const struct sk_buff *skb)
{
	__u8 ip[IP_FIELDS_LEN] = {};

	bpf_probe_read_kernel(ip, sizeof(ip), skb->head + skb->network_header);
	return read_ip(ip).ttl;
}

/* Does this socket use IPv4, perhaps with mapped addresses? */
static __always_inline bool is_over_ipv4(const struct sock *sk)
{
	struct in6_addr peer = {};

	if (BPF_CORE_READ(sk, __sk_common.skc_family) != AF_INET6)
		return true;
	BPF_CORE_READ_INTO(&peer, sk, __sk_common.skc_v6_daddr);
	return !peer.in6_u.u6_addr32[0] && !peer.in6_u.u6_addr32[1] &&
	       peer.in6_u.u6_addr32[2] == bpf_htonl(0xffff);
}

/* The hop limit of a route's device; 0 if it is not known. */
static __always_inline __s32 device_hop_limit(const struct dst_entry *route)
{
	struct inet6_dev *v6;

	if (!route)
		return 0;
	v6 = BPF_CORE_READ(route, dev, ip6_ptr);
	return v6 ? BPF_CORE_READ(v6, cnf.hop_limit) : 0;
}

/*
 * The initial TTL of this socket's packets, chosen as in the kernel: from the
 * socket, its route, or the default. If it is unknown, TTL_MAX: the peer then
 * counts routers that do not exist, which makes the sender too careful, while
 * too low a number would hide some.
 */
static __always_inline __u8 initial_ttl(struct sock *sk)
{
	struct dst_entry *route = BPF_CORE_READ(sk, sk_dst_cache);
	struct inet_sock *inet = (struct inet_sock *)sk;
	bool v4 = is_over_ipv4(sk);
	__s32 ttl;

	if (v4)
		ttl = BPF_CORE_READ(inet, uc_ttl);
	else
		ttl = BPF_CORE_READ(inet, pinet6, hop_limit);
	if (ttl < 0)
		ttl = (__s32)route_metric(route, ROUTE_HOP_LIMIT);
	if (ttl <= 0 && v4)
		ttl = BPF_CORE_READ(sk, __sk_common.skc_net.net,
				    ipv4.sysctl_ip_default_ttl);
	else if (ttl <= 0)
		ttl = device_hop_limit(route);
	return ttl > 0 && ttl <= TTL_MAX ? (__u8)ttl : TTL_MAX;
}

#endif

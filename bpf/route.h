/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The congestion control that a route asks for (`ip route ... congctl xcp`).
 * TCP sets it only after it has called our program for a connection: just after
 * BPF_SOCK_OPS_TCP_CONNECT_CB, and for an accepted socket after its SYN-ACK.
 * So the program reads the route itself.
 */
#ifndef XCP_BPF_ROUTE_H
#define XCP_BPF_ROUTE_H

#include "host.h"

/*
 * RTAX_HOPLIMIT - 1, RTAX_CC_ALGO - 1, and the bits of dst_entry._metrics that
 * are flags
 */
#define ROUTE_HOP_LIMIT 9
#define ROUTE_CONTROL 15
#define ROUTE_METRICS_FLAGS 3UL
/* bit of sk_buff._skb_refdst: no reference is held */
#define SKB_DST_NOREF 1UL

static __always_inline __u32 rotate(__u32 value, __u32 by)
{
	return value << by | value >> (32 - by);
}

/*
 * The key of xcp in routes: jhash(name, TCP_CA_NAME_MAX, strlen(name)), as
 * tcp_register_congestion_control() computes it, with the four words of the
 * padded name. All is constant, so the compiler reduces it to one number.
 */
static __always_inline __u32 route_key_of_xcp(void)
{
	__u32 a = 0xdeadbeef + TCP_CA_NAME_MAX + 3, b = a, c = a;

	a += bpf_htonl(0x78637000); /* "xcp", the other words are 0 */
	a = (a - c) ^ rotate(c, 4);
	c += b;
	b = (b - a) ^ rotate(a, 6);
	a += c;
	c = (c - b) ^ rotate(b, 8);
	b += a;
	a = (a - c) ^ rotate(c, 16);
	c += b;
	b = (b - a) ^ rotate(a, 19);
	a += c;
	c = (c - b) ^ rotate(b, 4);
	b += a;

	c = (c ^ b) - rotate(b, 14);
	a = (a ^ c) - rotate(c, 11);
	b = (b ^ a) - rotate(a, 25);
	c = (c ^ b) - rotate(b, 16);
	a = (a ^ c) - rotate(c, 4);
	b = (b ^ a) - rotate(a, 14);
	return (c ^ b) - rotate(b, 24);
}

/* One of a route's metrics; 0 if it is not set. */
static __always_inline __u32 route_metric(const struct dst_entry *route,
					  __u32 number)
{
	const __u32 *metrics;
	__u32 value = 0;

	if (!route)
		return 0;
	metrics =
		(void *)(BPF_CORE_READ(route, _metrics) & ~ROUTE_METRICS_FLAGS);
	bpf_probe_read_kernel(&value, sizeof(value), metrics + number);
	return value;
}

/* The key of a route's congestion control; 0 if it asks for none. */
static __always_inline __u32 route_control(const struct dst_entry *route)
{
	return route_metric(route, ROUTE_CONTROL);
}

/* Will a socket that is about to connect get xcp from its route? */
static __always_inline bool route_gives_xcp(struct sock *sk)
{
	return route_control(BPF_CORE_READ(sk, sk_dst_cache)) ==
	       route_key_of_xcp();
}

/* The same for a packet that has a route, as a SYN-ACK before it is sent. */
static __always_inline __u32 route_control_of_packet(struct sk_buff *skb)
{
	return route_control(
		(void *)(BPF_CORE_READ(skb, _skb_refdst) & ~SKB_DST_NOREF));
}

/*
 * Will the connection of this request use xcp, by the route of its SYN-ACK or
 * else by its listener?
 */
static __always_inline bool request_uses_xcp(struct sk_buff *skb,
					     struct request_sock *req)
{
	__u32 route = route_control_of_packet(skb);
	struct inet_connection_sock *listener;
	struct tcp_congestion_ops___name *ops;
	char name[TCP_CA_NAME_MAX] = {};

	if (route)
		return route == route_key_of_xcp();
	listener = (void *)BPF_CORE_READ(req, __req_common.skc_listener);
	ops = (void *)BPF_CORE_READ(listener, icsk_ca_ops);
	BPF_CORE_READ_INTO(&name, ops, name);
	return is_xcp(name);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The handshake of every wire format: what a SYN offers, what a SYN-ACK
 * answers, and how a socket starts XCP, or falls back, after the handshake.
 */
#ifndef XCP_BPF_HANDSHAKE_H
#define XCP_BPF_HANDSHAKE_H

#include "formats.h"
#include "maps_host.h"
#include "policy.h"
#include "route.h"
#include "sock_ops.h"
#include "ttl.h"

#define ENOENT 2

/* Is XCP disabled for this peer or network namespace? */
static __noinline bool is_silent(struct bpf_sock_ops *skops)
{
	struct xcp_flow_key names = flow_key(skops);

	if (is_elsewhere(skops))
		return true;
	return wire_of(names.netns, &names.remote) == XCP_WIRE_DISABLED;
}

/* A socket with xcp connects: offers the peer's wire format. */
static __noinline void offer(struct bpf_sock_ops *skops)
{
	struct xcp_flow_key names = flow_key(skops);
	enum xcp_fallback reason;
	struct xcp_socket *s;
	int wire;

	wire = wire_of(names.netns, &names.remote);
	forget(skops); /* the state of an earlier connection */
	if (is_signed(skops)) {
		reason = XCP_FALLBACK_SIGNED;
	} else if (wire == XCP_WIRE_DISABLED) {
		return;
	} else {
		s = socket_of(skops, BPF_SK_STORAGE_GET_F_CREATE);
		if (s) {
			s->wire = wire < 0 ? XCP_WIRE_OPTION : (__u8)wire;
			s->ttl = initial_ttl(kernel_sock(skops));
			set_callbacks(skops,
				      BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
			return;
		}
		reason = XCP_FALLBACK_MEMORY;
	}
	if (uses_xcp(skops))
		leave(skops, reason);
}

/*
 * Sets up the sender for the headers of the first window: the congestion
 * control of a socket that got xcp while it connected starts only with the
 * first ACK.
 */
static __always_inline void begin_sender(struct bpf_sock_ops *skops,
					 struct xcp_socket *s)
{
	__u32 srtt, mss, cwnd; /* srtt is in 1/8 us */

	LOAD(srtt, srtt_us);
	LOAD(mss, mss_cache);
	LOAD(cwnd, snd_cwnd);
	if (!srtt)
		return;
	s->sender.wire_B = mss + XCP_TCP_HEADER_LEN + IPV4_LEN;
	xcp_sender_rtt(&s->sender, xcp_ns_to_ticks((__u64)srtt * 125), false);
	xcp_sender_reset(&s->sender, cwnd);
	s->sender.limit_B = s->sender.cwnd_B;
	xcp_sender_update(&s->sender);
}

/* Both peers use XCP: creates the socket's record and sets its callbacks. */
static __always_inline struct xcp_socket *begin(struct bpf_sock_ops *skops,
						enum xcp_wire wire)
{
	struct xcp_socket *s = socket_of(skops, BPF_SK_STORAGE_GET_F_CREATE);

	if (!s) {
		forget(skops);
		leave(skops, XCP_FALLBACK_MEMORY);
		return NULL;
	}
	s->wire = (__u8)wire;
	s->uses_xcp = 1;
	s->ttl = initial_ttl(kernel_sock(skops));
	s->xcp_hops = XCP_HOPS_UNKNOWN;
	s->receiver.xcp_hops = XCP_HOPS_UNKNOWN;
	begin_sender(skops, s);
	set_callbacks(skops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
				     format_callbacks(s->wire));
	COUNT(sockets, 1);
	return s;
}

/*
 * Is the SYN missing that the listener was to keep (keep_syns)? Then its answer
 * was a SYN cookie: the request socket of such a SYN-ACK has no listener, so
 * XCP could not be offered.
 */
static __always_inline bool had_cookie(struct bpf_sock_ops *skops)
{
	int keeps = 0;
	__u8 syn;

	return !bpf_getsockopt(skops, SOL_TCP, TCP_SAVE_SYN, &keeps,
			       sizeof(keeps)) &&
	       keeps &&
	       bpf_getsockopt(skops, SOL_TCP, TCP_BPF_SYN, &syn, sizeof(syn)) ==
		       -ENOENT;
}

/* The reason why a socket with xcp falls back after its handshake. */
static __always_inline enum xcp_fallback
handshake_failure(struct bpf_sock_ops *skops, bool passive)
{
	if (is_signed(skops))
		return XCP_FALLBACK_SIGNED;
	if (negotiated_mptcp(skops))
		return XCP_FALLBACK_NO_ROOM;
	if (passive && had_cookie(skops))
		return XCP_FALLBACK_SYN_COOKIE;
	return XCP_FALLBACK_PEER;
}

static __always_inline void established(struct bpf_sock_ops *skops,
					bool passive)
{
	struct agreed agreed;
	struct xcp_socket *s;

	if (!uses_xcp(skops)) {
		forget(skops);
		return;
	}
	if (!is_silent(skops) && !is_signed(skops) &&
	    format_agreed(skops, passive, &agreed)) {
		s = begin(skops, agreed.wire);
		if (s)
			format_begin(skops, s, &agreed);
		return;
	}
	forget(skops);
	leave(skops, handshake_failure(skops, passive));
}

/* The option format to write on a SYN or SYN-ACK, -1 for none. */
static __always_inline int handshake_of(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);
	struct xcp_socket *s;
	int wire;

	if (!(skops->skb_tcp_flags & TCP_FLAG_ACK)) {
		s = socket_of(skops, 0);
		return s && !is_header(s->wire) ? s->wire : -1;
	}
	if (!request_uses_xcp(kern->skb, (struct request_sock *)kern->sk) ||
	    is_silent(skops))
		return -1;
	wire = format_offered(skops);
	if (wire >= 0 &&
	    (carries(skops, TCPOPT_MD5SIG, BPF_LOAD_HDR_OPT_TCP_SYN) ||
	     carries(skops, TCPOPT_AO, BPF_LOAD_HDR_OPT_TCP_SYN)))
		return -1;
	return wire;
}

#endif

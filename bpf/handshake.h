/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The handshake of every wire format: what a SYN offers, what a SYN-ACK
 * answers, and how a socket begins, or falls back, when the handshake is over.
 */
#ifndef XCP_BPF_HANDSHAKE_H
#define XCP_BPF_HANDSHAKE_H

#include "formats.h"
#include "maps_host.h"
#include "policy.h"
#include "route.h"
#include "sock_ops.h"
#include "ttl.h"

#define TCPOPT_MD5SIG 19
#define TCPOPT_AO 29
#define ENOENT 2

/* Is nothing to be spoken with the other end? */
static __noinline bool is_silent(struct bpf_sock_ops *skops)
{
	struct xcp_heard_key names = flow_key(skops);

	if (is_elsewhere(skops))
		return true;
	return wire_of(names.netns, &names.remote) == XCP_WIRE_SILENT;
}

/* A socket with xcp connects: the peer's wire format is offered. */
static __noinline void offer(struct bpf_sock_ops *skops)
{
	struct xcp_heard_key names = flow_key(skops);
	enum xcp_fallback reason;
	struct xcp_socket *s;
	int wire;

	wire = wire_of(names.netns, &names.remote);
	forget(skops); /* of an earlier connection */
	if (is_signed(skops)) {
		reason = XCP_FALLBACK_SIGNED;
	} else if (wire == XCP_WIRE_SILENT) {
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

static __always_inline bool is_kind(enum xcp_kind kind)
{
	return kind != XCP_NONE && kind != XCP_MALFORMED;
}

/*
 * What the first window tells: a socket that was given xcp while it connected
 * has its congestion control look only at the first ACK.
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

/* Both ends speak: the socket gets its record and its callbacks. */
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
	s->speaks = 1;
	s->ttl = initial_ttl(kernel_sock(skops));
	s->xcp_hops = XCP_HOPS_UNKNOWN;
	s->receiver.xcp_hops = XCP_HOPS_UNKNOWN;
	begin_sender(skops, s);
	set_callbacks(skops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
				     format_callbacks(s->wire));
	COUNT(sockets, 1);
	return s;
}

/* The last packet of the handshake carries the probe, or its answer. */
static __noinline bool begin_2005(struct bpf_sock_ops *skops)
{
	int wish = fmt_2005_load(skops, XCP_2005_FORWARD_KIND, 0);
	int answer = fmt_2005_load(skops, XCP_2005_RETURN_KIND, 0);
	struct xcp_socket *s;

	if (wish < 0 && answer < 0)
		return false;
	s = begin(skops, XCP_WIRE_OPTION_2005);
	if (!s)
		return true;
	s->other_hops = 1; /* for all we know: nothing tells of them */
	if (wish > 0) {
		xcp_receiver_add_2005(&s->receiver, (__u16)wish, 1);
		COUNT(sums_2005.received, xcp_2005_value((__u16)wish));
	}
	/* the probe came back as it was: no router took it out */
	s->xcp_hops = answer > 0 ? 0 : 1;
	judge_path(skops, s);
	return true;
}

/* Was the handshake's packet before this one, or this one, with a header? */
static __noinline bool begin_header(struct bpf_sock_ops *skops, bool passive)
{
	struct xcp_heard_key names = flow_key(skops);
	struct xcp_heard *h = bpf_map_lookup_elem(&heard, &names);
	struct xcp_heard known;

	if (!h)
		return false;
	known = *h;
	bpf_map_delete_elem(&heard, &names);
	if (passive && !known.acked)
		return false;
	begin(skops, (enum xcp_wire)known.wire);
	return true;
}

/* The other end's last packet of the handshake has the option. */
static __always_inline void begin_option(struct bpf_sock_ops *skops,
					 const __u8 *option, enum xcp_kind kind)
{
	struct xcp_socket *s = begin(skops, XCP_WIRE_OPTION);

	if (s && feature_enabled(XCP_CURE_TOTALS))
		s->receiver.totals =
			kind == XCP_HANDSHAKE
				? fmt_option_has_totals(skops, 0)
				: fmt_option_tells_total(option, kind);
}

/*
 * Has the listener forgotten the SYN, which it was to keep (keep_syns)? Then
 * its answer was a SYN cookie, and the kernel has no listener to show us at
 * that moment.
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

/* Why a connection that uses xcp does not speak it after its handshake. */
static __always_inline enum xcp_fallback
handshake_failure(struct bpf_sock_ops *skops, bool passive)
{
	if (is_signed(skops))
		return XCP_FALLBACK_SIGNED;
	if (speaks_mptcp(skops))
		return XCP_FALLBACK_NO_ROOM;
	if (passive && had_cookie(skops))
		return XCP_FALLBACK_SYN_COOKIE;
	return XCP_FALLBACK_PEER;
}

static __always_inline void established(struct bpf_sock_ops *skops,
					bool passive)
{
	__u8 option[OPTION_MAX];
	enum xcp_kind kind;

	if (!uses_xcp(skops)) {
		forget(skops);
		return;
	}
	if (!is_silent(skops) && !is_signed(skops)) {
		kind = fmt_option_load(skops, option, 0);
		if (is_kind(kind) && !speaks_mptcp(skops)) {
			begin_option(skops, option, kind);
			return;
		}
		if (begin_2005(skops) || begin_header(skops, passive))
			return;
	}
	forget(skops);
	leave(skops, handshake_failure(skops, passive));
}

/* The option format of a SYN or SYN-ACK at hand, -1 for none. */
static __always_inline int handshake_of(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);
	struct xcp_socket *s;
	int wire;

	if (!(skops->skb_tcp_flags & TCP_FLAG_ACK)) {
		s = socket_of(skops, 0);
		return s && format_is_option(s->wire) ? s->wire : -1;
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

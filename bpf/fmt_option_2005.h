/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The wire format `option-2005` on a host. It has no field that counts the
 * routers on the path. Instead, a request without an RTT is a probe: an XCP
 * router sets it to 0, and the peer's answer returns the result.
 *
 *   handshake   SYN and SYN-ACK carry the probe, SYN-ACK and the ACK after it
 *               its answer
 *   later       if all requests are granted in GRANTED_ROUNDS_MAX rounds in a
 *               row, the path has no router any more: a router may do that in
 *               one round
 *   fallback    every packet is a probe; ZEROES_MAX answers of 0 in a row mean
 *               that the path has a router
 */
#ifndef XCP_BPF_FMT_OPTION_2005_H
#define XCP_BPF_FMT_OPTION_2005_H

#include "host.h"
#include "policy.h"
#include "sock_ops.h"

#define GRANTED_ROUNDS_MAX 6
#define ZEROES_MAX 16
/* 31/32 of a round's requests count as all, because rounds are not exact */
#define GRANTED_PARTS 31

static __always_inline struct xcp_2005
fmt_2005_forward(struct xcp_socket *s, __u32 size_B, __u32 n, bool whole)
{
	struct xcp_2005 h = {};

	if (!is_controlled(s) || !s->sender.rtt) {
		h.feedback = XCP_2005_PROBE;
		return h;
	}
	h = xcp_2005_request(&s->sender, size_B, &s->remainder_2005, whole);
	s->requested += xcp_2005_value(h.feedback) * n;
	return h;
}

/* Processes the feedback of n wire packets. */
static __always_inline void fmt_2005_feedback(struct xcp_socket *s,
					      __u16 feedback, __u32 n)
{
	__s64 value = xcp_2005_value(feedback) * n;

	if (s->fell_back) {
		if (value)
			s->zero_answers = 0;
		else if (s->zero_answers < ZEROES_MAX)
			s->zero_answers++;
		if (s->zero_answers == ZEROES_MAX)
			s->xcp_hops = 1;
		return;
	}
	s->feedback += value;
	s->received_feedback += value;
	COUNT(sums_2005.feedback, value);
}

/* Ends a round trip: were all its requests granted? */
static __always_inline void fmt_2005_round_end(struct xcp_socket *s)
{
	if (s->requested_before > XCP_2005_PACKET &&
	    s->received_feedback >= s->requested_before / 32 * GRANTED_PARTS)
		s->granted_rounds++;
	else
		s->granted_rounds = 0;
	s->requested_before = s->requested;
	s->requested = 0;
	s->received_feedback = 0;
	if (s->granted_rounds >= GRANTED_ROUNDS_MAX) {
		s->granted_rounds = 0;
		s->zero_answers = 0;
		s->xcp_hops = 0;
	}
}

static __always_inline __u16 fmt_2005_return(struct xcp_socket *s, __u32 n)
{
	__u16 feedback = xcp_receiver_take_2005(&s->receiver, n);

	COUNT(sums_2005.returned, xcp_2005_value(feedback) * n);
	COUNT(return_sent, n);
	return feedback;
}

/* The length of the options of this kind, one or two of them. */
static __always_inline __u32 fmt_2005_len(enum xcp_kind kind)
{
	switch (kind) {
	case XCP_RETURN:
		return XCP_2005_RETURN_LEN;
	case XCP_FORWARD:
		return XCP_2005_FORWARD_LEN;
	default:
		return XCP_2005_BOTH_LEN;
	}
}

/* H_feedback of an option of this kind, -1 if the packet has none. */
static __always_inline int fmt_2005_load(struct bpf_sock_ops *skops, __u8 kind,
					 __u64 flags)
{
	__u8 option[XCP_2005_FORWARD_LEN] = {};
	int length = kind == XCP_2005_FORWARD_KIND ? XCP_2005_FORWARD_LEN
						   : XCP_2005_RETURN_LEN;

	option[0] = kind;
	if (bpf_load_hdr_opt(skops, option, sizeof(option), flags) != length)
		return -1;
	return xcp_get16(option + XCP_2005_FEEDBACK);
}

static __always_inline bool fmt_2005_is_offered(struct bpf_sock_ops *skops)
{
	return fmt_2005_load(skops, XCP_2005_FORWARD_KIND,
			     BPF_LOAD_HDR_OPT_TCP_SYN) >= 0;
}

static __always_inline void fmt_2005_write_handshake(struct bpf_sock_ops *skops)
{
	struct xcp_2005 probe = {XCP_2005_PROBE, 0, 0};
	__u8 option[XCP_2005_FORWARD_LEN] = {};
	int request;

	xcp_2005_build_forward(option, &probe);
	bpf_store_hdr_opt(skops, option, XCP_2005_FORWARD_LEN, 0);
	if (!(skops->skb_tcp_flags & TCP_FLAG_ACK))
		return;
	request = fmt_2005_load(skops, XCP_2005_FORWARD_KIND,
				BPF_LOAD_HDR_OPT_TCP_SYN);
	xcp_2005_build_return(option, request > 0 ? (__u16)request : 0);
	bpf_store_hdr_opt(skops, option, XCP_2005_RETURN_LEN, 0);
}

static __always_inline void
fmt_2005_reserve_handshake(struct bpf_sock_ops *skops)
{
	bool ack = skops->skb_tcp_flags & TCP_FLAG_ACK;

	bpf_reserve_hdr_opt(skops, fmt_2005_len(ack ? XCP_BOTH : XCP_FORWARD),
			    0);
}

/* Writes the forward option, the return option or both. */
static __always_inline void fmt_2005_write(struct bpf_sock_ops *skops,
					   struct xcp_socket *s, __u32 n)
{
	__u8 option[XCP_2005_FORWARD_LEN] = {};
	struct xcp_2005 h;
	__u32 size_B;

	size_B = n > 1 ? s->sender.wire_B
		       : skops->skb_len + (skops->family == AF_INET ? IPV4_LEN
								    : IPV6_LEN);
	if (s->header_kind != XCP_RETURN) {
		h = fmt_2005_forward(s, size_B, n, config.whole_feedback);
		xcp_2005_build_forward(option, &h);
		bpf_store_hdr_opt(skops, option, XCP_2005_FORWARD_LEN, 0);
	}
	if (s->header_kind != XCP_FORWARD) {
		xcp_2005_build_return(option, fmt_2005_return(s, n));
		bpf_store_hdr_opt(skops, option, XCP_2005_RETURN_LEN, 0);
	}
}

static __noinline void fmt_2005_parse(struct bpf_sock_ops *skops,
				      struct xcp_socket *s, __u32 n)
{
	int request = fmt_2005_load(skops, XCP_2005_FORWARD_KIND, 0);
	int answer = fmt_2005_load(skops, XCP_2005_RETURN_KIND, 0);

	if (request >= 0) {
		xcp_receiver_add_2005(&s->receiver, (__u16)request, n);
		COUNT(sums_2005.received, xcp_2005_value((__u16)request) * n);
		COUNT(forward_received, n);
	}
	if (answer >= 0) {
		s->silent_acks = 0;
		fmt_2005_feedback(s, (__u16)answer, n);
		COUNT(return_received, n);
		judge_path(skops, s);
	}
}

/* The probe, or its answer, in the last packet of a handshake; -1: none. */
struct fmt_2005_agreed {
	int request;
	int answer;
};

static __always_inline bool fmt_2005_agreed(struct bpf_sock_ops *skops,
					    struct fmt_2005_agreed *a)
{
	a->request = fmt_2005_load(skops, XCP_2005_FORWARD_KIND, 0);
	a->answer = fmt_2005_load(skops, XCP_2005_RETURN_KIND, 0);
	return a->request >= 0 || a->answer >= 0;
}

static __always_inline void fmt_2005_begin(struct bpf_sock_ops *skops,
					   struct xcp_socket *s,
					   const struct fmt_2005_agreed *a)
{
	s->other_hops = 1; /* the format does not count them: assume one */
	if (a->request > 0) {
		xcp_receiver_add_2005(&s->receiver, (__u16)a->request, 1);
		COUNT(sums_2005.received, xcp_2005_value((__u16)a->request));
	}
	/* the probe came back unchanged: no router has set it to 0 */
	s->xcp_hops = a->answer > 0 ? 0 : 1;
	judge_path(skops, s);
}

#endif

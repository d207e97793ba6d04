/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* The wire format `option` on a host: core/xcp_option.h. */
#ifndef XCP_BPF_FMT_OPTION_H
#define XCP_BPF_FMT_OPTION_H

#include "host.h"
#include "policy.h"
#include "sock_ops.h"
#include "ttl.h"

/* the option space of a TCP header */
#define OPTION_MAX 40

/* The length of an option of this kind. */
static __always_inline __u32 fmt_option_len(enum xcp_kind kind)
{
	switch (kind) {
	case XCP_RETURN:
		return XCP_OPT_RETURN_LEN;
	case XCP_FORWARD:
		return XCP_OPT_FORWARD_LEN;
	default:
		return XCP_OPT_BOTH_LEN;
	}
}

/* Loads the XCP option of the current packet; XCP_NONE if it has none. */
static __always_inline enum xcp_kind fmt_option_load(struct bpf_sock_ops *skops,
						     __u8 option[OPTION_MAX],
						     __u64 flags)
{
	int length;

	__builtin_memset(option, 0, OPTION_MAX);
	option[0] = XCP_OPT_KIND;
	option[1] = XCP_OPT_HANDSHAKE_LEN;
	option[2] = XCP_OPT_ID >> 8;
	option[3] = XCP_OPT_ID & 0xff;
	length = bpf_load_hdr_opt(skops, option, OPTION_MAX, flags);
	if (length < 0)
		return XCP_NONE;
	return xcp_option_kind((__u32)length, option[XCP_OPT_FLAGS]);
}

/* Does the current packet announce that its sender supports totals? */
static __always_inline bool fmt_option_has_totals(struct bpf_sock_ops *skops,
						  __u64 flags)
{
	__u8 option[XCP_OPT_HANDSHAKE_LEN];

	xcp_build_totals(option);
	return bpf_load_hdr_opt(skops, option, sizeof(option), flags) ==
	       XCP_OPT_HANDSHAKE_LEN;
}

/* Does an option return a running total? */
static __always_inline bool fmt_option_tells_total(const __u8 *option,
						   enum xcp_kind kind)
{
	return (kind == XCP_RETURN || kind == XCP_BOTH) &&
	       xcp_parse_return(option, kind).version == XCP_RETURN_TOTAL;
}

/* Should the current SYN or SYN-ACK announce support for totals? */
static __always_inline bool fmt_option_offers_totals(struct bpf_sock_ops *skops)
{
	return feature_enabled(XCP_FEATURE_TOTALS) &&
	       (!(skops->skb_tcp_flags & TCP_FLAG_ACK) ||
		fmt_option_has_totals(skops, BPF_LOAD_HDR_OPT_TCP_SYN));
}

static __always_inline bool fmt_option_is_offered(struct bpf_sock_ops *skops)
{
	__u8 option[OPTION_MAX];

	return fmt_option_load(skops, option, BPF_LOAD_HDR_OPT_TCP_SYN) ==
	       XCP_HANDSHAKE;
}

/* The option of a handshake's last packet. */
struct fmt_option_agreed {
	__u8 option[OPTION_MAX];
	enum xcp_kind kind;
};

static __always_inline bool fmt_option_agreed(struct bpf_sock_ops *skops,
					      struct fmt_option_agreed *a)
{
	a->kind = fmt_option_load(skops, a->option, 0);
	return a->kind != XCP_NONE && a->kind != XCP_MALFORMED &&
	       !negotiated_mptcp(skops);
}

static __always_inline void fmt_option_begin(struct bpf_sock_ops *skops,
					     struct xcp_socket *s,
					     const struct fmt_option_agreed *a)
{
	if (!feature_enabled(XCP_FEATURE_TOTALS))
		return;
	s->receiver.totals =
		a->kind == XCP_HANDSHAKE
			? fmt_option_has_totals(skops, 0)
			: fmt_option_tells_total(a->option, a->kind);
}

static __always_inline void
fmt_option_write_handshake(struct bpf_sock_ops *skops)
{
	__u8 option[XCP_OPT_HANDSHAKE_LEN];

	xcp_build_handshake(option);
	bpf_store_hdr_opt(skops, option, XCP_OPT_HANDSHAKE_LEN, 0);
	if (fmt_option_offers_totals(skops)) {
		xcp_build_totals(option);
		bpf_store_hdr_opt(skops, option, XCP_OPT_HANDSHAKE_LEN, 0);
	}
}

static __always_inline void
fmt_option_reserve_handshake(struct bpf_sock_ops *skops)
{
	bpf_reserve_hdr_opt(skops, XCP_OPT_HANDSHAKE_LEN, 0);
	if (fmt_option_offers_totals(skops))
		bpf_reserve_hdr_opt(skops, XCP_OPT_HANDSHAKE_LEN, 0);
}

static __always_inline __u32 fmt_option_build(struct xcp_socket *s,
					      __u8 *option, __u32 n)
{
	struct xcp_forward f = {};
	struct xcp_return r = {};

	if (s->header_kind != XCP_RETURN)
		f = forward_of(s);
	if (s->header_kind != XCP_FORWARD)
		r = return_of(s, n);
	switch (s->header_kind) {
	case XCP_RETURN:
		xcp_build_return(option, &r);
		return XCP_OPT_RETURN_LEN;
	case XCP_FORWARD:
		xcp_build_forward(option, &f);
		return XCP_OPT_FORWARD_LEN;
	case XCP_BOTH:
		xcp_build_both(option, &f, &r);
		return XCP_OPT_BOTH_LEN;
	}
	return 0;
}

static __always_inline void fmt_option_write(struct bpf_sock_ops *skops,
					     struct xcp_socket *s, __u32 n)
{
	__u8 option[OPTION_MAX] = {};
	__u32 length = fmt_option_build(s, option, n);

	if (length)
		bpf_store_hdr_opt(skops, option, length, 0);
}

/* Processes a received option that stands for n wire packets. */
static __always_inline void fmt_option_parse(struct bpf_sock_ops *skops,
					     struct xcp_socket *s,
					     const struct sk_buff *skb, __u32 n)
{
	__u8 option[OPTION_MAX], ttl;
	struct xcp_forward f;
	struct xcp_return r;
	enum xcp_kind kind;
	__s64 feedback;

	kind = fmt_option_load(skops, option, 0);
	if (kind == XCP_NONE || kind == XCP_HANDSHAKE)
		return;
	if (kind == XCP_MALFORMED) {
		COUNT(malformed, 1);
		return;
	}
	if (kind != XCP_RETURN) {
		f = xcp_parse_forward(option);
		xcp_receiver_add(&s->receiver, f.delta, n);
		ttl = received_ttl(skb);
		s->receiver.xcp_hops = f.xcp_hops;
		s->receiver.other_hops = xcp_other_hops(f.xcp_ttl, ttl);
		COUNT(sums.received, (__s64)f.delta * n);
		COUNT(forward_received, n);
	}
	if (kind != XCP_FORWARD) {
		r = xcp_parse_return(option, kind);
		if (r.version == XCP_RETURN_TOTAL) {
			feedback = xcp_total_change(&s->total_seen, r.feedback);
			s->receiver.totals =
				feature_enabled(XCP_FEATURE_TOTALS);
		} else if (r.version == XCP_RETURN_CHANGE) {
			feedback = (__s64)r.feedback * n;
		} else {
			COUNT(malformed, 1);
			return;
		}
		s->feedback += feedback;
		s->silent_acks = 0;
		s->answered = 1;
		COUNT(sums.feedback, feedback);
		COUNT(return_received, n);
		s->xcp_hops = r.xcp_hops;
		s->other_hops = r.other_hops;
		judge_path(skops, s);
	}
}

#endif

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The sockets of a cgroup (sock_ops): the handshake of every wire format, and
 * the options of `option` and `option-2005`. Headers are inserted and removed
 * by device.bpf.c; this program only reserves room for them.
 *
 * 1. Handshake. A socket whose congestion control is `xcp` offers, on its SYN,
 *    the format that is configured for its peer. A listener with `xcp` answers
 *    in the same format. The client starts XCP on the SYN-ACK, the server on
 *    the first packet after it. If a middlebox removes the option from one of
 *    these, both are ordinary TCP sockets with the default congestion control.
 * 2. Data segments carry the forward header, and the return header too if
 *    feedback is pending; pure ACKs carry the return header. Space for both
 *    is reserved when TCP computes its segment size.
 * 3. Received deltas are added to the receiver's sum. Received feedback is
 *    stored for the congestion control, which runs later on the same ACK. One
 *    header stands for all wire packets that receive offload merged
 *    (segments.h). Segmentation offload copies a return header to n packets,
 *    so each copy carries 1/n of the feedback.
 * 4. On a path without an XCP router, a connection falls back to the default.
 *    Once per RTT it still sends a header without a request; the first router
 *    that appears brings `xcp` back.
 * 5. Signed connections (TCP-MD5, TCP-AO) never carry an option: the kernel
 *    computes the signature before this program writes. They use the default
 *    from the SYN on. Where other options (MPTCP, AccECN) leave no room on data
 *    segments, the connection falls back.
 */
#include "app_limit.h"
#include "formats.h"
#include "handshake.h"
#include "maps_host.h"
#include "policy.h"
#include "route.h"
#include "segments.h"
#include "sock_ops.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

XCP_DATA(xcp_host_config, config);
XCP_MAP(sockets);
XCP_MAP(counters);
XCP_MAP(fallback_reasons);
XCP_MAP(peers);
XCP_MAP(handshake_cache);
XCP_MAP(chosen);
XCP_MAP(callbacks);

/* timeouts of one segment after which the connection sends no headers */
#define SILENT_TIMEOUTS 2

/* The number of wire packets in a packet that TCP is about to send. */
static __always_inline __u32 segments_to_send(const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	__u16 segs = 0;

	bpf_core_read(&segs, sizeof(segs), &cb->tcp_gso_segs);
	return segs ? segs : 1;
}

/* Does TCP send SACK blocks? They take a header's room only for a while. */
static __always_inline bool sends_sacks(struct bpf_sock_ops *skops)
{
	struct tcp_sock *tp = (void *)kernel_sock(skops);

	return BPF_CORE_READ(tp, rx_opt.num_sacks);
}

/* Reserves room for the options of this packet. */
static __always_inline void reserve(struct bpf_sock_ops *skops)
{
	__u32 flags = skops->skb_tcp_flags, forward, back;
	struct xcp_socket *s;
	bool tells, owes;

	if (skops->args[0] != BPF_WRITE_HDR_TCP_CURRENT_MSS &&
	    flags & TCP_FLAG_SYN) {
		format_reserve_handshake(skops, handshake_of(skops));
		return;
	}
	s = socket_of(skops, 0);
	if (!s)
		return;
	s->header_kind = XCP_NONE;
	if (skops->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS) {
		if (s->uses_xcp)
			format_reserve_most(skops, s->wire);
		return;
	}
	if (is_header(s->wire))
		return;
	forward = format_len(s->wire, XCP_FORWARD);
	back = format_len(s->wire, XCP_RETURN);
	tells = format_always_asks(s->wire) || !skops->skb_len ||
		(!has_no_room(s) &&
		 needs_forward_header(s, skops->srtt_us >> 3));
	owes = xcp_receiver_has_feedback(&s->receiver) ||
	       (s->receiver.totals && !s->answered);
	if (!skops->skb_len || (!tells && owes)) {
		/* not even called if no byte is left: see sack.h */
		if (!bpf_reserve_hdr_opt(skops, back, 0))
			s->header_kind = XCP_RETURN;
		else
			COUNT(return_no_room, 1);
	} else if (!tells) {
		return;
	} else if (owes && !bpf_reserve_hdr_opt(
				   skops, format_len(s->wire, XCP_BOTH), 0)) {
		s->header_kind = XCP_BOTH;
		s->crowded = 0;
	} else if (!bpf_reserve_hdr_opt(skops, forward, 0)) {
		s->header_kind = XCP_FORWARD;
		s->crowded = 0;
	} else if (!has_no_room(s) && !sends_sacks(skops)) {
		s->crowded++; /* cc.bpf.c falls back with the next ACK */
	}
}

static __noinline void write(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);
	struct xcp_socket *s;
	__u32 n;

	if (skops->skb_tcp_flags & TCP_FLAG_SYN) {
		format_write_handshake(skops, handshake_of(skops));
		return;
	}
	s = socket_of(skops, 0);
	if (!s || s->header_kind == XCP_NONE)
		return;
	n = segments_to_send(kern->skb);
	if (sk && s->header_kind != XCP_RETURN)
		ask(sk, s);
	format_write(skops, s, n);
	if (s->header_kind != XCP_RETURN)
		COUNT(forward_sent, n);
}

static __noinline void parse(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);
	struct xcp_socket *s;

	s = socket_of(skops, 0);
	if (s)
		format_parse(skops, s, kern->skb, segments_of(kern->skb));
}

SEC("sockops")
int xcp_option(struct bpf_sock_ops *skops)
{
	struct xcp_socket *s;

	switch (skops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (!is_elsewhere(skops) &&
		    (choose(skops, config.make_default) ||
		     route_gives_xcp(kernel_sock(skops))))
			offer(skops);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		if (is_elsewhere(skops))
			break;
		if (choose(skops, config.make_default))
			keep_syns(skops);
		set_callbacks(skops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		established(skops, false);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		established(skops, true);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		/* perhaps the peer does not accept headers any more */
		s = socket_of(skops, 0);
		if (s && is_header(s->wire) &&
		    skops->args[0] >= SILENT_TIMEOUTS) {
			/* xcp_release needs the record: delete it later */
			if (uses_xcp(skops))
				leave(skops, XCP_FALLBACK_SILENT);
			forget(skops);
		}
		break;
	case BPF_SOCK_OPS_RTT_CB:
		/* tc programs cannot set the congestion control */
		s = socket_of(skops, 0);
		if (s)
			judge_path(skops, s);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		reserve(skops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write(skops);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		parse(skops);
		break;
	}
	return 1;
}

/* `xcp run`: sockets of a cgroup below the one of `xcp host on` use xcp. */
SEC("sockops")
int xcp_choose(struct bpf_sock_ops *skops)
{
	if (skops->op == BPF_SOCK_OPS_TCP_CONNECT_CB ||
	    skops->op == BPF_SOCK_OPS_TCP_LISTEN_CB)
		choose(skops, true);
	return 1;
}

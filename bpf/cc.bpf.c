// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The congestion control `xcp` (struct_ops): the sender side.
 *
 * It does not probe for bandwidth. On each ACK it
 *
 *   1. takes an RTT sample from the most recently sent packet that has been
 *      acknowledged. RTT is half the sample and half the RTT before; base RTT
 *      is the smallest sample since the path last became longer
 *   2. changes the window by the feedback that option.bpf.c or device.bpf.c
 *      has stored with the socket
 *   3. sets TCP's pacing rate to the window / the mean of base RTT and RTT.
 *      snd_cwnd is only an upper limit: the window in whole packets and a few
 *      more, so that rounding and delayed ACKs do not reduce the paced rate
 *
 *   feedback      cwnd += fb base RTT        core/xcp_sender.h
 *                 cwnd += packets            in the format `option-2005`
 *   timeout       cwnd = 1 packet
 *   fast recovery cwnd unchanged on an all-XCP path; else 0.7 cwnd, as CUBIC
 *   losses, marks evaluated once per RTT: core/xcp_loss.h
 *   unused window shrinks to what is used; after an idle period it is halved
 *                 once per timeout in that period
 *
 * A connection that does not use XCP falls back to the system's default at
 * once, so that no flow is without congestion control.
 */
#include "fallback.h"
#include "app_limit.h"
#include "formats.h"
#include "known_rtt.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

XCP_DATA(xcp_host_config, config);
XCP_MAP(sockets);
XCP_MAP(counters);
XCP_MAP(fallback_reasons);

/* added to the window for rounding and delayed ACKs */
#define HEADROOM_PACKETS 2
/*
 * 50 KB, which most web objects fit into. Of 10, 20 and 35 packets, only 35
 * load a page in half the time of CUBIC (gateway-web).
 */
#define KNOWN_RTT_PACKETS 35
/* a new connection may be granted four times its window in an RTT */
#define SEND_BUFFER_WINDOWS 8
#define TCP_CA_RECOVERY 3
#define CA_EVENT_TX_START 0
/* ACKs in a row without feedback after which the socket falls back */
#define SILENT_ACKS_MAX 100

static __always_inline struct xcp_socket *xcp_socket_of(struct sock *sk)
{
	struct xcp_socket *s = bpf_sk_storage_get(&sockets, sk, NULL, 0);

	return s && s->uses_xcp ? s : NULL;
}

static __always_inline struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/*
 * Reads from TCP the segment size, and the RTT of the most recently sent packet
 * that has been acknowledged.
 */
static __always_inline void observe(struct sock *sk, struct xcp_socket *s)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u32 sample_us = tp->rack.rtt_us;
	__u32 ip_len = sk->__sk_common.skc_family == AF_INET6 ? 40 : 20;
	bool alone = !tp->packets_out && tp->delivered - s->sender.arrived == 1;
	bool first = !s->sender.rtt_base;
	__u64 sample;

	s->sender.wire_B = payload_of(tp, s) + format_len(s->wire, XCP_BOTH) +
			   tp->tcp_header_len + ip_len;
	s->sender.arrived = tp->delivered;
	if (!sample_us)
		sample_us = tp->srtt_us >> 3;
	if (!sample_us) {
		s->sender.rtt = known_rtt(sk);
		return;
	}
	sample = xcp_ns_to_ticks((__u64)sample_us * 1000);
	xcp_sender_rtt(&s->sender, sample, alone);
	xcp_loss_on_rtt(&s->loss, sample);
	if (first)
		learn_rtt(sk, s->sender.rtt);
}

static __always_inline __u32 in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out +
	       tp->retrans_out;
}

/*
 * Sets TCP's window and pacing rate. The first retransmission is sent at once,
 * even if the reduced window has no room for it: else the timeout would expire
 * first.
 */
static __always_inline void apply(struct sock *sk, struct xcp_socket *s)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u64 packets, rate;

	xcp_sender_update(&s->sender);
	packets = xcp_sender_packets(&s->sender) + HEADROOM_PACKETS;
	if (s->retransmit_pending)
		packets = xcp_max(packets, in_flight(tp) + 1);
	tp->snd_cwnd = (__u32)xcp_min(packets, tp->snd_cwnd_clamp);
	/* TCP's timer sends nothing before the handshake is complete */
	if (!s->sender.rtt_base)
		return;
	/* TCP paces payload; the window counts whole packets */
	rate = s->sender.pacing_Bps * payload_of(tp, s) / s->sender.wire_B;
	if (rate > PACED_MAX_BPS || xcp_loss_is_tcp(&s->loss))
		rate = ~0UL;
	sk->sk_pacing_rate = xcp_min(xcp_max(rate, 1), sk->sk_max_pacing_rate);
}

/*
 * The first window, in packets: TCP's; larger if the RTT is known without a
 * sample, as routers know from it how fast the flow is.
 */
static __always_inline __u32 first_window(const struct tcp_sock *tp,
					  const struct xcp_sender *sender)
{
	bool known = sender->rtt && !sender->rtt_base;

	/* after a lost SYN, TCP's window is one packet */
	if (!known || tp->snd_cwnd < XCP_INITIAL_PACKETS)
		return tp->snd_cwnd;
	return KNOWN_RTT_PACKETS;
}

static __always_inline void start(struct sock *sk, struct xcp_socket *s)
{
	struct tcp_sock *tp = tcp_sk(sk);
	/* before its first ACK, a new socket has tcp_mstamp from its listener
	 */
	__u64 now_us =
		s->sender.rtt_base ? tp->tcp_mstamp : bpf_ktime_get_ns() / 1000;

	if (sk->sk_pacing_status == SK_PACING_NONE) {
		sk->sk_pacing_status = SK_PACING_NEEDED;
		s->paced = 1;
	}
	xcp_sender_reset(&s->sender, first_window(tp, &s->sender));
	__builtin_memset(&s->loss, 0, sizeof(s->loss));
	s->round_start_us = now_us;
	s->round_delivered = tp->delivered;
	s->round_lost = tp->lost;
	s->delivered_ce = tp->delivered_ce;
	s->acked_us = now_us;
	s->silent_acks = 0;
	/* what arrived before is not about this window */
	__sync_lock_test_and_set(&s->feedback, 0);
	s->released = 0;
	s->started = 1;
	limit(tcp_sk(sk), s);
	apply(sk, s);
}

/*
 * A socket that gets xcp while it connects, as with `xcp run`, is checked after
 * the handshake and starts with its first ACK.
 */
SEC("struct_ops")
void BPF_PROG(xcp_init, struct sock *sk)
{
	struct xcp_socket *s = xcp_socket_of(sk);

	if (s) {
		observe(sk, s);
		start(sk, s);
	} else if (sk->__sk_common.skc_state != TCP_SYN_SENT) {
		fall_back(sk, sk, sk, XCP_FALLBACK_PEER);
	}
}

/*
 * The socket is closed, or another congestion control takes over. That one must
 * not double, in slow start, a window that routers have granted.
 */
SEC("struct_ops")
void BPF_PROG(xcp_release, struct sock *sk)
{
	struct xcp_socket *s = bpf_sk_storage_get(&sockets, sk, NULL, 0);

	if (!s)
		return;
	s->released = 1;
	if (sk->__sk_common.skc_state == BPF_TCP_CLOSE)
		COUNT_SUM(s, unreturned, s->receiver.pending);
	if (s->paced) {
		/* SO_MAX_PACING_RATE needs TCP's pacing where fq is missing */
		if (sk->sk_max_pacing_rate == ~0UL)
			sk->sk_pacing_status = SK_PACING_NONE;
		sk->sk_pacing_rate = sk->sk_max_pacing_rate;
		s->paced = 0;
	}
	if (s->window_granted)
		tcp_sk(sk)->snd_ssthresh = tcp_sk(sk)->snd_cwnd;
	s->window_granted = 0;
}

SEC("struct_ops")
__u32 BPF_PROG(xcp_ssthresh, struct sock *sk)
{
	return tcp_sk(sk)->snd_cwnd;
}

SEC("struct_ops")
__u32 BPF_PROG(xcp_undo_cwnd, struct sock *sk)
{
	return tcp_sk(sk)->snd_cwnd;
}

/*
 * The size of an automatic send buffer, in windows. The sender makes no request
 * for data that does not fit into the buffer.
 */
SEC("struct_ops")
__u32 BPF_PROG(xcp_sndbuf_expand, struct sock *sk)
{
	return SEND_BUFFER_WINDOWS;
}

SEC("struct_ops")
void BPF_PROG(xcp_set_state, struct sock *sk, __u8 new_state)
{
	struct xcp_socket *s = xcp_socket_of(sk);

	if (!s)
		return;
	if (new_state == TCP_CA_LOSS) {
		xcp_loss_on_timeout(&s->loss, &s->sender);
		/* TCP counts all packets in flight as lost */
		s->round_lost = tcp_sk(sk)->lost;
	} else if (new_state == TCP_CA_RECOVERY) {
		xcp_loss_on_recovery(&s->loss, &s->sender, s->other_hops);
		s->retransmit_pending = 1;
	} else {
		return;
	}
	apply(sk, s);
}

/* A global function: the verifier checks it once, not for each path here. */
__noinline int judge_losses(struct xcp_loss *l, struct xcp_sender *sender,
			    __u64 elapsed_us, __u32 lost, __u32 arrived)
{
	if (l && sender)
		xcp_loss_on_round(l, sender, elapsed_us, lost, arrived);
	return 0;
}

/*
 * Once per RTT: reduces a window that the application does not use, evaluates
 * losses, and checks for routers in the format `option-2005`.
 */
static __always_inline void round_end(struct sock *sk, struct xcp_socket *s)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u64 elapsed_us = tp->tcp_mstamp - s->round_start_us;
	__u64 rtt_us = xcp_max(tp->srtt_us >> 3, RTT_MIN_US), used_B;

	if (elapsed_us < rtt_us || !tp->srtt_us)
		return;
	used_B = (__u64)(tp->delivered - s->round_delivered) *
		 s->sender.wire_B * rtt_us / elapsed_us;
	xcp_sender_age(&s->sender, used_B, s->starved);
	s->starved = 0;
	if (feature_enabled(XCP_FEATURE_LOSSES))
		judge_losses(&s->loss, &s->sender, elapsed_us,
			     tp->lost - s->round_lost,
			     tp->delivered - s->round_delivered);
	else if (!xcp_loss_trusts(&s->loss)) /* disabled */
		__builtin_memset(&s->loss, 0, sizeof(s->loss));
	s->round_start_us = tp->tcp_mstamp;
	s->round_delivered = tp->delivered;
	s->round_lost = tp->lost;
	format_round_end(s);
}

/* Falls back until an XCP router appears on the path. */
static __always_inline void give_up(struct sock *sk, struct xcp_socket *s,
				    enum xcp_fallback reason)
{
	s->fell_back = 1;
	fall_back(sk, sk, sk, reason);
}

SEC("struct_ops")
void BPF_PROG(xcp_cong_control, struct sock *sk)
{
	struct xcp_socket *s = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	__s64 feedback;
	__u64 before_B;

	if (!s || !s->uses_xcp) {
		/* without XCP headers, xcp cannot control the connection */
		if (sk->__sk_common.skc_state != TCP_SYN_SENT)
			fall_back(sk, sk, sk,
				  s ? XCP_FALLBACK_STOPPED : XCP_FALLBACK_PEER);
		return;
	}
	if (has_no_room(s)) {
		give_up(sk, s, XCP_FALLBACK_NO_ROOM);
		return;
	}
	/* ACKs full of SACK blocks have no room for feedback */
	if (!tcp_sk(sk)->sacked_out && ++s->silent_acks > SILENT_ACKS_MAX) {
		give_up(sk, s, XCP_FALLBACK_SILENT);
		return;
	}
	observe(sk, s);
	if (!s->started)
		start(sk, s);
	s->starved |= !limit(tcp_sk(sk), s);
	s->acked_us = tcp_sk(sk)->tcp_mstamp;
	/* arriving headers add to it without the socket's lock */
	feedback = __sync_lock_test_and_set(&s->feedback, 0);
	if (!s->xcp_hops) {
		give_up(sk, s, XCP_FALLBACK_NO_ROUTER);
		return;
	}
	before_B = s->sender.cwnd_B;
	if (feedback)
		format_feedback(s, feedback);
	if (feature_enabled(XCP_FEATURE_LOSSES)) {
		xcp_loss_on_feedback(&s->loss, &s->sender, before_B);
		if (s->delivered_ce != tcp_sk(sk)->delivered_ce)
			xcp_loss_on_mark(&s->loss, &s->sender);
	}
	s->delivered_ce = tcp_sk(sk)->delivered_ce;
	COUNT_SUM(s, applied, feedback);
	round_end(sk, s);
	apply(sk, s);
	s->retransmit_pending = 0;
	s->window_granted |= feedback != 0;
}

/* Restarts after an idle period: only the packet just sent is in flight. */
static __always_inline void restart(struct sock *sk)
{
	struct xcp_socket *s = xcp_socket_of(sk);

	if (!s || !s->started)
		return;
	if (feature_enabled(XCP_FEATURE_IDLE))
		xcp_sender_restart(&s->sender,
				   tcp_sk(sk)->tcp_mstamp - s->acked_us);
	limit(tcp_sk(sk), s);
	apply(sk, s);
}

SEC("struct_ops")
void BPF_PROG(xcp_cwnd_event, struct sock *sk, __u32 event)
{
	if (event == CA_EVENT_TX_START)
		restart(sk);
}

/* The same event in newer kernels (from 7.1 on). */
SEC("struct_ops")
void BPF_PROG(xcp_tx_start, struct sock *sk)
{
	restart(sk);
}

/* crates/xcp-datapath/src/host/mod.rs removes it if the kernel lacks it. */
_Static_assert(__builtin_offsetof(struct tcp_congestion_ops,
				  cwnd_event_tx_start) == 64,
	       "TX_START_AT");

SEC(".struct_ops.link")
struct tcp_congestion_ops xcp = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)xcp_init,
	.release = (void *)xcp_release,
	.ssthresh = (void *)xcp_ssthresh,
	.set_state = (void *)xcp_set_state,
	.undo_cwnd = (void *)xcp_undo_cwnd,
	.sndbuf_expand = (void *)xcp_sndbuf_expand,
	.cong_control = (void *)xcp_cong_control,
	.cwnd_event = (void *)xcp_cwnd_event,
	.cwnd_event_tx_start = (void *)xcp_tx_start,
	.name = "xcp",
};

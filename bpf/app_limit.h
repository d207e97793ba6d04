/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * A sender requests no more than its application has given TCP to send. This
 * limit is updated on each ACK. For a new connection that is too late: it would
 * request nothing until its first ACK, and a file of three windows would take
 * an RTT longer. So a new connection also updates the limit with each packet.
 * After an idle period it does not: many senders that wake up at once would be
 * granted the same spare capacity (idle-restart: 159 packets waiting, else 9).
 */
#ifndef XCP_BPF_APP_LIMIT_H
#define XCP_BPF_APP_LIMIT_H

#include "formats.h"
#include "host.h"

/*
 * Above this rate (25 Gb/s) TCP does not pace: the largest GSO packet, 64 KB,
 * is sent in 20 us, and timers are no finer. They would only cost time and move
 * packets between CPUs.
 */
#define PACED_MAX_BPS 3125000000ULL

/* XCP_RTT_MIN in microseconds */
#define RTT_MIN_US (1000000ULL * XCP_RTT_MIN >> XCP_TICK_SHIFT)

/* Payload bytes of a full segment: the MSS less the room for XCP's header. */
static __always_inline __u32 payload_of(const struct tcp_sock *tp,
					const struct xcp_socket *s)
{
	__u32 mss = tp->mss_cache, room = format_len(s->wire, XCP_BOTH);

	return mss > 2 * room ? mss - room : room;
}

/* True if the application has closed the connection: no more data follows. */
static __always_inline bool is_closed(const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	unsigned char state = sk->__sk_common.skc_state;

	return state == TCP_FIN_WAIT1 || state == TCP_LAST_ACK ||
	       state == TCP_CLOSING;
}

/* larger than any window; its product with a packet's size fits in 64 bits */
#define PACED_LIMIT_NONE_B (1ULL << 46)

/* Bytes of payload that SO_MAX_PACING_RATE allows in an RTT. */
static __always_inline __u64 paced_limit(const struct tcp_sock *tp,
					 const struct xcp_sender *sender)
{
	__u64 rate_Bps = tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate;

	if (rate_Bps > PACED_MAX_BPS || !sender->rtt)
		return PACED_LIMIT_NONE_B;
	return rate_Bps * (xcp_ticks_to_ns(sender->rtt) / 1000) / 1000000;
}

/* Converts bytes in flight to bytes per RTT: a shorter RTT counts as 3.9 ms. */
static __always_inline __u64 in_rtt(const struct tcp_sock *tp, __u64 bytes)
{
	__u64 srtt_us = tp->srtt_us >> 3;

	if (tp->srtt_us && srtt_us < RTT_MIN_US)
		return bytes * RTT_MIN_US / xcp_max(srtt_us, 1);
	return bytes;
}

/*
 * Sets the limit, which is what can be sent in an RTT: the receive window, at
 * most what SO_MAX_PACING_RATE allows, and at most cwnd or what the application
 * has given, whichever is more. Returns false if it has given less to send.
 */
static __always_inline bool limit(const struct tcp_sock *tp,
				  struct xcp_socket *s)
{
	struct xcp_sender *sender = &s->sender;
	__u64 given = in_rtt(tp, tp->write_seq - tp->snd_una);
	__u64 window = in_rtt(tp, tp->snd_wnd);
	__u64 cwnd_B = sender->cwnd_B, payload, most_B, left;

	sender->ends = 0;
	if (!feature_enabled(XCP_FEATURE_APP_LIMIT)) {
		sender->limit_B = xcp_loss_limit(&s->loss, XCP_CWND_MAX_B);
		return true;
	}
	payload = payload_of(tp, s);
	given = given * sender->wire_B / payload;
	most_B = xcp_min(window * sender->wire_B / payload,
			 xcp_max(given, cwnd_B));
	most_B = xcp_min(most_B,
			 paced_limit(tp, sender) * sender->wire_B / payload);
	sender->limit_B = xcp_loss_limit(&s->loss, most_B);
	if (is_closed(tp)) {
		left = tp->write_seq - tp->snd_nxt;
		sender->ends = left * sender->wire_B / payload < cwnd_B;
	}
	return given >= xcp_min(cwnd_B, most_B);
}

/* Updates the request of a new connection that is about to send data. */
static __always_inline void ask(struct bpf_sock *sk, struct xcp_socket *s)
{
	struct tcp_sock *tp;

	if (s->sender.arrived >= XCP_START_PACKETS || s->sender.request_Bps ||
	    s->fell_back || !feature_enabled(XCP_FEATURE_APP_LIMIT))
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	limit(tp, s);
	xcp_sender_update(&s->sender);
}

#endif

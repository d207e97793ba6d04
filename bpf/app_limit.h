/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * What a sender asks for follows what its application has given. That is looked
 * at with each ACK; a connection that starts would ask for nothing until its
 * first ACK, and a file of three windows takes an RTT longer. So then it looks
 * again with each packet. Not after a pause: many that wake up at once would be
 * granted the same spare capacity (idle-restart: 159 packets waiting, else 9).
 */
#ifndef XCP_BPF_APP_LIMIT_H
#define XCP_BPF_APP_LIMIT_H

#include "formats.h"
#include "host.h"

/*
 * Above this (25 Gb/s) TCP does not pace: the largest GSO packet, 64 KB, is
 * sent in 20 us, and timers are no finer; they only cost time and move packets
 * between processors.
 */
#define PACED_MAX_BPS 3125000000ULL

/* XCP_RTT_MIN */
#define RTT_MIN_US (1000000ULL * XCP_RTT_MIN >> XCP_TICK_SHIFT)

/* Bytes of a full segment without headers: our own room is taken. */
static __always_inline __u32 payload_of(const struct tcp_sock *tp,
					const struct xcp_socket *s)
{
	__u32 mss = tp->mss_cache, room = format_len(s->wire, XCP_BOTH);

	return mss > 2 * room ? mss - room : room;
}

/* Does nothing follow what TCP has been given? */
static __always_inline bool is_closed(const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	unsigned char state = sk->__sk_common.skc_state;

	return state == TCP_FIN_WAIT1 || state == TCP_LAST_ACK ||
	       state == TCP_CLOSING;
}

/* more than any window, and small enough to be multiplied by a packet's size */
#define PACED_LIMIT_NONE_B (1ULL << 46)

/* Bytes of payload that SO_MAX_PACING_RATE lets pass in an RTT. */
static __always_inline __u64 paced_limit(const struct tcp_sock *tp,
					 const struct xcp_sender *sender)
{
	__u64 rate_Bps = tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate;

	if (rate_Bps > PACED_MAX_BPS || !sender->rtt)
		return PACED_LIMIT_NONE_B;
	return rate_Bps * (xcp_ticks_to_ns(sender->rtt) / 1000) / 1000000;
}

/* Bytes in flight at a time, as bytes in an RTT: a shorter one counts as 3.9
 * ms. */
static __always_inline __u64 in_rtt(const struct tcp_sock *tp, __u64 bytes)
{
	__u64 srtt_us = tp->srtt_us >> 3;

	if (tp->srtt_us && srtt_us < RTT_MIN_US)
		return bytes * RTT_MIN_US / xcp_max(srtt_us, 1);
	return bytes;
}

/*
 * What can be sent in an RTT: the receive window, no more than the application
 * lets TCP pace, and of that no more beyond cwnd than what it has given. False
 * if it has given less.
 */
static __always_inline bool limit(const struct tcp_sock *tp,
				  struct xcp_socket *s)
{
	struct xcp_sender *sender = &s->sender;
	__u64 given = in_rtt(tp, tp->write_seq - tp->snd_una);
	__u64 window = in_rtt(tp, tp->snd_wnd);
	__u64 cwnd_B = sender->cwnd_B, payload, most_B, left;

	sender->ends = 0;
	if (!feature_enabled(XCP_FEATURE_USE)) {
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

/* A data segment of this socket is about to be sent. */
static __always_inline void ask(struct bpf_sock *sk, struct xcp_socket *s)
{
	struct tcp_sock *tp;

	if (s->sender.arrived >= XCP_START_PACKETS || s->sender.request_Bps ||
	    s->fell_back || !feature_enabled(XCP_FEATURE_USE))
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	limit(tp, s);
	xcp_sender_update(&s->sender);
}

#endif

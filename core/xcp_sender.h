/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The sender: a window in bytes with a fraction, and the delta to request.
 *
 *   throughput = window / RTT,  window = min(cwnd, limit)
 *   X          = RTT wire / window           time between two packets
 *   header     X and max(RTT, X)
 *   request    = (limit - window) / RTT * min(X / RTT, 1); when the flow ends
 *                -window / RTT * min(X / RTT, 1)
 *   feedback:    cwnd = max(cwnd + feedback base, least)
 *   least      = wire min(RTT / 125 ms, 1)
 *   pacing     = 2 cwnd / (base + RTT), twice that at first
 *   aging:       used = max(used of this RTT, 3/4 used)
 *                cwnd = min(cwnd, max(used, 10 packets, limit)), without
 *                `limit` after an RTT in which the application at times did
 *                not provide enough data
 *   restart:     cwnd = max(cwnd / 2^(idle / timeout), 10 packets)
 *
 * The RTT estimate follows the path quickly: half of it is the last sample.
 * With an estimate as slow as TCP's, headers would describe windows of the past
 * to a link that slows down. Feedback arrives later by the queueing delay, but
 * the change that it makes to the window must not grow with the queue. So
 * feedback is multiplied by the base RTT, the least RTT since the path became
 * longer (core/xcp_loss.h), plus 1/4096 of it per round.
 *
 * A stalled link makes the RTT many times as long, and the first ACK after that
 * is from a path that is short again: a sample below half of the RTT replaces
 * the RTT. Pacing delays no packet for more than 125 ms: its rate is from an
 * RTT that may be outdated, and TCP does not change its pacing timer once it is
 * set.
 *
 * Pacing takes only half of the queueing delay into account. A rate of cwnd /
 * RTT would oscillate, for it falls if the queue was long an RTT ago, and rises
 * when that queue is gone (seen: from 9 to 11 Mb/s, and 200 packets waiting, on
 * a half-duplex link of 10 Mb/s). If pacing is too fast, the sender waits for
 * ACKs. Until 200 packets have arrived, a window is sent in half an RTT, as in
 * TCP's slow start: the requests of its last packets reach routers half an RTT
 * earlier, and a short file arrives that much earlier.
 *
 * Short paths. One packet in 50 us is 240 Mb/s, and a control interval that
 * short has so few packets that it measures their jitter. So an RTT below 3.9
 * ms counts as 3.9 ms, and a window may be a fraction of a packet, which only
 * pacing can enforce: at least one packet is sent in 125 ms. Routers assume
 * that X is not above the RTT, so such a sender writes X for both. One packet
 * may then return the feedback of several intervals: it at most halves or
 * doubles a window below one packet. A receiver may delay the ACK of the only
 * packet in flight: with such a window, that sample does not raise the RTT.
 *
 * `limit` is what can be sent in one RTT: the peer's receive window, but no
 * more beyond cwnd than the data that the application has given to TCP. Routers
 * see unused window as spare capacity and hand it out again, also to this
 * sender. Its window would grow without end, and might then be sent in one
 * burst (Mosebekk 2005, 4.1 and 4.5; Zhang & Henderson 2005, IV-A). So an
 * unused window ages: it drops at once to the used part, not gradually as in
 * Mosebekk's formula 9.
 *
 * The last window of a flow gives its rate back: each packet requests a
 * decrease by its own part of the rate. So others have that rate when the flow
 * ends, and not an RTT later.
 *
 * Bytes are those of whole packets: `wire` is the size of a full one, its IP
 * and TCP headers included, as routers see it. So the feedback, which a router
 * gives in bytes per second of its link, is neither inflated nor lost on small
 * segments.
 *
 * X on the wire is a whole number of ticks, 32 of them at 100 Gb/s. The
 * remainder of RTT wire / window is carried from packet to packet, so that the
 * sum of X over a window is exact.
 */
#ifndef XCP_SENDER_H
#define XCP_SENDER_H

#include "xcp_fixed.h"

struct xcp_sender {
	uint64_t cwnd_B;
	uint32_t cwnd_frac; /* 2^-28 B */
	uint32_t wire_B; /* size of a full packet, with IP and TCP headers */
	uint64_t limit_B; /* in wire bytes */
	uint64_t used_B; /* used in a recent RTT */
	uint64_t rtt; /* ticks, XCP_RTT_MIN or more, 0 = unknown */
	uint64_t rtt_base; /* base RTT, ticks; 0: no sample yet */
	/* derived by xcp_sender_update */
	uint64_t window_B;
	uint64_t x; /* ticks */
	uint64_t x_rem; /* added per packet, in 1/window_B tick */
	uint64_t x_acc; /* sum of x_rem, below window_B */
	uint64_t pacing_Bps; /* wire bytes */
	int32_t request_Bps;
	uint32_t arrived; /* packets that have arrived since start */
	uint32_t ends; /* last data: less than a window remains */
};

#define XCP_CWND_FRAC_BITS XCP_TICK_SHIFT
#define XCP_CWND_MAX_B (1ULL << 46)
/* Linux's minimum of the timeout, in addition to the RTT */
#define XCP_TIMEOUT_NS 200000000
/* ticks: 3.9 ms, in which a link of 20 Mb/s sends 6 packets (small-rtt) */
#define XCP_RTT_MIN (XCP_TICKS_PER_SEC >> 8)
/* one packet in 125 ms, as ticks: routers need at least this rate */
#define XCP_X_MAX_SHIFT (XCP_TICK_SHIFT - 3)
/* as bytes per second: one packet in 125 ms */
#define XCP_PACED_MIN_SHIFT 3
/* part of the base RTT that a round adds: paths become longer */
#define XCP_RTT_BASE_PARTS 4096
/* the initial window (RFC 6928) */
#define XCP_INITIAL_PACKETS 10
/* windows sent in RTT / 2 have up to half of these; half of that may queue */
#define XCP_START_PACKETS 200
/* part of used_B forgotten per RTT: pauses between bursts are short */
#define XCP_USED_DECAY_DIVISOR 4

/* The least window: one packet, or one packet per 125 ms if that is less. */
XCP_INLINE uint64_t xcp_sender_least(const struct xcp_sender *s)
{
	uint64_t in_x_max_B = (s->rtt * s->wire_B) >> XCP_X_MAX_SHIFT;

	if (!s->rtt)
		return s->wire_B;
	return xcp_max(xcp_min(in_x_max_B, s->wire_B), 1);
}

/* Cuts the window to `to_B`, at least one packet; never raises it. */
XCP_INLINE uint64_t xcp_sender_cut(const struct xcp_sender *s, uint64_t to_B)
{
	return xcp_min(xcp_max(to_B, s->wire_B), s->cwnd_B);
}

/* Adds a sample of the RTT; `alone`: from the only packet in flight. */
XCP_INLINE void xcp_sender_rtt(struct xcp_sender *s, uint64_t sample,
			       bool alone)
{
	sample = xcp_max(sample, XCP_RTT_MIN);
	if (alone && s->rtt && s->cwnd_B < s->wire_B)
		sample = xcp_min(sample, s->rtt);
	s->rtt = s->rtt >= 2 * sample || !s->rtt_base
			 ? sample
			 : (s->rtt + sample + 1) / 2;
	s->rtt_base = s->rtt_base ? xcp_min(s->rtt_base, sample) : sample;
}

/* Updates X, the request and the pacing rate after any input has changed. */
XCP_INLINE void xcp_sender_update(struct xcp_sender *s)
{
	uint64_t waited = xcp_excess(s->rtt, s->rtt_base), product, spare_B;
	uint64_t least_B = xcp_sender_least(s);
	struct xcp_num rtt = xcp_num_of(s->rtt), spare, paced;

	s->cwnd_B = xcp_max(s->cwnd_B, least_B);
	s->window_B = xcp_max(xcp_min(s->cwnd_B, s->limit_B), least_B);
	if (!s->rtt) {
		s->x = 0;
		s->x_rem = 0;
		s->request_Bps = 0;
		s->pacing_Bps = 0;
		return;
	}
	product = s->rtt * s->wire_B;
	s->x = product / s->window_B;
	s->x_rem = product - s->x * s->window_B;
	s->x_acc = xcp_min(s->x_acc, s->window_B - 1);
	paced = xcp_num_of((s->rtt - waited / 2) >>
			   (s->arrived < XCP_START_PACKETS));
	s->pacing_Bps = xcp_num_fixed(
		xcp_num_div(xcp_num_scaled(s->cwnd_B, XCP_TICK_SHIFT), paced),
		0, XCP_CWND_MAX_B);
	s->pacing_Bps = xcp_max(s->pacing_Bps,
				(uint64_t)s->wire_B << XCP_PACED_MIN_SHIFT);
	spare_B = s->ends ? s->window_B : xcp_excess(s->limit_B, s->window_B);
	s->request_Bps = 0;
	if (!spare_B)
		return;
	spare = xcp_num_div(xcp_num_scaled(spare_B, XCP_TICK_SHIFT), rtt);
	s->request_Bps = (int32_t)xcp_signed(
		xcp_num_fixed(
			xcp_num_div(
				xcp_num_mul(spare, xcp_num_of(s->wire_B)),
				xcp_num_of(xcp_max(s->window_B, s->wire_B))),
			0, INT32_MAX),
		s->ends);
}

/* X for the next packet, at least one tick once the RTT is known. */
XCP_INLINE uint64_t xcp_sender_next_x(struct xcp_sender *s)
{
	uint64_t x = s->x;

	s->x_acc += s->x_rem;
	if (s->x_acc >= s->window_B) {
		s->x_acc -= s->window_B;
		x++;
	}
	return s->rtt && !x ? 1 : x;
}

/* The RTT for the header: at least X. */
XCP_INLINE uint64_t xcp_sender_header_rtt(const struct xcp_sender *s)
{
	return xcp_max(s->rtt, s->rtt ? s->x + 1 : 0);
}

/* Moves the window by bytes and a fraction (2^-28 B), up or down. */
XCP_INLINE void xcp_sender_move(struct xcp_sender *s, bool down, uint64_t bytes,
				uint64_t frac)
{
	uint64_t cwnd_B = s->cwnd_B, least_B = xcp_sender_least(s);

	if (cwnd_B < s->wire_B)
		bytes = xcp_min(bytes, down ? cwnd_B / 2 : cwnd_B);
	if (!down) {
		frac += s->cwnd_frac;
		cwnd_B = xcp_min(cwnd_B + bytes + (frac >> XCP_CWND_FRAC_BITS),
				 XCP_CWND_MAX_B);
		frac &= (1U << XCP_CWND_FRAC_BITS) - 1;
	} else {
		if (frac > s->cwnd_frac)
			bytes++;
		frac = (s->cwnd_frac - frac) & ((1U << XCP_CWND_FRAC_BITS) - 1);
		cwnd_B = xcp_excess(cwnd_B, bytes);
	}
	if (cwnd_B < least_B) {
		cwnd_B = least_B;
		frac = 0;
	}
	s->cwnd_B = cwnd_B;
	s->cwnd_frac = (uint32_t)frac;
}

/* Applies feedback: changes the throughput by fb_Bps. */
XCP_INLINE void xcp_sender_feedback(struct xcp_sender *s, int64_t fb_Bps)
{
	uint64_t size = xcp_abs(fb_Bps), high, low;

	/* size * rtt, 28 bits of fraction: below 2^28 * 2^34 each */
	size = xcp_min(size, (1ULL << 44) - 1);
	high = (size >> 16) * s->rtt_base;
	low = (size & 0xffff) * s->rtt_base + ((high & 0xfff) << 16);
	xcp_sender_move(s, fb_Bps < 0,
			(high >> 12) + (low >> XCP_CWND_FRAC_BITS),
			low & ((1U << XCP_CWND_FRAC_BITS) - 1));
}

/* Sets the window, at the start or after a timeout. */
XCP_INLINE void xcp_sender_reset(struct xcp_sender *s, uint64_t packets)
{
	s->cwnd_B = packets * s->wire_B;
	s->cwnd_frac = 0;
}

/*
 * Ends an RTT in which `used_B` arrived; `starved`: at times the application
 * provided less data than the window allowed.
 */
XCP_INLINE void xcp_sender_age(struct xcp_sender *s, uint64_t used_B,
			       bool starved)
{
	uint64_t most_B = (uint64_t)XCP_INITIAL_PACKETS * s->wire_B;

	s->rtt_base += s->rtt_base / XCP_RTT_BASE_PARTS;
	s->used_B -= s->used_B / XCP_USED_DECAY_DIVISOR;
	s->used_B = xcp_max(s->used_B, xcp_min(used_B, XCP_CWND_MAX_B));
	most_B = xcp_max(most_B, s->used_B);
	if (!starved)
		most_B = xcp_max(most_B, s->limit_B);
	s->cwnd_B = xcp_min(s->cwnd_B, most_B);
}

/*
 * The application sends again after a pause with nothing in flight. Other flows
 * may use this flow's rate by now. So the window is halved once per timeout of
 * the pause, down to that of a new connection, as Linux does for other
 * congestion controls (RFC 2861).
 */
XCP_INLINE void xcp_sender_restart(struct xcp_sender *s, uint64_t idle_us)
{
	uint64_t idle = xcp_ns_to_ticks(xcp_min(idle_us, XCP_NS_MAX) * 1000);
	uint64_t timeout = s->rtt + xcp_ns_to_ticks(XCP_TIMEOUT_NS);
	uint64_t least_B = (uint64_t)XCP_INITIAL_PACKETS * s->wire_B;

	s->cwnd_B = xcp_max(s->cwnd_B >> xcp_min(idle / timeout, 63),
			    xcp_min(s->cwnd_B, least_B));
}

/* The window in whole packets, rounded up, for a stack that counts packets. */
XCP_INLINE uint64_t xcp_sender_packets(const struct xcp_sender *s)
{
	return (s->cwnd_B + s->wire_B - 1) / xcp_max(s->wire_B, 1);
}

#endif

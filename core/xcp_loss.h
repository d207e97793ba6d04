/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Losses at the sender: which losses are congestion, and how to answer them.
 *
 * XCP's routers answer congestion by feedback. If every hop is an XCP router, a
 * loss is corruption, or a drop by the router itself, and needs no second
 * answer. But a bottleneck may be hidden: a switch, a bridge, a tunnel, a
 * router that was configured too high, a receiver that returns ungranted
 * feedback. Three observations tell such a bottleneck from corruption:
 *
 *   lossy rounds in a row   a round is one RTT. A single lossy round is only
 *                           repaired
 *   waited > explained      waited = least RTT of the round - base, if that is
 *                           more than base / 4 and 1 ms. The base is the least
 *                           RTT ever seen, plus 1/4096 of it per round, as
 *                           paths change
 *                           A queue that XCP's routers see makes them take
 *                           back F = -beta Q / d. So what feedback has taken
 *                           off this window in the round explains a wait of
 *                             explained = 2 RTT / beta * taken / cwnd
 *                           (twice, for feedback is a round trip late)
 *   lost > 6 + sent / 16    counted over the lossy rounds in a row; sent / 32
 *                           if the RTT is raised. Corruption of 0.025 does not
 *                           do this by chance; a sender that ignores
 *                           congestion loses more
 *
 * So a trusted path is congested after two lossy rounds in a row with so many
 * losses, unless the RTT is raised and that is explained. On probation one
 * lossy round is enough, with sent / 50; and a distrusted path is cut at each
 * recovery.
 *
 *             congested              2 rounds
 *   TRUSTED ------------> ANSWERED ------------> DISTRUSTED
 *      ^                   ^    ^                 |      |
 *      |         congested |    +-- any recovery -+      | `wait`
 *      | `wait` rounds     |        or congestion        | clean rounds
 *      +-------------- PROBATION <-----------------------+
 *
 * If a trusted path has an unexplained wait in two rounds in a row, the path
 * counts as longer: the least RTT of the round becomes the sender's base RTT.
 * Otherwise feedback would move a window of the old path, until the old base is
 * forgotten.
 *
 * A mark (ECN) is congestion at once, in every state: XCP routers do not mark,
 * and corruption does not either.
 *
 * The answer is CUBIC's (RFC 9438), cwnd = 0.7 cwnd, of a window that is at
 * most twice what arrived in the round. Then the window grows by at most
 *   DISTRUSTED  what CUBIC's would be by then (core/xcp_cubic.h), by half of
 *               itself in a round; or to twice itself, below 0.7 of what it
 *               was at a timeout
 *   PROBATION   cwnd / 8 a round: a hidden bottleneck is found with few drops,
 *               and a trusted rate is back after a dozen rounds
 *
 *   limit = min(limit, the window allowed at the end of the round)
 *   feedback:  cwnd = min(cwnd + feedback base, max(cwnd, limit))
 *
 * The sender requests only up to `limit`. So in every state, feedback lowers
 * the window as usual and raises it to no more than what was requested.
 *
 * A round is clean if it has neither congestion nor an RTT that is raised and
 * not explained. `wait` doubles each time that probation ends in congestion,
 * and the window goes back to its size at the start of probation, so that even
 * probing takes nothing from other flows in the long run.
 */
#ifndef XCP_LOSS_H
#define XCP_LOSS_H

#include "xcp_cubic.h"
#include "xcp_sender.h"

enum xcp_loss_state {
	XCP_LOSS_TRUSTED, /* feedback alone moves the window */
	XCP_LOSS_ANSWERED, /* cut; losses found now are from before the cut */
	XCP_LOSS_DISTRUSTED, /* any loss cuts the window, growth is CUBIC's */
	XCP_LOSS_PROBATION, /* as trusted, but slow growth, cut easily */
};

struct xcp_loss {
	struct xcp_cubic cubic;
	uint64_t ceiling_B; /* bound of cwnd in this round, unless trusted */
	uint64_t threshold_B; /* below it the window may double; in probation,
				 the window at its start */
	uint64_t rtt; /* least RTT of this round, ticks; 0 = none yet */
	uint64_t base; /* base RTT, ticks; 0 = unknown */
	uint64_t taken_B; /* decreases by feedback in this round */
	uint64_t given_B; /* increases by feedback in this round */
	uint32_t run_lost; /* packets lost in the lossy rounds in a row */
	uint32_t run_sent; /* packets sent in these rounds */
	uint16_t run; /* number of lossy rounds in a row */
	uint16_t clean; /* clean rounds in a row, while not trusted */
	uint16_t wait; /* clean rounds until probation, and then until trust */
	uint8_t answered; /* rounds since the cut */
	uint8_t lifted; /* rounds in a row with an unexplained wait */
	uint8_t state; /* enum xcp_loss_state */
};

/* lossy rounds in a row on a congested trusted path; one proves nothing */
#define XCP_LOSS_RUN 2
/* 1/4 of the base RTT, and 1 ms, the precision of hosts and timers */
#define XCP_LOSS_LIFT_PARTS 4
#define XCP_LOSS_LIFT_NS 1000000
/* 1/4096 per round: a path that is 1/4 longer is known after 900 rounds */
#define XCP_LOSS_BASE_PARTS 4096
/* 2 / beta of the published law = 8.85; the default beta of 0.4 takes more */
#define XCP_LOSS_EXPLAINED 9
/*
 * A trusted path may lose 2.5 % to corruption and keeps its rate (zh-loss). The
 * limit is lower if the RTT is raised, and on probation, where it is BBR's 2 %.
 * The last constant allows for chance with few packets.
 */
#define XCP_LOSS_TRUSTED_PARTS 16
#define XCP_LOSS_WAITED_PARTS 32
#define XCP_LOSS_PARTS 50
#define XCP_LOSS_CHANCE 6
/*
 * Losses from before a cut are known an RTT after it and later, because TCP
 * waits for reordered packets.
 */
#define XCP_LOSS_ANSWER_ROUNDS 2
/*
 * A window is at most this many times what arrives in a round. An excessive
 * grant shrinks at once, and not by 0.7 every second round (seen: 16 MB granted
 * on a path of 125 KB, 39,279 packets lost).
 */
#define XCP_LOSS_ARRIVED 2
/* rounds; the maximum is about a minute at an RTT of 50 ms */
#define XCP_LOSS_WAIT_FIRST 16
#define XCP_LOSS_WAIT_MAX 1024
/* part of the window that probation adds in a round */
#define XCP_LOSS_PROBE_PARTS 8

XCP_INLINE bool xcp_loss_trusts(const struct xcp_loss *l)
{
	return l->state == XCP_LOSS_TRUSTED;
}

/*
 * Whether the window follows TCP's rules. Then it is not paced: an unpaced flow
 * at a full queue loses the extra packet that an ACK releases as the window
 * grows. A flow with evenly spaced packets never loses that packet
 * (seen: 2 losses, while a CUBIC flow had 22).
 */
XCP_INLINE bool xcp_loss_is_tcp(const struct xcp_loss *l)
{
	return l->state == XCP_LOSS_ANSWERED || l->state == XCP_LOSS_DISTRUSTED;
}

XCP_INLINE void xcp_loss_enter(struct xcp_loss *l, enum xcp_loss_state state)
{
	l->state = (uint8_t)state;
	l->answered = 0;
	l->run = 0;
	l->run_lost = 0;
	l->run_sent = 0;
}

/* Whether the window doubles per round, after a timeout. */
XCP_INLINE bool xcp_loss_restarts(const struct xcp_loss *l,
				  const struct xcp_sender *s)
{
	return l->state == XCP_LOSS_DISTRUSTED && s->cwnd_B < l->threshold_B;
}

/* Sets the bound of the window for the round that begins. */
XCP_INLINE void xcp_loss_allow(struct xcp_loss *l, const struct xcp_sender *s)
{
	uint64_t cwnd_B = s->cwnd_B, wire_B = xcp_max(s->wire_B, 1), most_B;

	l->ceiling_B = cwnd_B;
	if (l->state == XCP_LOSS_PROBATION) {
		l->ceiling_B += xcp_max(cwnd_B / XCP_LOSS_PROBE_PARTS, wire_B);
	} else if (xcp_loss_restarts(l, s)) {
		l->ceiling_B += xcp_min(cwnd_B, l->threshold_B - cwnd_B);
	} else if (l->state == XCP_LOSS_DISTRUSTED) {
		most_B = xcp_cubic_window(&l->cubic, wire_B,
					  xcp_ticks_to_ns(s->rtt) / 1000);
		l->ceiling_B =
			xcp_max(cwnd_B, xcp_min(most_B, cwnd_B + cwnd_B / 2));
	}
}

/* Sets how long distrust will last. */
XCP_INLINE void xcp_loss_distrust(struct xcp_loss *l)
{
	if (l->state == XCP_LOSS_TRUSTED) {
		l->wait = XCP_LOSS_WAIT_FIRST;
		l->cubic.max_B = 0;
	} else if (l->state == XCP_LOSS_PROBATION) {
		l->wait = (uint16_t)xcp_min(2U * l->wait, XCP_LOSS_WAIT_MAX);
	}
}

/* Cuts the window as CUBIC does. */
XCP_INLINE void xcp_loss_answer(struct xcp_loss *l, struct xcp_sender *s)
{
	if (l->state == XCP_LOSS_PROBATION)
		s->cwnd_B = xcp_min(s->cwnd_B, l->threshold_B);
	xcp_loss_distrust(l);
	s->cwnd_B = xcp_sender_cut(s, xcp_cubic_cut(&l->cubic, s->cwnd_B));
	l->threshold_B = 0;
	xcp_loss_enter(l, XCP_LOSS_ANSWERED);
	l->ceiling_B = s->cwnd_B;
}

/* The upper bound of requests. */
XCP_INLINE uint64_t xcp_loss_limit(const struct xcp_loss *l, uint64_t limit_B)
{
	return xcp_loss_trusts(l) ? limit_B : xcp_min(limit_B, l->ceiling_B);
}

/* Adds a sample of the RTT, ticks. */
XCP_INLINE void xcp_loss_on_rtt(struct xcp_loss *l, uint64_t sample)
{
	l->rtt = l->rtt ? xcp_min(l->rtt, sample) : sample;
	l->base = l->base ? xcp_min(l->base, sample) : sample;
}

/* Called after feedback has changed a window of `before_B`. */
XCP_INLINE void xcp_loss_on_feedback(struct xcp_loss *l, struct xcp_sender *s,
				     uint64_t before_B)
{
	if (s->cwnd_B > before_B)
		s->cwnd_B = xcp_min(s->cwnd_B, xcp_max(before_B, s->limit_B));
	l->given_B += xcp_excess(s->cwnd_B, before_B);
	l->taken_B += xcp_excess(before_B, s->cwnd_B);
}

/* The round's least waiting time, if it is more than jitter; else 0. */
XCP_INLINE uint64_t xcp_loss_waited(const struct xcp_loss *l,
				    const struct xcp_sender *s)
{
	uint64_t waited = xcp_excess(l->rtt ? l->rtt : s->rtt, l->base);
	uint64_t jitter = xcp_max(l->base / XCP_LOSS_LIFT_PARTS,
				  xcp_ns_to_ticks(XCP_LOSS_LIFT_NS));

	return waited > jitter ? waited : 0;
}

/* Whether packets waited in a queue that XCP's routers do not see. */
XCP_INLINE bool xcp_loss_queued(const struct xcp_loss *l,
				const struct xcp_sender *s)
{
	uint64_t taken_B =
		xcp_min(xcp_excess(l->taken_B, l->given_B), s->cwnd_B);

	/* routers cannot take more from this window */
	if (s->cwnd_B <= s->wire_B)
		return false;
	/* both in 1/256; windows are below 2^47 B, times below 2^34 ticks */
	return (xcp_loss_waited(l, s) << 8) / xcp_max(s->rtt, 1) >
	       (taken_B << 8) * XCP_LOSS_EXPLAINED / xcp_max(s->cwnd_B, 1);
}

/* Whether the losses so far are congestion. */
XCP_INLINE bool xcp_loss_congested(const struct xcp_loss *l,
				   const struct xcp_sender *s)
{
	bool trusts = xcp_loss_trusts(l), waited = xcp_loss_waited(l, s);
	uint32_t parts = XCP_LOSS_PARTS;

	if (l->run < (trusts ? XCP_LOSS_RUN : 1) ||
	    (waited && !xcp_loss_queued(l, s)))
		return false;
	if (trusts)
		parts = waited ? XCP_LOSS_WAITED_PARTS : XCP_LOSS_TRUSTED_PARTS;
	return l->run_lost > l->run_sent / parts + XCP_LOSS_CHANCE;
}

/*
 * TCP begins to repair losses. If the RTT is raised on a path with other
 * routers (`other_hops`), one loss is enough for a cut, but not for distrust.
 * Without a queue it may be corruption: with 1 % of it, a cut at each loss
 * leaves a quarter of a link of 600 ms unused (gateway-bulk).
 */
XCP_INLINE void xcp_loss_on_recovery(struct xcp_loss *l, struct xcp_sender *s,
				     bool other_hops)
{
	if (l->state == XCP_LOSS_DISTRUSTED) {
		if (xcp_loss_queued(l, s))
			l->clean = 0;
		xcp_loss_answer(l, s);
	} else if (l->state != XCP_LOSS_ANSWERED && other_hops &&
		   xcp_loss_waited(l, s)) {
		s->cwnd_B = xcp_sender_cut(s, xcp_cubic_part(s->cwnd_B));
	}
}

/*
 * TCP received a mark (ECN). XCP's queues do not mark, so another queue is too
 * long, and the mark alone is enough.
 */
XCP_INLINE void xcp_loss_on_mark(struct xcp_loss *l, struct xcp_sender *s)
{
	l->clean = 0;
	if (l->state != XCP_LOSS_ANSWERED)
		xcp_loss_answer(l, s);
}

/*
 * A retransmission timed out. On a trusted path, feedback restores the window
 * within a few RTTs; otherwise it doubles up to the window of CUBIC.
 */
XCP_INLINE void xcp_loss_on_timeout(struct xcp_loss *l, struct xcp_sender *s)
{
	uint64_t cwnd_B = s->cwnd_B;
	bool again = xcp_loss_restarts(l, s);

	s->cwnd_B = xcp_sender_cut(s, 0);
	s->cwnd_frac = 0;
	if (xcp_loss_trusts(l) && !l->run)
		return;
	xcp_loss_distrust(l);
	xcp_loss_enter(l, XCP_LOSS_DISTRUSTED);
	l->clean = 0;
	if (!again)
		l->threshold_B = xcp_cubic_cut(&l->cubic, cwnd_B);
	l->ceiling_B = 2 * s->cwnd_B;
}

/* Adds a round to a count that saturates at 16 bits. */
XCP_INLINE uint16_t xcp_loss_next(uint16_t rounds)
{
	return (uint16_t)xcp_min(rounds + 1U, UINT16_MAX);
}

/*
 * Ends a round that lasted `elapsed_us`, with the numbers of packets that were
 * found lost and that arrived.
 */
XCP_INLINE void xcp_loss_on_round(struct xcp_loss *l, struct xcp_sender *s,
				  uint64_t elapsed_us, uint32_t lost,
				  uint32_t arrived)
{
	bool congested, queued = xcp_loss_queued(l, s);

	if (lost && l->state != XCP_LOSS_ANSWERED) {
		l->run = xcp_loss_next(l->run);
		l->run_lost += lost;
		l->run_sent += lost + arrived;
	} else {
		l->run = 0;
		l->run_lost = 0;
		l->run_sent = 0;
	}
	l->lifted = queued && xcp_loss_trusts(l)
			    ? (uint8_t)xcp_min(l->lifted + 1U, UINT8_MAX)
			    : 0;
	if (l->lifted >= XCP_LOSS_RUN)
		s->rtt_base = xcp_max(l->rtt ? l->rtt : s->rtt, XCP_RTT_MIN);
	congested = xcp_loss_congested(l, s);
	l->clean = xcp_loss_next(l->clean);
	if (congested || queued)
		l->clean = 0;
	if (!xcp_loss_restarts(l, s))
		xcp_cubic_round(&l->cubic, elapsed_us);
	l->rtt = 0;
	l->base += l->base / XCP_LOSS_BASE_PARTS;
	l->taken_B = 0;
	l->given_B = 0;
	if (congested) {
		s->cwnd_B = xcp_min(s->cwnd_B, XCP_LOSS_ARRIVED *
						       (uint64_t)arrived *
						       s->wire_B);
		xcp_loss_answer(l, s);
	} else if (l->state == XCP_LOSS_ANSWERED) {
		if (++l->answered >= XCP_LOSS_ANSWER_ROUNDS)
			xcp_loss_enter(l, XCP_LOSS_DISTRUSTED);
	} else if (!xcp_loss_trusts(l) && l->clean >= l->wait) {
		xcp_loss_enter(l, l->state == XCP_LOSS_DISTRUSTED
					  ? XCP_LOSS_PROBATION
					  : XCP_LOSS_TRUSTED);
		l->clean = 0;
		l->threshold_B = s->cwnd_B;
	}
	xcp_loss_allow(l, s);
}

#endif

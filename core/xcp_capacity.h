/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Measures what an output link can carry. A configured capacity is wrong on
 * half-duplex links, with other traffic, with framing overhead, or with a
 * slower queue downstream (Mosebekk 2005, 4.2 and 4.4; Zhang & Henderson 2005,
 * III-C, IV-B and V).
 *
 *   sent     bytes dequeued in the last control interval, of all traffic
 *   rate     sent / elapsed, the dequeue rate                    B/s
 *   L        what the link carries                               B/s
 *   P        the peak of L, which decays by 1/512 per interval   B/s
 *   M        the highest possible L, if it is known              B/s
 *   d        the control interval                                s
 *   C        the capacity handed out, min(configured, L + e)     B/s
 *   e        min(L / 64, 3 KB / d)                               B/s
 *
 * Busy: every packet of the interval found a backlog, so the link always had
 * something to send: L = rate. e keeps a short queue, so the link stays busy.
 * If the rate has risen in the interval, its average is below what the link
 * carries now, and the state becomes GROWING.
 *
 * Free: some packet found no backlog. If rate is about L, L grows. A link that
 * was only idle between two packets is busy again before the second step.
 *
 *           rate >= L - L/64           rate >= tried + 3/4 s
 *   KNOWN --------------------> TRIED ----------------------> GROWING
 *     ^                         ^   |                         |     |
 *     |                         +---|--- L reaches P, or -----+     |
 *     |                             |    rate >= L - L/64           |
 *     +------- busy, or L = M ------+-------------------------------+
 *
 *   TRIED     tried = L or P,  L = tried + s,  s = min(tried / 8, 20 KB / d)
 *   GROWING   L = 2 rate,  tried = rate, and again at rate >= 3/2 tried
 *             L >= min(n rate, P),  n = 1 + (2 seconds) / d: the link sends
 *             the excess of an RTT in two seconds
 * Intervals with less than 12 KB are merged, for up to a second. In the state
 * GROWING, as after an outage of the link, two packets are enough.
 *
 * A device that never queues is never busy; there M bounds L and rate.
 *
 * A control interval ends early if samples of at least a quarter of it prove
 * that L is wrong. If the rate has fallen, L becomes the measured rate; if it
 * has risen, the state becomes GROWING.
 * A capacity hint from a modem changes L by the factor by which the hint has
 * changed, but not past the hint: late hints, and hints that are wrong by a
 * factor, do no harm.
 */
#ifndef XCP_CAPACITY_H
#define XCP_CAPACITY_H

#include "xcp_link_sample.h"

/* s in bytes per control interval: 13 full packets */
#define XCP_CAPACITY_STEP_B 20000
/* e in bytes per RTT; 1.5 times that, 3 full packets, stay in the queue */
#define XCP_CAPACITY_OVER_B 3000
/* a return to P raises L to at most 65 times the dequeue rate */
#define XCP_CAPACITY_MOST_TIMES 64
/* the most that a return to an earlier L may queue, as time to send it */
#define XCP_CAPACITY_EXCESS_NS (2 * XCP_NSEC_PER_SEC)
#define XCP_CAPACITY_MAX_BPS (1ULL << (XCP_POOL_BITS - 2))
/* at first: 10 packets in an initial interval */
#define XCP_CAPACITY_FIRST_BPS 75000

enum xcp_link_state {
	XCP_LINK_KNOWN, /* L was measured on a busy link, or is given */
	XCP_LINK_TRIED, /* the link is free, and L was raised by s */
	XCP_LINK_GROWING, /* the link carried that, or its rate has risen */
};

struct xcp_capacity {
	struct xcp_link_mark seen; /* the last update of L */
	uint64_t min_backlog_B; /* least backlog since the last update */
	uint64_t link_Bps; /* L */
	uint64_t dequeued_Bps; /* dequeue rate of the last interval */
	uint64_t tried_Bps; /* the rate from which L was last raised */
	uint64_t step_Bps; /* s */
	uint64_t peak_Bps; /* P */
	uint32_t state; /* enum xcp_link_state */
	uint32_t unused;
};

/* Whether the samples since the last update prove that L is wrong. */
XCP_INLINE bool xcp_capacity_changed(const struct xcp_capacity *c,
				     const struct xcp_link_samples *i,
				     uint64_t d_ns)
{
	return xcp_link_fell(i, &c->seen, c->link_Bps, d_ns) ||
	       xcp_link_rose(i, &c->seen, c->link_Bps, d_ns);
}

/* Whether a link is on its way back to a rate that it carried before. */
XCP_INLINE bool xcp_capacity_returns(const struct xcp_capacity *c)
{
	return c->state == XCP_LINK_GROWING && c->link_Bps < c->peak_Bps;
}

/* Raises L by a step above `from_Bps`. */
XCP_INLINE void xcp_capacity_try(struct xcp_capacity *c, uint64_t from_Bps,
				 uint64_t d_ns)
{
	c->state = XCP_LINK_TRIED;
	c->tried_Bps = from_Bps;
	c->step_Bps =
		xcp_min(from_Bps / 8, xcp_rate(XCP_CAPACITY_STEP_B, d_ns));
	c->link_Bps = from_Bps + c->step_Bps;
}

/* Raises L of a free link: by a step, or, once a step was carried, by more. */
XCP_INLINE void xcp_capacity_raise(struct xcp_capacity *c, uint64_t peak_Bps,
				   uint64_t d_ns, bool rose)
{
	uint64_t rate_Bps = c->dequeued_Bps, before_Bps = c->link_Bps;
	uint64_t least_Bps = 0;
	uint64_t times = 1 + xcp_min(XCP_CAPACITY_EXCESS_NS / xcp_max(d_ns, 1),
				     XCP_CAPACITY_MOST_TIMES);

	XCP_OPAQUE(times);
	if (c->state == XCP_LINK_TRIED) {
		least_Bps = c->tried_Bps + c->step_Bps * 3 / 4;
		if (rate_Bps < least_Bps)
			return;
	} else if (c->state == XCP_LINK_GROWING) {
		least_Bps = c->tried_Bps + c->tried_Bps / 2;
	}
	if (c->state != XCP_LINK_KNOWN || rose) {
		if (rate_Bps >= least_Bps) {
			c->tried_Bps = rate_Bps;
			c->link_Bps = xcp_max(c->link_Bps, 2 * rate_Bps);
		}
		c->state = XCP_LINK_GROWING;
		c->link_Bps = xcp_max(c->link_Bps,
				      xcp_min(times * rate_Bps, c->peak_Bps));
	}
	if (xcp_max(rate_Bps, before_Bps) < c->peak_Bps &&
	    c->link_Bps >= c->peak_Bps)
		xcp_capacity_try(c, c->peak_Bps, d_ns);
	else if (rate_Bps >= c->link_Bps - c->link_Bps / 64)
		xcp_capacity_try(c, xcp_max(rate_Bps, c->link_Bps), d_ns);
	if (c->link_Bps >= peak_Bps) {
		c->link_Bps = peak_Bps;
		c->state = XCP_LINK_KNOWN;
	}
}

/*
 * Updates L after a control interval of a link. `configured_Bps` is its
 * configured capacity and `peak_Bps` its highest possible rate; 0: unknown.
 */
XCP_INLINE void xcp_capacity_measure(struct xcp_capacity *c,
				     const struct xcp_link_samples *i,
				     uint64_t configured_Bps, uint64_t peak_Bps,
				     uint64_t d_ns)
{
	uint64_t sent_B = i->sent_B - c->seen.sent_B, least_B = XCP_LINK_MIN_B;
	uint64_t elapsed_ns = xcp_excess(i->now_ns, c->seen.ns);
	uint64_t fell_Bps = xcp_link_fell(i, &c->seen, c->link_Bps, d_ns);
	bool rose = xcp_link_rose(i, &c->seen, c->link_Bps, d_ns);
	bool first = !c->seen.ns, busy;

	peak_Bps = xcp_min(peak_Bps ? peak_Bps : XCP_CAPACITY_MAX_BPS,
			   XCP_CAPACITY_MAX_BPS);
	if (!c->link_Bps)
		c->link_Bps = configured_Bps ? configured_Bps
					     : XCP_CAPACITY_FIRST_BPS;
	c->link_Bps = xcp_min(c->link_Bps, peak_Bps);
	c->min_backlog_B = xcp_min(c->min_backlog_B, i->min_backlog_B);
	if (c->state == XCP_LINK_GROWING)
		least_B = XCP_LINK_TWO_PACKETS_B;
	if (!first && sent_B < least_B && elapsed_ns < XCP_NSEC_PER_SEC &&
	    !fell_Bps && !rose)
		return;
	busy = c->min_backlog_B || fell_Bps;
	c->seen.ns = i->now_ns;
	c->seen.sent_B = i->sent_B;
	c->min_backlog_B = UINT64_MAX;
	if (first || !elapsed_ns)
		return;
	c->dequeued_Bps = xcp_min(xcp_rate(sent_B, elapsed_ns), peak_Bps);
	XCP_FORGET(c->dequeued_Bps);
	c->peak_Bps -= c->peak_Bps / 512;
	if (fell_Bps)
		c->dequeued_Bps = fell_Bps;
	if (!busy) {
		xcp_capacity_raise(c, peak_Bps, d_ns, rose);
		return;
	}
	c->state = rose ? XCP_LINK_GROWING : XCP_LINK_KNOWN;
	c->tried_Bps = c->dequeued_Bps;
	c->link_Bps = xcp_max(c->dequeued_Bps, 1);
	c->peak_Bps = xcp_max(c->peak_Bps, c->link_Bps);
}

/* Applies a change of the capacity hint; 0: no hint. */
XCP_INLINE void xcp_capacity_hint(struct xcp_capacity *c, uint64_t before_Bps,
				  uint64_t hint_Bps)
{
	uint64_t by_factor_Bps;

	if (!before_Bps || !hint_Bps || !c->link_Bps)
		return;
	by_factor_Bps =
		xcp_num_fixed(xcp_num_div(xcp_num_mul(xcp_num_of(c->link_Bps),
						      xcp_num_of(hint_Bps)),
					  xcp_num_of(before_Bps)),
			      0, XCP_CAPACITY_MAX_BPS);
	if (hint_Bps > before_Bps)
		c->link_Bps =
			xcp_max(c->link_Bps, xcp_min(hint_Bps, by_factor_Bps));
	else
		c->link_Bps =
			xcp_min(c->link_Bps, xcp_max(hint_Bps, by_factor_Bps));
	c->state = XCP_LINK_KNOWN;
}

/* Returns e of a link. */
XCP_INLINE uint64_t xcp_capacity_excess(const struct xcp_capacity *c,
					uint64_t d_ns)
{
	return xcp_min(c->link_Bps / 64, xcp_rate(XCP_CAPACITY_OVER_B, d_ns));
}

/* Returns C = L + e, at most the configured capacity. */
XCP_INLINE uint64_t xcp_capacity_use(const struct xcp_capacity *c,
				     uint64_t configured_Bps,
				     uint64_t excess_Bps)
{
	return xcp_min(c->link_Bps + excess_Bps,
		       configured_Bps ? configured_Bps : UINT64_MAX);
}

#endif

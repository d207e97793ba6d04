/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * What an output link can carry, measured. The router's laws believe a
 * capacity; half-duplex links, other traffic, framing and slower queues behind
 * make it wrong (Mosebekk 2005, 4.2 and 4.4; Zhang & Henderson 2005, III-C,
 * IV-B and V), and then nothing holds the queue.
 *
 *   sent     bytes that left in the last control interval, of all traffic
 *   y        input traffic that the capacity is for              B/s
 *   F        aggregate change decided for the interval           B/s
 *   L        what the link carries                               B/s
 *   d        the control interval                               s
 *   C        what is handed out, min(configured, L + e)          B/s
 *   e        min(L / 64, 3 KB / d)                               B/s
 *
 * Busy: every packet of the interval found a backlog, so the link never
 * rested, and what left is what it can carry:   L = sent / elapsed.
 * e on top keeps a short queue, 1.77 d e or 3 to 4 packets (the algebra of an
 * over-estimated capacity), and so keeps the link measurable.
 *
 * Free: some packet found no backlog. The link carries what left, perhaps
 * more. Where what left is about L, there may be more, and L grows: first by
 * s = min(L / 8, 20 KB / d); once 3/4 of s has left on top of L, to twice what
 * left; and again whenever that has grown by more than half. A link that was
 * merely between two packets is busy again before the second step. Below P, the
 * largest L of the last 10 to 20 s, it is four times what left, up to P; from
 * there on it begins anew with s.
 *
 * Fallen: in a quarter of d without a rest, and 12 KB, less than 3/4 of L left.
 * The control interval ends at once, and that is L.
 *
 * XCP moves y towards C by 0.4 of the distance in each interval. That is slow
 * for a link that has changed by a factor, so while it is L that limits C, or
 * other traffic, these intervals decide F otherwise:
 *   a step of L, or y below 3/4 of a free link
 *              F = C - y - F before         what y does not show yet
 *              (not while d is 1.5 times the least: RTTs shrink with the
 *              queue that was, and y grows by itself)
 *   the first busy interval after such a push
 *              F = -E / d,  E = (min(C then, 2 y) - C) d
 *   L has fallen
 *              F = -E / d,  E = (y - C) d - cut
 *   Q of more than C d / 5 beyond what has been cut
 *              F = -E / d,  E = Q - cut;  of the first cut, less F before, too
 *   until what was cut has been seen: d, and the time the backlog takes
 *              F = 0
 * (not where C d is less than 8 packets: y tells little there).
 * E are bytes in flight too many; they are taken from C d bytes of packets,
 * since no more than that will come.
 */
#ifndef XCP_CAPACITY_H
#define XCP_CAPACITY_H

#include "xcp_fixed.h"

/* Fewer bytes tell nothing; a second tells, however few. */
#define XCP_CAPACITY_MIN_B 12000
#define XCP_CAPACITY_STEP_B 20000
#define XCP_CAPACITY_OVER_B 3000
#define XCP_CAPACITY_MEMORY_NS (10 * XCP_NSEC_PER_SEC)
#define XCP_CAPACITY_MAX_BPS (1ULL << (XCP_POOL_BITS - 2))
/* Where nothing is known: 10 packets in an initial interval. */
#define XCP_CAPACITY_FIRST_BPS 75000

struct xcp_capacity {
	uint64_t seen_ns; /* when L was last looked at, 0: not yet */
	uint64_t seen_sent_B;
	uint64_t min_backlog_B; /* since then */
	uint64_t link_Bps; /* L */
	uint64_t left_Bps; /* in the last interval */
	uint64_t stepped_Bps; /* what left at the last step of L */
	uint64_t step_Bps; /* the first one, s */
	uint64_t most_Bps; /* P */
	uint64_t base_ns; /* the least d of that time */
	uint64_t lately_Bps; /* the same since lately_ns */
	uint64_t lately_base_ns;
	uint64_t lately_ns;
	uint64_t aim_Bps; /* C of the last push */
	uint64_t cut_B;
	uint64_t cut_seen_ns; /* when the cut will have been seen */
	uint32_t steps; /* of L since it was busy: 0, 1, 2 for more */
	uint16_t stepped; /* L, in this interval */
	uint16_t measured; /* it is L that limits C */
	/* what it means for the law */
	uint16_t decides; /* F is f_Bps */
	uint16_t cuts; /* from C d bytes of packets */
	uint16_t pushed; /* a free link decided the last F */
	uint16_t busy;
	uint32_t fell; /* L, in this interval */
	uint32_t unused;
	int64_t f_Bps;
};

/* An output link in a control interval. */
struct xcp_capacity_interval {
	uint64_t now_ns; /* when this was seen */
	uint64_t sent_B; /* since the beginning of time */
	uint64_t backlog_B;
	uint64_t min_backlog_B; /* that a packet found */
	uint64_t free_ns; /* when a packet last found none */
	uint64_t free_sent_B; /* what had been sent then */
};

/* The link as a packet finds it. */
XCP_INLINE void xcp_capacity_look(struct xcp_capacity_interval *i,
				  uint64_t now_ns, uint64_t sent_B,
				  uint64_t backlog_B)
{
	i->now_ns = now_ns;
	i->sent_B = sent_B;
	i->backlog_B = backlog_B;
	i->min_backlog_B = xcp_min(i->min_backlog_B, backlog_B);
	if (!backlog_B) {
		i->free_ns = now_ns;
		i->free_sent_B = sent_B;
	}
}

/*
 * L, if the link carries far less than it did, seen since it was last free or
 * measured; else 0, as long as nothing was measured too.
 */
XCP_INLINE uint64_t xcp_capacity_fell(const struct xcp_capacity *c,
				      const struct xcp_capacity_interval *i,
				      uint64_t d_ns)
{
	bool rested = i->free_ns > c->seen_ns;
	uint64_t sent_B =
		i->sent_B - (rested ? i->free_sent_B : c->seen_sent_B);
	uint64_t busy_ns =
		xcp_excess(i->now_ns, rested ? i->free_ns : c->seen_ns);
	uint64_t left_Bps;

	if (!i->backlog_B || sent_B < XCP_CAPACITY_MIN_B || busy_ns < d_ns / 4)
		return 0;
	left_Bps = xcp_rate(sent_B, busy_ns);
	return left_Bps < c->link_Bps - c->link_Bps / 4 ? left_Bps : 0;
}

/* The largest L and the least d of the last 10 to 20 s. */
XCP_INLINE void xcp_capacity_remember(struct xcp_capacity *c, uint64_t now_ns,
				      uint64_t d_ns)
{
	if (!c->lately_ns) {
		c->base_ns = c->lately_base_ns = d_ns;
		c->lately_ns = now_ns;
	} else if (xcp_excess(now_ns, c->lately_ns) > XCP_CAPACITY_MEMORY_NS) {
		c->most_Bps = c->lately_Bps;
		c->base_ns = c->lately_base_ns;
		c->lately_Bps = 0;
		c->lately_base_ns = d_ns;
		c->lately_ns = now_ns;
	}
	c->lately_base_ns = xcp_min(c->lately_base_ns, d_ns);
	c->base_ns = xcp_min(c->base_ns, d_ns);
}

/*
 * Takes in an interval of a link configured to carry `configured_Bps`, 0 if
 * nobody knows.
 */
XCP_INLINE void xcp_capacity_measure(struct xcp_capacity *c,
				     const struct xcp_capacity_interval *i,
				     uint64_t configured_Bps, uint64_t d_ns)
{
	uint64_t sent_B = i->sent_B - c->seen_sent_B, least_Bps;
	uint64_t elapsed_ns = xcp_excess(i->now_ns, c->seen_ns);
	uint64_t fell_Bps = xcp_capacity_fell(c, i, d_ns);
	bool first = !c->seen_ns, busy;

	c->stepped = false;
	c->fell = fell_Bps != 0;
	xcp_capacity_remember(c, i->now_ns, d_ns);
	c->busy = i->min_backlog_B || fell_Bps;
	if (!c->link_Bps)
		c->link_Bps = configured_Bps ? configured_Bps
					     : XCP_CAPACITY_FIRST_BPS;
	c->min_backlog_B = xcp_min(c->min_backlog_B, i->min_backlog_B);
	if (!first && sent_B < XCP_CAPACITY_MIN_B &&
	    elapsed_ns < XCP_NSEC_PER_SEC)
		return;
	busy = c->min_backlog_B || fell_Bps;
	c->seen_ns = i->now_ns;
	c->seen_sent_B = i->sent_B;
	c->min_backlog_B = UINT64_MAX;
	if (first || !elapsed_ns)
		return;
	c->left_Bps =
		xcp_min(xcp_rate(sent_B, elapsed_ns), XCP_CAPACITY_MAX_BPS);
	XCP_FORGET(c->left_Bps);
	if (fell_Bps)
		c->left_Bps = fell_Bps;
	if (busy) {
		c->link_Bps = xcp_max(c->left_Bps, 1);
		c->steps = 0;
		c->lately_Bps = xcp_max(c->lately_Bps, c->link_Bps);
		c->most_Bps = xcp_max(c->most_Bps, c->link_Bps);
		return;
	}
	c->cut_B = 0;
	if (c->steps == 0)
		least_Bps = c->link_Bps - c->link_Bps / 64;
	else if (c->steps == 1)
		least_Bps = c->stepped_Bps + c->step_Bps * 3 / 4;
	else
		least_Bps = c->stepped_Bps + c->stepped_Bps / 2;
	if (c->left_Bps < least_Bps)
		return;
	c->stepped = true;
	if (c->steps == 0) {
		c->steps = 1;
		c->stepped_Bps = xcp_max(c->left_Bps, c->link_Bps);
		c->step_Bps = xcp_min(c->stepped_Bps / 8,
				      xcp_rate(XCP_CAPACITY_STEP_B, d_ns));
		c->link_Bps = c->stepped_Bps + c->step_Bps;
	} else {
		c->steps = 2;
		c->stepped_Bps = c->left_Bps;
		c->link_Bps = xcp_max(xcp_max(c->link_Bps, 2 * c->left_Bps),
				      xcp_min(4 * c->left_Bps, c->most_Bps));
		if (c->most_Bps > c->left_Bps && c->link_Bps >= c->most_Bps) {
			c->link_Bps = c->most_Bps;
			c->steps = 0;
		}
	}
	c->link_Bps = xcp_min(c->link_Bps, XCP_CAPACITY_MAX_BPS);
}

/* C: what the link carries and e, at most what is configured. */
XCP_INLINE uint64_t xcp_capacity_use(struct xcp_capacity *c,
				     uint64_t configured_Bps, uint64_t d_ns)
{
	uint64_t use =
		c->link_Bps +
		xcp_min(c->link_Bps / 64, xcp_rate(XCP_CAPACITY_OVER_B, d_ns));

	c->measured = !configured_Bps || use < configured_Bps;
	return c->measured ? use : configured_Bps;
}

/* Leaves F to XCP's law. */
XCP_INLINE void xcp_capacity_trust(struct xcp_capacity *c)
{
	c->decides = c->cuts = c->pushed = false;
	c->f_Bps = 0;
}

/* What to do in place of XCP's law, if anything. */
XCP_INLINE void xcp_capacity_judge(struct xcp_capacity *c,
				   const struct xcp_capacity_interval *i,
				   uint64_t c_Bps, uint64_t y_Bps,
				   int64_t f_before_Bps, uint64_t queue_B,
				   uint64_t d_ns)
{
	bool pushed = c->pushed;
	uint64_t excess_B = 0;

	xcp_capacity_trust(c);
	if (xcp_bytes(c_Bps, d_ns) < XCP_CAPACITY_MIN_B)
		return;
	if (!c->busy) {
		if (d_ns > c->base_ns + c->base_ns / 2)
			return;
		if (!c->stepped && y_Bps >= c_Bps - c_Bps / 4)
			return;
		c->f_Bps = (int64_t)c_Bps - (int64_t)y_Bps - f_before_Bps;
		if (c->f_Bps < 0)
			c->f_Bps = 0;
		c->decides = c->pushed = true;
		c->aim_Bps = c_Bps;
		return;
	}
	if (xcp_excess(i->now_ns, d_ns) >= c->cut_seen_ns)
		c->cut_B = 0;
	if (c->fell) {
		excess_B = xcp_bytes(xcp_excess(y_Bps, c_Bps), d_ns);
		excess_B = xcp_excess(excess_B, c->cut_B);
	} else if (pushed) {
		excess_B = xcp_bytes(
			xcp_excess(xcp_min(c->aim_Bps, 2 * y_Bps), c_Bps),
			d_ns);
	} else if (xcp_excess(queue_B, c->cut_B) > xcp_bytes(c_Bps, d_ns) / 5) {
		excess_B = queue_B - c->cut_B;
		if (!c->cut_B && f_before_Bps < 0)
			excess_B = xcp_excess(
				excess_B,
				xcp_bytes(xcp_size(f_before_Bps), d_ns));
	}
	c->f_Bps = -(int64_t)xcp_rate(excess_B, d_ns);
	if (excess_B) {
		c->cuts = true;
		c->cut_B += excess_B;
		c->cut_seen_ns =
			i->now_ns + d_ns + xcp_time(i->backlog_B, c_Bps);
	}
	c->decides = c->cut_B != 0;
}

#endif

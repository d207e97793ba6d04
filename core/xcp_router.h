/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The router's control laws for one output link. Source: Katabi, Handley, Rohrs
 * (SIGCOMM 2002), in the units of draft-falk-xcp-spec-03.
 *
 *   C      capacity to hand out                                B/s
 *   d      average RTT of the traffic, weighted by X           s
 *   y      input traffic rate over the last control interval   B/s
 *   Q      persistent queue: minimum backlog of a Tq           B
 *   X      a packet's share of time, size / throughput         s
 *   delta  requested, then granted change of throughput        B/s
 *
 * Arrival, every packet:   input_traffic += size
 *   forward XCP packet:    RTT = min(RTT, max_rtt)
 *                          X = min(X, RTT min(size, 512 B) / 512 B)
 *                          sum_x += X,  sum_rtt_x += RTT X
 *
 * Headers may be wrong or forged, so their values are limited to what is
 * possible for the packet. A window has at least one whole packet, so X is at
 * most the RTT. An RTT above the configured maximum counts as that maximum.
 *
 * Control interval, every max(d, min_interval):
 *   d       = sum_rtt_x / sum_x
 *   y       = input_traffic / elapsed
 *   a       = G + G' / 2              granted, and not seen in y yet
 *   F       = alpha (C - y - a) - beta Q / d    aggregate change, B/s
 *   shuffle = max(0, gamma y - |F|)                   gamma: core/xcp_flows.h
 *   pos     = max(F, 0) + shuffle,   neg = max(-F, 0) + shuffle
 *
 * G is the sum of the deltas granted in the interval, G' that of the interval
 * before. A packet counts for at most size / RTT, and at least -size / max(RTT,
 * d): no flow can give back more than it has been seen to send. In the
 * published law a = 0. That law does not account for grants whose effect it
 * cannot see yet, and so grants them again; its alpha must be small. On a link
 * that varies it would need extra increases and cuts, which this law does not
 * need (docs/design/law.md).
 *
 * Departure, forward XCP packet:
 *   p = min(pos X / expected_x, what remains of pos)
 *   n = min(neg size / expected, what remains of neg)
 *   delta > p - n:  delta = p - n
 *   else, F >= 0:   p = delta + n; the rest of its share goes to later packets
 *   otherwise:      n = min(neg, n + (p - n - delta)),  p = delta + n
 *                   where delta is at least as in G
 *   pos -= p,  neg -= n
 * where expected = input_traffic, in a cut at most min(1, C / y) of it, since
 * no more will arrive, and expected_x = sum_x. The published law has no second
 * case.
 *
 * The first interval, before RTTs are known, lasts 200 ms. d can be just as
 * wrong after a pause of the flows, after they have moved to a shorter path, or
 * after packets have waited long at a link that had stalled. So the RTTs are
 * checked several times per interval. An interval more than twice as long as
 * the average RTT of the packets since the last check ends after that RTT,
 * which is the next d. X is proportional to the RTT. So earlier packets do not
 * count for expected_x either, or most of pos would remain in the pool:
 *
 *   expected_x = min(sum_x, sum_x since that check * d / time since then)
 *
 * Queue, every Tq = max(2 ms, (d - backlog / C) / 2):  Q = min backlog
 *
 * Scaling. Pools and rates of an interval are in units of 2^-shift B/s. The
 * shift is chosen at the interval's end so that they fill XCP_POOL_BITS: that
 * keeps a precision of 1e-9 from 1 KB/s to 125 GB/s. Written deltas are whole
 * B/s; the remainder of rounding is carried to the next packet.
 *
 * sum_rtt_x needs 96 bits. It is kept as two sums, of the products' low and
 * high 32 bits, whose carries are joined when they are read.
 *
 * Concurrency. Sums only grow and each belongs to one CPU; a reader takes
 * differences. The CPU that claims an interval's end reads all sums, computes
 * one `xcp_router_law` and publishes it; every CPU spends its own pool.
 *
 * A GSO packet stands for n wire packets of size / n each, and its one header
 * is copied onto all of them: it counts n times.
 */
#ifndef XCP_ROUTER_H
#define XCP_ROUTER_H

#include "xcp_capacity.h"
#include "xcp_flows.h"
#include "xcp_level.h"
#include "xcp_sharing.h"

#define XCP_ALPHA_Q32 XCP_Q32(6, 10)
#define XCP_BETA_Q32 XCP_Q32(4, 10)
#define XCP_ALPHA_PUBLISHED_Q32 XCP_Q32(4, 10)
#define XCP_BETA_PUBLISHED_Q32 XCP_Q32(226, 1000)

/*
 * At most this part of the pool is carried to later packets: after many packets
 * that request nothing, one large request does not get all of it at once.
 */
#define XCP_PASSED_ON_PARTS 16

#define XCP_INITIAL_INTERVAL_NS (200 * 1000000ULL)
#define XCP_MIN_TQ_NS (2 * 1000000ULL)
/* an interval this many times as long as the latest average RTT is too long */
#define XCP_INTERVAL_MAX_RTTS 2
/* checks of the average RTT per interval; with more, the average of one check
 * would be that of a few packets, and flows differ in their RTTs */
#define XCP_RTT_CHECKS 8
/* the same while a link returns to its rate: d is the RTT of packets that had
 * waited */
#define XCP_RTT_CHECKS_RETURNS 32
/* shorter intervals are not checked: RTTs are 4 ms (core/xcp_sender.h) */
#define XCP_TOO_LONG_NS (8 * 4 * 1000000ULL)
/* Larger RTTs count as this, unless configured otherwise. */
#define XCP_MAX_RTT_TICKS XCP_TICKS_PER_SEC
/* The smallest full packet, in round numbers (RFC 1122: 576 bytes). */
#define XCP_FULL_PACKET_BITS 9

/*
 * Additions to the published law. Each can be switched off, except
 * XCP_LAW_LEVEL, which can be switched on.
 */
enum xcp_law_term {
	XCP_LAW_GAINS = 1, /* alpha = 0.6, beta = 0.4; else 0.4 and 0.226 */
	XCP_LAW_GRANTED = 2, /* G in a */
	XCP_LAW_BEFORE = 4, /* G' in a */
	XCP_LAW_EXPECT = 8, /* expected; else input_traffic */
	XCP_LAW_PASS_ON = 16, /* the second case of a departure */
	XCP_LAW_SHUFFLE = 32, /* gamma depends on changes of flows; else 0.1 */
	XCP_LAW_LEVEL = 64, /* the level law while settled: core/xcp_level.h */
};

struct xcp_router_params {
	uint64_t capacity_Bps;
	uint64_t peak_Bps; /* highest possible rate of the link; 0: unknown */
	uint64_t min_interval_ns;
	uint32_t without; /* enum xcp_law_term: terms that are off */
	uint32_t max_rtt; /* upper bound of RTTs, ticks;
			     0: XCP_MAX_RTT_TICKS */
	uint32_t with; /* XCP_LAW_LEVEL or 0 */
	uint32_t unused;
};

/* Sums of arrivals since start. One per CPU; they only grow. */
struct xcp_router_sums {
	uint64_t input_traffic_B;
	uint64_t sum_x; /* ticks */
	uint64_t sum_rtt_x_lo; /* ticks^2, low 32 bits of each product */
	uint64_t sum_rtt_x_hi; /* the rest, in units of 2^32 ticks^2 */
	int64_t granted_Bps; /* sum of the granted deltas */
	struct xcp_level_sums level;
};

/* Sums of all CPUs at the start of an average of RTTs. */
struct xcp_rtt_sums {
	uint64_t sum_x;
	uint64_t sum_rtt_x_lo;
	uint64_t sum_rtt_x_hi;
};

/* The result of one interval; constant during the next. */
struct xcp_router_law {
	struct xcp_ratio pos; /* divided by X, in ticks */
	struct xcp_ratio neg; /* divided by size, in bytes */
	uint64_t pos_pool; /* 2^-shift B/s */
	uint64_t neg_pool;
	uint64_t d; /* ticks, below 2^32 */
	uint32_t max_rtt; /* ticks */
	uint32_t shift;
	uint64_t carry_max; /* most to carry to later packets, 0 in a cut */
	struct xcp_level_law level;
};

/* The values of a forward header, limited to what is possible. */
struct xcp_claim {
	uint64_t size_B; /* size of one wire packet */
	uint64_t x; /* ticks */
	uint64_t rtt; /* ticks, below 2^32; 0: unknown */
};

/* What remains to hand out. One per CPU. */
struct xcp_router_pool {
	uint64_t pos; /* 2^-shift B/s */
	uint64_t neg; /* 2^-shift B/s */
	uint64_t carry; /* granted but not yet written */
	uint32_t shift;
	uint32_t unused;
};

/* The clocks and estimates, written by the CPU that claims an interval's end.
 */
struct xcp_router_state {
	struct xcp_router_sums last;
	struct xcp_rtt_sums rtts_from; /* d is the average since then */
	uint64_t rtts_from_ns; /* time of rtts_from */
	struct xcp_rtt_sums checked; /* sums at the last check of the RTTs */
	uint64_t interval_start_ns;
	uint64_t interval_ns;
	uint64_t queue_start_ns;
	uint64_t tq_ns;
	uint64_t checked_ns; /* time of the last check of the RTTs */
	uint64_t min_backlog_B;
	uint64_t queue_B; /* Q */
	struct xcp_num d; /* ticks */
	struct xcp_capacity capacity;
	struct xcp_sharing sharing;
	struct xcp_flows flows;
	struct xcp_level level;
	uint64_t capacity_Bps; /* C, the capacity handed out */
	uint64_t excess_Bps; /* e of a cloud; 0: use e of a link */
	uint64_t step_Bps; /* clouds: upper bound of L - dequeue rate */
	uint64_t y_Bps; /* y of the last interval */
	int64_t f_Bps; /* F of the last interval */
	int64_t granted_Bps; /* G of the last interval */
	uint64_t intervals;
};

XCP_INLINE uint32_t xcp_router_max_rtt(const struct xcp_router_params *params)
{
	return params->max_rtt ? params->max_rtt : XCP_MAX_RTT_TICKS;
}

XCP_INLINE bool xcp_router_has_level(const struct xcp_router_params *params)
{
	return params->with & XCP_LAW_LEVEL;
}

XCP_INLINE void xcp_router_init(struct xcp_router_state *s,
				const struct xcp_router_params *params,
				struct xcp_router_law *law, uint64_t now_ns)
{
	__builtin_memset(s, 0, sizeof(*s));
	s->interval_start_ns = now_ns;
	s->rtts_from_ns = now_ns;
	s->checked_ns = now_ns;
	s->interval_ns = XCP_INITIAL_INTERVAL_NS;
	s->queue_start_ns = now_ns;
	s->tq_ns = XCP_MIN_TQ_NS;
	s->d = xcp_num_of(xcp_ns_to_ticks(XCP_INITIAL_INTERVAL_NS));
	__builtin_memset(law, 0, sizeof(*law));
	law->d = xcp_ns_to_ticks(XCP_INITIAL_INTERVAL_NS);
	law->max_rtt = xcp_router_max_rtt(params);
	law->level.m_min = law->d;
	if (xcp_router_has_level(params))
		law->level.mode = XCP_LEVEL_COUNTS;
}

/*
 * Another CPU may have ended the interval since this one read its clock: then
 * `now_ns` lies before the start, and nothing is due.
 */
XCP_INLINE bool xcp_router_interval_due(const struct xcp_router_state *s,
					uint64_t now_ns)
{
	return xcp_excess(now_ns, s->interval_start_ns) >= s->interval_ns;
}

/*
 * Whether an interval may end early. In less than a quarter of it, a few
 * packets that arrive together look like a rate of many times C.
 */
XCP_INLINE bool xcp_router_interval_may_end(const struct xcp_router_state *s,
					    uint64_t now_ns)
{
	return xcp_excess(now_ns, s->interval_start_ns) >= s->interval_ns / 4;
}

/* Whether it is time to check if the interval is too long. */
XCP_INLINE bool xcp_router_check_due(const struct xcp_router_state *s,
				     uint64_t now_ns)
{
	uint64_t checks = xcp_capacity_returns(&s->capacity)
				  ? XCP_RTT_CHECKS_RETURNS
				  : XCP_RTT_CHECKS;

	return s->interval_ns >= XCP_TOO_LONG_NS &&
	       xcp_excess(now_ns, s->checked_ns) >= s->interval_ns / checks;
}

XCP_INLINE struct xcp_rtt_sums
xcp_router_rtts(const struct xcp_router_sums *sums)
{
	struct xcp_rtt_sums rtts = {sums->sum_x, sums->sum_rtt_x_lo,
				    sums->sum_rtt_x_hi};

	return rtts;
}

/* The average RTT since `from`, weighted by X, ticks; sum_x has grown. */
XCP_INLINE struct xcp_num
xcp_router_average_rtt(const struct xcp_router_sums *sums,
		       const struct xcp_rtt_sums *from)
{
	return xcp_num_div(
		xcp_num_of_sums(sums->sum_rtt_x_hi - from->sum_rtt_x_hi,
				sums->sum_rtt_x_lo - from->sum_rtt_x_lo),
		xcp_num_of(sums->sum_x - from->sum_x));
}

/*
 * Shortens the interval to the average RTT of the packets since the last check,
 * if it is more than twice as long and has lasted that RTT; `sums` are the
 * totals of all CPUs. Then earlier packets do not count for d and expected_x:
 * if they waited long, they would hide that the path is short again.
 */
XCP_INLINE void xcp_router_check_rtts(struct xcp_router_state *s,
				      const struct xcp_router_params *params,
				      const struct xcp_router_sums *sums,
				      uint64_t now_ns)
{
	struct xcp_rtt_sums before = s->checked;
	uint64_t elapsed_ns = xcp_excess(now_ns, s->interval_start_ns), rtt_ns;
	uint64_t before_ns = s->checked_ns;

	s->checked_ns = now_ns;
	if (sums->sum_x == before.sum_x)
		return;
	s->checked = xcp_router_rtts(sums);
	rtt_ns = xcp_ticks_to_ns(xcp_num_fixed(
		xcp_router_average_rtt(sums, &before), 0, XCP_TICKS_MAX));
	rtt_ns = xcp_max(rtt_ns, params->min_interval_ns);
	if (XCP_INTERVAL_MAX_RTTS * rtt_ns > s->interval_ns ||
	    rtt_ns > elapsed_ns)
		return;
	s->rtts_from = before;
	s->rtts_from_ns = before_ns;
	s->interval_ns = rtt_ns;
}

XCP_INLINE bool xcp_router_queue_due(const struct xcp_router_state *s,
				     uint64_t now_ns)
{
	return xcp_excess(now_ns, s->queue_start_ns) >= s->tq_ns;
}

/* Counts any packet, or a GSO packet with the bytes of its wire packets. */
XCP_INLINE void xcp_router_arrival(struct xcp_router_sums *s, uint64_t bytes)
{
	s->input_traffic_B += bytes;
}

/* Limits X and the RTT (ticks) in the header of a packet of size_B. */
XCP_INLINE struct xcp_claim xcp_router_claim(const struct xcp_router_law *law,
					     uint64_t size_B, uint64_t x,
					     uint64_t rtt)
{
	struct xcp_claim c = {size_B, x, xcp_min(rtt, law->max_rtt)};
	uint64_t most = c.rtt;

	if (XCP_UNLIKELY(size_B < 1 << XCP_FULL_PACKET_BITS))
		most = (most * size_B) >> XCP_FULL_PACKET_BITS;
	c.x = xcp_min(x, most);
	return c;
}

/* Counts a forward XCP packet with a known RTT, for n wire packets. */
XCP_INLINE void xcp_router_arrival_xcp(struct xcp_router_sums *s, uint32_t n,
				       const struct xcp_claim *c)
{
	uint64_t product = c->x * c->rtt;

	s->sum_x += c->x * n;
	s->sum_rtt_x_hi += (product >> 32) * n;
	s->sum_rtt_x_lo += (product & 0xffffffff) * n;
}

/*
 * The possible effect of a delta: no flow more than doubles in an RTT, and no
 * flow gives back more than it sends in the average RTT.
 */
XCP_INLINE int64_t xcp_router_credible(const struct xcp_router_law *law,
				       const struct xcp_claim *c, int32_t delta)
{
	uint64_t size = xcp_abs(delta), time = c->rtt;

	if (delta < 0)
		time = xcp_max(time, law->d);
	if (XCP_UNLIKELY(size * time > c->size_B << XCP_TICK_SHIFT))
		size = (c->size_B << XCP_TICK_SHIFT) / time;
	return xcp_signed(size, delta < 0);
}

/* The possible effect of a delta below fb; `want`: it in the law's unit. */
XCP_INLINE int64_t xcp_router_possible_decrease(
	const struct xcp_router_law *law, const struct xcp_claim *c,
	int32_t delta, int64_t want, int64_t fb)
{
	int64_t credible;

	if (XCP_LIKELY(delta >= 0))
		return want;
	credible = xcp_router_credible(law, c, delta);
	if (credible == delta)
		return want;
	credible *= (int64_t)1 << law->shift;
	return credible < fb ? credible : fb;
}

/* Counts the delta granted to each of n departing packets. */
XCP_INLINE void xcp_router_granted(const struct xcp_router_law *law,
				   struct xcp_router_sums *s, uint32_t n,
				   const struct xcp_claim *c, int32_t delta)
{
	if (XCP_LIKELY(c->rtt))
		s->granted_Bps += xcp_router_credible(law, c, delta) * n;
}

/*
 * The departure of a forward XCP packet: spends from the pool and returns the
 * delta to write.
 */
XCP_INLINE int32_t xcp_router_departure(const struct xcp_router_law *law,
					struct xcp_router_pool *pool,
					uint32_t n, const struct xcp_claim *c,
					int32_t delta)
{
	uint64_t p, m;
	int64_t fb, carry, grant;

	if (XCP_UNLIKELY(!c->rtt))
		return delta > 0 ? 0 : delta;

	p = xcp_ratio_part(&law->pos, c->x);
	m = xcp_ratio_part(&law->neg, c->size_B);
	if (XCP_UNLIKELY(p * n > pool->pos)) {
		/* spend all; the remainder of the division is carried */
		p = n > 1 ? pool->pos / n : pool->pos;
		pool->carry += pool->pos - p * n;
		pool->pos = p * n;
	}
	if (XCP_UNLIKELY(m * n > pool->neg))
		m = n > 1 ? pool->neg / n : pool->neg;

	fb = (int64_t)p - (int64_t)m;
	carry = (int64_t)(XCP_UNLIKELY(n > 1) ? pool->carry / n : pool->carry);
	grant = (fb + carry) >> law->shift;
	if (XCP_LIKELY(delta > grant)) {
		if (XCP_UNLIKELY(grant < INT32_MIN)) {
			grant = INT32_MIN;
			pool->carry = 0;
		} else {
			fb -= grant * ((int64_t)1 << law->shift);
			pool->carry += (uint64_t)(fb * n);
		}
		delta = (int32_t)grant;
	} else {
		/* lower values make no difference, and do not fit */
		int64_t least =
			-(int64_t)((1ULL << XCP_POOL_BITS) >> law->shift);
		int64_t want = (delta < least ? least : delta) *
			       ((int64_t)1 << law->shift);
		uint64_t left = n > 1 ? pool->neg / n : pool->neg;

		if (want > fb) {
			/* at most the share plus the carry */
			pool->carry -= (uint64_t)((want - fb) * n);
			want = (int64_t)p;
		} else if (law->carry_max) {
			uint64_t rest;

			want = xcp_router_possible_decrease(law, c, delta, want,
							    fb);
			rest = xcp_min((uint64_t)(fb - want),
				       xcp_excess(law->carry_max, pool->carry) /
					       n);
			pool->carry += rest * n;
			want += (int64_t)(m + rest);
		} else {
			want = xcp_router_possible_decrease(law, c, delta, want,
							    fb);
			m = xcp_min(left, m + (uint64_t)(fb - want));
			want += (int64_t)m;
		}
		if (XCP_UNLIKELY(want < 0)) {
			/* p < 0: this packet gives back more than the whole
			 * pool of decreases. Others may have the difference,
			 * but an empty pool stays empty until the next
			 * interval */
			if (pool->pos)
				pool->pos =
					xcp_min(pool->pos + (uint64_t)-want * n,
						(1ULL << XCP_POOL_BITS) - 1);
			want = 0;
		}
		p = (uint64_t)want;
	}
	pool->pos = xcp_excess(pool->pos, p * n);
	pool->neg = xcp_excess(pool->neg, m * n);
	return delta;
}

/*
 * The part of a departure that the level law adds: counts the packet, and while
 * settled replaces xcp_router_departure and xcp_router_granted.
 */
XCP_INLINE int32_t xcp_router_level(const struct xcp_router_law *law,
				    struct xcp_router_sums *s, uint32_t n,
				    const struct xcp_claim *c, int32_t delta)
{
	struct xcp_level_class *kind = &s->level.limited;
	struct xcp_level_packet p;
	int64_t g, credible;
	bool less;

	if (XCP_UNLIKELY(!c->rtt))
		return delta > 0 ? 0 : delta;
	p = xcp_level_packet_of(&law->level, c->size_B, c->x, c->rtt);
	if (p.far)
		kind = &s->level.far;
	if (law->level.mode == XCP_LEVEL_SETTLED) {
		g = xcp_level_grant(&law->level, &p, c->x);
		less = delta <= g;
		if (!less)
			delta = (int32_t)(g < INT32_MIN ? INT32_MIN : g);
		if (!p.far) {
			credible = xcp_router_credible(law, c, delta) * n;
			s->granted_Bps += credible;
			if (less) {
				s->level.less_Bps += credible;
				kind = &s->level.less;
			}
		}
	}
	xcp_level_count(&s->level, kind, n, &p, c->size_B, c->x);
	return delta;
}

/*
 * Grants and counts the delta of a forward XCP packet, for each of n. Returns
 * the delta to write.
 */
XCP_INLINE int32_t xcp_router_grant(const struct xcp_router_law *law,
				    struct xcp_router_pool *pool,
				    struct xcp_router_sums *s, uint32_t n,
				    const struct xcp_claim *c, int32_t delta)
{
	if (XCP_LIKELY(law->level.mode != XCP_LEVEL_SETTLED)) {
		delta = xcp_router_departure(law, pool, n, c, delta);
		xcp_router_granted(law, s, n, c, delta);
	}
	if (XCP_UNLIKELY(law->level.mode != XCP_LEVEL_OFF))
		delta = xcp_router_level(law, s, n, c, delta);
	return delta;
}

/*
 * Limits by how much L exceeds the dequeue rate while it is searched. This runs
 * before the law, which would otherwise count as granted what a downstream
 * router does not grant, and take it back.
 */
XCP_INLINE void xcp_router_limit_step(struct xcp_capacity *c, uint64_t step_Bps)
{
	if (c->state == XCP_LINK_KNOWN ||
	    c->link_Bps <= c->dequeued_Bps + step_Bps)
		return;
	/* go on with steps like the first one while they are carried */
	c->state = XCP_LINK_TRIED;
	c->tried_Bps = c->dequeued_Bps;
	c->step_Bps = step_Bps;
	c->link_Bps = c->dequeued_Bps + step_Bps;
}

/*
 * Sets C for the next control interval. Called at `now_ns`, before the present
 * interval ends; `sums` are the totals of all CPUs. `seen` are samples of the
 * link, if its capacity is to be measured; `other` is the queue of other
 * traffic, if it has its own.
 */
XCP_INLINE void xcp_router_capacity(struct xcp_router_state *s,
				    const struct xcp_router_params *params,
				    const struct xcp_router_sums *sums,
				    uint64_t now_ns,
				    const struct xcp_link_samples *seen,
				    const struct xcp_sharing_interval *other)
{
	uint64_t elapsed_ns =
		xcp_max(xcp_excess(now_ns, s->interval_start_ns), 1);
	uint64_t sum_x = sums->sum_x - s->last.sum_x, noise = 0;
	uint64_t excess_Bps;

	if (xcp_router_has_level(params)) {
		s->level.input_traffic_B =
			sums->input_traffic_B - s->last.input_traffic_B;
		s->level.sum_x = sum_x;
		s->level.elapsed = xcp_max(xcp_ns_to_ticks(elapsed_ns), 1);
		xcp_level_collect(&s->level, &sums->level, &s->last.level);
		noise = xcp_level_noise(&s->level);
	}
	xcp_flows_end(&s->flows, sum_x, elapsed_ns, noise);
	s->capacity_Bps = params->capacity_Bps;
	if (seen) {
		xcp_capacity_measure(&s->capacity, seen, params->capacity_Bps,
				     params->peak_Bps, s->interval_ns);
		if (s->step_Bps)
			xcp_router_limit_step(&s->capacity, s->step_Bps);
		excess_Bps = s->excess_Bps
				     ? s->excess_Bps
				     : xcp_capacity_excess(&s->capacity,
							   s->interval_ns);
		s->capacity_Bps = xcp_capacity_use(
			&s->capacity, params->capacity_Bps, excess_Bps);
	}
	if (other) {
		s->capacity_Bps =
			xcp_sharing_end(&s->sharing, other, s->flows.mean,
					elapsed_ns, s->capacity_Bps);
	} else {
		s->sharing.other_Bps = 0;
		s->sharing.share = 0;
	}
}

/*
 * Returns 1 if a term of the law is in use, else 0. Callers multiply by it
 * instead of branching: the verifier follows both sides of each branch.
 */
XCP_INLINE uint64_t xcp_router_term_enabled(uint32_t without,
					    enum xcp_law_term term)
{
	uint64_t has = xcp_any_from(without & (uint32_t)term, 0);

	XCP_OPAQUE(has);
	return has ^ 1;
}

/* Returns a; at most all of y can be taken back. */
XCP_INLINE int64_t xcp_router_unseen_grants(const struct xcp_router_state *s,
					    uint32_t without,
					    int64_t granted_Bps)
{
	int64_t least = -(int64_t)s->y_Bps - 1;
	int64_t ahead =
		granted_Bps * (int64_t)xcp_router_term_enabled(
				      without, XCP_LAW_GRANTED) +
		(s->granted_Bps >>
		 1) * (int64_t)xcp_router_term_enabled(without, XCP_LAW_BEFORE);

	return ahead < least ? least : ahead;
}

/* Returns expected_x; `sum_x` is that of the interval, and not 0. */
XCP_INLINE struct xcp_num
xcp_router_expected_x(const struct xcp_router_state *s,
		      const struct xcp_router_sums *sums, uint64_t now_ns,
		      uint64_t sum_x)
{
	uint64_t since_ns = xcp_max(xcp_excess(now_ns, s->rtts_from_ns), 1);
	struct xcp_num x = xcp_num_of(sums->sum_x - s->rtts_from.sum_x);

	if (s->rtts_from_ns == s->interval_start_ns)
		return xcp_num_of(sum_x);
	x = xcp_num_div(xcp_num_mul(x, xcp_num_of(s->interval_ns)),
			xcp_num_of(since_ns));
	return xcp_num_of(xcp_max(xcp_num_fixed(x, 0, sum_x), 1));
}

/*
 * Ends the control interval at `now_ns`; `sums` are the totals of all CPUs.
 * Writes the next law and returns true. After an interval without XCP packets
 * it keeps d and the law and returns false, and the pools keep what they have.
 */
XCP_INLINE bool xcp_router_interval_end(struct xcp_router_state *s,
					const struct xcp_router_params *params,
					const struct xcp_router_sums *sums,
					uint64_t now_ns,
					struct xcp_router_law *law)
{
	uint64_t elapsed_ns =
		xcp_max(xcp_excess(now_ns, s->interval_start_ns), 1);
	uint64_t traffic_B = sums->input_traffic_B - s->last.input_traffic_B;
	uint64_t sum_x = sums->sum_x - s->last.sum_x;
	struct xcp_rtt_sums rtts_from = s->rtts_from;
	const uint64_t limit = 1ULL << (XCP_POOL_BITS - 1);
	struct xcp_num y_num, drain_num, sec = xcp_num_of(XCP_NSEC_PER_SEC);
	struct xcp_num traffic = xcp_num_of(traffic_B);
	struct xcp_num expected_x =
		xcp_router_expected_x(s, sums, now_ns, sum_x);
	int64_t granted_Bps = sums->granted_Bps - s->last.granted_Bps;
	int64_t ahead;
	uint64_t d_ticks, top, c, y, coming, drain, up, down, f, shuffle;
	uint32_t without = params->without;
	uint32_t alpha, beta, gamma, shift;
	uint64_t gains;
	bool grow;

	s->last = *sums;
	s->rtts_from = xcp_router_rtts(sums);
	s->rtts_from_ns = now_ns;
	s->checked = s->rtts_from;
	s->interval_start_ns = now_ns;
	s->checked_ns = now_ns;
	s->intervals++;
	y_num = xcp_num_mul(xcp_num_div(traffic, xcp_num_of(elapsed_ns)), sec);
	s->y_Bps = xcp_num_fixed(y_num, 0, limit - 1);
	if (!sum_x) {
		s->granted_Bps = granted_Bps;
		return false;
	}

	law->max_rtt = xcp_router_max_rtt(params);

	/* d with its fraction, at least min_interval */
	s->d = xcp_router_average_rtt(sums, &rtts_from);
	d_ticks = xcp_num_fixed(s->d, 0, XCP_TICKS_MAX);
	s->interval_ns = xcp_ticks_to_ns(d_ticks);
	if (s->interval_ns < params->min_interval_ns) {
		s->interval_ns = params->min_interval_ns;
		s->d = xcp_num_div(xcp_num_mul(xcp_num_of(s->interval_ns),
					       xcp_num_of(XCP_TICKS_PER_SEC)),
				   sec);
	}
	drain_num = xcp_num_div(xcp_num_mul(xcp_num_of(s->queue_B),
					    xcp_num_of(XCP_TICKS_PER_SEC)),
				s->d);

	gains = xcp_router_term_enabled(without, XCP_LAW_GAINS);
	alpha = (uint32_t)(XCP_ALPHA_PUBLISHED_Q32 +
			   gains * (XCP_ALPHA_Q32 - XCP_ALPHA_PUBLISHED_Q32));
	beta = (uint32_t)(XCP_BETA_PUBLISHED_Q32 +
			  gains * (XCP_BETA_Q32 - XCP_BETA_PUBLISHED_Q32));
	ahead = xcp_router_unseen_grants(s, without, granted_Bps);
	s->granted_Bps = granted_Bps;

	/* the unit: as fine as the largest rate allows, at most 2^-34 B/s */
	top = xcp_max(xcp_max(s->capacity_Bps, s->y_Bps),
		      xcp_max(xcp_num_fixed(drain_num, 0, limit - 1),
			      xcp_min(xcp_abs(ahead), limit - 1)));
	shift = XCP_POOL_BITS - 1 -
		(uint32_t)xcp_min(xcp_bits(top), XCP_POOL_BITS - 1);
	shift = (uint32_t)xcp_min(shift, 34);
	c = xcp_min(s->capacity_Bps << shift, limit - 1);
	y = xcp_num_fixed(y_num, shift, limit - 1);
	drain = xcp_num_fixed(drain_num, shift, limit - 1);
	coming = xcp_min(xcp_abs(ahead), limit - 1) << shift;
	coming = ahead < 0 ? xcp_excess(y, coming) : y + coming;

	up = xcp_mul_q32(xcp_excess(c, coming), alpha);
	down = xcp_mul_q32(xcp_excess(coming, c), alpha) +
	       xcp_mul_q32(drain, beta);
	grow = up >= down;
	f = xcp_min(grow ? up - down : down - up, limit - 1);
	gamma = xcp_flows_gamma(&s->flows, without & XCP_LAW_SHUFFLE);
	if (xcp_router_has_level(params) && !s->flows.changed)
		gamma = 0;
	shuffle = xcp_excess(xcp_mul_q32(y, gamma), f);
	s->f_Bps = grow ? (int64_t)(f >> shift) : -(int64_t)(f >> shift);

	law->d = xcp_num_fixed(s->d, 0, UINT32_MAX);
	law->shift = shift;
	law->pos_pool = (grow ? f : 0) + shuffle;
	law->neg_pool = (grow ? 0 : f) + shuffle;
	law->carry_max = 0;
	if (grow && !(without & XCP_LAW_PASS_ON))
		law->carry_max = law->pos_pool / XCP_PASSED_ON_PARTS;
	law->pos = xcp_ratio_make(law->pos_pool, expected_x);
	if (!grow && y > c && !(without & XCP_LAW_EXPECT))
		traffic = xcp_num_div(xcp_num_mul(traffic, xcp_num_of(c)),
				      xcp_num_of(y));
	law->neg = xcp_ratio_make(law->neg_pool, traffic);
	return true;
}

/* Returns F' of the level law in the law's unit, at most `max`. */
XCP_INLINE uint64_t xcp_router_level_change(const struct xcp_router_state *s,
					    uint32_t without, uint64_t f,
					    bool grow, uint64_t max)
{
	struct xcp_num y = xcp_num_of(s->y_Bps),
		       c = xcp_num_of(s->capacity_Bps);
	struct xcp_num change = xcp_num_div(
		xcp_num_mul(xcp_num_of(f), xcp_num_of(s->level.elapsed)), s->d);

	if (!grow && s->y_Bps > s->capacity_Bps && !(without & XCP_LAW_EXPECT))
		change = xcp_num_div(xcp_num_mul(change, c), y);
	return xcp_num_fixed(change, 0, max);
}

/*
 * Completes the law of an interval's end for which xcp_router_interval_end has
 * returned true: the level law, or that it is off.
 */
XCP_INLINE void xcp_router_level_end(const struct xcp_router_state *s,
				     const struct xcp_router_params *params,
				     struct xcp_router_law *law)
{
	const struct xcp_level *i = &s->level;
	const struct xcp_level_sums *sums = &i->sums;
	struct xcp_level_law *level = &law->level;
	uint32_t unit = law->shift, kappa = xcp_level_kappa(i);
	/* one of the pools is 0, or both include what is shuffled */
	bool grow = law->pos_pool >= law->neg_pool;
	uint64_t f = grow ? law->pos_pool - law->neg_pool
			  : law->neg_pool - law->pos_pool;
	/* both are below 2^(XCP_POOL_BITS - 1): the unit fits them */
	uint64_t c = s->capacity_Bps << unit;
	uint64_t top = xcp_max(c, s->y_Bps << unit);
	uint64_t a_x = sums->limited.x + sums->less.x;
	uint64_t a_B = sums->limited.size_B + sums->less.size_B;
	uint64_t t1 = sums->limited.rate + sums->less.rate + sums->far.rate;
	uint64_t t2 = sums->limited.part + sums->less.part + sums->far.part;
	uint64_t s1 = sums->limited.rate, s2 = sums->limited.part;
	struct xcp_num flows =
		xcp_num_div(xcp_num_of(i->sum_x), xcp_num_of(i->elapsed));
	uint64_t l, lg, most, less;
	int64_t left;

	level->mode = XCP_LEVEL_OFF;
	if (!xcp_router_has_level(params))
		return;
	level->mode = XCP_LEVEL_COUNTS;
	if (t2 && !s->flows.changed &&
	    f <= xcp_mul_q32(c, XCP_LEVEL_SETTLED_Q32))
		level->mode = XCP_LEVEL_SETTLED;
	level->m_min = xcp_max(law->d, XCP_LEVEL_M_MIN);
	level->kappa = kappa;

	l = xcp_num_fixed(
		xcp_num_mul(a_x ? xcp_num_div(xcp_num_of(a_B), xcp_num_of(a_x))
				: xcp_num_div(xcp_num_of(i->input_traffic_B),
					      xcp_num_of(i->sum_x)),
			    xcp_num_of(XCP_TICKS_PER_SEC)),
		unit, top);
	less = xcp_min(xcp_abs(sums->less_Bps), top >> unit) << unit;
	if (s2 < t2 / XCP_LEVEL_LIMITED_PARTS) {
		s1 = t1;
		s2 = t2;
		less = 0;
	}
	left = xcp_signed(xcp_router_level_change(s, params->without, f, grow,
						  top),
			  !grow) -
	       xcp_signed(less, sums->less_Bps < 0) +
	       (int64_t)xcp_mul_q32(
		       xcp_num_fixed(xcp_num_scaled(s1, -XCP_LEVEL_RATE_BITS),
				     unit, top),
		       kappa << 16);
	most = 2 *
	       xcp_max(xcp_num_fixed(xcp_num_div(xcp_num_of(c), flows), 0, top),
		       l);
	if (left < 0)
		most = xcp_num_fixed(
			xcp_num_div(xcp_num_mul(xcp_num_of(l),
						xcp_num_of(XCP_LEVEL_CUT_MAX)),
				    xcp_num_scaled(kappa, -16)),
			0, XCP_LEVEL_CUT_TOP * top);
	lg = xcp_num_fixed(
		xcp_num_div(
			xcp_num_of(xcp_abs(left)),
			xcp_num_mul(xcp_num_scaled(s2, -XCP_LEVEL_PART_BITS),
				    xcp_num_scaled(kappa, -16))),
		0, most);
	level->l = xcp_level_rate_of(a_x ? l : 0, false, unit);
	level->lg = xcp_level_rate_of(lg, left < 0, unit);
	level->far_max = XCP_LEVEL_RHO;
	if (grow)
		level->far_max = (uint32_t)xcp_max(
			xcp_num_fixed(
				xcp_num_div(xcp_num_of(f),
					    xcp_num_mul(xcp_num_of(l), flows)),
				16, XCP_LEVEL_FAR_MAX),
			XCP_LEVEL_RHO);
}

/*
 * Fills a CPU's pool for a new law. The fraction of a B/s left by rounding is
 * kept; unused shares are not, because the new law has counted them as free.
 */
XCP_INLINE void xcp_router_pool_fill(struct xcp_router_pool *pool, uint64_t pos,
				     uint64_t neg, uint32_t shift)
{
	pool->carry &= (1ULL << (pool->shift & 63)) - 1;
	if (shift >= pool->shift)
		pool->carry <<= (shift - pool->shift) & 63;
	else
		pool->carry >>= (pool->shift - shift) & 63;
	pool->pos = pos;
	pool->neg = neg;
	pool->shift = shift;
}

/* One CPU's share of a pool: part / total of the interval's traffic. */
XCP_INLINE uint64_t xcp_router_split(uint64_t pool, uint64_t part,
				     uint64_t total)
{
	if (part == total)
		return pool;
	return xcp_num_fixed(
		xcp_num_mul(xcp_num_of(pool),
			    xcp_num_div(xcp_num_of(part), xcp_num_of(total))),
		0, pool);
}

/* Adds the backlog that a packet finds; between packets it can only fall. */
XCP_INLINE void xcp_router_backlog(struct xcp_router_state *s,
				   uint64_t backlog_B)
{
	if (backlog_B < s->min_backlog_B)
		s->min_backlog_B = backlog_B;
}

/* Ends a queue-estimation interval with the present backlog. */
XCP_INLINE void xcp_router_queue_end(struct xcp_router_state *s,
				     const struct xcp_router_params *params,
				     uint64_t backlog_B, uint64_t now_ns)
{
	uint64_t d_ns = xcp_ticks_to_ns(xcp_num_fixed(s->d, 0, XCP_TICKS_MAX));
	/* 2^34 B * 10^9 fits in 64 bits; a larger backlog counts as 17 GB */
	uint64_t drain_ns = xcp_min(backlog_B, 1ULL << 34) * XCP_NSEC_PER_SEC /
			    xcp_max(s->capacity_Bps ? s->capacity_Bps
						    : params->capacity_Bps,
				    1);

	s->queue_B = xcp_min(s->min_backlog_B, backlog_B);
	s->min_backlog_B = backlog_B;
	s->queue_start_ns = now_ns;
	s->tq_ns = xcp_max(XCP_MIN_TQ_NS, xcp_excess(d_ns, drain_ns) / 2);
}

#endif

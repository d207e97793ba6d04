/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The level law: max-min fairness for flows that have several bottlenecks. It
 * is off unless configured (XCP_LAW_LEVEL).
 *
 * With max-min fairness, each link has a level L: the rate of its fastest
 * flows. A flow that is slower is limited elsewhere. The law in
 * core/xcp_router.h also gives these flows a part of what the link has to
 * spare. They cannot use it, so the link is not full, and its other flows get
 * less than the level. While no flows come or go, the level law steers those
 * others towards the level, and keeps no state per flow.
 *
 * Symbols are those of core/xcp_router.h, and
 *
 *   s      size of a packet                                    B
 *   m      max(RTT, d)                                         s
 *   A      the class of packets whose flows are at the level
 *   L      rate of the flows of A                              B/s
 *   Lg     rate towards which flows of A are steered           B/s
 *   x      mean of X, weighted by X, relative to T             1
 *   T      duration of the control interval                    s
 *
 * A packet is far from the level if s < (1 - eps) L X and class A was not
 * empty in the last interval. All other packets are in A.
 *
 * Departure, while settled:
 *   A:     g = kappa (Lg X - s) / m
 *   far:   g = min(kappa (L X - s), far_max L X) / m
 *   delta = min(delta, g)
 *
 * Sums of an interval:
 *   X2     = sum X^2                    all packets
 *   T1, T2 = sum s / m, sum X / m       all packets
 *   S1, S2 = the same                   packets of A that got g, not less
 *   B      = sum delta                  the other packets of A
 *
 * Control interval:
 *   x       = X2 / sum_x / T
 *   kappa   = min(0.2, 0.025 / x)
 *   L       = sum of s / sum of X over A;   A empty: input_traffic / sum_x
 *   F'      = F T / d,   in a cut of y > C: F' C / y
 *   if S2 < T2 / 50:  S1 = T1, S2 = T2, B = 0
 *   Lg      = (F' - B + kappa S1) / (kappa S2)
 *             at least -4 L / kappa and -32 top, at most 2 max(C / N, L)
 *   far_max = min(1, max(rho, F / (N L)))
 *   changed = as in core/xcp_flows.h, where N also differs from its mean by
 *             at least 4 x sqrt(mean): few packets per RTT make N noisy
 *   settled = not changed, and |F| <= 0.3 C
 *
 * where L, C / N, F', B and S1 count as at most top = max(C, y).
 *
 * The first term of Lg hands out F', because the sum of g over A is F' - B if
 * the same packets come again. While settled, the grants of far packets do not
 * count in G: their flows cannot use them. They let the flows grow when they
 * are no longer limited elsewhere. While not settled, the law of
 * core/xcp_router.h is in force, with a shuffle of 0 unless changed.
 *
 * Units: sizes in 2^-8 B, 1 / m in 2^-48 per tick, s / m in 2^-16 B/s, X / m
 * in 2^-40, kappa and far_max in 2^-16. Products stay below 2^63: a packet is
 * shorter than 128 KB, m is at least 2^16 ticks, and L X counts as at most
 * 1 MB.
 */
#ifndef XCP_LEVEL_H
#define XCP_LEVEL_H

#include "xcp_fixed.h"

#define XCP_LEVEL_BYTE_BITS 8
#define XCP_LEVEL_LX_MAX (1LL << (20 + XCP_LEVEL_BYTE_BITS))
#define XCP_LEVEL_M_BITS 48
#define XCP_LEVEL_M_MIN (1 << 16) /* ticks, 0.24 ms */
#define XCP_LEVEL_RATE_BITS 16
#define XCP_LEVEL_PART_BITS 40
#define XCP_LEVEL_X2_BITS 20
#define XCP_LEVEL_X_BITS 12

/* 0.2; more makes the queues of small windows long */
#define XCP_LEVEL_KAPPA_MAX 13107
/* 0.025, in 2^-16 and in the unit of x */
#define XCP_LEVEL_KAPPA_X (1638ULL << XCP_LEVEL_X_BITS)
#define XCP_LEVEL_EPS_BITS 4 /* eps = 1/16 */
#define XCP_LEVEL_RHO 4096 /* rho = 1/16 */
#define XCP_LEVEL_FAR_MAX 65536
/* S2 is too small below this part of T2 */
#define XCP_LEVEL_LIMITED_PARTS 50
/* a flow at the level gives back up to 4 times its rate */
#define XCP_LEVEL_CUT_MAX 4
#define XCP_LEVEL_CUT_TOP 32
#define XCP_LEVEL_SETTLED_Q32 XCP_Q32(3, 10)
#define XCP_LEVEL_NOISE 16 /* 4 standard deviations, squared */

enum xcp_level_mode {
	XCP_LEVEL_OFF,
	XCP_LEVEL_COUNTS, /* not settled: packets are only counted */
	XCP_LEVEL_SETTLED,
};

/* Sums over a class of packets. */
struct xcp_level_class {
	uint64_t size_B;
	uint64_t x; /* ticks */
	uint64_t rate; /* sum of s / m, 2^-16 B/s */
	uint64_t part; /* sum of X / m, 2^-40 */
};

/* Sums of departures since start. One per CPU; they only grow. */
struct xcp_level_sums {
	uint64_t x2; /* sum of X^2, 2^20 ticks^2 */
	int64_t less_Bps; /* B */
	struct xcp_level_class limited; /* packets of A that got g */
	struct xcp_level_class less; /* packets of A with less */
	struct xcp_level_class far;
};

/* A rate as a factor of X: X m >> shift is in 2^-8 B. */
struct xcp_level_rate {
	int64_t m; /* below 2^31 */
	uint32_t shift;
	uint32_t unused;
};

/* The result of an interval; constant during the next. */
struct xcp_level_law {
	struct xcp_level_rate l; /* L; 0 if A was empty */
	struct xcp_level_rate lg; /* Lg */
	uint64_t m_min; /* d, at least XCP_LEVEL_M_MIN, ticks */
	uint32_t mode; /* enum xcp_level_mode */
	uint32_t kappa; /* 2^-16 */
	uint32_t far_max; /* 2^-16 */
	uint32_t unused;
};

/* The interval that ends. */
struct xcp_level {
	struct xcp_level_sums sums;
	uint64_t input_traffic_B;
	uint64_t sum_x; /* ticks */
	uint64_t elapsed; /* ticks */
	uint64_t x; /* 2^-12 */
};

/* A packet as the level law sees it. */
struct xcp_level_packet {
	int64_t size; /* s, 2^-8 B */
	int64_t lx; /* L X, 2^-8 B */
	uint64_t per_m; /* 1 / m, 2^-48 per tick */
	bool far;
};

XCP_INLINE int64_t xcp_level_times(const struct xcp_level_rate *rate,
				   uint64_t x)
{
	int64_t lx = ((int64_t)x * rate->m) >> (rate->shift & 63);

	return lx > XCP_LEVEL_LX_MAX ? XCP_LEVEL_LX_MAX : lx;
}

XCP_INLINE struct xcp_level_packet
xcp_level_packet_of(const struct xcp_level_law *law, uint64_t size_B,
		    uint64_t x, uint64_t rtt)
{
	struct xcp_level_packet p;

	p.size = (int64_t)(size_B << XCP_LEVEL_BYTE_BITS);
	p.lx = xcp_level_times(&law->l, x);
	p.per_m = (1ULL << XCP_LEVEL_M_BITS) / xcp_max(rtt, law->m_min);
	p.far = p.size < p.lx - (p.lx >> XCP_LEVEL_EPS_BITS);
	return p;
}

/* Returns g, B/s. */
XCP_INLINE int64_t xcp_level_grant(const struct xcp_level_law *law,
				   const struct xcp_level_packet *p, uint64_t x)
{
	int64_t more, most;

	if (p->far) {
		more = law->kappa * (p->lx - p->size);
		most = law->far_max * p->lx;
		more = more < most ? more : most;
	} else {
		int64_t lgx = xcp_level_times(&law->lg, x);

		lgx = lgx < -XCP_LEVEL_LX_MAX ? -XCP_LEVEL_LX_MAX : lgx;
		more = law->kappa * (lgx - p->size);
	}
	return ((more >> 16) * (int64_t)p->per_m) >>
	       (XCP_LEVEL_M_BITS + XCP_LEVEL_BYTE_BITS - XCP_TICK_SHIFT);
}

/* Counts n departing packets in a class. */
XCP_INLINE void xcp_level_count(struct xcp_level_sums *s,
				struct xcp_level_class *kind, uint32_t n,
				const struct xcp_level_packet *p,
				uint64_t size_B, uint64_t x)
{
	s->x2 += (x * x >> XCP_LEVEL_X2_BITS) * n;
	kind->size_B += size_B * n;
	kind->x += x * n;
	kind->rate += (size_B * p->per_m >> (XCP_LEVEL_M_BITS - XCP_TICK_SHIFT -
					     XCP_LEVEL_RATE_BITS)) *
		      n;
	kind->part +=
		(x * p->per_m >> (XCP_LEVEL_M_BITS - XCP_LEVEL_PART_BITS)) * n;
}

XCP_INLINE void xcp_level_class_since(struct xcp_level_class *c,
				      const struct xcp_level_class *now,
				      const struct xcp_level_class *before)
{
	c->size_B = now->size_B - before->size_B;
	c->x = now->x - before->x;
	c->rate = now->rate - before->rate;
	c->part = now->part - before->part;
}

/* Takes the sums of an interval that ends, all CPUs, and computes x. */
XCP_INLINE void xcp_level_collect(struct xcp_level *l,
				  const struct xcp_level_sums *now,
				  const struct xcp_level_sums *before)
{
	l->sums.x2 = now->x2 - before->x2;
	l->sums.less_Bps = now->less_Bps - before->less_Bps;
	xcp_level_class_since(&l->sums.limited, &now->limited,
			      &before->limited);
	xcp_level_class_since(&l->sums.less, &now->less, &before->less);
	xcp_level_class_since(&l->sums.far, &now->far, &before->far);
	l->x = xcp_num_fixed(
		xcp_num_div(xcp_num_div(xcp_num_scaled(l->sums.x2,
						       XCP_LEVEL_X2_BITS),
					xcp_num_of(l->sum_x)),
			    xcp_num_of(l->elapsed)),
		XCP_LEVEL_X_BITS, 1 << 18);
}

/*
 * Returns the least (N - mean)^2 / mean that is not noise, in the unit of
 * core/xcp_flows.h.
 */
XCP_INLINE uint64_t xcp_level_noise(const struct xcp_level *l)
{
	return (XCP_LEVEL_NOISE * l->x * l->x) >> (2 * XCP_LEVEL_X_BITS - 8);
}

/* Returns kappa, 2^-16. */
XCP_INLINE uint32_t xcp_level_kappa(const struct xcp_level *l)
{
	return (uint32_t)xcp_min(XCP_LEVEL_KAPPA_X / xcp_max(l->x, 1),
				 XCP_LEVEL_KAPPA_MAX);
}

/* A rate in 2^-unit B/s, below 2^48. */
XCP_INLINE struct xcp_level_rate xcp_level_rate_of(uint64_t rate, bool negative,
						   uint32_t unit)
{
	struct xcp_num n = xcp_num_of(rate);
	struct xcp_level_rate r = {xcp_signed(n.m >> 1, negative), 0, 0};
	int32_t shift =
		(int32_t)unit + XCP_TICK_SHIFT - XCP_LEVEL_BYTE_BITS - 1 - n.e;

	/* not negative, because the exponent is at most 16 */
	if (shift > 63)
		r.m = 0;
	else
		r.shift = (uint32_t)shift;
	return r;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Counts the XCP flows of a link, and decides how much of their traffic is
 * shuffled: taken from all flows in proportion to their rates and given back to
 * all in equal parts, which makes their rates equal.
 *
 *   N      = sum_x / elapsed: the X of one flow's packets add up to the time
 *   mean   += (N - mean) / 8
 *   gamma  = 0.4    for 10 intervals after N last differed from its mean by at
 *                   least half a flow and 1/16 of the mean: flows came or went
 *            0.03   otherwise
 *
 * A new flow has its share in a third of the time that the published law takes
 * (gamma = 0.1 always: Katabi, Handley, Rohrs, section 3.5.2). While nothing
 * changes, small windows are not disturbed. The link also stays full if some
 * flows cannot use what shuffling gives them, because another link limits them.
 */
#ifndef XCP_FLOWS_H
#define XCP_FLOWS_H

#include "xcp_fixed.h"

/* Flows are counted in units of 2^-8. */
#define XCP_FLOW_BITS 8

#define XCP_GAMMA_CHANGED_Q32 XCP_Q32(4, 10)
#define XCP_GAMMA_SETTLED_Q32 XCP_Q32(3, 100)
#define XCP_GAMMA_PUBLISHED_Q32 XCP_Q32(1, 10)
/* intervals: 0.6^10 = 1/165 of the difference between shares remains */
#define XCP_FLOWS_CHANGED 10

struct xcp_flows {
	uint32_t now; /* N of the last interval, 2^-8 */
	uint32_t mean; /* 2^-8 */
	uint32_t changed; /* remaining intervals with the larger gamma */
	uint32_t unused;
};

/*
 * Ends an interval of `elapsed_ns` in which X added up to `sum_x` ticks.
 * `noise`: flows have come or gone only if (N - mean)^2 / mean is at least
 * this, in units of 2^-8; 0 in the law without XCP_LAW_LEVEL.
 */
XCP_INLINE void xcp_flows_end(struct xcp_flows *f, uint64_t sum_x,
			      uint64_t elapsed_ns, uint64_t noise)
{
	uint64_t ticks = xcp_max(xcp_ns_to_ticks(elapsed_ns), 1), off;

	f->now = (uint32_t)xcp_min(
		(xcp_min(sum_x, 1ULL << 54) << XCP_FLOW_BITS) / ticks,
		1ULL << 28);
	off = f->now > f->mean ? f->now - f->mean : f->mean - f->now;
	if (off >= 1 << (XCP_FLOW_BITS - 1) && off >= f->mean / 16 &&
	    off * off >= noise * f->mean)
		f->changed = XCP_FLOWS_CHANGED;
	else if (f->changed)
		f->changed--;
	f->mean = (uint32_t)((f->mean * 7ULL + f->now) / 8);
}

/* gamma for the next interval. */
XCP_INLINE uint32_t xcp_flows_gamma(const struct xcp_flows *f, bool published)
{
	if (published)
		return XCP_GAMMA_PUBLISHED_Q32;
	return f->changed ? XCP_GAMMA_CHANGED_Q32 : XCP_GAMMA_SETTLED_Q32;
}

#endif

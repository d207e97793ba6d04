/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Samples of an output link: the bytes dequeued so far, and the backlog.
 * Arriving packets take them; a control interval uses all samples taken in it.
 *
 * In a sample with few packets, the count may be off by one packet at the start
 * and one at the end. So a rate L is compared with bounds of what the link
 * carried:
 *
 *   fallen   busy, and (bytes + 2 packets) / time < 3/4 L
 *   risen    (bytes - 2 packets) / time > 5/4 L
 */
#ifndef XCP_LINK_SAMPLE_H
#define XCP_LINK_SAMPLE_H

#include "xcp_fixed.h"

#define XCP_LINK_TWO_PACKETS_B 3000
/* Smaller samples only bound a rate, unless they last a second. */
#define XCP_LINK_MIN_B 12000

/* Samples of an output link in a control interval. */
struct xcp_link_samples {
	uint64_t now_ns; /* time of the last sample */
	uint64_t sent_B; /* dequeued since start */
	uint64_t backlog_B; /* at the last sample */
	uint64_t min_backlog_B; /* least backlog that a packet found */
	uint64_t free_ns; /* when a packet last found no backlog */
	uint64_t free_sent_B; /* dequeued until then */
};

/* The start of a measurement of a link. */
struct xcp_link_mark {
	uint64_t ns; /* 0: not started */
	uint64_t sent_B; /* dequeued until then */
};

/* Adds the sample that an arriving packet takes. */
XCP_INLINE void xcp_link_sample(struct xcp_link_samples *i, uint64_t now_ns,
				uint64_t sent_B, uint64_t backlog_B)
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
 * The rate of a link since `from`, or since the link was last free, if that
 * rate is far below L; else 0. Also 0 while there is no measurement.
 */
XCP_INLINE uint64_t xcp_link_fell(const struct xcp_link_samples *i,
				  const struct xcp_link_mark *from,
				  uint64_t link_Bps, uint64_t d_ns)
{
	bool rested = i->free_ns > from->ns;
	uint64_t sent_B = i->sent_B - (rested ? i->free_sent_B : from->sent_B);
	uint64_t busy_ns =
		xcp_excess(i->now_ns, rested ? i->free_ns : from->ns);
	uint64_t peak_Bps;

	if (!i->backlog_B || busy_ns < d_ns / 4 || !busy_ns)
		return 0;
	peak_Bps = xcp_rate(sent_B + XCP_LINK_TWO_PACKETS_B, busy_ns);
	if (peak_Bps >= link_Bps - link_Bps / 4)
		return 0;
	return sent_B < XCP_LINK_MIN_B ? peak_Bps
				       : xcp_max(xcp_rate(sent_B, busy_ns), 1);
}

/* Whether a link has carried far more than L. */
XCP_INLINE bool xcp_link_rose(const struct xcp_link_samples *i,
			      const struct xcp_link_mark *from,
			      uint64_t link_Bps, uint64_t d_ns)
{
	uint64_t elapsed_ns = xcp_excess(i->now_ns, from->ns);
	uint64_t least_B =
		xcp_excess(i->sent_B - from->sent_B, XCP_LINK_TWO_PACKETS_B);

	return from->ns && elapsed_ns && elapsed_ns >= d_ns / 4 && least_B &&
	       xcp_rate(least_B, elapsed_ns) > link_Bps + link_Bps / 4;
}

#endif

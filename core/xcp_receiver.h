/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The receiver: adds up what routers granted and returns it.
 *
 *   pending += n delta      for every segment, n wire packets in one
 *   feedback = pending / n  with the next packet back, when that packet will
 *                           be copied n times by segmentation offload
 *   pending -= n feedback   the remainder waits, nothing is lost
 *
 * An ACK without room for the option takes nothing. Feedback beyond what one
 * can say is returned in several pieces.
 *
 * What a lost ACK returned is lost with it. So between hosts that both
 * understand it, `option` returns a running total:
 *
 *   total   += pending / 8         modulo 2^32, in units of 8 B/s
 *   feedback = total               on as many packets as there are
 *   sender:    change = feedback - the last one seen
 *
 * The next ACK that arrives has all of it. ACKs in another order are no matter:
 * what one of them takes back, the next one gives. Between two ACKs that arrive
 * the total may move by 2^31 units, 17 GB/s: more than a link of 100 Gb/s has
 * to give.
 */
#ifndef XCP_RECEIVER_H
#define XCP_RECEIVER_H

#include "xcp_option_2005.h"

struct xcp_receiver {
	int64_t pending; /* received, not yet returned: B/s, or 2^-12 packets */
	uint32_t total; /* returned so far, 8 B/s */
	uint8_t xcp_hops; /* as the last forward header told */
	uint8_t other_hops;
	uint8_t totals; /* the other end understands them */
};

#define XCP_TOTAL_SHIFT 3 /* a unit is 8 B/s */

/* A forward header arrived that stands for n wire packets. */
XCP_INLINE void xcp_receiver_add(struct xcp_receiver *r, int32_t delta,
				 uint32_t n)
{
	r->pending += (int64_t)delta * n;
}

/* What to write on a packet that will be copied n times. */
XCP_INLINE int32_t xcp_receiver_take(struct xcp_receiver *r, uint32_t n)
{
	int64_t part = xcp_part(r->pending, n), feedback;

	feedback = xcp_signed(xcp_min(xcp_size(part), INT32_MAX), part < 0);
	r->pending -= feedback * n;
	return (int32_t)feedback;
}

/* What it adds to the total, in B/s; what is less than a unit waits. */
XCP_INLINE int64_t xcp_receiver_total(struct xcp_receiver *r)
{
	int64_t units = r->pending >> XCP_TOTAL_SHIFT;

	r->total += (uint32_t)units;
	r->pending &= (1 << XCP_TOTAL_SHIFT) - 1;
	return units * (1 << XCP_TOTAL_SHIFT);
}

/* Is there anything to return? */
XCP_INLINE bool xcp_receiver_owes(const struct xcp_receiver *r)
{
	return r->totals ? r->pending >> XCP_TOTAL_SHIFT : r->pending;
}

/* The sender's side: what a total says beyond the last one seen, in B/s. */
XCP_INLINE int64_t xcp_total_change(uint32_t *seen, int32_t total)
{
	uint32_t change = (uint32_t)total - *seen;

	*seen = (uint32_t)total;
	return (int64_t)(int32_t)change * (1 << XCP_TOTAL_SHIFT);
}

/* The same in the format `option-2005`: what H_feedback cannot say waits. */
XCP_INLINE void xcp_receiver_add_2005(struct xcp_receiver *r, uint16_t feedback,
				      uint32_t n)
{
	r->pending += xcp_2005_value(feedback) * n;
}

XCP_INLINE uint16_t xcp_receiver_take_2005(struct xcp_receiver *r, uint32_t n)
{
	uint16_t feedback = xcp_2005_code(xcp_part(r->pending, n), false);

	r->pending -= xcp_2005_value(feedback) * n;
	return feedback;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The receiver: adds up the deltas that routers granted and returns them.
 *
 *   pending += n delta      for every segment of n wire packets
 *   feedback = pending / n  on the next packet back, if segmentation offload
 *                           will copy that packet n times
 *   pending -= n feedback   the remainder waits, nothing is lost
 *
 * An ACK without room for the option takes nothing. Feedback beyond the largest
 * value of one option is returned in several pieces.
 *
 * The feedback of a lost ACK is lost too. So between hosts that both understand
 * it, `option` returns a running total:
 *
 *   total   += pending / 8         modulo 2^32, in units of 8 B/s
 *   feedback = total               on as many packets as there are
 *   sender:    change = feedback - the last feedback seen
 *
 * The next ACK that arrives has all of it. Reordered ACKs do no harm: an older
 * total lowers the sum, and the next one raises it again. Between two ACKs that
 * arrive the total may move by 2^31 units, 17 GB/s: more than the rate of a
 * 100 Gb/s link.
 */
#ifndef XCP_RECEIVER_H
#define XCP_RECEIVER_H

#include "xcp_option_2005.h"

struct xcp_receiver {
	int64_t pending; /* received, not yet returned: B/s, or 2^-12 packets */
	uint32_t total; /* returned so far, 8 B/s */
	uint8_t xcp_hops; /* from the last forward header */
	uint8_t other_hops; /* from the last forward header */
	uint8_t totals; /* the peer understands running totals */
};

#define XCP_TOTAL_SHIFT 3 /* a unit is 8 B/s */

/* Adds a received forward header that stands for n wire packets. */
XCP_INLINE void xcp_receiver_add(struct xcp_receiver *r, int32_t delta,
				 uint32_t n)
{
	r->pending += (int64_t)delta * n;
}

/* The feedback to write on a packet that will be copied n times. */
XCP_INLINE int32_t xcp_receiver_take(struct xcp_receiver *r, uint32_t n)
{
	int64_t part = xcp_part(r->pending, n), feedback;

	feedback = xcp_signed(xcp_min(xcp_abs(part), INT32_MAX), part < 0);
	r->pending -= feedback * n;
	return (int32_t)feedback;
}

/* Moves whole units from pending to the total; returns them in B/s. */
XCP_INLINE int64_t xcp_receiver_total(struct xcp_receiver *r)
{
	int64_t units = r->pending >> XCP_TOTAL_SHIFT;

	r->total += (uint32_t)units;
	r->pending &= (1 << XCP_TOTAL_SHIFT) - 1;
	return units * (1 << XCP_TOTAL_SHIFT);
}

/* Whether there is feedback to return. */
XCP_INLINE bool xcp_receiver_has_feedback(const struct xcp_receiver *r)
{
	return r->totals ? r->pending >> XCP_TOTAL_SHIFT : r->pending;
}

/* At the sender: the change from the last total to this one, in B/s. */
XCP_INLINE int64_t xcp_total_change(uint32_t *seen, int32_t total)
{
	uint32_t change = (uint32_t)total - *seen;

	*seen = (uint32_t)total;
	return (int64_t)(int32_t)change * (1 << XCP_TOTAL_SHIFT);
}

/*
 * xcp_receiver_add in the format `option-2005`; the part that rounding leaves
 * out of H_feedback stays pending.
 */
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

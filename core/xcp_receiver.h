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
 */
#ifndef XCP_RECEIVER_H
#define XCP_RECEIVER_H

#include "xcp_option_2005.h"

struct xcp_receiver {
	int64_t pending; /* received, not yet returned: B/s, or 2^-12 packets */
	uint8_t xcp_hops; /* as the last forward header told */
	uint8_t other_hops;
};

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

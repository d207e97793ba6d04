/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The receiver: adds up what routers granted and returns it.
 *
 *   pending += n delta      for every segment, n wire packets in one
 *   feedback = pending / n  with the next packet back, when that packet will
 *                           be copied n times by segmentation offload
 *   pending -= n feedback   the remainder waits, nothing is lost
 *
 * An ACK without room for the option takes nothing. Feedback beyond 32 bits
 * is returned in several pieces.
 */
#ifndef XCP_RECEIVER_H
#define XCP_RECEIVER_H

#include "xcp_fixed.h"

struct xcp_receiver {
	int64_t pending_Bps; /* received, not yet returned */
	uint8_t xcp_hops; /* as the last forward header told */
	uint8_t other_hops;
};

/* A forward header arrived that stands for n wire packets. */
XCP_INLINE void xcp_receiver_add(struct xcp_receiver *r, int32_t delta,
				 uint32_t n)
{
	r->pending_Bps += (int64_t)delta * n;
}

/* What to write on a packet that will be copied n times. */
XCP_INLINE int32_t xcp_receiver_take(struct xcp_receiver *r, uint32_t n)
{
	bool down = r->pending_Bps < 0;
	uint64_t size =
		down ? 0 - (uint64_t)r->pending_Bps : (uint64_t)r->pending_Bps;
	int64_t feedback;

	if (n > 1)
		size /= n;
	feedback = (int64_t)xcp_min(size, INT32_MAX);
	if (down)
		feedback = -feedback;
	r->pending_Bps -= feedback * n;
	return (int32_t)feedback;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Service of two queues, A and B, by weight: start-time fair queueing (Goyal,
 * Vin & Cheng, SIGCOMM 1996), which for two queues needs one number.
 *
 *   w      weight of A, 2^-16; B has the rest; 0 means half
 *   owed   what A is owed of the link; what B is owed if negative
 *                                                        2^-16 B
 *   A sends n bytes:   owed -= n (1 - w)
 *   B sends n bytes:   owed += n w
 *   next is A while owed >= 0, B while owed < 0; the other if that has none
 *
 * While both have packets, neither is ever ahead by more than one packet. What
 * a queue without packets leaves to the other is gone, all but the packet that
 * began last: of what a queue without packets is owed, no more is kept than
 * that packet gives it. What it is ahead by, it still pays. So A, coming with
 * no more than its weight, never waits for more than one packet of B's.
 */
#ifndef XCP_SERVICE_H
#define XCP_SERVICE_H

#include "xcp_fixed.h"

#define XCP_SERVICE_ALL (1 << 16)
#define XCP_SERVICE_HALF (1 << 15)

/* Whether the next packet is A's; one of them has one. */
XCP_INLINE bool xcp_service_a_next(int64_t owed, bool a_has, bool b_has)
{
	return a_has && (!b_has || owed >= 0);
}

/* `owed` after a packet of A's, or B's; `other_has` packets. */
XCP_INLINE int64_t xcp_service_sent(int64_t owed, uint32_t weight, bool a,
				    bool other_has, uint64_t bytes)
{
	uint32_t w = weight ? weight : XCP_SERVICE_HALF;

	if (a) {
		if (!other_has && owed < 0)
			owed = 0;
		return owed - (int64_t)(bytes * (XCP_SERVICE_ALL - w));
	}
	if (!other_has && owed > 0)
		owed = 0;
	return owed + (int64_t)(bytes * w);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Service of two queues, A and B, by weight: start-time fair queueing (Goyal,
 * Vin & Cheng, SIGCOMM 1996), which for two queues needs one number.
 *
 *   w        weight of A, 2^-16; B has the rest; 0 means half
 *   deficit  what A may send before B, 2^-16 B; negative: B before A
 *   A sends n bytes:  deficit -= n (1 - w)
 *   B sends n bytes:  deficit += n w
 *   next is A while deficit >= 0, else B; the other if that one is empty
 *
 * While both have packets, neither is ever ahead by more than one packet. What
 * a queue without packets leaves to the other is gone, all but the packet that
 * began last: a queue without packets keeps no more of its deficit than
 * that packet gives it. What it is ahead by, it still pays. So A, coming with
 * no more than its weight, never waits for more than one packet of B's.
 */
#ifndef XCP_SERVICE_H
#define XCP_SERVICE_H

#include "xcp_fixed.h"

#define XCP_SERVICE_ALL (1 << 16)
#define XCP_SERVICE_HALF (1 << 15)

/* Whether the next packet is A's; one of them has one. */
XCP_INLINE bool xcp_service_a_next(int64_t deficit, bool a_has, bool b_has)
{
	return a_has && (!b_has || deficit >= 0);
}

/* `deficit` after a packet of A's, or B's; `other_has` packets. */
XCP_INLINE int64_t xcp_service_sent(int64_t deficit, uint32_t weight, bool a,
				    bool other_has, uint64_t bytes)
{
	uint32_t w = weight ? weight : XCP_SERVICE_HALF;

	if (a) {
		if (!other_has && deficit < 0)
			deficit = 0;
		return deficit - (int64_t)(bytes * (XCP_SERVICE_ALL - w));
	}
	if (!other_has && deficit > 0)
		deficit = 0;
	return deficit + (int64_t)(bytes * w);
}

#endif

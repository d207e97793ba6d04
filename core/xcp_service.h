/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Serves two queues, A and B, by weight: start-time fair queueing (Goyal, Vin &
 * Cheng, SIGCOMM 1996), which needs only one number for two queues.
 *
 *   w        weight of A, 2^-16; B has the rest; 0 means one half
 *   deficit  what A may send before B, 2^-16 B; negative: B before A
 *   A sends n bytes:  deficit -= n (1 - w)
 *   B sends n bytes:  deficit += n w
 *   next is A while deficit >= 0, else B; the other if that one is empty
 *
 * While both have packets, neither is ever ahead by more than one packet. An
 * empty queue loses the service that the other one gets in the meantime, except
 * for the last packet begun: its deficit is at most what that packet gives it.
 * But a queue that is ahead still pays for it. So if the arrivals of A are
 * within its weight, A never waits for more than one packet of B.
 */
#ifndef XCP_SERVICE_H
#define XCP_SERVICE_H

#include "xcp_fixed.h"

#define XCP_SERVICE_ALL (1 << 16)
#define XCP_SERVICE_HALF (1 << 15)

/* Whether the next packet is from A. At least one queue has a packet. */
XCP_INLINE bool xcp_service_a_next(int64_t deficit, bool a_has, bool b_has)
{
	return a_has && (!b_has || deficit >= 0);
}

/*
 * The deficit after a packet of A (`a`) or B; `other_has`: the other queue has
 * packets.
 */
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

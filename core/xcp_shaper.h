/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The shaper of a link: a virtual clock.
 *
 *   C      what the link carries                                B/s
 *   free   when it will have sent all that has begun            ns
 *   slot   when a queue may begin its next packet               ns
 *
 * A queue takes a slot for its first packet, and the next slot as soon as it
 * has begun a packet and has more:
 *
 *   slot = max(free, now)             nothing has waited
 *   slot = max(free, now - LATE)      something has waited for its slot
 *   free = slot + B / C               a packet of B bytes begins
 *
 * So a timer that is late loses no rate, up to LATE, and an idle link saves
 * nothing up. The rest of the division is carried: the rate is exact.
 *
 * Queues of one medium (both directions of a half-duplex link, VLANs of one
 * trunk) have one `free`. There a slot is taken for the length of the packet
 * that waits, `held`, and free = slot + held at once: the next queue's slot is
 * behind it, and queues that have packets take turns. When a packet begins,
 * another perhaps, the difference is made up for: free += B / C - held.
 */
#ifndef XCP_SHAPER_H
#define XCP_SHAPER_H

#include "xcp_fixed.h"

/* What softirqs and timers of virtual machines are late by at times. */
#define XCP_SHAPER_LATE_NS 1000000ULL

/* A queue's part; the clock `free` is where all queues of a medium see it. */
struct xcp_shaper {
	uint64_t slot_ns;
	uint64_t held_ns;
	uint64_t rest; /* of B / C, in units of 1 / C ns */
	uint32_t has_slot;
	uint32_t unused;
};

/* How long `bytes` (below 2^32) take; rate_Bps is not 0. */
XCP_INLINE uint64_t xcp_shaper_time(uint64_t rate_Bps, uint64_t bytes)
{
	return bytes * XCP_NSEC_PER_SEC / rate_Bps;
}

/* The same for a packet that begins. */
XCP_INLINE uint64_t xcp_shaper_spend(struct xcp_shaper *s, uint64_t rate_Bps,
				     uint64_t bytes)
{
	uint64_t ns = bytes * XCP_NSEC_PER_SEC + s->rest;

	s->rest = ns % rate_Bps;
	return ns / rate_Bps;
}

/* The next slot's begin. */
XCP_INLINE uint64_t xcp_shaper_slot(uint64_t free_ns, uint64_t now_ns,
				    bool waited)
{
	uint64_t late = waited ? XCP_SHAPER_LATE_NS : 0;

	return xcp_max(free_ns, xcp_excess(now_ns, late));
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The shaper of a link: a virtual clock.
 *
 *   C      what the link carries                                B/s
 *   free   when the link will have sent all packets begun       ns
 *   slot   when a queue may begin its next packet               ns
 *
 * A queue takes a slot for its first packet, and the next slot as soon as it
 * has begun a packet and has more:
 *
 *   slot = max(free, now)             if no packet has waited
 *   slot = max(free, now - LATE)      if a packet has waited for its slot
 *   free = slot + B / C               a packet of B bytes begins
 *
 * So a timer that is late by up to LATE loses no rate, and an idle link gains
 * no credit. The remainder of the division is carried over, so the rate is
 * exact.
 *
 * If C rises while a packet is being sent, the packet takes from then on at
 * most its time at the new rate. So slots in the far future are checked again.
 *
 * Queues of one medium (both directions of a half-duplex link, VLANs of one
 * trunk) share one `free`. There a slot is paid for when it is taken, by the
 * length of the waiting packet, so that the next queue's slot is after it. The
 * clock never goes back: queues that always have packets alternate. A queue
 * that begins a longer packet pays the difference then; for a shorter one, the
 * difference is its credit for the next slot.
 */
#ifndef XCP_SHAPER_H
#define XCP_SHAPER_H

#include "xcp_fixed.h"

/* LATE: delays of softirqs and timers seen in virtual machines. */
#define XCP_SHAPER_LATE_NS 1000000ULL

/* A slot that is farther in the future is checked again after this time. */
#define XCP_SHAPER_LOOK_NS 20000000ULL

/* The state of one queue; the clock `free` is shared by the medium's queues. */
struct xcp_shaper {
	uint64_t slot_ns;
	uint64_t paid_ns; /* time paid for the slot */
	uint64_t credit_ns; /* paid for longer packets than were sent */
	uint64_t rest; /* remainder of B / C, in units of 1 / C ns */
	uint32_t has_slot;
	uint32_t last_B; /* size of the last packet begun */
};

/* The time to send `bytes` (below 2^32); rate_Bps is not 0. */
XCP_INLINE uint64_t xcp_shaper_time(uint64_t rate_Bps, uint64_t bytes)
{
	return bytes * XCP_NSEC_PER_SEC / rate_Bps;
}

/*
 * Takes the next slot and pays pay_ns; `waited`: the queue has had packets
 * since its last one began.
 */
XCP_INLINE void xcp_shaper_take(struct xcp_shaper *s, uint64_t *free_ns,
				uint64_t now_ns, uint64_t pay_ns, bool waited)
{
	uint64_t late = waited ? XCP_SHAPER_LATE_NS : 0;
	uint64_t credit = xcp_min(s->credit_ns, pay_ns);
	uint64_t free = *free_ns;
	uint64_t slot = xcp_max(free, xcp_excess(now_ns, late));
	uint64_t next = slot + pay_ns - credit;

	/* another queue took this slot: then the clock is not late */
	if (!__sync_bool_compare_and_swap(free_ns, free, next))
		slot = __sync_fetch_and_add(free_ns, pay_ns - credit);
	s->slot_ns = slot;
	s->paid_ns = pay_ns;
	s->credit_ns -= credit;
	s->has_slot = 1;
}

/* A packet of `bytes` (below 2^32) begins in the slot. */
XCP_INLINE void xcp_shaper_begin(struct xcp_shaper *s, uint64_t *free_ns,
				 uint64_t rate_Bps, uint64_t bytes)
{
	uint64_t work = bytes * XCP_NSEC_PER_SEC + s->rest;
	uint64_t ns = work / rate_Bps;

	s->rest = work % rate_Bps;
	s->last_B = (uint32_t)bytes;
	s->has_slot = 0;
	if (ns >= s->paid_ns)
		__sync_fetch_and_add(free_ns, ns - s->paid_ns);
	else
		s->credit_ns += s->paid_ns - ns;
}

/* When to check the slot; no packet of another queue is before it. */
XCP_INLINE uint64_t xcp_shaper_next_check(struct xcp_shaper *s,
					  uint64_t *free_ns, uint64_t now_ns,
					  uint64_t rate_Bps)
{
	uint64_t late_ns, last_ns;

	if (s->slot_ns <= now_ns + XCP_SHAPER_LOOK_NS)
		return s->slot_ns;
	/* the remainder may have added 1 ns */
	last_ns = now_ns + xcp_shaper_time(rate_Bps, s->last_B) + 1;
	late_ns = xcp_excess(s->slot_ns, last_ns);
	s->slot_ns -= late_ns;
	*free_ns -= late_ns;
	return xcp_min(s->slot_ns, now_ns + XCP_SHAPER_LOOK_NS);
}

#endif

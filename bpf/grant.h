/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* How a router counts a forward header and grants its delta. */
#ifndef XCP_BPF_GRANT_H
#define XCP_BPF_GRANT_H

#include "control_interval.h"
#include "maps_router.h"

/* The n equal wire packets that a GSO packet stands for. */
struct gso_burst {
	__u32 n;
	__u32 chain; /* 1: packets with headers of their own: segments.h */
	__u64 bytes; /* of all n */
};

/* The length of one of the n packets. */
static __always_inline __u32 length_of(const struct gso_burst *s)
{
	return (__u32)(s->n > 1 ? s->bytes / s->n : s->bytes);
}

/*
 * xcp_router_level, verified once. `x_rtt` has X and the RTT of a claim: the
 * stack has no room for a copy of it.
 */
__noinline int grant_level(struct xcp_router_cpu *cpu, __u64 size_B,
			   __u64 x_rtt, __u32 n, __s32 delta)
{
	struct xcp_claim c = {size_B, x_rtt >> 32, x_rtt & 0xffffffff};

	return cpu ? xcp_router_level(&link.law[cpu->epoch & 1], &cpu->sums, n,
				      &c, delta)
		   : 0;
}

/* Counts a forward header and returns the granted delta, for each of s->n. */
static __always_inline __s32 grant_inline(struct xcp_router_cpu *cpu,
					  const struct xcp_forward *h,
					  const struct gso_burst *s)
{
	struct xcp_router_law *law = law_in_force(cpu);
	__s32 delta = h->delta;
	struct xcp_claim c;
	__u32 n = s->n;

	c = xcp_router_claim(law, length_of(s), h->x, h->rtt);
	if (c.rtt)
		xcp_router_arrival_xcp(&cpu->sums, n, &c);
	cpu->counters.xcp_packets += n;
	if (XCP_LIKELY(law->level.mode != XCP_LEVEL_SETTLED)) {
		delta = xcp_router_departure(law, &cpu->pool, n, &c, delta);
		xcp_router_granted(law, &cpu->sums, n, &c, delta);
	}
	if (XCP_UNLIKELY(law->level.mode))
		delta = grant_level(cpu, c.size_B, c.x << 32 | c.rtt, n, delta);
	cpu->counters.granted_Bps += (__s64)delta * n;
	return delta;
}

/* The same, verified once. */
__noinline int grant(struct xcp_router_cpu *cpu, const struct xcp_forward *h,
		     const struct gso_burst *s)
{
	return cpu && h && s ? grant_inline(cpu, h, s) : 0;
}

/*
 * Merges a chain of packets with a forward header into one GSO packet
 * (segments.h), so that the edit of its header reaches all of them. False if
 * that fails: then none of them may be edited. Pointers into the packet are
 * invalid afterwards.
 */
static __always_inline bool merge_chain(struct __sk_buff *skb,
					struct xcp_router_cpu *cpu,
					const struct gso_burst *s)
{
	if (!options.merge_chains || bpf_skb_pull_data(skb, skb->len)) {
		cpu->counters.chained_unedited += s->n;
		return false;
	}
	cpu->counters.chained += s->n;
	return true;
}

#endif

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

/* Counts a forward header and returns the granted delta. */
static __always_inline __s32 grant(struct xcp_router_cpu *cpu,
				   const struct xcp_forward *h, __u32 n,
				   __u64 bytes)
{
	struct xcp_router_law *law = law_in_force(cpu);
	struct xcp_claim c;
	__s32 delta;

	if (n > 1)
		bytes /= n;
	c = xcp_router_claim(law, bytes, h->x, h->rtt);
	if (c.rtt)
		xcp_router_arrival_xcp(&cpu->sums, n, &c);
	delta = xcp_router_departure(law, &cpu->pool, n, &c, h->delta);
	cpu->counters.xcp_packets += n;
	xcp_router_granted(law, &cpu->sums, n, &c, delta);
	cpu->counters.granted_Bps += (__s64)delta * n;
	return delta;
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

__noinline int grant_slow_path(struct xcp_router_cpu *cpu,
			       struct xcp_forward *h, struct gso_burst *s)
{
	return cpu && h && s ? grant(cpu, h, s->n, s->bytes) : 0;
}

#endif

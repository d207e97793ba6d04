/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* core/ as functions with C linkage: build.rs defines XCP_INLINE as empty. */
#include "core.h"

void xcp_bench_packets(const struct xcp_router_law *law,
		       struct xcp_router_pool *pool,
		       struct xcp_router_sums *sums,
		       struct xcp_bench_packet *packets, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct xcp_bench_packet *p = &packets[i];
		struct xcp_claim c =
			xcp_router_claim(law, p->size_B, p->x, p->rtt);

		xcp_router_arrival(sums, p->size_B * p->n);
		if (c.rtt)
			xcp_router_arrival_xcp(sums, p->n, &c);
		p->granted =
			xcp_router_grant(law, pool, sums, p->n, &c, p->delta);
	}
}

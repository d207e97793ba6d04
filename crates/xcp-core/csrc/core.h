/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* All of core/, and a loop over packets for benches. */
#ifndef XCP_CORE_H
#define XCP_CORE_H

#include <stddef.h>

#include "xcp_cloud.h"
#include "xcp_loss.h"
#include "xcp_receiver.h"
#include "xcp_router.h"
#include "xcp_service.h"
#include "xcp_shaper.h"
#include "xcp_wire.h"

/* A packet with a forward header. */
struct xcp_bench_packet {
	uint64_t size_B;
	uint64_t x; /* ticks */
	uint64_t rtt; /* ticks */
	uint32_t n; /* number of wire packets that it stands for */
	int32_t delta; /* B/s, requested */
	int32_t granted; /* B/s: the result */
	uint32_t unused;
};

/* Passes packets through a router; measures the cost without Rust calls. */
void xcp_bench_packets(const struct xcp_router_law *law,
		       struct xcp_router_pool *pool,
		       struct xcp_router_sums *sums,
		       struct xcp_bench_packet *packets, size_t count);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * One link shared by XCP and other traffic, each with its own queue.
 *
 *   C    what the link carries                                 B/s
 *   o    arrivals at the queue of other traffic                B/s
 *   N    XCP flows
 *   M    flows of other traffic
 *   w    XCP's share, N / (N + M), or as configured
 *   Cx   what XCP hands out                                    B/s
 *          w C             while the other queue never empties
 *          max(w C, C - o) otherwise: what other traffic does not use
 *
 * Katabi, Handley and Rohrs (SIGCOMM 2002, section 6) weigh the two queues
 * until the average rates of both kinds agree, and compute TCP's from its
 * losses. Here flows are counted, also without per-flow state:
 *
 *   N    core/xcp_flows.h
 *   M    Of two bytes taken at random, the chance p that one flow sent both is
 *        the sum of the squares of the flows' shares. 1 / p is the number of
 *        flows if they are alike; flows that send little, such as ACKs, hardly
 *        count. One byte in C / 32 is sampled, and the hash of its flow is
 *        compared with those of the last XCP_SAMPLES bytes. All CPUs share the
 *        samples; otherwise a flow on several CPUs would count several times.
 *        After 4 s without a sample, all samples are discarded.
 *
 * Without XCP flows, the XCP queue holds only ACKs, which should go first: w is
 * one half, and ACKs need little of that.
 *
 * A host that sends from many ports counts as many flows. So w is limited to 5
 * to 95 %. A configured share is not changed.
 */
#ifndef XCP_SHARING_H
#define XCP_SHARING_H

#include "xcp_flows.h"

#define XCP_SHARE_ONE 65536
#define XCP_SHARE_MIN (XCP_SHARE_ONE / 20)
#define XCP_SHARE_MAX (XCP_SHARE_ONE - XCP_SHARE_MIN)
#define XCP_SAMPLES 32
#define XCP_SAMPLE_PAIRS_MAX 8192
#define XCP_SAMPLE_MEMORY_NS (4 * XCP_NSEC_PER_SEC)

/* Estimates the number of flows of other traffic from sampled bytes. */
struct xcp_sampler {
	uint64_t last_ns; /* time of the last sample */
	uint32_t hash[XCP_SAMPLES]; /* flows of the last samples, 0: none */
	uint32_t next; /* samples so far */
	uint32_t pairs; /* compared pairs */
	uint32_t same; /* pairs whose two bytes were of one flow */
	uint32_t busy; /* a CPU is using the sampler */
};

/* The queue of other traffic in a control interval. */
struct xcp_sharing_interval {
	uint64_t other_B; /* bytes that arrived since start */
	uint64_t other_min_backlog_B; /* least backlog found */
	uint32_t other_flows; /* M, 2^-8 */
	uint32_t share; /* configured, 2^-16; 0: by flow counts */
};

struct xcp_sharing {
	uint64_t seen_other_B; /* other_B of the last interval */
	uint64_t other_Bps; /* o */
	uint32_t share; /* w, 2^-16 */
	uint32_t unused;
};

/*
 * Counts a packet of other traffic on one CPU; the next sample is due after
 * `left_B` more bytes. Returns true if this packet's flow is to be sampled.
 */
XCP_INLINE bool xcp_sampler_due(uint64_t *left_B, uint64_t bytes,
				uint64_t every_B)
{
	if (XCP_LIKELY(bytes < *left_B)) {
		*left_B -= bytes;
		return false;
	}
	*left_B = every_B;
	return true;
}

/* Whether the last sample is too old. */
XCP_INLINE bool xcp_sampler_stale(const struct xcp_sampler *s, uint64_t now_ns)
{
	return xcp_excess(now_ns, s->last_ns) > XCP_SAMPLE_MEMORY_NS;
}

XCP_INLINE void xcp_sampler_add(struct xcp_sampler *s, uint32_t hash,
				uint64_t now_ns)
{
	uint32_t i;

	if (XCP_UNLIKELY(xcp_sampler_stale(s, now_ns))) {
		__builtin_memset(s->hash, 0, sizeof(s->hash));
		s->pairs = 0;
		s->same = 0;
	}
	s->last_ns = now_ns;
	hash |= 1; /* 0 means no sample */
	for (i = 0; i < XCP_SAMPLES; i++) {
		s->pairs += s->hash[i] != 0;
		s->same += s->hash[i] == hash;
	}
	s->hash[s->next++ % XCP_SAMPLES] = hash;
	if (s->pairs > XCP_SAMPLE_PAIRS_MAX) {
		s->pairs /= 2;
		s->same /= 2;
	}
}

/* M, 2^-8; 0 before the first comparison, and while samples are too old. */
XCP_INLINE uint32_t xcp_sampler_flows(const struct xcp_sampler *s,
				      uint64_t now_ns)
{
	if (xcp_sampler_stale(s, now_ns))
		return 0;
	return (s->pairs << XCP_FLOW_BITS) / (s->same ? s->same : 1);
}

/*
 * Ends an interval of `elapsed_ns` with N = `flows` (2^-8) on average. Returns
 * Cx for a link that carries `c_Bps`.
 */
XCP_INLINE uint64_t xcp_sharing_end(struct xcp_sharing *s,
				    const struct xcp_sharing_interval *i,
				    uint32_t flows, uint64_t elapsed_ns,
				    uint64_t c_Bps)
{
	uint64_t other_B = i->other_B - s->seen_other_B, all, least;
	uint32_t share = i->share;

	s->seen_other_B = i->other_B;
	s->other_Bps = xcp_rate(other_B, elapsed_ns);
	if (!share) {
		all = (uint64_t)flows + i->other_flows;
		share = flows ? (uint32_t)((uint64_t)flows * XCP_SHARE_ONE /
					   all)
			      : XCP_SHARE_ONE / 2;
		share = (uint32_t)xcp_min(xcp_max(share, XCP_SHARE_MIN),
					  XCP_SHARE_MAX);
	}
	s->share = share;
	least = xcp_num_fixed(
		xcp_num_mul(xcp_num_of(c_Bps), xcp_num_scaled(share, -16)), 0,
		c_Bps);
	if (i->other_min_backlog_B)
		return least;
	return xcp_max(least, xcp_excess(c_Bps, s->other_Bps));
}

#endif

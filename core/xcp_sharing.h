/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * One link for XCP and for other traffic, each with a queue of its own.
 *
 *   C    what the link carries                                 B/s
 *   o    what arrives at the other queue                       B/s
 *   N    flows of XCP
 *   M    flows of other traffic
 *   w    XCP's share, N / (N + M), or as it was set
 *   Cx   what XCP hands out                                    B/s
 *          w C             while the other queue never rests
 *          max(w C, C - o) otherwise: what it leaves
 *
 * Katabi, Handley and Rohrs (SIGCOMM 2002, section 6) weigh the two queues
 * until the average rates of both kinds agree, and compute TCP's from its
 * losses. Here flows are counted, still with no state for any of them:
 *
 *   N    core/xcp_flows.h
 *   M    Of two bytes taken at random, the chance p that one flow sent both is
 *        the sum of the squares of the flows' parts; 1 / p is their number if
 *        they are alike, and hardly counts those that send little, such as
 *        ACKs. A byte is looked at every C / 32; its flow's hash is compared
 *        with those of the last XCP_SAMPLES bytes. All CPUs compare with each
 *        other's, or a flow that several of them carry would count for
 *        several. Where less than a byte in C * 4 s is looked at, what was seen
 *        is forgotten.
 *
 * Without a flow of XCP its queue holds ACKs, which go first: w is a half, of
 * which they need little.
 *
 * Who sends from many ports at once is many flows. So w is held between 5 and
 * 95 %; a share that is set does not move.
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

/* Compares the flows of bytes of other traffic. */
struct xcp_sampler {
	uint64_t last_ns; /* when it last looked at one */
	uint32_t hash[XCP_SAMPLES];
	uint32_t next;
	uint32_t pairs; /* compared */
	uint32_t same; /* of them, of one flow */
	uint32_t busy; /* a CPU is at it */
};

/* The other queue in a control interval. */
struct xcp_sharing_interval {
	uint64_t other_B; /* arrived since the beginning of time */
	uint64_t other_min_backlog_B; /* that was found */
	uint32_t other_flows; /* M, 2^-8 */
	uint32_t share; /* as set, 2^-16; 0: by flow counts */
};

struct xcp_sharing {
	uint64_t seen_other_B;
	uint64_t other_Bps; /* o */
	uint32_t share; /* w, 2^-16 */
	uint32_t unused;
};

/*
 * Counts a packet of other traffic on one CPU, `left_B` before the next byte to
 * look at; true if its flow is to be looked at.
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

/* Is it too long ago that it looked at a flow? */
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
	hash |= 1; /* 0: none yet */
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

/* M, 2^-8; 0 before anything was compared, and after it was forgotten. */
XCP_INLINE uint32_t xcp_sampler_flows(const struct xcp_sampler *s,
				      uint64_t now_ns)
{
	if (xcp_sampler_stale(s, now_ns))
		return 0;
	return (s->pairs << XCP_FLOW_BITS) / (s->same ? s->same : 1);
}

/*
 * Takes in an interval of `elapsed_ns` with N = `flows` (2^-8) on average.
 * Returns Cx, for a link that carries `c_Bps`.
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

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Checks that a router's state stays within its bounds for any sequence of
 * packets, clocks and counters. The sequence is drawn from the numbers of the
 * input. When the numbers are used again, a generator seeded by them changes
 * them.
 */
#include "fuzz.h"
#include "../xcp_router.h"

#define STEPS 64

struct sequence {
	struct input *in;
	uint64_t state;
};

/* A number of any magnitude; extremes are frequent. */
static uint64_t any(struct sequence *q)
{
	uint64_t v = draw(q->in);

	q->state = q->state * 6364136223846793005ULL + 1442695040888963407ULL;
	if (q->in->drawn > NUMBERS)
		v ^= q->state;
	switch (v >> 61) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX >> (v & 63);
	case 2:
		return 1ULL << (v & 63);
	default:
		return v >> (v & 63);
	}
}

struct router {
	struct xcp_router_params params;
	struct xcp_router_state state;
	struct xcp_router_law law;
	struct xcp_router_sums sums;
	struct xcp_router_pool pool;
	struct xcp_link_samples seen;
	struct xcp_sharing_interval other;
	uint64_t now_ns;
};

static void check_state(const struct router *r)
{
	const struct xcp_router_state *s = &r->state;
	uint64_t most_Bps =
		r->params.peak_Bps ? r->params.peak_Bps : XCP_CAPACITY_MAX_BPS;

	CHECK(s->interval_ns <= XCP_NS_MAX + 1);
	CHECK(xcp_num_fixed(s->d, 0, UINT64_MAX) <= XCP_TICKS_MAX);
	CHECK(s->tq_ns >= XCP_MIN_TQ_NS && s->tq_ns <= XCP_NS_MAX);
	CHECK(s->capacity.link_Bps <= most_Bps);
	CHECK(s->capacity.dequeued_Bps <= most_Bps);
	CHECK(s->sharing.share <= XCP_SHARE_MAX);
	CHECK(r->law.pos_pool < 1ULL << XCP_POOL_BITS);
	CHECK(r->law.neg_pool < 1ULL << XCP_POOL_BITS);
	CHECK(r->pool.pos < 1ULL << XCP_POOL_BITS);
	CHECK(r->pool.neg < 1ULL << XCP_POOL_BITS);
	CHECK(r->law.level.m_min >= XCP_LEVEL_M_MIN);
	CHECK(r->law.level.kappa <= XCP_LEVEL_KAPPA_MAX);
	CHECK(r->law.level.far_max <= XCP_LEVEL_FAR_MAX);
	CHECK(r->law.shift <= 34 && r->law.d <= UINT32_MAX);
}

/* A packet with any header, passed in as the data path would. */
static void packet(struct router *r, struct sequence *q)
{
	uint32_t n = (uint32_t)(any(q) & 0xffff);
	uint64_t size_B = xcp_max(any(q) & 0xffff, 40);
	int32_t delta = (int32_t)any(q), granted;
	uint64_t x = any(q) & UINT32_MAX, rtt = any(q) & UINT32_MAX;
	struct xcp_claim c = xcp_router_claim(&r->law, size_B, x, rtt);

	n = n ? n : 1;
	CHECK(c.rtt <= r->law.max_rtt && c.x <= c.rtt);
	xcp_router_arrival(&r->sums, size_B * n);
	if (c.rtt)
		xcp_router_arrival_xcp(&r->sums, n, &c);
	granted = xcp_router_grant(&r->law, &r->pool, &r->sums, n, &c, delta);
	CHECK(granted <= delta);
}

static void interval(struct router *r, struct sequence *q)
{
	r->now_ns += any(q) >> 20;
	xcp_link_sample(&r->seen, r->now_ns, r->seen.sent_B + (any(q) >> 24),
			any(q));
	r->other.other_B += any(q) >> 24;
	r->other.other_flows = (uint32_t)any(q);
	r->other.other_min_backlog_B = any(q);
	if (xcp_router_check_due(&r->state, r->now_ns))
		xcp_router_check_rtts(&r->state, &r->params, &r->sums,
				      r->now_ns);
	xcp_router_capacity(&r->state, &r->params, &r->sums, r->now_ns,
			    any(q) & 1 ? &r->seen : NULL,
			    any(q) & 1 ? &r->other : NULL);
	if (xcp_router_interval_end(&r->state, &r->params, &r->sums, r->now_ns,
				    &r->law)) {
		xcp_router_level_end(&r->state, &r->params, &r->law);
		xcp_router_pool_fill(&r->pool, r->law.pos_pool, r->law.neg_pool,
				     r->law.shift);
	}
}

void check_router(struct input *in)
{
	struct sequence q = {in, draw(in)};
	struct router r = {0};
	uint32_t i;

	r.params.capacity_Bps =
		(uint64_t)between((int64_t)(any(&q) >> 1), 0, 125000000000);
	r.params.peak_Bps = any(&q) & (XCP_CAPACITY_MAX_BPS - 1);
	r.params.min_interval_ns = 1000000;
	r.params.without = (uint32_t)any(&q) & 63;
	r.params.with = (uint32_t)any(&q) & XCP_LAW_LEVEL;
	r.params.max_rtt = (uint32_t)any(&q);
	xcp_router_init(&r.state, &r.params, &r.law, any(&q) >> 8);
	r.now_ns = r.state.interval_start_ns;
	for (i = 0; i < STEPS; i++) {
		switch (any(&q) & 3) {
		case 0:
			interval(&r, &q);
			break;
		case 1:
			xcp_router_backlog(&r.state, any(&q));
			xcp_router_queue_end(&r.state, &r.params, any(&q),
					     r.now_ns);
			break;
		default:
			packet(&r, &q);
		}
		check_state(&r);
	}
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The router's clocks: they end control intervals and queue estimates. All CPUs
 * share the link's record; only the CPU that has claimed it writes to it.
 */
#ifndef XCP_BPF_CONTROL_INTERVAL_H
#define XCP_BPF_CONTROL_INTERVAL_H

#include "kernel.h"
#include "maps_router.h"

/*
 * The time between two samples of the link, by all CPUs together: 20 samples in
 * the shortest queue estimate. If many records have to be read, the time is
 * longer, so that sampling takes no more than a few percent of one CPU.
 */
#define XCP_SAMPLE_INTERVAL_NS 100000ULL
#define XCP_RECORD_NS 1000ULL

/*
 * Only one CPU at a time holds a claim. Both operations are full barriers on
 * every architecture: the next CPU to claim sees all that was written before
 * the release. An atomic exchange publishes an epoch in the same way; a reader
 * finds the epoch's data by its number, and so cannot read the data too early.
 */
static __always_inline bool claim(__u32 *claimed)
{
	return !__sync_val_compare_and_swap(claimed, 0, 1);
}

static __always_inline void release(__u32 *claimed)
{
	__sync_lock_test_and_set(claimed, 0);
}

/* Reads a value that another CPU may change at any time. */
#ifndef READ_ONCE
#define READ_ONCE(v) (*(volatile __typeof__(v) *)&(v))
#endif

/* Returns the law in force; if it is new, fills the CPU's pool from it. */
static __always_inline struct xcp_router_law *
law_in_force(struct xcp_router_cpu *cpu)
{
	__u32 epoch = READ_ONCE(link.epoch);
	struct xcp_router_law *law = &link.law[epoch & 1];

	if (cpu->epoch != epoch) {
		xcp_router_pool_fill(&cpu->pool, cpu->next_pos[epoch & 1],
				     cpu->next_neg[epoch & 1], law->shift);
		cpu->epoch = epoch;
	}
	return law;
}

/* A CPU's part of the next pools is its part of the last interval's sums. */
__noinline int split_pool(struct xcp_router_cpu *cpu,
			  const struct xcp_router_law *law, __u64 traffic_B,
			  __u64 sum_x)
{
	__u32 next = (link.epoch + 1) & 1;

	if (!cpu || !law)
		return 0;
	cpu->next_pos[next] =
		xcp_router_split(law->pos_pool, cpu->last_sum_x, sum_x);
	cpu->next_neg[next] =
		xcp_router_split(law->neg_pool, cpu->last_traffic_B, traffic_B);
	return 0;
}

static __noinline void split_pools(const struct xcp_router_law *law,
				   __u64 traffic_B, __u64 sum_x)
{
	struct xcp_router_cpu *cpu;
	__u32 key;

	bpf_for(key, 0, options.cpus)
	{
		cpu = bpf_map_lookup_elem(&cpus, &(__u32){key});
		if (!cpu)
			break;
		split_pool(cpu, law, traffic_B, sum_x);
	}
}

/*
 * The record of the queue discipline `xcp`. NULL if that has been replaced, as
 * any program may do: then the counters of the device's qdiscs are used.
 */
static __always_inline struct xcp_queue *queue_record(void)
{
	__u32 key = config.queue - 1;
	struct xcp_queue *queue =
		config.queue ? bpf_map_lookup_elem(&queues, &key) : NULL;

	return queue && queue->present ? queue : NULL;
}

static __always_inline __u64 hint_Bps(__u64 now)
{
	return now < config.hint_until_ns ? config.hint_Bps : 0;
}

/* Has the hint, or the configured capacity, changed? */
static __always_inline bool hint_changed(__u64 now)
{
	return hint_Bps(now) != link.hint_Bps ||
	       config.params.capacity_Bps != link.configured_Bps;
}

__noinline int apply_hint(__u64 now)
{
	__u64 hint = hint_Bps(now), configured = config.params.capacity_Bps;

	if (config.measure) {
		xcp_capacity_hint(&link.state.capacity, link.hint_Bps, hint);
		xcp_capacity_hint(&link.state.capacity, link.configured_Bps,
				  configured);
	}
	link.hint_Bps = hint;
	link.configured_Bps = configured;
	return 0;
}

__noinline int capacity(__u64 now)
{
	struct xcp_queue *queue = queue_record();

	if (hint_changed(now))
		apply_hint(now);

	link.other.share = config.share;
	xcp_router_capacity(&link.state, &config.params, &link.sums, now,
			    config.measure ? &link.seen : NULL,
			    queue ? &link.other : NULL);
	link.sample_B = (config.measure ? link.state.capacity.link_Bps
					: config.params.capacity_Bps) /
			XCP_SAMPLES;
	if (queue)
		queue->share = link.state.sharing.share;
	return 0;
}

/* Describes the interval that has just ended, and the new law. */
static __noinline void fill(struct xcp_router_record *r,
			    const struct xcp_router_law *law, __u64 interval_ns,
			    __u64 now)
{
	const struct xcp_router_state *s = &link.state;

	r->time_ns = now;
	r->interval_ns = interval_ns;
	r->d_ns = xcp_ticks_to_ns(xcp_num_fixed(s->d, 0, XCP_TICKS_MAX));
	r->capacity_Bps = s->capacity_Bps;
	r->link_Bps = s->capacity.link_Bps;
	r->y_Bps = s->y_Bps;
	r->other_Bps = s->sharing.other_Bps;
	r->queue_B = s->queue_B;
	r->backlog_B = link.seen.backlog_B;
	r->f_Bps = s->f_Bps;
	r->pos_Bps = law->pos_pool >> law->shift;
	r->neg_Bps = law->neg_pool >> law->shift;
	r->share = s->sharing.share;
	r->flows = s->flows.now;
}

static __noinline void emit_trace(const struct xcp_router_law *law,
				  __u64 interval_ns, __u64 now)
{
	struct xcp_router_record *r;
	__u32 key = 0;
	void *ring = bpf_map_lookup_elem(&trace, &key);

	if (!ring)
		return;
	r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);
	if (!r)
		return;
	fill(r, law, interval_ns, now);
	bpf_ringbuf_submit(r, 0);
}

static __always_inline void add_rtts(struct xcp_router_sums *sums,
				     const struct xcp_router_cpu *cpu)
{
	sums->sum_rtt_x_lo += cpu->sums.sum_rtt_x_lo;
	sums->sum_rtt_x_hi += cpu->sums.sum_rtt_x_hi;
}

static __always_inline void add_class(struct xcp_level_class *sum,
				      const struct xcp_level_class *class)
{
	sum->size_B += class->size_B;
	sum->x += class->x;
	sum->rate += class->rate;
	sum->part += class->part;
}

static __always_inline void add_level(struct xcp_level_sums *sums,
				      const struct xcp_level_sums *cpu)
{
	sums->x2 += cpu->x2;
	sums->less_Bps += cpu->less_Bps;
	add_class(&sums->limited, &cpu->limited);
	add_class(&sums->less, &cpu->less);
	add_class(&sums->far, &cpu->far);
}

/*
 * Adds up the totals of one CPU, and its part of the interval that ends. Each
 * total is read only once, since the CPU continues to count: so all parts add
 * up to the sum.
 */
static __always_inline void collect_cpu(struct xcp_router_sums *sums,
					struct xcp_router_cpu *cpu)
{
	__u64 traffic_B = READ_ONCE(cpu->sums.input_traffic_B);
	__u64 sum_x = READ_ONCE(cpu->sums.sum_x);

	cpu->last_traffic_B = traffic_B - cpu->seen_traffic_B;
	cpu->last_sum_x = sum_x - cpu->seen_sum_x;
	cpu->seen_traffic_B = traffic_B;
	cpu->seen_sum_x = sum_x;
	sums->input_traffic_B += traffic_B;
	sums->sum_x += sum_x;
	add_rtts(sums, cpu);
	sums->granted_Bps += cpu->sums.granted_Bps;
	if (xcp_router_has_level(&config.params))
		add_level(&sums->level, &cpu->sums.level);
	link.other.other_B += cpu->other_B;
}

/* Adds up the totals of all CPUs. */
static __noinline void collect(void)
{
	struct xcp_router_sums *sums = &link.sums;
	struct xcp_router_cpu *cpu;
	__u32 key;

	__builtin_memset(sums, 0, sizeof(*sums));
	link.other.other_B = 0;
	bpf_for(key, 0, options.cpus)
	{
		cpu = bpf_map_lookup_elem(&cpus, &(__u32){key});
		if (!cpu)
			break;
		collect_cpu(sums, cpu);
	}
}

__noinline int level_end(struct xcp_router_law *law)
{
	if (law)
		xcp_router_level_end(&link.state, &config.params, law);
	return 0;
}

__noinline int interval_end(__u64 now)
{
	__u64 interval_ns, traffic_B, sum_x;
	struct xcp_router_law *law;
	__u32 epoch;

	if (!claim(&link.claimed))
		return 0;
	if (!link.started) {
		xcp_router_init(&link.state, &config.params, &link.law[0], now);
		link.law[1] = link.law[0];
		link.configured_Bps = config.params.capacity_Bps;
		link.started = now;
	}
	if (!xcp_router_interval_due(&link.state, now) &&
	    !(link.end_now && xcp_router_interval_may_end(&link.state, now)))
		goto out;
	link.end_now = 0;
	collect();
	link.other.other_flows = xcp_sampler_flows(&link.sampler, now);
	interval_ns = now - link.state.interval_start_ns;
	traffic_B = link.sums.input_traffic_B - link.state.last.input_traffic_B;
	sum_x = link.sums.sum_x - link.state.last.sum_x;
	epoch = link.epoch + 1;
	law = &link.law[epoch & 1];
	capacity(now);
	if (xcp_router_interval_end(&link.state, &config.params, &link.sums,
				    now, law)) {
		level_end(law);
		split_pools(law, traffic_B, sum_x);
		__sync_lock_test_and_set(&link.epoch, epoch);
		emit_trace(law, interval_ns, now);
	}
	link.seen.min_backlog_B = link.seen.backlog_B;
	link.other.other_min_backlog_B = ~0ULL;
out:
	release(&link.claimed);
	return 0;
}

/* Shortens an interval that is too long for its RTTs. */
__noinline int check(__u64 now)
{
	struct xcp_router_sums *sums = &link.sums;
	struct xcp_router_cpu *cpu;
	__u32 key;

	__builtin_memset(sums, 0, sizeof(*sums));
	bpf_for(key, 0, options.cpus)
	{
		cpu = bpf_map_lookup_elem(&cpus, &(__u32){key});
		if (!cpu)
			break;
		sums->sum_x += READ_ONCE(cpu->sums.sum_x);
		add_rtts(sums, cpu);
	}
	xcp_router_check_rtts(&link.state, &config.params, sums, now);
	return 0;
}

/*
 * Uses a sample of the link, and ends the queue estimate if that is due.
 * `backlog_B` is the backlog in front of XCP's packets. The caller has claimed
 * the link.
 */
static __always_inline void link_sampled(__u64 backlog_B, __u64 now)
{
	xcp_router_backlog(&link.state, backlog_B);
	if (link.started && xcp_router_queue_due(&link.state, now))
		xcp_router_queue_end(&link.state, &config.params, backlog_B,
				     now);
	if (link.started && xcp_router_check_due(&link.state, now))
		check(now);
	link.end_now |= link.started && hint_changed(now);
}

#endif

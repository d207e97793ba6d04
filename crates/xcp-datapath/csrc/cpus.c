// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * Tests the router's clocks (bpf/control_interval.h itself) on several CPUs at
 * once; each thread stands for a CPU. It checks:
 *
 *   - each interval is ended by one CPU: its epoch is traced once, and begins
 *     where the previous one ended
 *   - a CPU fills its pool with the part that the claimer gave it for the epoch
 *   - the CPUs' parts add up to the whole pool: no byte is counted twice or
 *     omitted
 *   - the granted deltas of an epoch do not exceed its pool
 *   - at the end, the sums of all CPUs equal what all threads have sent
 *
 * Time advances in steps of one interval: when the interval has ended and every
 * CPU has handled MIN_PACKETS packets since. So no packet takes longer than a
 * control interval, and the kernel's programs rely on that, too. With
 * -fsanitize=thread, the order of all memory accesses is checked, even where
 * this machine's CPU would keep the order anyway.
 */
#include <linux/bpf.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUS 4
#define STEPS 10000
#define STEP_NS 1000000ULL
#define MIN_PACKETS 8 /* per CPU and step */

/* Replaces bpf/kernel.h. */
#define XCP_BPF_KERNEL_H
#define SEC(name)
#define __noinline __attribute__((noinline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value) *name
#define __array(name, value) __typeof__(value) *name[]
#define bpf_for(i, from, to) for ((i) = (from); (i) < (to); (i)++)
#define bpf_map_lookup_elem(map, key) lookup(map, key)
#define bpf_ringbuf_reserve(map, size, flags) (&told)
#define bpf_ringbuf_submit(record, flags) note(record)
#define XCP_MAP(name) struct name##_map name
#define XCP_DATA(type, name) struct type name
/* A full barrier, as in BPF. */
#define __sync_lock_test_and_set(at, value)                                    \
	__atomic_exchange_n(at, value, __ATOMIC_SEQ_CST)
/* Data that is found by an index is read after the index. */
#define READ_ONCE(v) __atomic_load_n(&(v), __ATOMIC_ACQUIRE)

static void *lookup(const void *map, const __u32 *key);
static void note(const void *record);

#define link router_link /* unistd.h declares link() */
#include "../../../bpf/abi.h"

static struct xcp_router_record told;

#include "../../../bpf/control_interval.h"

const volatile struct xcp_router_options options = {.cpus = CPUS};

XCP_DATA(xcp_router_config, config);
XCP_DATA(xcp_router_link, link);
XCP_MAP(cpus);
XCP_MAP(queues);
XCP_MAP(trace);

static struct xcp_router_cpu records[CPUS];

/* What the claimer published for an epoch, and what the CPUs used of it. */
struct published {
	struct xcp_router_law law;
	uint64_t pos[CPUS], neg[CPUS];
	uint64_t from_ns, to_ns;
	unsigned int times;
};

struct used {
	uint64_t pos, neg;
	int64_t granted_Bps;
	bool filled;
};

static struct published published[STEPS + 1];
static struct used used[CPUS][STEPS + 1];
static uint64_t clock_ns = STEP_NS;
static uint64_t packets[CPUS]; /* handled so far */

#define CHECK(holds, ...)                                                      \
	do {                                                                   \
		if (!(holds)) {                                                \
			printf("check failed: %s: ", #holds);                  \
			printf(__VA_ARGS__);                                   \
			printf("\n");                                          \
			exit(1);                                               \
		}                                                              \
	} while (0)

static void *lookup(const void *map, const __u32 *key)
{
	if (map == &trace)
		return &told;
	return map == &cpus && *key < CPUS ? &records[*key] : NULL;
}

/* As in the BPF programs, for a link that sends and has no queue. */
static __u64 sample_link(__u64 now)
{
	link.seen.sent_B += 1000;
	xcp_link_sample(&link.seen, now, link.seen.sent_B, 0);
	link.end_now = config.measure &&
		       xcp_capacity_changed(&link.state.capacity, &link.seen,
					    link.state.interval_ns);
	link.next_sample_ns = now + XCP_SAMPLE_INTERVAL_NS;
	return 0;
}

static void poll_link(uint64_t now)
{
	if (!claim(&link.claimed))
		return;
	link_sampled(sample_link(now), now);
	release(&link.claimed);
}

/* The claimer traces the end of an interval after publishing the epoch. */
static void note(const void *record)
{
	const struct xcp_router_record *r = record;
	struct published *p = &published[link.epoch % (STEPS + 1)];
	unsigned int i, at = link.epoch & 1;

	p->law = link.law[at];
	for (i = 0; i < CPUS; i++) {
		p->pos[i] = records[i].next_pos[at];
		p->neg[i] = records[i].next_neg[at];
	}
	p->from_ns = r->time_ns - r->interval_ns;
	p->to_ns = r->time_ns;
	p->times++;
}

/* The program checks this before it claims, so the data may be outdated. */
static __noinline bool interval_is_due(uint64_t now)
{
	return link.end_now || xcp_router_interval_due(&link.state, now);
}

static __noinline bool look_is_due(uint64_t now)
{
	return now >= link.next_sample_ns;
}

/* Deliberate races: one CPU writes counters that others read at any time. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:^collect$\nrace:^collect_cpu$\n"
	       "race:^check$\nrace:_is_due$\n";
}

/* Handles a packet of 100 to 1,499 bytes, with or without an XCP header. */
static void packet(unsigned int cpu, unsigned int *seed, bool xcp)
{
	struct xcp_router_cpu *c = &records[cpu];
	uint64_t bytes = 100 + rand_r(seed) % 1400;
	uint32_t before = c->epoch;
	struct xcp_router_law *law;
	struct xcp_claim claim;
	struct used *u;
	int32_t delta;

	if (xcp) {
		law = law_in_force(c);
		u = &used[cpu][c->epoch];
		if (c->epoch != before) {
			u->pos = c->pool.pos;
			u->neg = c->pool.neg;
			u->filled = true;
		}
		claim = xcp_router_claim(law, bytes,
					 1000 + rand_r(seed) % 100000,
					 200000 + rand_r(seed) % 60000);
		xcp_router_arrival_xcp(&c->sums, 1, &claim);
		delta = xcp_router_grant(law, &c->pool, &c->sums, 1, &claim,
					 INT32_MAX);
		u->granted_Bps += delta;
	}
	xcp_router_arrival(&c->sums, bytes);
}

/* A step lasts until the interval has ended and all CPUs sent some packets. */
struct step {
	bool ended;
	uint64_t packets[CPUS]; /* handled until the interval ended */
};

static bool interval_has_ended(uint64_t now)
{
	bool due;

	if (!claim(&link.claimed))
		return false;
	due = xcp_router_interval_due(&link.state, now);
	release(&link.claimed);
	return !due;
}

static void pass_time(struct step *step, uint64_t now)
{
	bool ended = step->ended || interval_has_ended(now), all = true;
	uint64_t done;
	unsigned int i;

	for (i = 0; i < CPUS; i++) {
		done = __atomic_load_n(&packets[i], __ATOMIC_ACQUIRE);
		if (!step->ended)
			step->packets[i] = done;
		all &= done >= step->packets[i] + MIN_PACKETS;
	}
	step->ended = ended && !all;
	if (all)
		__atomic_store_n(&clock_ns, now + STEP_NS, __ATOMIC_RELEASE);
}

static void *run(void *argument)
{
	unsigned int cpu = (unsigned int)(uintptr_t)argument, seed = cpu + 1;
	struct step step = {0};
	uint64_t now;

	do {
		now = __atomic_load_n(&clock_ns, __ATOMIC_ACQUIRE);
		if (look_is_due(now))
			poll_link(now);
		if (interval_is_due(now))
			interval_end(now);
		/* no XCP packets in 4 of 16 intervals */
		packet(cpu, &seed, now / STEP_NS % 16 > 3);
		__atomic_store_n(&packets[cpu], packets[cpu] + 1,
				 __ATOMIC_RELEASE);
		if (cpu == 0)
			pass_time(&step, now);
		if (rand_r(&seed) % MIN_PACKETS == 0)
			sched_yield();
	} while (now < STEPS * STEP_NS);
	return NULL;
}

static bool is_nearly(uint64_t parts, uint64_t whole)
{
	uint64_t off = parts > whole ? parts - whole : whole - parts;

	return off <= (whole >> 24) + CPUS;
}

static void check_epoch(unsigned int epoch)
{
	const struct published *p = &published[epoch];
	uint64_t pos = 0, neg = 0;
	int64_t granted_Bps = 0;
	unsigned int i;

	CHECK(p->times == 1, "epoch %u, %u times", epoch, p->times);
	CHECK(epoch == 1 || p->from_ns >= p[-1].to_ns, "epoch %u", epoch);
	CHECK(p->to_ns - p->from_ns >= STEP_NS, "epoch %u", epoch);
	for (i = 0; i < CPUS; i++) {
		const struct used *u = &used[i][epoch];

		pos += p->pos[i];
		neg += p->neg[i];
		granted_Bps += u->granted_Bps;
		CHECK(!u->filled ||
			      (u->pos == p->pos[i] && u->neg == p->neg[i]),
		      "epoch %u, CPU %u", epoch, i);
	}
	CHECK(is_nearly(pos, p->law.pos_pool), "epoch %u: %llu of %llu", epoch,
	      (unsigned long long)pos, (unsigned long long)p->law.pos_pool);
	CHECK(is_nearly(neg, p->law.neg_pool), "epoch %u: %llu of %llu", epoch,
	      (unsigned long long)neg, (unsigned long long)p->law.neg_pool);
	/* each CPU may carry over less than 1 B/s from before */
	CHECK(granted_Bps <= (int64_t)(p->law.pos_pool >> p->law.shift) + CPUS,
	      "epoch %u: %lld", epoch, (long long)granted_Bps);
}

int main(void)
{
	const struct sched_param first = {.sched_priority = 1};
	struct xcp_router_sums all = {0};
	pthread_t threads[CPUS];
	unsigned int i;

	/* Otherwise each step waits until the scheduler has run every thread
	 * along with other programs; without root, it does. */
	sched_setscheduler(0, SCHED_RR, &first);
	config.params.capacity_Bps = 125000000;
	config.params.min_interval_ns = STEP_NS;
	for (i = 0; i < CPUS; i++)
		pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i);
	for (i = 0; i < CPUS; i++)
		pthread_join(threads[i], NULL);
	interval_end(2 * STEPS * STEP_NS);
	for (i = 0; i < CPUS; i++) {
		all.input_traffic_B += records[i].sums.input_traffic_B;
		all.sum_x += records[i].sums.sum_x;
		all.sum_rtt_x_lo += records[i].sums.sum_rtt_x_lo;
		all.sum_rtt_x_hi += records[i].sums.sum_rtt_x_hi;
		all.granted_Bps += records[i].sums.granted_Bps;
	}
	CHECK(!memcmp(&all, &link.state.last, sizeof(all)), "sums of all CPUs");
	CHECK(link.epoch > STEPS / 2, "%u epochs", link.epoch);
	/* not one per step, because the first lasts longer than a step */
	CHECK(link.state.intervals <= STEPS, "%llu intervals",
	      (unsigned long long)link.state.intervals);
	for (i = 1; i <= link.epoch; i++)
		check_epoch(i);
	printf("%u epochs, %llu intervals\n", link.epoch,
	       (unsigned long long)link.state.intervals);
	return 0;
}

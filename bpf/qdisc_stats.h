/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The backlog and the sent bytes of an output link, as its queue disciplines
 * count them.
 *
 *   one root             dev->qdisc, which all queues of the device share
 *   mq, mqprio, taprio   one qdisc for each of the device's queues; the root
 *                        itself counts nothing
 *   counting per CPU     pfifo_fast and other qdiscs without a lock: one CPU
 *                        may add a packet and another one subtract it, so only
 *                        the sum is meaningful
 *
 * A large device has many counters, so the router samples a link from time to
 * time, not with every packet.
 */
#ifndef XCP_BPF_QDISC_STATS_H
#define XCP_BPF_QDISC_STATS_H

#include "kernel.h"
#include "maps_router.h"

struct link_reading {
	__u64 sent_B;
	__u64 sent_packets;
	__u32 backlog_B;
	__u32 records; /* number of records read */
	__u64 queues; /* hash of their queue disciplines */
};

static __always_inline void *at(__u64 address)
{
	return (void *)address;
}

/* A pointer field as a number, which functions may take as an argument. */
#define address_in(field)                                                      \
	({                                                                     \
		__u64 address = 0;                                             \
		bpf_core_read(&address, sizeof(address), &(field));            \
		address;                                                       \
	})

/*
 * Reads per-CPU counters. A CPU's offset is the same for all per-CPU pointers;
 * here it is the address of that CPU's copy of the map `here` less the map's
 * per-CPU pointer. So the program needs no per-CPU variable of the kernel.
 */
__noinline int read_per_cpu(__u64 queue, __u64 sent, struct link_reading *r)
{
	struct bpf_array *map = bpf_core_cast(&here, struct bpf_array);
	/* any type: only a pointer may be subtracted from a pointer */
	struct Qdisc *pointer =
		bpf_core_cast(at(address_in(map->pptrs)), struct Qdisc);
	struct gnet_stats_basic_sync *b;
	struct gnet_stats_queue *q;
	__u32 i, key = 0;
	__u64 offset;
	void *copy;

	if (!r)
		return 0;
	bpf_for(i, 0, options.cpus)
	{
		copy = bpf_map_lookup_percpu_elem(&here, &key, i);
		if (!copy)
			break;
		offset = (__u64)copy - (__u64)pointer;
		q = bpf_core_cast(at(queue + offset), struct gnet_stats_queue);
		b = bpf_core_cast(at(sent + offset),
				  struct gnet_stats_basic_sync);
		r->backlog_B += q->backlog;
		r->sent_B += *(__u64 *)&b->bytes;
		r->sent_packets += *(__u64 *)&b->packets;
		r->records++;
	}
	return 0;
}

__noinline int read_qdisc(__u64 qdisc, struct link_reading *r)
{
	struct Qdisc *q = bpf_core_cast(at(qdisc), struct Qdisc);

	if (!r)
		return 0;
	if (q->cpu_qstats)
		return read_per_cpu(address_in(q->cpu_qstats),
				    address_in(q->cpu_bstats), r);
	r->backlog_B += q->qstats.backlog;
	r->sent_B += *(__u64 *)&q->bstats.bytes;
	r->sent_packets += *(__u64 *)&q->bstats.packets;
	r->records++;
	return 0;
}

/* Reads all queue disciplines of a device; bytes are as Linux counts them. */
static __always_inline void read_link(const struct net_device *dev,
				      struct link_reading *r)
{
	__u64 root = address_in(dev->qdisc), first = address_in(dev->_tx);
	__u32 i, count = dev->real_num_tx_queues;
	__u32 size = bpf_core_type_size(struct netdev_queue);
	struct netdev_queue *queue;
	__u64 qdisc;

	bpf_for(i, 0, count)
	{
		queue = bpf_core_cast(at(first + i * size),
				      struct netdev_queue);
		qdisc = address_in(queue->qdisc);
		r->queues = r->queues * 31 + qdisc;
		read_qdisc(qdisc, r);
		if (qdisc == root)
			break;
	}
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * What an output link holds and has sent, as its queue disciplines count it.
 *
 *   one root             dev->qdisc, which all queues of the device share
 *   mq, mqprio, taprio   one qdisc for each of the device's queues; the root
 *                        itself counts nothing
 *   counting per CPU     pfifo_fast and other qdiscs without a lock: what one
 *                        CPU adds another takes away, only the sum means
 *                        something
 *
 * That is many loads on a large device, so the router samples a link now and
 * then, not with every packet.
 */
#ifndef XCP_BPF_QDISC_STATS_H
#define XCP_BPF_QDISC_STATS_H

#include "kernel.h"
#include "maps_router.h"

struct link_reading {
	__u64 sent_B;
	__u64 sent_packets;
	__u32 backlog_B;
	__u32 records; /* that were read */
	__u64 queues; /* which queue disciplines they are of */
};

static __always_inline void *at(__u64 address)
{
	return (void *)address;
}

/* What a field points to, as a number: it may pass between functions. */
#define address_in(field)                                                      \
	({                                                                     \
		__u64 address = 0;                                             \
		bpf_core_read(&address, sizeof(address), &(field));            \
		address;                                                       \
	})

/*
 * The pointer of the map `here` as the kernel writes it, and the address of
 * each CPU's copy, tell the distance that holds for all per-CPU pointers;
 * kernels need not name a variable of theirs for that.
 */
__noinline int read_per_cpu(__u64 queue, __u64 sent, struct link_reading *r)
{
	struct bpf_array *map = bpf_core_cast(&here, struct bpf_array);
	/* of any type: from a pointer only a pointer may be subtracted */
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

/* Bytes as Linux counts them. */
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

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The queue discipline `xcp` (struct_ops Qdisc_ops): two FIFOs and a shaper at
 * the root of a device.
 *
 *                      +-- XCP ----+
 *   router -> enqueue -+           +- by weight -> shaper -> device
 *                      +-- other --+
 *
 *   1. The router (tcx egress, just before) has marked packets that have an
 *      XCP header with XCP_CLASSID in tc_classid. A packet that does not fit
 *      into its queue is dropped. Address resolution goes to the head of XCP's
 *      queue, even if that is full: a link that has almost stopped has a queue
 *      of minutes, and the neighbour would count as unreachable. Only every
 *      second packet may do so; others wait like all packets.
 *   2. core/xcp_shaper.h decides when the next packet may leave. If that is
 *      later, a timer (the watchdog) calls again.
 *   3. core/xcp_service.h decides which queue sends it.
 *
 * All calls for a queue discipline are made under its lock. The spin lock
 * below is never contended: the verifier requires one around lists. Data that
 * several queue disciplines share, the record of a device with several of them
 * and the clock of a medium, is changed by atomic additions.
 *
 * GSO packets leave whole, since a BPF program cannot segment them.
 */
#include "qdisc.h"
#include "abi.h"
#include "segments.h"
#include "../core/xcp_service.h"
#include "../core/xcp_shaper.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define DEFAULT_LIMIT_PACKETS 1000
#define NO_RECORD UINT32_MAX

/* The index of the record that user space has assigned to a device. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, XCP_QUEUES_MAX);
	__type(key, struct xcp_queue_key);
	__type(value, __u32);
} queue_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, XCP_QUEUES_MAX);
	__type(key, __u32);
	__type(value, struct xcp_queue);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, XCP_QUEUES_MAX);
	__type(key, __u32);
	__type(value, struct xcp_queue_config);
} queue_configs SEC(".maps");

/* The time when each medium is free, in ns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, XCP_QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} media SEC(".maps");

/* A queued packet. */
struct packet {
	struct bpf_list_node link;
	struct sk_buff __kptr *skb;
	__u64 bytes; /* on the link */
};

struct backlog {
	__u64 bytes;
	__u64 packets;
};

/* The state of one queue discipline. */
struct discipline {
	struct bpf_spin_lock lock;
	__u32 record; /* index of its device's record, or NO_RECORD */
	struct bpf_list_head xcp XCP_LIST_OF(packet, link);
	struct bpf_list_head other XCP_LIST_OF(packet, link);
	struct backlog backlog[XCP_CLASSES];
	__u32 ahead; /* packets to send before another goes to the head */
	__s64 deficit; /* of XCP: core/xcp_service.h */
	struct xcp_shaper shaper;
	uint64_t free_ns; /* its clock, if it has no shared medium */
};

/* The key is the address of the struct Qdisc. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u64);
	__type(value, struct discipline);
} disciplines SEC(".maps");

static const struct xcp_queue_config unset;

static __always_inline struct discipline *find(struct Qdisc *sch)
{
	__u64 key = (__u64)sch;

	return bpf_map_lookup_elem(&disciplines, &key);
}

static __always_inline struct xcp_queue *record_of(const struct discipline *d)
{
	__u32 key = d->record;

	return bpf_map_lookup_elem(&queues, &key);
}

static __always_inline const struct xcp_queue_config *
config_of(const struct discipline *d)
{
	__u32 key = d->record;
	const struct xcp_queue_config *c =
		bpf_map_lookup_elem(&queue_configs, &key);

	return c ? c : &unset;
}

static __always_inline __u32 pkt_len(const struct sk_buff *skb)
{
	return ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

static __always_inline __u32 classid_of(const struct sk_buff *skb,
					const struct discipline *d)
{
	return d->record == NO_RECORD
		       ? 0
		       : ((struct qdisc_skb_cb *)skb->cb)->tc_classid;
}

/* `first`: to the head of XCP's queue. */
static __always_inline void push(struct discipline *d, enum xcp_class class,
				 bool first, struct packet *p)
{
	__u64 link = __builtin_offsetof(struct packet, link);

	bpf_spin_lock(&d->lock);
	if (first)
		bpf_list_push_front_impl(&d->xcp, &p->link, NULL, link);
	else if (class == XCP_CLASS_XCP)
		bpf_list_push_back_impl(&d->xcp, &p->link, NULL, link);
	else
		bpf_list_push_back_impl(&d->other, &p->link, NULL, link);
	bpf_spin_unlock(&d->lock);
}

static __always_inline struct packet *pop(struct discipline *d,
					  enum xcp_class class)
{
	struct bpf_list_node *node;

	bpf_spin_lock(&d->lock);
	if (class == XCP_CLASS_XCP)
		node = bpf_list_pop_front(&d->xcp);
	else
		node = bpf_list_pop_front(&d->other);
	bpf_spin_unlock(&d->lock);
	if (!node)
		return NULL;
	return container_of(node, struct packet, link);
}

/* Bytes of the first packet in a queue; 0 if it is empty. */
static __always_inline __u64 first_bytes(struct discipline *d,
					 enum xcp_class class)
{
	struct bpf_list_node *node;
	__u64 bytes = 0;

	bpf_spin_lock(&d->lock);
	if (class == XCP_CLASS_XCP)
		node = bpf_list_front(&d->xcp);
	else
		node = bpf_list_front(&d->other);
	if (node)
		bytes = container_of(node, struct packet, link)->bytes;
	bpf_spin_unlock(&d->lock);
	return bytes;
}

static __always_inline bool is_empty(const struct discipline *d)
{
	return !d->backlog[XCP_CLASS_XCP].packets &&
	       !d->backlog[XCP_CLASS_OTHER].packets;
}

static __always_inline enum xcp_class next_class(const struct discipline *d)
{
	return xcp_service_a_next(d->deficit, d->backlog[XCP_CLASS_XCP].packets,
				  d->backlog[XCP_CLASS_OTHER].packets)
		       ? XCP_CLASS_XCP
		       : XCP_CLASS_OTHER;
}

static __always_inline uint64_t *clock_of(struct discipline *d,
					  const struct xcp_queue_config *c)
{
	__u32 medium = c->medium;
	uint64_t *shared;

	if (!medium)
		return &d->free_ns;
	shared = bpf_map_lookup_elem(&media, &medium);
	return shared ? shared : &d->free_ns;
}

static __always_inline void take_slot(struct discipline *d,
				      const struct xcp_queue_config *c,
				      __u64 now, bool waited)
{
	__u64 pay = 0;

	if (c->medium)
		pay = xcp_shaper_time(c->rate_Bps,
				      first_bytes(d, next_class(d)));
	xcp_shaper_take(&d->shaper, clock_of(d, c), now, pay, waited);
}

/* May a packet leave now? If not, starts the watchdog. */
static __always_inline bool may_send(struct Qdisc *sch, struct discipline *d,
				     const struct xcp_queue_config *c,
				     __u64 now)
{
	__u64 until_ns;

	if (!d->shaper.has_slot)
		take_slot(d, c, now, false);
	until_ns = d->shaper.slot_ns;
	if (until_ns <= now)
		return true;
	if (!c->medium)
		until_ns = xcp_shaper_next_check(&d->shaper, &d->free_ns, now,
						 c->rate_Bps);
	bpf_qdisc_watchdog_schedule(sch, until_ns, 0);
	return false;
}

static __always_inline void spend_slot(struct discipline *d,
				       const struct xcp_queue_config *c,
				       __u64 now, __u64 bytes)
{
	xcp_shaper_begin(&d->shaper, clock_of(d, c), c->rate_Bps, bytes);
	if (!is_empty(d))
		take_slot(d, c, now, true);
}

static __always_inline void count_queued(struct discipline *d,
					 enum xcp_class class, __s64 bytes,
					 __s64 packets)
{
	struct xcp_queue *record = record_of(d);

	d->backlog[class].bytes += bytes;
	d->backlog[class].packets += packets;
	if (!record)
		return;
	__sync_fetch_and_add(&record->class[class].backlog_B, bytes);
	__sync_fetch_and_add(&record->class[class].backlog_packets, packets);
}

static __always_inline void count_sent(struct discipline *d,
				       enum xcp_class class, __u64 bytes)
{
	struct xcp_queue *record = record_of(d);
	__u32 share = record ? record->share : 0;

	d->deficit = xcp_service_sent(d->deficit, share, class == XCP_CLASS_XCP,
				      d->backlog[!class].packets, bytes);
	if (!record)
		return;
	__sync_fetch_and_add(&record->class[class].sent_B, bytes);
	__sync_fetch_and_add(&record->class[class].sent_packets, 1);
}

SEC("struct_ops/xcp_enqueue")
int BPF_PROG(xcp_enqueue, struct sk_buff *skb, struct Qdisc *sch,
	     struct bpf_sk_buff_ptr *to_free)
{
	struct discipline *d = find(sch);
	const struct xcp_queue_config *c;
	struct xcp_queue *record;
	__u64 bytes, limit_packets;
	struct backlog *backlog;
	enum xcp_class class;
	__u32 classid, len;
	struct packet *p;
	bool first;

	if (!d)
		goto drop;
	c = config_of(d);
	classid = classid_of(skb, d);
	first = classid == XCP_CLASSID_RESOLVES && !d->ahead;
	class = classid == XCP_CLASSID || classid == XCP_CLASSID_RESOLVES
			? XCP_CLASS_XCP
			: XCP_CLASS_OTHER;
	len = pkt_len(skb);
	bytes = xcp_frame_bytes(&c->frame, len, segments_of(skb));
	backlog = &d->backlog[class];
	limit_packets =
		c->limit_packets ? c->limit_packets : DEFAULT_LIMIT_PACKETS;
	if (!first && (backlog->packets >= limit_packets ||
		       (c->limit_B && backlog->bytes + bytes > c->limit_B)))
		goto count_drop;
	p = xcp_new(struct packet);
	if (!p)
		goto count_drop;
	p->bytes = bytes;
	skb = bpf_kptr_xchg(&p->skb, skb);
	if (skb) /* never: p is new; the verifier requires it */
		bpf_qdisc_skb_drop(skb, to_free);
	push(d, class, first, p);
	if (first)
		d->ahead = 2; /* itself, and one that has waited */
	count_queued(d, class, bytes, 1);
	sch->q.qlen++;
	sch->qstats.backlog += len;
	return NET_XMIT_SUCCESS;

count_drop:
	record = record_of(d);
	if (record)
		__sync_fetch_and_add(&record->class[class].dropped_packets, 1);
drop:
	sch->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

SEC("struct_ops/xcp_dequeue")
struct sk_buff *BPF_PROG(xcp_dequeue, struct Qdisc *sch)
{
	const struct xcp_queue_config *c;
	struct discipline *d;
	struct sk_buff *skb;
	enum xcp_class class;
	struct packet *p;
	__u64 bytes, now = 0;

	if (!sch->q.qlen)
		return NULL;
	d = find(sch);
	if (!d || is_empty(d))
		return NULL;
	c = config_of(d);
	if (c->rate_Bps) {
		now = bpf_ktime_get_ns();
		if (!may_send(sch, d, c, now))
			return NULL;
	}
	class = next_class(d);
	p = pop(d, class);
	if (!p)
		return NULL;
	bytes = p->bytes;
	skb = bpf_kptr_xchg(&p->skb, NULL);
	xcp_drop(p);
	if (!skb)
		return NULL;
	if (class == XCP_CLASS_XCP && d->ahead)
		d->ahead--;
	count_queued(d, class, -(__s64)bytes, -1);
	count_sent(d, class, bytes);
	if (c->rate_Bps)
		spend_slot(d, c, now, bytes);
	sch->q.qlen--;
	sch->qstats.backlog -= pkt_len(skb);
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

SEC("struct_ops/xcp_init")
int BPF_PROG(xcp_init, struct Qdisc *sch, struct nlattr *options,
	     struct netlink_ext_ack *extack)
{
	struct discipline fresh = {};
	struct net_device *dev = sch->dev_queue->dev;
	struct xcp_queue_key key = {
		.netns = dev->nd_net.net->ns.inum,
		.ifindex = dev->ifindex,
	};
	__u32 *index = bpf_map_lookup_elem(&queue_index, &key);
	__u64 self = (__u64)sch;
	struct xcp_queue *record;
	int rc;

	fresh.record = index ? *index : NO_RECORD;
	rc = bpf_map_update_elem(&disciplines, &self, &fresh, BPF_NOEXIST);
	if (rc)
		return rc;
	record = record_of(&fresh);
	if (record)
		__sync_fetch_and_add(&record->present, 1);
	return 0;
}

static __always_inline void drain(struct discipline *d, enum xcp_class class)
{
	struct backlog *backlog = &d->backlog[class];
	__s64 bytes = backlog->bytes, packets = backlog->packets;
	struct sk_buff *skb;
	struct packet *p;
	int i;

	bpf_for(i, 0, (int)packets)
	{
		p = pop(d, class);
		if (!p)
			break;
		skb = bpf_kptr_xchg(&p->skb, NULL);
		xcp_drop(p);
		if (skb)
			bpf_kfree_skb(skb);
	}
	count_queued(d, class, -bytes, -packets);
}

SEC("struct_ops/xcp_reset")
void BPF_PROG(xcp_reset, struct Qdisc *sch)
{
	struct discipline *d = find(sch);

	if (!d)
		return;
	drain(d, XCP_CLASS_XCP);
	drain(d, XCP_CLASS_OTHER);
	d->deficit = 0;
	d->shaper.has_slot = 0;
}

SEC("struct_ops/xcp_destroy")
void BPF_PROG(xcp_destroy, struct Qdisc *sch)
{
	struct discipline *d = find(sch);
	__u64 self = (__u64)sch;
	struct xcp_queue *record;

	if (!d) /* init failed */
		return;
	record = record_of(d);
	if (record)
		__sync_fetch_and_add(&record->present, -1);
	bpf_map_delete_elem(&disciplines, &self);
}

SEC(".struct_ops.link")
struct Qdisc_ops xcp = {
	.enqueue = (void *)xcp_enqueue,
	.dequeue = (void *)xcp_dequeue,
	.init = (void *)xcp_init,
	.reset = (void *)xcp_reset,
	.destroy = (void *)xcp_destroy,
	.id = "xcp",
};

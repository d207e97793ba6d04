// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * A half-duplex link of the lab: tc egress of its two devices, one instance
 * for both. A packet of either device occupies the medium for some time:
 *
 *   t     = max(now, free)    when the packet leaves
 *   free  = t + L / rate      when the medium is free again
 *
 * The packet gets t as its departure time, and the queue discipline of the
 * device, fq without pacing, holds it until then. So fq's queue is the backlog
 * of one device, and traffic of the other one makes it longer. Packets that fq
 * will drop, because it is full, do not occupy the medium.
 */
#include "kernel.h"
#include "medium.h"
#include "abi.h"
#include "segments.h"
#include "../core/xcp_shaper.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* May change while traffic flows. */
struct xcp_medium medium SEC(".data.medium");

struct clock {
	struct bpf_spin_lock lock;
	__u64 free_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock);
} clock SEC(".maps");

SEC("tc")
int xcp_depart(struct __sk_buff *skb)
{
	struct clock *c;
	struct sk_buff *kskb;
	__u64 now, leaves, takes;
	__u32 key = 0, n;

	c = bpf_map_lookup_elem(&clock, &key);
	if (!c || !medium.rate_Bps)
		return XCP_TC_NEXT;
	kskb = kernel_skb(skb);
	if (kskb->dev->qdisc->q.qlen >= medium.limit_packets)
		return XCP_TC_NEXT;
	n = segments_of(kskb);
	takes = xcp_shaper_time(medium.rate_Bps,
				xcp_frame_bytes(&medium.frame, skb->len, n));
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&c->lock);
	leaves = xcp_max(now, c->free_ns);
	c->free_ns = leaves + takes;
	bpf_spin_unlock(&c->lock);
	bpf_skb_set_tstamp(skb, leaves, BPF_SKB_TSTAMP_DELIVERY_MONO);
	return XCP_TC_NEXT;
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The virtual router (core/xcp_cloud.h): tcx ingress, where packets of one
 * upstream router leave a cloud. One instance per upstream router.
 *
 * Steps for each packet:
 *   1. without a recent probe of the cloud, it passes unchanged
 *   2. the clocks run as in bpf/router.bpf.c, unless this virtual router is
 *      suspended
 *   3. a forward header with the upstream router in last_xcp_router is counted,
 *      in sums and bytes, and gets its delta; the number of routers in the
 *      cloud is subtracted from xcp_ttl. The same is done for packets that the
 *      upstream router itself sends: they have no last_xcp_router yet. While
 *      suspended, nothing is counted, and only too large a delta is lowered
 *   4. any other packet passes unchanged, also in the wire format
 *      `option-2005`, which has no last_xcp_router
 */
#include "control_interval.h"
#include "grant.h"
#include "ip.h"
#include "maps_router.h"
#include "parse.h"
#include "segments.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct xcp_router_options options = {};

XCP_DATA(xcp_router_config, config);
XCP_DATA(xcp_router_link, link);
XCP_MAP(cpus);
XCP_MAP(queues);
XCP_MAP(trace);

/* Measurements of the cloud, written by user space. */
struct xcp_cloud cloud SEC(".data.cloud");
struct xcp_cloud_backoff backoff SEC(".data.backoff");

/* Samples the cloud as a link: bytes are counted where they leave it. */
static __always_inline __u64 sample_link(__u64 now)
{
	struct xcp_capacity *capacity = &link.state.capacity;
	__u64 d_ns = link.state.interval_ns, backlog_B;

	xcp_cloud_backoff_update(&backoff, cloud.wait_ns, now, d_ns);
	capacity->link_Bps = xcp_cloud_least(
		&cloud, link.state.y_Bps ? capacity->link_Bps : 0, d_ns);
	link.state.excess_Bps =
		xcp_cloud_excess(&cloud, link.state.flows.mean, d_ns);
	link.state.step_Bps = xcp_cloud_step(&cloud, d_ns);
	backlog_B = xcp_cloud_backlog(&cloud, capacity->link_Bps);
	xcp_link_sample(&link.seen, now, link.seen.sent_B, backlog_B);
	link.end_now = !!xcp_link_fell(&link.seen, &capacity->seen,
				       capacity->link_Bps, d_ns);
	link.next_sample_ns = now + XCP_SAMPLE_INTERVAL_NS;
	return backlog_B;
}

/* Samples the link, and ends the queue estimate if it is due. */
__noinline int poll_link(__u64 now)
{
	if (!claim(&link.claimed))
		return 0;
	link_sampled(sample_link(now), now);
	release(&link.claimed);
	return 0;
}

/* The ID of the packet's sender, as in last_xcp_router. */
static __always_inline __u32 source_of(struct __sk_buff *skb, __u32 ip)
{
	__u8 head[IPV6_LEN];

	if (bpf_skb_load_bytes(skb, ip, head, IPV4_LEN))
		return 0;
	if (IP_VERSION(head) == 4)
		return xcp_get32(head + IPV4_SOURCE);
	if (bpf_skb_load_bytes(skb, ip, head, sizeof(head)))
		return 0;
	return xcp_router_id(head + IPV6_SOURCE);
}

/* Has the packet passed the upstream router, or was it sent by it? */
static __always_inline bool is_upstream(struct __sk_buff *skb,
					const struct found *f, __u32 last)
{
	return (last ? last : source_of(skb, f->ip)) == options.upstream;
}

/* Counts a packet and grants; while `suspended`, only lowers its delta. */
static __always_inline __s32 arrive(struct xcp_router_cpu *cpu,
				    struct xcp_forward *h, struct gso_burst *s,
				    bool suspended)
{
	if (suspended)
		return xcp_cloud_backoff_delta(&cloud, h, length_of(s));
	xcp_router_arrival(&cpu->sums, s->bytes);
	__sync_fetch_and_add(&link.seen.sent_B, s->bytes);
	return grant(cpu, h, s);
}

/* Handles a packet in the wire format `option`. */
__noinline int cross_option(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			    struct gso_burst *s, struct found *f,
			    bool suspended)
{
	/* aligned as in edit_slow_path of bpf/router.bpf.c */
	struct {
		__u16 pad;
		__u8 option[XCP_OPT_FORWARD_LEN];
	} __attribute__((aligned(4))) copy;
	struct xcp_forward h;
	__u32 at, sum;

	if (!cpu || !s || !f)
		return 0;
	at = f->l4 + f->option;
	if (bpf_skb_load_bytes(skb, at, copy.option, sizeof(copy.option)))
		return 0;
	h = xcp_parse_forward(copy.option);
	if (!is_upstream(skb, f, h.last_xcp_router))
		return 0;
	if (XCP_UNLIKELY(s->chain) && !merge_chain(skb, cpu, s))
		return 0;
	sum = xcp_edit_forward_cloud(copy.option, f->option,
				     arrive(cpu, &h, s, suspended), f->ttl,
				     suspended ? 0 : (__u8)cloud.routers);
	if (!bpf_skb_store_bytes(skb, at, copy.option, sizeof(copy.option), 0))
		bpf_l4_csum_replace(skb, f->l4 + TCP_CHECK, 0, sum, 0);
	return 0;
}

/* Handles a packet in the wire formats `header` and `header-2004`. */
__noinline int cross_header(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			    struct gso_burst *s, struct found *f,
			    bool suspended)
{
	__u8 h[XCP_HEADER_MAX_LEN] = {};
	struct xcp_header head = {};
	struct xcp_forward forward;
	__s32 delta;

	if (!cpu || !s || !f || f->l4_len < XCP_HEADER_LEN ||
	    bpf_skb_load_bytes(skb, f->l4, h, XCP_HEADER_LEN) ||
	    xcp_header_read(h, &head) != XCP_BOTH || head.length > f->l4_len)
		return 0;
	if (head.length == XCP_HEADER_LEN + 4 &&
	    bpf_skb_load_bytes(skb, f->l4, h, XCP_HEADER_LEN + 4))
		return 0;
	if (head.length == XCP_HEADER_MAX_LEN &&
	    bpf_skb_load_bytes(skb, f->l4, h, XCP_HEADER_MAX_LEN))
		return 0;
	if (!is_upstream(skb, f, xcp_header_last_router(h, head.length)))
		return 0;
	forward = xcp_header_forward(h, head.version, length_of(s));
	delta = arrive(cpu, &forward, s, suspended);
	xcp_edit_header(h, head.version, delta, f->ttl,
			suspended ? 0 : (__u8)cloud.routers);
	bpf_skb_store_bytes(skb, f->l4, h, XCP_HEADER_LEN,
			    BPF_F_RECOMPUTE_CSUM);
	return 0;
}

SEC("tc")
int xcp_virtual(struct __sk_buff *skb)
{
	__u32 key = bpf_get_smp_processor_id();
	struct xcp_router_cpu *cpu;
	struct gso_burst s = {};
	struct found f = {};
	__u64 now;
	bool suspended;

	cpu = bpf_map_lookup_elem(&cpus, &key);
	now = bpf_ktime_get_ns();
	if (!cpu || !xcp_cloud_known(&cloud, now, link.state.interval_ns))
		return XCP_TC_NEXT;
	suspended = xcp_cloud_backoff_active(&backoff, now);
	if (XCP_UNLIKELY(!suspended && now >= link.next_sample_ns))
		poll_link(now);
	if (XCP_UNLIKELY(!suspended &&
			 (link.end_now ||
			  xcp_router_interval_due(&link.state, now))))
		interval_end(now);

	f.kind = find_slow_path(skb, &f, options.l2_len, config.ip_proto);
	if (f.kind != XCP_FORWARD && f.kind != XCP_BOTH)
		return XCP_TC_NEXT;
	s.n = wire_packets(skb, kernel_skb(skb));
	if (s.n > 1)
		s.chain = is_chain(kernel_skb(skb));
	s.bytes = xcp_frame_bytes(&config.frame, skb->len, s.n);
	if (f.protocol == IPPROTO_TCP)
		cross_option(skb, cpu, &s, &f, suspended);
	else
		cross_header(skb, cpu, &s, &f, suspended);
	return XCP_TC_NEXT;
}

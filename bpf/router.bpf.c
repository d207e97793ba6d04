// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The router: tcx egress on an output link. One instance per link, so that its
 * state is found without a look-up.
 *
 * Steps for each packet:
 *   1. the clocks: the link's backlog is sampled from time to time; a control
 *      interval or queue estimate that is due ends now. One CPU claims this
 *      work, the others continue without writing shared data
 *   2. every packet is counted as input traffic
 *   3. the XCP header of any wire format is found: directly at its usual place
 *      (behind IPv4 or IPv6 without extensions, or as the option right behind
 *      timestamps), else on the slow path through VLAN tags, extension headers
 *      and options
 *   4. a chain of packets (fraglist GRO) with a forward header is merged; the
 *      header is added to the sums and gets its delta, and the TCP checksum is
 *      updated if it covers the header
 *   5. any other packet, malformed or not, passes unchanged
 *   6. packets with an XCP header of any kind are marked for the queue
 *      discipline `xcp` (bpf/qdisc.bpf.c), except data whose header has no RTT:
 *      XCP does not control it
 *
 * Functions that are not static are verified once, for any arguments, and not
 * again for every path that calls them: that keeps loading fast.
 */
#include "control_interval.h"
#include "grant.h"
#include "ip.h"
#include "maps_router.h"
#include "parse.h"
#include "qdisc_stats.h"
#include "router_formats.h"
#include "segments.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ETH_P_ARP 0x0806
/* the longest ACK: Ethernet with a VLAN tag, IPv6, XCP header, TCP */
#define SHORT_MAX (18 + IPV6_LEN + XCP_HEADER_LEN + XCP_TCP_HEADER_MAX)

const volatile struct xcp_router_options options = {};

XCP_DATA(xcp_router_config, config);
XCP_DATA(xcp_router_link, link);
XCP_MAP(cpus);
XCP_MAP(queues);
XCP_MAP(trace);
XCP_MAP(here);

/* Samples the link's queue disciplines; returns the backlog that XCP sees. */
static __u64 sample_link(const struct net_device *dev, __u64 now)
{
	struct xcp_link_samples *seen = &link.seen;
	struct xcp_queue *queue = queue_record();
	struct link_reading r = {};
	__u64 backlog_B, other_B = 0;

	read_link(dev, &r);
	/* new queues or queue disciplines start with new counts */
	if (r.queues == link.last_qdiscs &&
	    r.sent_packets - link.last_sent_packets < 1ULL << 32)
		seen->sent_B += xcp_frame_bytes(
			&config.frame, r.sent_B - link.last_sent_B,
			r.sent_packets - link.last_sent_packets);
	link.last_sent_B = r.sent_B;
	link.last_sent_packets = r.sent_packets;
	link.last_qdiscs = r.queues;
	link.has_classes = queue != NULL;
	backlog_B = r.backlog_B;
	if (queue) {
		other_B = queue->class[XCP_CLASS_OTHER].backlog_B;
		backlog_B = queue->class[XCP_CLASS_XCP].backlog_B;
		link.other.other_min_backlog_B =
			xcp_min(link.other.other_min_backlog_B, other_B);
	}
	xcp_link_sample(seen, now, seen->sent_B, backlog_B + other_B);
	link.end_now = config.measure &&
		       xcp_capacity_changed(&link.state.capacity, seen,
					    link.state.interval_ns);
	link.next_sample_ns = now + xcp_max(XCP_SAMPLE_INTERVAL_NS,
					    r.records * XCP_RECORD_NS);
	return backlog_B;
}

/* Samples the link, and ends the queue estimate if it is due. */
__noinline int poll_link(struct __sk_buff *skb, __u64 now)
{
	struct sk_buff *kskb = kernel_skb(skb);

	if (!claim(&link.claimed))
		return 0;
	link_sampled(sample_link(kskb->dev, now), now);
	release(&link.claimed);
	return 0;
}

/*
 * Is it address resolution, in IPv4 or IPv6? It goes to the head of XCP's
 * queue: behind some seconds of traffic it would be too late, and no packet
 * could be sent.
 */
static __always_inline bool resolves(const struct __sk_buff *skb,
				     const __u8 *ip, const __u8 *end)
{
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return true;
	return skb->protocol == bpf_htons(ETH_P_IPV6) &&
	       ip + IPV6_LEN + 1 <= end &&
	       read_ipv6(ip).protocol == IPPROTO_ICMPV6 &&
	       ip[IPV6_LEN] >= ND_ROUTER_SOLICIT && ip[IPV6_LEN] <= ND_REDIRECT;
}

/* Counts a packet of the other queue, and samples its flow if that is due. */
__noinline int arrive_other(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			    __u64 bytes)
{
	if (!cpu)
		return 0;
	cpu->other_B += bytes;
	if (!xcp_sampler_due(&cpu->other_left_B, bytes, link.sample_B) ||
	    !claim(&link.sampler.busy))
		return 0;
	xcp_sampler_add(&link.sampler, bpf_get_hash_recalc(skb),
			bpf_ktime_get_ns());
	release(&link.sampler.busy);
	return 0;
}

/*
 * Marks packets for XCP's queue in the queue discipline `xcp`. XCP does not
 * control data without an RTT: it uses the other queue. Any short packet is
 * taken for an ACK.
 */
static __always_inline void classify(struct __sk_buff *skb, enum xcp_kind kind,
				     __u32 rtt)
{
	if (kind != XCP_NONE && kind != XCP_MALFORMED &&
	    (rtt || kind == XCP_HANDSHAKE || skb->len <= SHORT_MAX))
		skb->tc_classid = XCP_CLASSID;
}

static __always_inline void count_other(struct xcp_router_cpu *cpu,
					enum xcp_kind kind, __u32 n)
{
	cpu->counters.other_packets += n;
	if (kind == XCP_MALFORMED)
		cpu->counters.malformed += n;
}

/* Writes last_xcp_router behind a header that has `room` for it. */
static __always_inline void append_edge(struct __sk_buff *skb, __u32 at,
					__u32 room)
{
	__be32 id = bpf_htonl(config.edge);

	if (room == sizeof(id))
		bpf_skb_store_bytes(skb, at, &id, sizeof(id),
				    BPF_F_RECOMPUTE_CSUM);
	else if (room == XCP_ADDRESS_LEN)
		bpf_skb_store_bytes(skb, at, (void *)config.edge_address,
				    XCP_ADDRESS_LEN, BPF_F_RECOMPUTE_CSUM);
}

/* Edits the draft's header at f->l4, in f->l4_len bytes of the packet. */
__noinline int edit_header_at(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			      struct gso_burst *s, struct found *f)
{
	struct header_copy h = {};
	enum xcp_kind kind = XCP_MALFORMED;

	if (!cpu || !s || !f)
		return 0;
	h.left = f->l4_len;
	h.ttl = f->ttl;
	if (f->l4_len >= XCP_HEADER_LEN &&
	    !bpf_skb_load_bytes(skb, f->l4, h.bytes, XCP_HEADER_LEN))
		kind = edit_header(cpu, &h, s);
	classify(skb, kind, h.rtt);
	if (kind != XCP_BOTH) {
		count_other(cpu, kind, s->n);
		return 0;
	}
	bpf_skb_store_bytes(skb, f->l4, h.bytes, XCP_HEADER_LEN,
			    BPF_F_RECOMPUTE_CSUM);
	if (XCP_UNLIKELY(config.edge))
		append_edge(skb, f->l4 + XCP_HEADER_LEN,
			    h.length - XCP_HEADER_LEN);
	return 0;
}

__noinline int edit_slow_path(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			      struct gso_burst *s)
{
	struct found f = {};
	/* clang loads whole words if they are aligned; the option's words
	 * begin at 4 n + 2 */
	struct {
		__u16 pad;
		__u8 option[XCP_OPT_FORWARD_LEN];
	} __attribute__((aligned(4))) copy;
	__u8 *option = copy.option;
	__u32 sum, at, length, rtt = 0;

	if (!cpu || !s)
		return 0;
	f.kind = find_slow_path(skb, &f, options.l2_len, config.ip_proto);
	if (f.kind == XCP_FORWARD && f.protocol != IPPROTO_TCP)
		return edit_header_at(skb, cpu, s, &f);
	at = f.l4 + f.option;
	length = forward_option_len(f.kind);
	if (length && XCP_UNLIKELY(s->chain) && !merge_chain(skb, cpu, s)) {
		f.kind = XCP_NONE;
		length = 0;
	}
	if (!length || bpf_skb_load_bytes(skb, at, option, length)) {
		classify(skb, f.kind, 0);
		count_other(cpu, f.kind, s->n);
		return 0;
	}
	sum = edit_option(cpu, s, f.kind, option, f.option, f.ttl, &rtt, false);
	classify(skb, f.kind, rtt);
	if (!bpf_skb_store_bytes(skb, at, option, length, 0))
		bpf_l4_csum_replace(skb, f.l4 + TCP_CHECK, 0, sum, 0);
	return 0;
}

/*
 * A call, so that the slow path, which uses all of the stack, does not include
 * the stack of the inlined grant.
 */
static __noinline __u32 edit_option_fast(struct xcp_router_cpu *cpu,
					 struct gso_burst *s, __u8 *option,
					 __u8 ttl, __u32 *rtt)
{
	return edit_option(cpu, s, XCP_FORWARD, option, 32, ttl, rtt, true);
}

/*
 * Edits the usual cases: an XCP option at byte 32 of the TCP header, or no
 * option except timestamps. Returns false for all others. The TCP header is at
 * `tcp`, `length` bytes before the packet's end.
 */
static __always_inline bool edit_fast(struct __sk_buff *skb,
				      const struct sk_buff *kskb,
				      struct xcp_router_cpu *cpu,
				      struct gso_burst *s, __u8 *tcp, __u8 *end,
				      __u32 length, __u8 ttl)
{
	__u32 sum, header, rtt;
	enum xcp_kind kind;

	if (tcp + 32 > end)
		return false;
	header = (tcp[12] >> 4) * 4;
	if (header > length)
		return false;
	if (header == XCP_TCP_HEADER_LEN ||
	    (header == 32 &&
	     xcp_get32(tcp + XCP_TCP_HEADER_LEN) == XCP_WORD_TIMESTAMPS)) {
		cpu->counters.other_packets += s->n;
		return true;
	}
	if (XCP_UNLIKELY(s->chain))
		return false; /* merging it would move its bytes */
	kind = forward_option_at_32(tcp, end, header);
	if (kind == XCP_NONE)
		return false;
	sum = kind == XCP_FORWARD_2005
		      ? edit_option(cpu, s, XCP_FORWARD_2005, tcp + 32, 32, ttl,
				    &rtt, false)
		      : edit_option_fast(cpu, s, tcp + 32, ttl, &rtt);
	classify(skb, kind, rtt);
	/* a partial checksum is completed later, from the new header */
	if (BPF_CORE_READ_BITFIELD(kskb, ip_summed) != CHECKSUM_PARTIAL) {
		__u16 *check = (__u16 *)(tcp + TCP_CHECK);

		*check = xcp_update_checksum(*check, sum);
	}
	return true;
}

SEC("tc")
int xcp_router(struct __sk_buff *skb)
{
	__u32 key = bpf_get_smp_processor_id(), l2 = options.l2_len;
	__u8 *data, *end, *ip;
	struct xcp_router_cpu *cpu;
	struct gso_burst s = {};
	struct found f = {};
	struct ip_fields plain;
	__u64 now;
	struct sk_buff *kskb;

	cpu = bpf_map_lookup_elem(&cpus, &key);
	if (!cpu)
		return XCP_TC_NEXT;

	skb->tc_classid = 0; /* the stack may have left a value in it */
	now = bpf_ktime_get_ns();
	kskb = kernel_skb(skb);
	if (XCP_UNLIKELY(now >= link.next_sample_ns))
		poll_link(skb, now);
	if (XCP_UNLIKELY(link.end_now ||
			 xcp_router_interval_due(&link.state, now)))
		interval_end(now);

	s.n = wire_packets(skb, kskb);
	if (s.n > 1)
		s.chain = is_chain(kskb);
	s.bytes = skb->wire_len;
	if (!s.bytes)
		s.bytes = skb->len;
	s.bytes = xcp_frame_bytes(&config.frame, s.bytes, s.n);

	data = (__u8 *)(long)skb->data;
	end = (__u8 *)(long)skb->data_end;
	ip = data + l2;
	/* complete packets, with TCP or an XCP header right behind IP */
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (ip + IPV4_LEN <= end && is_plain_ipv4(ip, &plain) &&
		    plain.total_len + l2 == skb->len) {
			if (plain.protocol == IPPROTO_TCP &&
			    edit_fast(skb, kskb, cpu, &s, ip + IPV4_LEN, end,
				      skb->len - l2 - IPV4_LEN, plain.ttl))
				goto arrived;
			if (plain.protocol == config.ip_proto) {
				f.l4 = l2 + IPV4_LEN;
				f.ttl = plain.ttl;
			}
		}
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (ip + IPV6_LEN <= end && is_plain_ipv6(ip, &plain) &&
		    plain.total_len + l2 == skb->len) {
			if (plain.protocol == IPPROTO_TCP &&
			    edit_fast(skb, kskb, cpu, &s, ip + IPV6_LEN, end,
				      skb->len - l2 - IPV6_LEN, plain.ttl))
				goto arrived;
			if (plain.protocol == config.ip_proto) {
				f.l4 = l2 + IPV6_LEN;
				f.ttl = plain.ttl;
			}
		}
	}
	if (resolves(skb, ip, end))
		skb->tc_classid = XCP_CLASSID_RESOLVES;
	if (f.l4) {
		f.l4_len = skb->len - f.l4;
		edit_header_at(skb, cpu, &s, &f);
	} else {
		edit_slow_path(skb, cpu, &s);
	}
arrived:
	if (link.has_classes && !skb->tc_classid)
		arrive_other(skb, cpu, s.bytes);
	else
		xcp_router_arrival(&cpu->sums, s.bytes);
	return XCP_TC_NEXT;
}

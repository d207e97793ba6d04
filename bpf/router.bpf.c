// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The router: tc egress (tcx or clsact) on an output link. One instance per
 * link, so that its state is found without a look-up.
 *
 * A packet's way:
 *   1. the clocks: the link is looked at now and then, for its backlog; an
 *      overdue control interval or queue estimate ends now. One CPU claims
 *      that, the others go on, and write nothing that they share
 *   2. every packet counts in the input traffic
 *   3. the XCP header is found, in whichever wire format: at once where it
 *      usually stands (behind IPv4 or IPv6 without extensions, or as the option
 *      right behind timestamps), else by the slow way through VLAN tags,
 *      extension headers and options
 *   4. a forward header counts in the sums, gets its delta, and the TCP
 *      checksum, if it covers it, is mended by the difference
 *   5. anything else, malformed packets included, passes untouched
 *   6. packets with an XCP header, or only a return header or a handshake's,
 *      are marked for the queue discipline `xcp` (bpf/qdisc.bpf.c)
 *
 * Functions that are not static are verified once, whatever their arguments,
 * and not again for every path that calls them: that keeps loading fast.
 */
#include "kernel.h"
#include "intf.h"
#define XCP_WIRE_IN_PACKETS
#include "../core/xcp_wire.h"
#include "tcp.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ETH_P_ARP 0x0806
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88A8

/*
 * The link is looked at this often by all CPUs together: 20 times at least in
 * the shortest queue estimate. Where many records have to be read, that takes
 * no more than some percent of one CPU.
 */
#define XCP_LOOK_NS 100000ULL
#define XCP_RECORD_NS 1000ULL

/* Set before loading. */
const volatile struct {
	__u32 l2_len; /* 14 on Ethernet, 0 on devices without a link layer */
	__u32 cpus;
} options = {14, 1};

#include "link.h"

struct xcp_router_config config SEC(".data.config");
struct xcp_router_link link SEC(".data.link");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set to the number of CPUs before loading */
	__type(key, __u32);
	__type(value, struct xcp_router_cpu);
} cpus SEC(".maps");

/* The queue discipline's records, where it is there; config.queue tells. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct xcp_queue);
} queues SEC(".maps");

/* For people; without a reader it fills up, and no more is said. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 128 * 1024);
} trace SEC(".maps");

/* What is behind a packet's IP header, and its XCP header or option. */
struct found {
	enum xcp_kind kind;
	__u32 l4; /* offset in the packet */
	__u32 l4_len;
	__u32 option; /* offset of the option in the TCP header */
	__u8 protocol; /* TCP or that of XCP headers */
	__u8 ttl;
};

/* A wire packet of a super-packet: one of n, all alike. */
struct share {
	__u32 n;
	__u32 unused;
	__u64 bytes; /* of all n */
};

static __noinline void split_pools(struct xcp_router_law *law, __u64 traffic_B,
				   __u64 sum_x)
{
	struct xcp_router_cpu *cpu;
	__u32 i;

	for (i = 0; i < options.cpus; i++) {
		__u32 key = i;

		cpu = bpf_map_lookup_elem(&cpus, &key);
		if (!cpu)
			return;
		cpu->next_pos = xcp_router_split(
			law->pos_pool, cpu->sums.sum_x - cpu->seen_sum_x,
			sum_x);
		cpu->next_neg = xcp_router_split(law->neg_pool,
						 cpu->sums.input_traffic_B -
							 cpu->seen_traffic_B,
						 traffic_B);
		cpu->seen_sum_x = cpu->sums.sum_x;
		cpu->seen_traffic_B = cpu->sums.input_traffic_B;
	}
}

/* The queue discipline's record, if it is this device's. */
static __always_inline struct xcp_queue *queue_record(void)
{
	__u32 key = config.queue - 1;

	return config.queue ? bpf_map_lookup_elem(&queues, &key) : NULL;
}

__noinline int capacity(__u64 now)
{
	struct xcp_queue *queue = queue_record();

	link.other.share = config.share;
	link.state.by_departures = config.by_departures;
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

/* The interval of `interval_ns` that ended now, and what follows from it. */
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
	r->unused = 0;
}

static __noinline void tell(const struct xcp_router_law *law, __u64 interval_ns,
			    __u64 now)
{
	struct xcp_router_record *r =
		bpf_ringbuf_reserve(&trace, sizeof(*r), 0);

	if (!r)
		return;
	fill(r, law, interval_ns, now);
	bpf_ringbuf_submit(r, 0);
}

/* What all CPUs have seen, and the longest RTT of the interval. */
static __noinline __u64 collect(void)
{
	struct xcp_router_sums *sums = &link.sums;
	struct xcp_router_cpu *cpu;
	__u64 longest_rtt = 0;
	__u32 i;

	__builtin_memset(sums, 0, sizeof(*sums));
	link.other.other_B = 0;
	link.other.other_flows = 0;
	for (i = 0; i < options.cpus; i++) {
		__u32 key = i;

		cpu = bpf_map_lookup_elem(&cpus, &key);
		if (!cpu)
			break;
		sums->input_traffic_B += cpu->sums.input_traffic_B;
		sums->sum_x += cpu->sums.sum_x;
		sums->sum_rtt_x_lo += cpu->sums.sum_rtt_x_lo;
		sums->sum_rtt_x_hi += cpu->sums.sum_rtt_x_hi;
		longest_rtt = xcp_max(longest_rtt, cpu->pool.longest_rtt);
		link.other.other_B += cpu->other_B;
		link.other.other_flows += xcp_sampler_flows(&cpu->other);
	}
	return longest_rtt;
}

__noinline int interval_end(__u64 now)
{
	__u64 longest_rtt, interval_ns, traffic_B, sum_x;
	struct xcp_router_law *law;
	__u32 epoch;

	if (__sync_val_compare_and_swap(&link.claimed, 0, 1))
		return 0;
	if (!link.started) {
		xcp_router_init(&link.state, &link.law[0], now);
		link.law[1] = link.law[0];
		link.started = now;
	}
	if (!xcp_router_interval_due(&link.state, now))
		goto out;
	longest_rtt = collect();
	interval_ns = now - link.state.interval_start_ns;
	traffic_B = link.sums.input_traffic_B - link.state.last.input_traffic_B;
	sum_x = link.sums.sum_x - link.state.last.sum_x;
	epoch = link.epoch + 1;
	law = &link.law[epoch & 1];
	capacity(now);
	if (xcp_router_interval_end(&link.state, &config.params, &link.sums,
				    longest_rtt, now, law)) {
		split_pools(law, traffic_B, sum_x);
		barrier();
		link.epoch = epoch;
		tell(law, interval_ns, now);
	}
	link.seen.min_backlog_B = link.seen.backlog_B;
	link.other.other_min_backlog_B = ~0ULL;
out:
	barrier();
	link.claimed = 0;
	return 0;
}

/*
 * What the link holds and has sent, in bytes on the link. Returns the backlog
 * that XCP's packets wait behind.
 */
static __always_inline __u64 see(const struct net_device *dev, __u64 now)
{
	struct xcp_capacity_interval *seen = &link.seen;
	struct xcp_queue *queue = queue_record();
	struct link_reading r = {};
	__u64 backlog_B;

	read_link(dev, &r);
	if (r.sent_packets - link.seen_packets < 1ULL << 32)
		seen->sent_B +=
			xcp_frame_bytes(&config.frame, r.sent_B - link.seen_B,
					r.sent_packets - link.seen_packets);
	link.seen_B = r.sent_B;
	link.seen_packets = r.sent_packets;
	backlog_B = r.backlog_B;
	seen->backlog_B = backlog_B;
	if (queue) {
		__u64 other_B = queue->class[XCP_CLASS_OTHER].backlog_B;

		backlog_B = queue->class[XCP_CLASS_XCP].backlog_B;
		seen->backlog_B = backlog_B + other_B;
		link.other.other_min_backlog_B =
			xcp_min(link.other.other_min_backlog_B, other_B);
	}
	seen->now_ns = now;
	seen->min_backlog_B = xcp_min(seen->min_backlog_B, seen->backlog_B);
	link.look_ns = now + xcp_max(XCP_LOOK_NS, r.records * XCP_RECORD_NS);
	return backlog_B;
}

/* Looks at the link, and ends the queue estimate if it is due. */
__noinline int look(struct __sk_buff *skb, __u64 now)
{
	struct sk_buff *kskb = bpf_cast_to_kern_ctx(skb);
	__u64 backlog_B;

	if (__sync_val_compare_and_swap(&link.claimed, 0, 1))
		return 0;
	backlog_B = see(kskb->dev, now);
	xcp_router_backlog(&link.state, backlog_B);
	if (link.started && xcp_router_queue_due(&link.state, now))
		xcp_router_queue_end(&link.state, &config.params, backlog_B,
				     now);
	barrier();
	link.claimed = 0;
	return 0;
}

/*
 * Address resolution, in IPv4 and IPv6: goes with XCP's packets. Behind some
 * seconds of other traffic its answers come too late, and no packet leaves.
 */
static __always_inline bool resolves(const struct __sk_buff *skb,
				     const __u8 *ip, const __u8 *end)
{
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return true;
	return skb->protocol == bpf_htons(ETH_P_IPV6) &&
	       ip + IPV6_LEN + 1 <= end && ip[6] == IPPROTO_ICMPV6 &&
	       ip[IPV6_LEN] >= ND_ROUTER_SOLICIT && ip[IPV6_LEN] <= ND_REDIRECT;
}

/* A packet for the queue that XCP does not have. */
__noinline int arrive_other(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			    __u64 bytes)
{
	if (!cpu)
		return 0;
	cpu->other_B += bytes;
	if (xcp_sampler_due(&cpu->other, bytes, link.sample_B))
		xcp_sampler_add(&cpu->other, bpf_get_hash_recalc(skb));
	return 0;
}

/* Walks Ethernet type and VLAN tags; the network protocol, -1 if cut. */
static __always_inline int find_network(struct __sk_buff *skb, __u32 *at)
{
	__u16 proto = bpf_ntohs((__u16)skb->protocol), tag[2];
	int i;

	for (i = 0; i < 2; i++) {
		if (proto != ETH_P_8021Q && proto != ETH_P_8021AD)
			break;
		if (bpf_skb_load_bytes(skb, *at, tag, 4))
			return -1;
		proto = bpf_ntohs(tag[1]);
		*at += 4;
	}
	return proto;
}

static __always_inline bool is_ours(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == config.ip_proto;
}

static __always_inline enum xcp_kind find_ipv4(struct __sk_buff *skb, __u32 at,
					       struct found *f)
{
	__u8 ip[IPV4_LEN];
	__u32 header, total;

	if (bpf_skb_load_bytes(skb, at, ip, sizeof(ip)))
		return XCP_MALFORMED;
	header = (ip[0] & 15) * 4;
	total = (__u32)ip[2] << 8 | ip[3];
	if (ip[0] >> 4 != 4 || header < IPV4_LEN)
		return XCP_MALFORMED;
	if (total == 0) /* a super-packet of more than 64 KB */
		total = skb->len - at;
	if (total < header || at + total > skb->len)
		return XCP_MALFORMED;
	/* other protocols, and fragments: routers read nothing in them */
	if (!is_ours(ip[9]) || (ip[6] & 0x3f) || ip[7])
		return XCP_NONE;
	f->protocol = ip[9];
	f->ttl = ip[8];
	f->l4 = at + header;
	f->l4_len = total - header;
	return XCP_FORWARD;
}

static __always_inline enum xcp_kind find_ipv6(struct __sk_buff *skb, __u32 at,
					       struct found *f)
{
	__u8 ip[IPV6_LEN], next, ext[2];
	__u32 left, length;
	int i;

	if (bpf_skb_load_bytes(skb, at, ip, sizeof(ip)))
		return XCP_MALFORMED;
	left = (__u32)ip[4] << 8 | ip[5];
	if (ip[0] >> 4 != 6)
		return XCP_MALFORMED;
	at += IPV6_LEN;
	if (left == 0)
		left = skb->len - at;
	if (at + left > skb->len)
		return XCP_MALFORMED;
	next = ip[6];
	for (i = 0; i < 8; i++) {
		/* hop-by-hop, routing and destination options */
		if (next != 0 && next != 43 && next != 60)
			break;
		if (left < 8 || bpf_skb_load_bytes(skb, at, ext, 2))
			return XCP_MALFORMED;
		length = (ext[1] + 1) * 8;
		if (length > left)
			return XCP_MALFORMED;
		next = ext[0];
		at += length;
		left -= length;
	}
	if (!is_ours(next))
		return XCP_NONE;
	f->protocol = next;
	f->ttl = ip[7];
	f->l4 = at;
	f->l4_len = left;
	return XCP_FORWARD;
}

/* The slow way to the header, through copies. */
__noinline int find_slowly(struct __sk_buff *skb, struct found *f)
{
	__u32 at = options.l2_len;
	struct tcp_copy tcp = {};
	enum xcp_kind kind;
	int proto;

	if (!f)
		return XCP_NONE;
	proto = find_network(skb, &at);
	if (proto < 0)
		return XCP_MALFORMED;
	if (proto == ETH_P_IP)
		kind = find_ipv4(skb, at, f);
	else if (proto == ETH_P_IPV6)
		kind = find_ipv6(skb, at, f);
	else
		return XCP_NONE;
	if (kind == XCP_FORWARD && f->protocol == IPPROTO_TCP) {
		kind = find_in_tcp(skb, f->l4, f->l4_len, &tcp);
		f->option = tcp.option;
	}
	return kind;
}

/* Step 4: sums, delta and counters of a forward header. */
static __always_inline __s32 grant(struct xcp_router_cpu *cpu,
				   const struct xcp_forward *h, __u32 n,
				   __u64 bytes)
{
	__u32 epoch = *(volatile __u32 *)&link.epoch;
	struct xcp_router_law *law = &link.law[epoch & 1];
	__s32 delta;

	if (cpu->epoch != epoch) {
		xcp_router_pool_fill(&cpu->pool, cpu->next_pos, cpu->next_neg,
				     law->shift);
		cpu->epoch = epoch;
	}
	if (h->rtt)
		xcp_router_arrival_xcp(&cpu->sums, &cpu->pool, law, n, h->x,
				       h->rtt);
	if (n > 1)
		bytes /= n;
	delta = xcp_router_departure(law, &cpu->pool, n, bytes, h->x, h->rtt,
				     h->delta);
	cpu->counters.xcp_packets += n;
	cpu->counters.granted_Bps += (__s64)delta * n;
	return delta;
}

__noinline int grant_slowly(struct xcp_router_cpu *cpu, struct xcp_forward *h,
			    struct share *s)
{
	return cpu && h && s ? grant(cpu, h, s->n, s->bytes) : 0;
}

/* The length of one of the n packets. */
static __always_inline __u32 length_of(const struct share *s)
{
	return (__u32)(s->n > 1 ? s->bytes / s->n : s->bytes);
}

/* What to write as H_feedback. */
__noinline int grant_2005(struct xcp_router_cpu *cpu, struct xcp_2005 *h,
			  struct share *s)
{
	struct xcp_forward f;
	__s32 granted, before;
	__u16 feedback;

	if (!cpu || !h || !s)
		return 0;
	f = xcp_2005_forward(h, length_of(s));
	before = grant_slowly(cpu, &f, s);
	granted = before;
	feedback = xcp_2005_grant(h, length_of(s), s->n, &granted,
				  &cpu->carry_2005, config.whole_feedback);
	cpu->counters.granted_Bps += ((__s64)granted - before) * s->n;
	return feedback;
}

/* The draft's header, its 20 bytes read: grants, edits them; the kind. */
struct header_copy {
	__u8 bytes[XCP_HEADER_LEN];
	__u32 left; /* bytes of the packet from here on */
	__u8 ttl;
};

__noinline int edit_header(struct xcp_router_cpu *cpu, struct header_copy *h,
			   struct share *s)
{
	struct xcp_header head;
	struct xcp_forward f;
	enum xcp_kind kind;

	if (!cpu || !h || !s)
		return XCP_NONE;
	kind = xcp_header_read(h->bytes, &head);
	if (head.length > h->left)
		return XCP_MALFORMED;
	if (kind == XCP_BOTH) {
		f = xcp_header_forward(h->bytes, head.version, length_of(s));
		f.delta = grant_slowly(cpu, &f, s);
		xcp_edit_header(h->bytes, head.version, f.delta, h->ttl);
	}
	return kind;
}

/* Which queue of the queue discipline `xcp` it is for. */
static __always_inline void classify(struct __sk_buff *skb, enum xcp_kind kind)
{
	if (kind != XCP_NONE && kind != XCP_MALFORMED)
		skb->tc_classid = XCP_CLASSID;
}

static __always_inline void count_other(struct xcp_router_cpu *cpu,
					enum xcp_kind kind, __u32 n)
{
	cpu->counters.other_packets += n;
	if (kind == XCP_MALFORMED)
		cpu->counters.malformed += n;
}

/* The draft's header at `at`, of `length` bytes up to the packet's end. */
__noinline int edit_header_at(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			      struct share *s, struct found *f)
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
	classify(skb, kind);
	if (kind == XCP_BOTH)
		bpf_skb_store_bytes(skb, f->l4, h.bytes, XCP_HEADER_LEN,
				    BPF_F_RECOMPUTE_CSUM);
	else
		count_other(cpu, kind, s->n);
	return 0;
}

__noinline int edit_slowly(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			   struct share *s)
{
	struct found f = {};
	/* on the stack, words must be aligned; the option's stand at 4 n + 2 */
	struct {
		__u16 pad;
		__u8 option[XCP_OPT_FORWARD_LEN];
	} __attribute__((aligned(4))) copy;
	__u8 *option = copy.option;
	struct xcp_forward h;
	struct xcp_2005 h2005;
	__u32 sum, at, length;

	if (!cpu || !s)
		return 0;
	f.kind = find_slowly(skb, &f);
	if (f.kind == XCP_FORWARD && f.protocol != IPPROTO_TCP)
		return edit_header_at(skb, cpu, s, &f);
	classify(skb, f.kind);
	at = f.l4 + f.option;
	if (f.kind == XCP_FORWARD_2005) {
		if (bpf_skb_load_bytes(skb, at, option, XCP_2005_FORWARD_LEN))
			return 0;
		h2005 = xcp_2005_parse(option);
		sum = xcp_2005_edit(option, f.option,
				    grant_2005(cpu, &h2005, s));
		length = XCP_2005_FORWARD_LEN;
	} else if ((f.kind == XCP_FORWARD || f.kind == XCP_BOTH) &&
		   !bpf_skb_load_bytes(skb, at, option, sizeof(copy.option))) {
		h = xcp_parse_forward(option);
		h.delta = grant_slowly(cpu, &h, s);
		sum = xcp_edit_forward(option, f.option, h.delta, f.ttl);
		length = sizeof(copy.option);
	} else {
		count_other(cpu, f.kind, s->n);
		return 0;
	}
	if (!bpf_skb_store_bytes(skb, at, option, length, 0))
		bpf_l4_csum_replace(skb, f.l4 + TCP_CHECK, 0, sum, 0);
	return 0;
}

/*
 * The usual cases, the TCP header being at `tcp`, `length` bytes before the
 * packet's end: an option at its byte 32, or no option but timestamps. Returns
 * false for all others.
 */
static __always_inline bool edit_fast(struct __sk_buff *skb,
				      const struct sk_buff *kskb,
				      struct xcp_router_cpu *cpu,
				      struct share *s, __u8 *tcp, __u8 *end,
				      __u32 length, __u8 ttl)
{
	struct xcp_forward h;
	struct xcp_2005 h2005;
	__u32 sum, header;

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
	if (tcp + 32 + XCP_OPT_BOTH_LEN <= end &&
	    xcp_option_at_32(tcp, header) != XCP_NONE) {
		h = xcp_parse_forward(tcp + 32);
		h.delta = grant(cpu, &h, s->n, s->bytes);
		sum = xcp_edit_forward(tcp + 32, 32, h.delta, ttl);
	} else if (tcp + 32 + XCP_2005_FORWARD_LEN <= end &&
		   xcp_2005_at_32(tcp, header)) {
		h2005 = xcp_2005_parse(tcp + 32);
		sum = xcp_2005_edit(tcp + 32, 32, grant_2005(cpu, &h2005, s));
	} else {
		return false;
	}
	classify(skb, XCP_FORWARD);
	/* a partial checksum covers no header: hardware will add it */
	if (BPF_CORE_READ_BITFIELD(kskb, ip_summed) != CHECKSUM_PARTIAL) {
		__u16 *check = (__u16 *)(tcp + TCP_CHECK);

		*check = xcp_mend_checksum(*check, sum);
	}
	return true;
}

SEC("tc")
int xcp_router(struct __sk_buff *skb)
{
	__u32 key = bpf_get_smp_processor_id(), l2 = options.l2_len;
	__u8 *data, *end, *ip;
	struct xcp_router_cpu *cpu;
	struct share s = {};
	struct found f = {};
	__u64 now;
	struct sk_buff *kskb;

	cpu = bpf_map_lookup_elem(&cpus, &key);
	if (!cpu)
		return XCP_TC_NEXT;

	skb->tc_classid = 0; /* the stack may have left something there */
	now = bpf_ktime_get_ns();
	kskb = bpf_cast_to_kern_ctx(skb);
	if (XCP_UNLIKELY(now >= link.look_ns))
		look(skb, now);
	if (XCP_UNLIKELY(xcp_router_interval_due(&link.state, now)))
		interval_end(now);

	s.n = skb->gso_segs;
	if (!s.n)
		s.n = 1;
	s.bytes = skb->wire_len;
	if (!s.bytes)
		s.bytes = skb->len;
	s.bytes = xcp_frame_bytes(&config.frame, s.bytes, s.n);

	data = (__u8 *)(long)skb->data;
	end = (__u8 *)(long)skb->data_end;
	ip = data + l2;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		/* version 4 without options, whole, all of it there */
		if (ip + IPV4_LEN <= end && ip[0] == 0x45 && !(ip[6] & 0x3f) &&
		    !ip[7] && ((__u32)ip[2] << 8 | ip[3]) + l2 == skb->len) {
			if (ip[9] == IPPROTO_TCP &&
			    edit_fast(skb, kskb, cpu, &s, ip + IPV4_LEN, end,
				      skb->len - l2 - IPV4_LEN, ip[8]))
				goto arrived;
			if (ip[9] == config.ip_proto) {
				f.l4 = l2 + IPV4_LEN;
				f.ttl = ip[8];
			}
		}
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (ip + IPV6_LEN <= end && ip[0] >> 4 == 6 &&
		    ((__u32)ip[4] << 8 | ip[5]) + l2 + IPV6_LEN == skb->len) {
			if (ip[6] == IPPROTO_TCP &&
			    edit_fast(skb, kskb, cpu, &s, ip + IPV6_LEN, end,
				      skb->len - l2 - IPV6_LEN, ip[7]))
				goto arrived;
			if (ip[6] == config.ip_proto) {
				f.l4 = l2 + IPV6_LEN;
				f.ttl = ip[7];
			}
		}
	}
	if (resolves(skb, ip, end))
		skb->tc_classid = XCP_CLASSID;
	if (f.l4) {
		f.l4_len = skb->len - f.l4;
		edit_header_at(skb, cpu, &s, &f);
	} else {
		edit_slowly(skb, cpu, &s);
	}
arrived:
	if (config.queue && skb->tc_classid != XCP_CLASSID)
		arrive_other(skb, cpu, s.bytes);
	else
		xcp_router_arrival(&cpu->sums, s.bytes);
	return XCP_TC_NEXT;
}

/* What a program costs that does nothing: the bench's yardstick. */
SEC("tc")
int xcp_empty(struct __sk_buff *skb)
{
	return XCP_TC_NEXT;
}

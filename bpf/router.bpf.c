// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The router: tc egress (tcx or clsact) on an output link. One instance per
 * link, so that its state is found without a look-up.
 *
 * A packet's way:
 *   1. the clocks: an overdue control interval or queue estimate ends now;
 *      one CPU claims it, the others go on
 *   2. every packet counts in the input traffic
 *   3. the XCP header is found: at once where it usually stands (IPv4 or IPv6
 *      without extensions, the option right behind timestamps), else by the
 *      slow way through VLAN tags, extension headers and options
 *   4. a forward header counts in the sums, gets its delta, and the TCP
 *      checksum is mended by the difference
 *   5. anything else, malformed packets included, passes untouched
 *
 * Functions that are not static are verified once, whatever their arguments,
 * and not again for every path that calls them: that keeps loading fast.
 */
#include "kernel.h"
#include "intf.h"
#define XCP_WIRE_IN_PACKETS
#include "../core/xcp_wire.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88A8
#define IPPROTO_TCP 6
#define IPV4_LEN 20
#define IPV6_LEN 40
#define TCP_CHECK 16 /* of the checksum in the TCP header */

/* Set before loading. */
const volatile struct {
	__u32 l2_len; /* 14 on Ethernet, 0 on devices without a link layer */
	__u32 cpus;
} options = {14, 1};

struct xcp_router_config config SEC(".data.config");
struct xcp_router_link link SEC(".data.link");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set to the number of CPUs before loading */
	__type(key, __u32);
	__type(value, struct xcp_router_cpu);
} cpus SEC(".maps");

/* A packet's XCP header, as the slow way found it. */
struct found {
	enum xcp_kind kind;
	__u32 tcp; /* offset of the TCP header in the packet */
	__u32 option; /* offset of the option in the TCP header */
	__u8 ttl;
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

__noinline int interval_end(__u64 now)
{
	struct xcp_router_sums sums = {}, last;
	struct xcp_router_law *law;
	struct xcp_router_cpu *cpu;
	__u64 longest_rtt = 0;
	__u32 epoch, i;

	if (__sync_val_compare_and_swap(&link.claimed, 0, 1))
		return 0;
	if (!link.started) {
		xcp_router_init(&link.state, &link.law[0], now);
		link.law[1] = link.law[0];
		link.started = now;
	}
	if (!xcp_router_interval_due(&link.state, now))
		goto out;
	for (i = 0; i < options.cpus; i++) {
		__u32 key = i;

		cpu = bpf_map_lookup_elem(&cpus, &key);
		if (!cpu)
			goto out;
		sums.input_traffic_B += cpu->sums.input_traffic_B;
		sums.sum_x += cpu->sums.sum_x;
		sums.sum_rtt_x_lo += cpu->sums.sum_rtt_x_lo;
		sums.sum_rtt_x_hi += cpu->sums.sum_rtt_x_hi;
		longest_rtt = xcp_max(longest_rtt, cpu->pool.longest_rtt);
	}
	epoch = link.epoch + 1;
	law = &link.law[epoch & 1];
	last = link.state.last;
	if (xcp_router_interval_end(&link.state, &config.params, &sums,
				    longest_rtt, now, law)) {
		split_pools(law, sums.input_traffic_B - last.input_traffic_B,
			    sums.sum_x - last.sum_x);
		barrier();
		link.epoch = epoch;
	}
out:
	barrier();
	link.claimed = 0;
	return 0;
}

__noinline int queue_end(__u64 now, __u64 backlog_B)
{
	if (__sync_val_compare_and_swap(&link.claimed, 0, 1))
		return 0;
	if (link.started && xcp_router_queue_due(&link.state, now))
		xcp_router_queue_end(&link.state, &config.params, backlog_B,
				     now);
	barrier();
	link.claimed = 0;
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

static __always_inline enum xcp_kind find_tcp4(struct __sk_buff *skb, __u32 at,
					       struct found *f, __u32 *payload)
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
	/* other protocols, and fragments: routers read no TCP in them */
	if (ip[9] != IPPROTO_TCP || (ip[6] & 0x3f) || ip[7])
		return XCP_NONE;
	f->ttl = ip[8];
	f->tcp = at + header;
	*payload = total - header;
	return XCP_FORWARD;
}

static __always_inline enum xcp_kind find_tcp6(struct __sk_buff *skb, __u32 at,
					       struct found *f, __u32 *payload)
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
	if (next != IPPROTO_TCP)
		return XCP_NONE;
	f->ttl = ip[7];
	f->tcp = at;
	*payload = left;
	return XCP_FORWARD;
}

/* A TCP header of a packet, and where our option stands in it. */
struct tcp_copy {
	__u8 bytes[XCP_TCP_HEADER_MAX + 4];
	__u32 header_len;
	__u32 option;
};

__noinline int find_option(struct tcp_copy *tcp)
{
	if (!tcp)
		return XCP_NONE;
	return xcp_option_find(tcp->bytes, tcp->header_len,
			       tcp->bytes + sizeof(tcp->bytes), &tcp->option);
}

/* The slow way to the header, through copies. */
__noinline int find_slowly(struct __sk_buff *skb, struct found *f)
{
	struct tcp_copy tcp = {};
	__u32 at = options.l2_len, payload = 0, header;
	enum xcp_kind kind;
	int proto;

	if (!f)
		return XCP_NONE;
	proto = find_network(skb, &at);
	if (proto < 0)
		return XCP_MALFORMED;
	if (proto == ETH_P_IP)
		kind = find_tcp4(skb, at, f, &payload);
	else if (proto == ETH_P_IPV6)
		kind = find_tcp6(skb, at, f, &payload);
	else
		return XCP_NONE;
	if (kind != XCP_FORWARD)
		return kind;

	if (payload < XCP_TCP_HEADER_LEN ||
	    bpf_skb_load_bytes(skb, f->tcp, tcp.bytes, XCP_TCP_HEADER_LEN))
		return XCP_MALFORMED;
	header = (tcp.bytes[12] >> 4) * 4;
	if (header < XCP_TCP_HEADER_LEN || header > payload)
		return XCP_MALFORMED;
	header -= XCP_TCP_HEADER_LEN;
	barrier_var(header); /* keeps the bounds where the verifier sees them */
	if (header < 1)
		return XCP_NONE;
	if (header > XCP_TCP_HEADER_MAX - XCP_TCP_HEADER_LEN ||
	    bpf_skb_load_bytes(skb, f->tcp + XCP_TCP_HEADER_LEN,
			       tcp.bytes + XCP_TCP_HEADER_LEN, header))
		return XCP_MALFORMED;
	tcp.header_len = header + XCP_TCP_HEADER_LEN;
	kind = find_option(&tcp);
	f->option = tcp.option;
	return kind;
}

/* Steps 4: sums, delta and counters of a forward header. */
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
			    __u32 n, __u64 bytes)
{
	return cpu && h ? grant(cpu, h, n, bytes) : 0;
}

__noinline int edit_slowly(struct __sk_buff *skb, struct xcp_router_cpu *cpu,
			   __u32 n, __u64 bytes)
{
	struct found f = {};
	/* on the stack, words must be aligned; the option's stand at 4 n + 2 */
	struct {
		__u16 pad;
		__u8 option[XCP_OPT_FORWARD_LEN];
	} __attribute__((aligned(4))) copy;
	__u8 *option = copy.option;
	struct xcp_forward h;
	__u32 sum, at;

	if (!cpu)
		return 0;
	f.kind = find_slowly(skb, &f);
	at = f.tcp + f.option;
	if ((f.kind != XCP_FORWARD && f.kind != XCP_BOTH) ||
	    bpf_skb_load_bytes(skb, at, option, sizeof(copy.option))) {
		cpu->counters.other_packets += n;
		if (f.kind == XCP_MALFORMED)
			cpu->counters.malformed += n;
		return 0;
	}
	h = xcp_parse_forward(option);
	h.delta = grant_slowly(cpu, &h, n, bytes);
	sum = xcp_edit_forward(option, f.option, h.delta, f.ttl);
	if (!bpf_skb_store_bytes(skb, at, option, sizeof(copy.option), 0))
		bpf_l4_csum_replace(skb, f.tcp + TCP_CHECK, 0, sum, 0);
	return 0;
}

/*
 * The usual cases, the TCP header being at `tcp`: the option at its byte 32,
 * or no option but timestamps. Returns false for all others.
 */
static __always_inline bool edit_fast(const struct sk_buff *kskb,
				      struct xcp_router_cpu *cpu, __u32 n,
				      __u64 bytes, __u8 *tcp, __u8 *end,
				      __u8 ttl)
{
	struct xcp_forward h;
	enum xcp_kind kind;
	__u32 sum, header;

	if (tcp + 32 > end)
		return false;
	header = (tcp[12] >> 4) * 4;
	if (header == XCP_TCP_HEADER_LEN ||
	    (header == 32 &&
	     xcp_get32(tcp + XCP_TCP_HEADER_LEN) == XCP_WORD_TIMESTAMPS)) {
		cpu->counters.other_packets += n;
		return true;
	}
	if (tcp + 32 + XCP_OPT_BOTH_LEN > end)
		return false;
	kind = xcp_option_at_32(tcp, header);
	if (kind == XCP_NONE)
		return false;
	h = xcp_parse_forward(tcp + 32);
	h.delta = grant(cpu, &h, n, bytes);
	sum = xcp_edit_forward(tcp + 32, 32, h.delta, ttl);
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
	__u64 now, bytes, backlog;
	struct sk_buff *kskb;
	__u32 n;

	cpu = bpf_map_lookup_elem(&cpus, &key);
	if (!cpu)
		return XCP_TC_NEXT;

	now = bpf_ktime_get_ns();
	kskb = bpf_cast_to_kern_ctx(skb);
	backlog = kskb->dev->qdisc->qstats.backlog;
	link.backlog_B = backlog;
	xcp_router_backlog(&link.state, backlog);
	if (XCP_UNLIKELY(xcp_router_queue_due(&link.state, now)))
		queue_end(now, backlog);
	if (XCP_UNLIKELY(xcp_router_interval_due(&link.state, now)))
		interval_end(now);

	n = skb->gso_segs;
	if (!n)
		n = 1;
	bytes = skb->wire_len;
	if (!bytes)
		bytes = skb->len;
	bytes += (__u64)config.overhead_B * n;
	xcp_router_arrival(&cpu->sums, bytes);

	data = (__u8 *)(long)skb->data;
	end = (__u8 *)(long)skb->data_end;
	ip = data + l2;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		/* version 4 without options, whole, TCP, all of it there */
		if (ip + IPV4_LEN <= end && ip[0] == 0x45 &&
		    ip[9] == IPPROTO_TCP && !(ip[6] & 0x3f) && !ip[7] &&
		    ((__u32)ip[2] << 8 | ip[3]) + l2 == skb->len &&
		    edit_fast(kskb, cpu, n, bytes, ip + IPV4_LEN, end, ip[8]))
			return XCP_TC_NEXT;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (ip + IPV6_LEN <= end && ip[0] >> 4 == 6 &&
		    ip[6] == IPPROTO_TCP &&
		    ((__u32)ip[4] << 8 | ip[5]) + l2 + IPV6_LEN == skb->len &&
		    edit_fast(kskb, cpu, n, bytes, ip + IPV6_LEN, end, ip[7]))
			return XCP_TC_NEXT;
	}
	edit_slowly(skb, cpu, n, bytes);
	return XCP_TC_NEXT;
}

/* What a program costs that does nothing: the bench's yardstick. */
SEC("tc")
int xcp_empty(struct __sk_buff *skb)
{
	return XCP_TC_NEXT;
}

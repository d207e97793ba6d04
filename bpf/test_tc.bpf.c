// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * Programs for tests. One removes the option as a middlebox would, from
 * handshakes or later, drops packets, and counts what they carried. Others
 * stand for foreign programs: they end the chain of a device's programs, enable
 * callbacks of sockets or write an option of their own. One clears the number
 * of segments of a GSO packet, one does nothing, and one is refused by the
 * verifier.
 */
#include "kernel.h"
#include "../core/xcp_wire.h"
#include "tcp.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define L2_LEN 14
#define TC_ACT_OK 0
#define TC_ACT_SHOT 2

struct test_config {
	/* removes the option: bit 0: from SYN, 1: from SYN-ACK, 2: from pure
	 * ACKs; 3, 4: the one for running totals, from SYN and SYN-ACK */
	__u32 strip;
	/* drops the first and the third of every n XCP packets of the kind
	 * below, so that there are two holes at a time; 0: drops none */
	__u32 drop_every;
	__u32 drop_return; /* 1: drop pure ACKs, 0: data */
	__u32 drop_syn_acks; /* number to drop, of any format or none */
};

struct test_account {
	__u64 stripped;
	__u64 seen;
	__u64 dropped;
	__s64 lost_delta_Bps;
	__s64 lost_feedback_Bps;
	__u64 forward; /* forward options, one per GSO packet */
	__u64 other_hops; /* sum of routers without XCP before this point */
	__u64 rtts; /* RTT callbacks of xcp_foreign */
	__u64 forgotten; /* GSO packets whose gso_segs was cleared */
	__u64 forward_packets; /* wire packets with a forward header */
	__s64 delta; /* sum of their deltas, in the unit of their format */
};

struct test_config config SEC(".data.config");
struct test_account account SEC(".data.account");

static __always_inline int strip(struct __sk_buff *skb, __u32 at, __u8 *tcp,
				 __u32 offset)
{
	__u8 nops[XCP_OPT_RETURN_LEN], *option = tcp + offset;
	__u32 length, i, sum = 0;

	if (offset > XCP_TCP_HEADER_MAX)
		return XCP_TC_NEXT;
	length = option[1];
	__builtin_memset(nops, 1, sizeof(nops));
	if ((length != XCP_OPT_HANDSHAKE_LEN && length != XCP_OPT_RETURN_LEN) ||
	    offset & 1)
		return XCP_TC_NEXT;
	/* the change of the checksum: all bytes become NOPs */
	for (i = 0; i < XCP_OPT_RETURN_LEN; i += 2) {
		__u32 old = (__u32)option[i + 1] << 8 | option[i];

		if (i < length)
			sum += 0x0101 + (0xffff - old);
	}
	if (length == XCP_OPT_HANDSHAKE_LEN)
		bpf_skb_store_bytes(skb, at + offset, nops,
				    XCP_OPT_HANDSHAKE_LEN, 0);
	else
		bpf_skb_store_bytes(skb, at + offset, nops, XCP_OPT_RETURN_LEN,
				    0);
	bpf_l4_csum_replace(skb, at + 16, 0, sum, 0);
	__sync_fetch_and_add(&account.stripped, 1);
	return XCP_TC_NEXT;
}

/* What a packet carries, in the unit of its format. */
struct carried {
	enum xcp_kind kind;
	__s64 delta;
	__s64 feedback;
};

static __always_inline int drop(struct __sk_buff *skb, const struct carried *c)
{
	__u32 n = skb->gso_segs ? skb->gso_segs : 1;
	bool is_return = c->kind == XCP_RETURN || c->kind == XCP_RETURN_2005;
	__u64 turn;

	if (!is_return) {
		__sync_fetch_and_add(&account.forward_packets, n);
		__sync_fetch_and_add(&account.delta, c->delta * n);
	}
	if (!config.drop_every || is_return != !!config.drop_return)
		return XCP_TC_NEXT;
	turn = __sync_fetch_and_add(&account.seen, 1) % config.drop_every;
	if (turn != 0 && turn != 2)
		return XCP_TC_NEXT;
	__sync_fetch_and_add(&account.dropped, n);
	__sync_fetch_and_add(&account.lost_delta_Bps, c->delta * n);
	__sync_fetch_and_add(&account.lost_feedback_Bps, c->feedback * n);
	return TC_ACT_SHOT;
}

static __always_inline void read_option(const __u8 *option, struct carried *c)
{
	struct xcp_return r = {};

	switch (c->kind) {
	case XCP_RETURN_2005:
		c->feedback = xcp_2005_value(xcp_get16(option + 2));
		return;
	case XCP_FORWARD_2005:
		c->delta = xcp_2005_value(xcp_get16(option + 2));
		/* hosts write the return option right behind it */
		option += XCP_2005_FORWARD_LEN;
		if (option[0] == XCP_2005_RETURN_KIND)
			c->feedback = xcp_2005_value(xcp_get16(option + 2));
		return;
	default:
		if (c->kind != XCP_RETURN)
			c->delta = xcp_parse_forward(option).delta;
		if (c->kind != XCP_FORWARD)
			r = xcp_parse_return(option, c->kind);
		/* a lost running total loses no feedback */
		if (r.version == XCP_RETURN_CHANGE)
			c->feedback = r.feedback;
	}
}

static __always_inline int drop_header(struct __sk_buff *skb, __u32 at)
{
	__u8 bytes[XCP_HEADER_LEN];
	struct xcp_header head;
	struct carried c = {};

	if (bpf_skb_load_bytes(skb, at, bytes, sizeof(bytes)))
		return XCP_TC_NEXT;
	c.kind = xcp_header_read(bytes, &head);
	if (c.kind == XCP_MALFORMED)
		return XCP_TC_NEXT;
	c.feedback = xcp_header_feedback(bytes, head.version);
	if (c.kind == XCP_BOTH)
		c.delta = xcp_header_forward(bytes, head.version, 0).delta;
	return drop(skb, &c);
}

/* Is the TCP header at `at` one of the first SYN-ACKs, which are dropped? */
static __always_inline bool loses_syn_ack(struct __sk_buff *skb, __u32 at)
{
	__u8 flags = 0;

	if (account.dropped >= config.drop_syn_acks ||
	    bpf_skb_load_bytes(skb, at + 13, &flags, 1) ||
	    (flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) !=
		    (TCP_FLAG_SYN | TCP_FLAG_ACK))
		return false;
	__sync_fetch_and_add(&account.dropped, 1);
	return true;
}

/* Counts the routers without XCP, as a receiver at this point would. */
static __always_inline void count_hops(const __u8 *option, __u8 ttl)
{
	__sync_fetch_and_add(&account.forward, 1);
	__sync_fetch_and_add(
		&account.other_hops,
		xcp_other_hops(xcp_parse_forward(option).xcp_ttl, ttl));
}

SEC("tc")
int xcp_fault(struct __sk_buff *skb)
{
	struct tcp_copy tcp = {};
	struct carried c = {};
	__u8 ip[10], flags;
	bool v6, has_header;
	__u32 at;

	if (bpf_skb_load_bytes(skb, L2_LEN, ip, sizeof(ip)))
		return XCP_TC_NEXT;
	v6 = ip[0] >> 4 == 6;
	at = L2_LEN + (v6 ? 40 : (ip[0] & 15) * 4);
	has_header = ip[v6 ? 6 : 9] == XCP_HEADER_PROTO;
	if (loses_syn_ack(skb, at + (has_header ? XCP_HEADER_LEN : 0)))
		return TC_ACT_SHOT;
	if (has_header)
		return drop_header(skb, at);
	c.kind = find_in_tcp(skb, at, skb->len - at, &tcp);
	flags = tcp.bytes[13] & (TCP_FLAG_SYN | TCP_FLAG_ACK);
	if (c.kind == XCP_HANDSHAKE) {
		if (flags == TCP_FLAG_SYN ? config.strip & 1 : config.strip & 2)
			return strip(skb, at, tcp.bytes, tcp.option);
		/* hosts write the one for totals right behind it */
		if (flags == TCP_FLAG_SYN ? config.strip & 8
					  : config.strip & 16)
			return strip(skb, at, tcp.bytes,
				     tcp.option + XCP_OPT_HANDSHAKE_LEN);
	} else if (c.kind >= XCP_RETURN && !(flags & TCP_FLAG_SYN) &&
		   tcp.option <= XCP_TCP_HEADER_MAX) {
		if (c.kind == XCP_RETURN && config.strip & 4)
			return strip(skb, at, tcp.bytes, tcp.option);
		read_option(tcp.bytes + tcp.option, &c);
		if (c.kind == XCP_FORWARD || c.kind == XCP_BOTH)
			count_hops(tcp.bytes + tcp.option, ip[v6 ? 7 : 8]);
		return drop(skb, &c);
	}
	return XCP_TC_NEXT;
}

/* Does nothing: the baseline of benchmarks. */
SEC("tc")
int xcp_empty(struct __sk_buff *skb)
{
	return XCP_TC_NEXT;
}

/* Ends the chain: programs behind it are not called. */
SEC("?tc")
int xcp_ends(struct __sk_buff *skb)
{
	return TC_ACT_OK;
}

/* An XDP program on a device, which could redirect packets. */
SEC("?xdp")
int xcp_redirects(struct xdp_md *context)
{
	return XDP_PASS;
}

/* Clears gso_segs, as on a GSO packet from a guest or a tap device. */
SEC("?tc")
int xcp_clear_gso(struct __sk_buff *skb)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;

	if (skb->gso_segs < 2)
		return XCP_TC_NEXT;
	if (!bpf_skb_adjust_room(skb, 8, BPF_ADJ_ROOM_MAC, flags) &&
	    !bpf_skb_adjust_room(skb, -8, BPF_ADJ_ROOM_MAC, flags) &&
	    !skb->gso_segs)
		__sync_fetch_and_add(&account.forgotten, 1);
	return XCP_TC_NEXT;
}

/* A foreign program with a callback for each RTT of each connection. */
SEC("?sockops")
int xcp_foreign(struct bpf_sock_ops *skops)
{
	if (skops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(skops,
					  skops->bpf_sock_ops_cb_flags |
						  BPF_SOCK_OPS_RTT_CB_FLAG);
	else if (skops->op == BPF_SOCK_OPS_RTT_CB)
		__sync_fetch_and_add(&account.rtts, 1);
	return 1;
}

/* A foreign program that adds an option to all segments of a connection. */
#define FOREIGN_OPTION_LEN 12

SEC("?sockops")
int xcp_foreign_option(struct bpf_sock_ops *skops)
{
	__u8 option[FOREIGN_OPTION_LEN] = {253, FOREIGN_OPTION_LEN, 0x12, 0x34};

	if (skops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB ||
	    skops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(
			skops, skops->bpf_sock_ops_cb_flags |
				       BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	else if (skops->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB)
		bpf_reserve_hdr_opt(skops, sizeof(option), 0);
	else if (skops->op == BPF_SOCK_OPS_WRITE_HDR_OPT_CB &&
		 !(skops->skb_tcp_flags & TCP_FLAG_SYN))
		bpf_store_hdr_opt(skops, option, sizeof(option), 0);
	return 1;
}

/* Refused by the verifier: reads a packet without checking its length. */
SEC("?tc")
int xcp_refused(struct __sk_buff *skb)
{
	return *(__u8 *)(long)skb->data;
}

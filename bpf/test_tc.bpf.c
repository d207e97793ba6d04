// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The tests' accidents: tc programs that strip the option from handshakes as
 * a middlebox would, and that drop packets and keep account of what they
 * carried.
 */
#include "kernel.h"
#include "../core/xcp_wire.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define L2_LEN 14
#define TC_ACT_SHOT 2

struct test_config {
	__u32 strip; /* bit 0: from SYN, bit 1: from SYN-ACK */
	/* of every n XCP packets of the kind below the first and the third, so
	 * that there are two holes at a time; 0: none */
	__u32 drop_every;
	__u32 drop_return; /* of the pure ACKs, else of the data */
	__u32 unused;
};

struct test_account {
	__u64 stripped;
	__u64 seen;
	__u64 dropped;
	__s64 lost_delta_Bps;
	__s64 lost_feedback_Bps;
};

struct test_config config SEC(".data.config");
struct test_account account SEC(".data.account");

static __always_inline int strip(struct __sk_buff *skb, __u32 at, __u8 *tcp,
				 __u32 offset)
{
	__u8 nops[XCP_OPT_BOTH_LEN], *option = tcp + offset;
	__u32 length, i, sum = 0;

	if (offset > XCP_TCP_HEADER_MAX)
		return XCP_TC_NEXT;
	length = option[1];
	__builtin_memset(nops, 1, sizeof(nops));
	if (length != XCP_OPT_HANDSHAKE_LEN)
		return XCP_TC_NEXT;
	/* the checksum: four bytes become NOPs */
	for (i = 0; i < XCP_OPT_HANDSHAKE_LEN; i += 2) {
		__u32 old = (__u32)option[i + 1] << 8 | option[i];

		sum += 0x0101 + (0xffff - old);
	}
	if (offset & 1)
		return XCP_TC_NEXT;
	bpf_skb_store_bytes(skb, at + offset, nops, XCP_OPT_HANDSHAKE_LEN, 0);
	bpf_l4_csum_replace(skb, at + 16, 0, sum, 0);
	__sync_fetch_and_add(&account.stripped, 1);
	return XCP_TC_NEXT;
}

static __always_inline int drop(struct __sk_buff *skb, __u8 *tcp, __u32 offset,
				enum xcp_kind kind)
{
	__u32 n = skb->gso_segs ? skb->gso_segs : 1;
	__u8 *option = tcp + offset;
	struct xcp_return r;
	__u64 turn;

	if (offset > XCP_TCP_HEADER_MAX - XCP_OPT_BOTH_LEN ||
	    !config.drop_every)
		return XCP_TC_NEXT;
	if ((kind == XCP_RETURN) != !!config.drop_return)
		return XCP_TC_NEXT;
	turn = __sync_fetch_and_add(&account.seen, 1) % config.drop_every;
	if (turn != 0 && turn != 2)
		return XCP_TC_NEXT;
	__sync_fetch_and_add(&account.dropped, n);
	if (kind != XCP_RETURN)
		__sync_fetch_and_add(&account.lost_delta_Bps,
				     (__s64)xcp_parse_forward(option).delta *
					     n);
	if (kind != XCP_FORWARD) {
		r = xcp_parse_return(option, kind);
		__sync_fetch_and_add(&account.lost_feedback_Bps,
				     (__s64)r.feedback * n);
	}
	return TC_ACT_SHOT;
}

SEC("tc")
int xcp_accident(struct __sk_buff *skb)
{
	__u8 tcp[XCP_TCP_HEADER_MAX + XCP_OPT_BOTH_LEN] = {}, ip[1], flags;
	__u32 at, header, offset = 0;
	enum xcp_kind kind;

	if (bpf_skb_load_bytes(skb, L2_LEN, ip, 1))
		return XCP_TC_NEXT;
	at = L2_LEN + (ip[0] >> 4 == 6 ? 40 : (ip[0] & 15) * 4);
	if (bpf_skb_load_bytes(skb, at, tcp, XCP_TCP_HEADER_LEN))
		return XCP_TC_NEXT;
	header = (tcp[12] >> 4) * 4 - XCP_TCP_HEADER_LEN;
	barrier_var(header);
	if (header < 1 || header > XCP_TCP_HEADER_MAX - XCP_TCP_HEADER_LEN ||
	    bpf_skb_load_bytes(skb, at + XCP_TCP_HEADER_LEN,
			       tcp + XCP_TCP_HEADER_LEN, header))
		return XCP_TC_NEXT;
	kind = xcp_option_find(tcp, header + XCP_TCP_HEADER_LEN,
			       tcp + sizeof(tcp), &offset);
	flags = tcp[13] & (TCP_FLAG_SYN | TCP_FLAG_ACK);
	if (kind == XCP_HANDSHAKE) {
		if (flags == TCP_FLAG_SYN ? config.strip & 1 : config.strip & 2)
			return strip(skb, at, tcp, offset);
	} else if (kind >= XCP_RETURN) {
		return drop(skb, tcp, offset, kind);
	}
	return XCP_TC_NEXT;
}

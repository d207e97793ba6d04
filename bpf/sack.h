/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Room for feedback on ACKs full of SACK blocks. TCP writes these first and
 * fills its 40 bytes of options with them; a path would return no feedback as
 * long as it loses packets. Zhang & Henderson (II-C.4) let their kernel write
 * at most two blocks. Here the ACK is rewritten when it is sent:
 *
 *   NOP NOP timestamps 10, NOP NOP SACK 3 blocks 26                  40 bytes
 *   timestamps 10, SACK 2 blocks 18, return option 10 or 4, NOPs     40 bytes
 *
 * The first two blocks stay: they are the newest (RFC 2018). If TCP wrote only
 * two blocks, in 32 bytes, both stay and the options grow to 40 bytes.
 */
#ifndef XCP_BPF_SACK_H
#define XCP_BPF_SACK_H

#include "formats.h"
#include "host.h"
#include "ip_edit.h"

#define OPTIONS_MAX (XCP_TCP_HEADER_MAX - XCP_TCP_HEADER_LEN)
#define TWO_BLOCKS_LEN 32 /* options with timestamps and two blocks */
#define TIMESTAMPS_LEN 10
#define SACK_KIND 5
#define SACK_LEN(blocks) (2 + 8 * (blocks))
/* offsets: SACK in TCP's options, the return option in the new ones */
#define SACK_AT 14
#define RETURN_AT (TIMESTAMPS_LEN + SACK_LEN(2))

/* Adds 8 bytes to the 32 bytes of options of a pure ACK. */
static __always_inline int grow_options(struct __sk_buff *skb,
					const struct sent *p)
{
	__be16 before, after, tcp_before, tcp_after;

	if (bpf_skb_change_tail(skb, skb->len + 8, 0) ||
	    bpf_skb_load_bytes(skb, p->l4 + 12, &before, 2))
		return -1;
	/* the header's length in words, in the high nibble */
	after = bpf_htons((bpf_ntohs(before) & 0x0fff) | XCP_TCP_HEADER_MAX / 4
								 << 12);
	bpf_skb_store_bytes(skb, p->l4 + 12, &after, 2, 0);
	bpf_l4_csum_replace(skb, p->l4 + TCP_CHECK, before, after, 2);
	set_ip_length(skb, p->l3, is_v4(p), 8);
	/* the pseudo-header contains TCP's length, too */
	tcp_before = bpf_htons((__u16)p->header_len);
	tcp_after = bpf_htons(XCP_TCP_HEADER_MAX);
	bpf_l4_csum_replace(skb, p->l4 + TCP_CHECK, tcp_before, tcp_after,
			    BPF_F_PSEUDO_HDR | 2);
	return 0;
}

/* Puts the return option on a pure ACK that had no room for it. */
static __noinline int make_room(struct __sk_buff *skb, struct xcp_socket *s,
				struct sent *p)
{
	struct {
		__u8 b[OPTIONS_MAX];
	} __attribute__((aligned(8))) before = {}, after;
	__u32 length = p->header_len - XCP_TCP_HEADER_LEN;
	__s64 diff;

	if (p->payload || (length != OPTIONS_MAX && length != TWO_BLOCKS_LEN))
		return 0;
	if (length == TWO_BLOCKS_LEN) {
		if (bpf_skb_load_bytes(skb, p->l4 + XCP_TCP_HEADER_LEN,
				       before.b, TWO_BLOCKS_LEN))
			return 0;
	} else if (bpf_skb_load_bytes(skb, p->l4 + XCP_TCP_HEADER_LEN, before.b,
				      OPTIONS_MAX)) {
		return 0;
	}
	if (xcp_get32(before.b) != XCP_WORD_TIMESTAMPS ||
	    before.b[SACK_AT] != SACK_KIND ||
	    before.b[SACK_AT + 1] != SACK_LEN(length == TWO_BLOCKS_LEN ? 2 : 3))
		return 0;
	/* without feedback, keep all blocks */
	if (length == OPTIONS_MAX && !xcp_receiver_has_feedback(&s->receiver))
		return 0;
	if (length == TWO_BLOCKS_LEN && grow_options(skb, p))
		return 0;

	__builtin_memset(&after, 1, sizeof(after)); /* NOPs */
	__builtin_memcpy(after.b, before.b + 2, TIMESTAMPS_LEN);
	__builtin_memcpy(after.b + TIMESTAMPS_LEN, before.b + SACK_AT,
			 SACK_LEN(2));
	after.b[TIMESTAMPS_LEN + 1] = SACK_LEN(2);
	format_write_return(s, after.b + RETURN_AT);
	bpf_skb_store_bytes(skb, p->l4 + XCP_TCP_HEADER_LEN, after.b,
			    OPTIONS_MAX, 0);
	/* bytes that were added count as zeroes before */
	diff = bpf_csum_diff((__be32 *)before.b, OPTIONS_MAX, (__be32 *)after.b,
			     OPTIONS_MAX, 0);
	bpf_l4_csum_replace(skb, p->l4 + TCP_CHECK, 0, diff, 0);
	if (length == OPTIONS_MAX) {
		COUNT(return_no_room, 1);
		COUNT(sacks_trimmed, 1);
	}
	return 0;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* A copy of a packet's TCP header, and the offset of the XCP option in it. */
#ifndef XCP_BPF_TCP_H
#define XCP_BPF_TCP_H

#include "kernel.h"
#include "../core/xcp_wire.h"

/* The smallest mask that keeps 0 to 39: the length of options less one. */
#define XCP_OPTIONS_MASK 63

struct tcp_copy {
	/* longer than the header: an option can be read from any offset */
	__u8 bytes[XCP_TCP_HEADER_MAX + XCP_OPT_BOTH_LEN];
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

/* Copies the header at `at` (`left` bytes to the end) and finds the option. */
static __always_inline enum xcp_kind
find_in_tcp(struct __sk_buff *skb, __u32 at, __u32 left, struct tcp_copy *tcp)
{
	__u32 header, options_len;

	if (left < XCP_TCP_HEADER_LEN ||
	    bpf_skb_load_bytes(skb, at, tcp->bytes, XCP_TCP_HEADER_LEN))
		return XCP_MALFORMED;
	header = (tcp->bytes[12] >> 4) * 4;
	if (header < XCP_TCP_HEADER_LEN || header > left)
		return XCP_MALFORMED;
	tcp->header_len = header;
	if (header == XCP_TCP_HEADER_LEN)
		return XCP_NONE;
	/*
	 * 1 to 40 bytes. Verifiers do not derive that from the conditions
	 * above, but from a mask (seen: Linux 7.2 considers 0 possible).
	 */
	options_len = header - XCP_TCP_HEADER_LEN - 1;
	barrier_var(options_len); /* the compiler would drop the mask */
	options_len = (options_len & XCP_OPTIONS_MASK) + 1;
	if (bpf_skb_load_bytes(skb, at + XCP_TCP_HEADER_LEN,
			       tcp->bytes + XCP_TCP_HEADER_LEN, options_len))
		return XCP_MALFORMED;
	return find_option(tcp);
}

#endif

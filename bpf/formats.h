/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The operations of a host that differ between wire formats. Each format
 * implements them in a header fmt_*.h.
 */
#ifndef XCP_BPF_FORMATS_H
#define XCP_BPF_FORMATS_H

#include "fmt_header.h"
#include "fmt_option.h"
#include "fmt_option_2005.h"
#include "host.h"

/* Adds to a sum in the unit of a socket's wire format. */
#define COUNT_SUM(s, field, n)                                                 \
	do {                                                                   \
		if ((s)->wire == XCP_WIRE_OPTION_2005)                         \
			COUNT(sums_2005.field, n);                             \
		else                                                           \
			COUNT(sums.field, n);                                  \
	} while (0)

/* The length of XCP's header or options on a packet of this kind, at most. */
static __always_inline __u32 format_len(__u8 wire, enum xcp_kind kind)
{
	switch (wire) {
	case XCP_WIRE_OPTION:
		return fmt_option_len(kind);
	case XCP_WIRE_OPTION_2005:
		return fmt_2005_len(kind);
	default:
		return fmt_header_len(wire, kind);
	}
}

/* Does every data segment carry a forward part, even after a fallback? */
static __always_inline bool format_always_asks(__u8 wire)
{
	return wire == XCP_WIRE_OPTION_2005;
}

/* The callbacks that a connection needs in addition to writing options. */
static __always_inline __u32 format_callbacks(__u8 wire)
{
	return is_header(wire)
		       ? BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG
		       : BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG;
}

/*
 * Makes TCP leave room in its segments for the longest header or options. A
 * header takes no option space, but the same number of bytes of the packet.
 */
static __always_inline void format_reserve_most(struct bpf_sock_ops *skops,
						__u8 wire)
{
	if (bpf_reserve_hdr_opt(skops, format_len(wire, XCP_BOTH), 0) &&
	    wire == XCP_WIRE_OPTION)
		bpf_reserve_hdr_opt(skops, XCP_OPT_FORWARD_LEN, 0);
}

/* The option format that a SYN offers, -1 for none. */
static __always_inline int format_offered(struct bpf_sock_ops *skops)
{
	if (fmt_option_is_offered(skops))
		return XCP_WIRE_OPTION;
	return fmt_2005_is_offered(skops) ? XCP_WIRE_OPTION_2005 : -1;
}

/* The result of a handshake, from its last packet. */
struct agreed {
	enum xcp_wire wire;
	union {
		struct fmt_option_agreed option;
		struct fmt_2005_agreed option_2005;
	};
};

/* Finds the format that a handshake agreed on; false if there is none. */
static __always_inline bool format_agreed(struct bpf_sock_ops *skops,
					  bool passive, struct agreed *a)
{
	int wire;

	if (fmt_option_agreed(skops, &a->option))
		wire = XCP_WIRE_OPTION;
	else if (fmt_2005_agreed(skops, &a->option_2005))
		wire = XCP_WIRE_OPTION_2005;
	else
		wire = fmt_header_agreed(skops, passive);
	a->wire = (enum xcp_wire)wire;
	return wire >= 0;
}

/* Sets up what the agreed format needs in a new connection's record. */
static __always_inline void format_begin(struct bpf_sock_ops *skops,
					 struct xcp_socket *s,
					 const struct agreed *a)
{
	if (a->wire == XCP_WIRE_OPTION)
		fmt_option_begin(skops, s, &a->option);
	else if (a->wire == XCP_WIRE_OPTION_2005)
		fmt_2005_begin(skops, s, &a->option_2005);
}

/* Reserves room for a handshake in an option format; -1 is none. */
static __always_inline void format_reserve_handshake(struct bpf_sock_ops *skops,
						     int wire)
{
	if (wire == XCP_WIRE_OPTION)
		fmt_option_reserve_handshake(skops);
	else if (wire >= 0)
		fmt_2005_reserve_handshake(skops);
}

static __always_inline void format_write_handshake(struct bpf_sock_ops *skops,
						   int wire)
{
	if (wire == XCP_WIRE_OPTION)
		fmt_option_write_handshake(skops);
	else if (wire == XCP_WIRE_OPTION_2005)
		fmt_2005_write_handshake(skops);
}

/* Writes the options of a packet that will be n wire packets. */
static __always_inline void format_write(struct bpf_sock_ops *skops,
					 struct xcp_socket *s, __u32 n)
{
	if (s->wire == XCP_WIRE_OPTION)
		fmt_option_write(skops, s, n);
	else
		fmt_2005_write(skops, s, n);
}

/* Processes received options that stand for n wire packets. */
static __always_inline void format_parse(struct bpf_sock_ops *skops,
					 struct xcp_socket *s,
					 const struct sk_buff *skb, __u32 n)
{
	if (s->wire == XCP_WIRE_OPTION_2005)
		fmt_2005_parse(skops, s, n);
	else
		fmt_option_parse(skops, s, skb, n);
}

/* Writes a return option into the room that sack.h has made. */
static __always_inline void format_write_return(struct xcp_socket *s,
						__u8 *option)
{
	struct xcp_return r;

	if (s->wire == XCP_WIRE_OPTION) {
		r = return_of(s, 1);
		xcp_build_return(option, &r);
	} else {
		xcp_2005_build_return(option, fmt_2005_return(s, 1));
	}
}

/* Changes the window by received feedback. */
static __always_inline void format_feedback(struct xcp_socket *s,
					    __s64 feedback)
{
	if (s->wire == XCP_WIRE_OPTION_2005)
		xcp_2005_feedback(&s->sender, feedback);
	else
		xcp_sender_feedback(&s->sender, feedback);
}

static __always_inline void format_round_end(struct xcp_socket *s)
{
	if (s->wire == XCP_WIRE_OPTION_2005)
		fmt_2005_round_end(s);
}

#endif

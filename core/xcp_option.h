/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The wire format `option`: TCP option kind 254 with experiment identifier
 * 0x5843 ("XC", RFC 6994). Integers are big-endian.
 *
 *   handshake  0 kind | 1 length 4 | 2 identifier                     4 bytes
 *   totals     the same with the identifier 0x5854 ("XT")             4 bytes
 *   return     ... | 4 flags | 5 xcp hops | 6 feedback               10 bytes
 *   forward    ... | 4 flags | 5 xcp_ttl | 6 RTT | 10 X | 14 delta
 *                  | 18 last_xcp_router                              22 bytes
 *   both       forward, then 22 xcp hops | 23 flags | 24 feedback    28 bytes
 *
 *   flags: version (1) in the high nibble; in the low nibble a number of
 *     hops, 15 meaning 15 or more: in a forward header the XCP routers passed
 *     so far, in a return header the routers without XCP.
 *   xcp hops: the XCP routers that the packet passed, as the receiver saw it
 *   RTT, X: unsigned, 2^-28 s; 0 = unknown; 16 s and more saturate
 *   delta, feedback: signed, B/s, saturating. In a return header of version 2
 *     feedback is a running total (core/xcp_receiver.h)
 *   xcp_ttl: the sender's IP TTL, decremented only by XCP routers. So
 *     xcp_ttl - TTL is the number of other routers
 *   last_xcp_router: the last XCP router passed that is the edge of a cloud
 *     (core/xcp_cloud.h): its IPv4 address, or the exclusive or of the four
 *     words of its IPv6 address, 1 where that is 0; 0 = none
 *
 * Data segments carry forward or both, pure ACKs return, SYNs the handshake.
 * 28 bytes fill the option space of TCP after 12 bytes of timestamps.
 *
 * A host that understands totals sends that option on its SYN, after the
 * handshake option; a server sends it on the SYN-ACK if the SYN had it. The
 * client knows from the SYN-ACK. The server knows from a return header of
 * version 2, which the client's packets carry until a return header arrives.
 */
#ifndef XCP_OPTION_H
#define XCP_OPTION_H

#include "xcp_packet.h"

#define XCP_OPT_KIND 254
#define XCP_OPT_ID 0x5843
#define XCP_OPT_TOTALS_ID 0x5854
#define XCP_OPT_VERSION 1
#define XCP_OPT_HANDSHAKE_LEN 4
#define XCP_OPT_RETURN_LEN 10
#define XCP_OPT_FORWARD_LEN 22
#define XCP_OPT_BOTH_LEN 28

/* Offsets of the fields of an option. */
#define XCP_OPT_FLAGS 4
#define XCP_OPT_TTL 5
#define XCP_OPT_RTT 6
#define XCP_OPT_X 10
#define XCP_OPT_DELTA 14
#define XCP_OPT_LAST_ROUTER 18
#define XCP_OPT_RETURN_HOPS 5
#define XCP_OPT_RETURN_FEEDBACK 6
#define XCP_OPT_BOTH_HOPS 22
#define XCP_OPT_BOTH_FLAGS 23
#define XCP_OPT_BOTH_FEEDBACK 24

/* The kind of an option with this length and flags byte. */
XCP_INLINE enum xcp_kind xcp_option_kind(uint32_t length, uint8_t flags)
{
	if (length == XCP_OPT_HANDSHAKE_LEN)
		return XCP_HANDSHAKE;
	if (length == XCP_OPT_RETURN_LEN && flags >> 4 == XCP_RETURN_TOTAL)
		return XCP_RETURN;
	if (flags >> 4 != XCP_OPT_VERSION)
		return XCP_MALFORMED;
	if (length == XCP_OPT_FORWARD_LEN)
		return XCP_FORWARD;
	if (length == XCP_OPT_BOTH_LEN)
		return XCP_BOTH;
	if (length == XCP_OPT_RETURN_LEN)
		return XCP_RETURN;
	return XCP_MALFORMED;
}

/* The first 32-bit word of an option of this length. */
#define XCP_WORD(length)                                                       \
	((uint32_t)XCP_OPT_KIND << 24 | (uint32_t)(length) << 16 | XCP_OPT_ID)

/*
 * Checks the usual place of the option: after timestamps, at byte 32 of a TCP
 * header with at least `header_len` bytes, all readable. Returns XCP_NONE if
 * there is no option.
 */
XCP_INLINE enum xcp_kind xcp_option_at_32(const uint8_t *tcp,
					  uint32_t header_len)
{
	uint32_t word;

	if (header_len < 32 + XCP_OPT_FORWARD_LEN ||
	    xcp_get32(tcp + 20) != XCP_WORD_TIMESTAMPS)
		return XCP_NONE;
	word = xcp_get32(tcp + 32);
	if ((tcp[32 + XCP_OPT_FLAGS] >> 4) != XCP_OPT_VERSION)
		return XCP_NONE;
	if (word == XCP_WORD(XCP_OPT_FORWARD_LEN))
		return XCP_FORWARD;
	if (word == XCP_WORD(XCP_OPT_BOTH_LEN) &&
	    header_len >= 32 + XCP_OPT_BOTH_LEN)
		return XCP_BOTH;
	return XCP_NONE;
}

XCP_INLINE uint8_t xcp_return_flags(const struct xcp_return *r)
{
	return (uint8_t)(r->version << 4 | xcp_saturate4(r->other_hops));
}

XCP_INLINE void xcp_option_head(uint8_t *o, uint32_t length, uint8_t flags)
{
	o[0] = XCP_OPT_KIND;
	o[1] = (uint8_t)length;
	o[2] = XCP_OPT_ID >> 8;
	o[3] = XCP_OPT_ID & 0xff;
	if (length > XCP_OPT_HANDSHAKE_LEN)
		o[XCP_OPT_FLAGS] = flags;
}

XCP_INLINE void xcp_build_handshake(uint8_t *o)
{
	xcp_option_head(o, XCP_OPT_HANDSHAKE_LEN, 0);
}

XCP_INLINE void xcp_build_totals(uint8_t *o)
{
	xcp_option_head(o, XCP_OPT_HANDSHAKE_LEN, 0);
	o[2] = XCP_OPT_TOTALS_ID >> 8;
	o[3] = XCP_OPT_TOTALS_ID & 0xff;
}

XCP_INLINE void xcp_build_return(uint8_t *o, const struct xcp_return *r)
{
	xcp_option_head(o, XCP_OPT_RETURN_LEN, xcp_return_flags(r));
	o[XCP_OPT_RETURN_HOPS] = r->xcp_hops;
	xcp_put32(o + XCP_OPT_RETURN_FEEDBACK, (uint32_t)r->feedback);
}

XCP_INLINE void xcp_build_forward(uint8_t *o, const struct xcp_forward *f)
{
	xcp_option_head(
		o, XCP_OPT_FORWARD_LEN,
		(uint8_t)(XCP_OPT_VERSION << 4 | xcp_saturate4(f->xcp_hops)));
	o[XCP_OPT_TTL] = f->xcp_ttl;
	xcp_put32(o + XCP_OPT_RTT, f->rtt);
	xcp_put32(o + XCP_OPT_X, f->x);
	xcp_put32(o + XCP_OPT_DELTA, (uint32_t)f->delta);
	xcp_put32(o + XCP_OPT_LAST_ROUTER, f->last_xcp_router);
}

XCP_INLINE void xcp_build_both(uint8_t *o, const struct xcp_forward *f,
			       const struct xcp_return *r)
{
	xcp_build_forward(o, f);
	o[1] = XCP_OPT_BOTH_LEN;
	o[XCP_OPT_BOTH_HOPS] = r->xcp_hops;
	o[XCP_OPT_BOTH_FLAGS] = xcp_return_flags(r);
	xcp_put32(o + XCP_OPT_BOTH_FEEDBACK, (uint32_t)r->feedback);
}

/* Reads the forward fields of an option of kind forward or both. */
XCP_INLINE struct xcp_forward xcp_parse_forward(const uint8_t *o)
{
	struct xcp_forward f;

	f.rtt = xcp_get32(o + XCP_OPT_RTT);
	f.x = xcp_get32(o + XCP_OPT_X);
	f.delta = (int32_t)xcp_get32(o + XCP_OPT_DELTA);
	f.last_xcp_router = xcp_get32(o + XCP_OPT_LAST_ROUTER);
	f.xcp_ttl = o[XCP_OPT_TTL];
	f.xcp_hops = o[XCP_OPT_FLAGS] & 15;
	return f;
}

/* Reads the return fields of an option of kind return or both. */
XCP_INLINE struct xcp_return xcp_parse_return(const uint8_t *o,
					      enum xcp_kind kind)
{
	struct xcp_return r;

	if (kind == XCP_BOTH) {
		r.feedback = (int32_t)xcp_get32(o + XCP_OPT_BOTH_FEEDBACK);
		r.xcp_hops = o[XCP_OPT_BOTH_HOPS];
		r.other_hops = o[XCP_OPT_BOTH_FLAGS] & 15;
		r.version = o[XCP_OPT_BOTH_FLAGS] >> 4;
	} else {
		r.feedback = (int32_t)xcp_get32(o + XCP_OPT_RETURN_FEEDBACK);
		r.xcp_hops = o[XCP_OPT_RETURN_HOPS];
		r.other_hops = o[XCP_OPT_FLAGS] & 15;
		r.version = o[XCP_OPT_FLAGS] >> 4;
	}
	return r;
}

/*
 * Writes those fields of a forward option, at `offset` in a TCP header, that
 * routers change. Returns what to add to the one's-complement checksum (RFC
 * 1624), in the byte order in which the machine loads the packet's words.
 */
XCP_INLINE uint32_t xcp_rewrite_forward(uint8_t *o, uint32_t offset,
					uint8_t flags, uint8_t ttl,
					int32_t delta)
{
	uint32_t old_delta = xcp_get32(o + XCP_OPT_DELTA);
	uint32_t new_delta = (uint32_t)delta;
	uint32_t old_word = (uint32_t)o[XCP_OPT_FLAGS] << 8 | o[XCP_OPT_TTL];
	uint32_t new_word = (uint32_t)flags << 8 | ttl, sum;

	o[XCP_OPT_FLAGS] = flags;
	o[XCP_OPT_TTL] = ttl;
	xcp_put32(o + XCP_OPT_DELTA, new_delta);

	sum = xcp_sum_change(old_word, new_word) +
	      xcp_sum_change(old_delta >> 16, new_delta >> 16) +
	      xcp_sum_change(old_delta & 0xffff, new_delta & 0xffff);
	return xcp_sum_at(sum, offset);
}

/*
 * The router's edit: sets delta, counts one more XCP hop, and lowers xcp_ttl
 * towards the packet's TTL. Returns as xcp_rewrite_forward.
 */
XCP_INLINE uint32_t xcp_edit_forward(uint8_t *o, uint32_t offset, int32_t delta,
				     uint8_t ip_ttl)
{
	uint8_t flags = o[XCP_OPT_FLAGS];

	if ((flags & 15) != 15)
		flags++;
	return xcp_rewrite_forward(o, offset, flags,
				   xcp_ttl_after(o[XCP_OPT_TTL], ip_ttl, 1),
				   delta);
}

/*
 * The edit of a virtual router, for a cloud that the packet has crossed. The
 * cloud's routers count as XCP routers, because the virtual router acts for
 * them. It does not count as an XCP hop itself.
 */
XCP_INLINE uint32_t xcp_edit_forward_cloud(uint8_t *o, uint32_t offset,
					   int32_t delta, uint8_t ip_ttl,
					   uint8_t routers)
{
	return xcp_rewrite_forward(
		o, offset, o[XCP_OPT_FLAGS],
		xcp_ttl_after(o[XCP_OPT_TTL], ip_ttl, routers), delta);
}

/* Writes last_xcp_router. Returns as xcp_rewrite_forward. */
XCP_INLINE uint32_t xcp_edit_last_router(uint8_t *o, uint32_t offset,
					 uint32_t router)
{
	uint32_t old = xcp_get32(o + XCP_OPT_LAST_ROUTER);

	xcp_put32(o + XCP_OPT_LAST_ROUTER, router);
	return xcp_sum_at(xcp_sum_change(old >> 16, router >> 16) +
				  xcp_sum_change(old & 0xffff, router & 0xffff),
			  offset);
}

#endif

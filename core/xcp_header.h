/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The wire formats `header` (draft-falk-xcp-spec-03, 2007: version 3) and
 * `header-2004` (draft -00 and the thesis: version 1): 20 bytes between the
 * IP and the next header. Version 2 (drafts -01 and -02) is read as well.
 * Integers are big-endian; the three differ in the order of their words.
 *
 *              0         1         2         3        4     8    12    16
 *   version 3  protocol  length    ver|fmt   xcp_ttl  X     RTT  back  delta
 *   version 2  protocol  length    ver|fmt   xcp_ttl  RTT   X    delta back
 *   version 1  ver|fmt   protocol  length    xcp_ttl  RTT   T    delta back
 *
 *   protocol  of the next header
 *   length    of this header: 20, plus 4 or 16 for last_xcp_router (four bytes
 *             as in xcp_option.h, or an IPv6 address; 0: no such router).
 *             Senders of version 3 reserve 4 bytes on data packets. Draft -00
 *             writes 40 (0x28) but means 20
 *   ver|fmt   version and format, a nibble each. Format 1, standard: has all
 *             fields. Format 2, minimal: only returns feedback; routers ignore
 *             it
 *   RTT, X    2^-28 s; 0 = unknown; version 1 has RTT in ms and T, throughput
 *             in B/ms, both rounded up: X = size / T
 *   back      Reverse_Feedback, signed, B/s
 *   delta     Delta_Throughput, signed, B/s
 *   xcp_ttl   unused in the drafts. Standard format: the sender's IP TTL,
 *             decremented only by XCP routers; 0 if the sender did not set it.
 *             Minimal format: the hop report, the path as the receiver saw it.
 *             Its high nibble is 1 + xcp_ttl mod 15 (0 if unknown), its low
 *             nibble the number of routers without XCP, 15 meaning 15 or more
 *
 * The receiver does not know the initial TTL of a packet. The sender does, and
 * so it can compute how many hops were XCP routers, up to 14.
 */
#ifndef XCP_HEADER_H
#define XCP_HEADER_H

#include "xcp_packet.h"

#define XCP_HEADER_LEN 20
#define XCP_HEADER_LEN_2004 0x28 /* the length that draft -00 writes */
#define XCP_HEADER_PROTO 253 /* RFC 3692: for experiments */
#define XCP_HEADER_STANDARD 1
#define XCP_HEADER_MINIMAL 2
#define XCP_HEADER_2004 1
#define XCP_HEADER_2007 3

#define XCP_HEADER_TTL 3

/* The longest header, with an IPv6 address. */
#define XCP_HEADER_MAX_LEN (XCP_HEADER_LEN + XCP_ADDRESS_LEN)

/* The first word, in the order of version 3. */
struct xcp_header {
	uint8_t version; /* 1 to 3 */
	uint8_t format;
	uint8_t protocol;
	uint8_t length;
};

XCP_INLINE bool xcp_header_length_ok(uint8_t length)
{
	return length == XCP_HEADER_LEN || length == XCP_HEADER_LEN + 4 ||
	       length == XCP_HEADER_LEN + 16;
}

/*
 * Reads the first word of a header of 20 bytes. The first word of version 1
 * cannot be mistaken: its third byte, the length, is no version and format.
 */
XCP_INLINE enum xcp_kind xcp_header_read(const uint8_t *h, struct xcp_header *r)
{
	uint8_t tag = h[2];
	bool is_2004 = !xcp_header_length_ok(h[1]) ||
		       (tag >> 4 != 2 && tag >> 4 != 3) || !(tag & 15) ||
		       (tag & 15) > XCP_HEADER_MINIMAL;

	r->protocol = h[0];
	r->length = h[1];
	if (is_2004) {
		tag = h[0];
		r->protocol = h[1];
		r->length = h[2];
		if (r->length == XCP_HEADER_LEN_2004)
			r->length = XCP_HEADER_LEN;
	}
	r->version = tag >> 4;
	r->format = tag & 15;
	if (is_2004 &&
	    (r->version != XCP_HEADER_2004 || !xcp_header_length_ok(r->length)))
		return XCP_MALFORMED;
	if (r->format == XCP_HEADER_STANDARD)
		return XCP_BOTH;
	return r->format == XCP_HEADER_MINIMAL ? XCP_RETURN : XCP_MALFORMED;
}

/* The offsets of the words delta and back. */
XCP_INLINE uint32_t xcp_header_delta(uint8_t version)
{
	return version == XCP_HEADER_2007 ? 16 : 12;
}

XCP_INLINE uint32_t xcp_header_back(uint8_t version)
{
	return version == XCP_HEADER_2007 ? 12 : 16;
}

/* X = size / T in ticks, rounded down, and T = size / X in B/ms, rounded up. */
XCP_INLINE uint32_t xcp_header_x_of(uint32_t throughput, uint32_t size_B)
{
	if (!throughput)
		return 0;
	return xcp_saturate32(((uint64_t)size_B << XCP_TICK_SHIFT) /
			      ((uint64_t)throughput * 1000));
}

XCP_INLINE uint32_t xcp_header_throughput(uint32_t x, uint32_t size_B)
{
	uint64_t by = (uint64_t)x * 1000;

	if (!x)
		return 0;
	return xcp_saturate32((((uint64_t)size_B << XCP_TICK_SHIFT) + by - 1) /
			      by);
}

/* The forward fields of a standard header on a packet of size_B. */
XCP_INLINE struct xcp_forward
xcp_header_forward(const uint8_t *h, uint8_t version, uint32_t size_B)
{
	struct xcp_forward f = {0, 0, 0, 0, 0, 0};
	uint32_t first = xcp_get32(h + 4), second = xcp_get32(h + 8);

	if (version == XCP_HEADER_2007) {
		f.x = first;
		f.rtt = second;
	} else if (version == XCP_HEADER_2004) {
		f.rtt = xcp_saturate32(((uint64_t)first << XCP_TICK_SHIFT) /
				       1000);
		f.x = xcp_header_x_of(second, size_B);
	} else {
		f.rtt = first;
		f.x = second;
	}
	f.delta = (int32_t)xcp_get32(h + xcp_header_delta(version));
	f.xcp_ttl = h[XCP_HEADER_TTL];
	return f;
}

XCP_INLINE int32_t xcp_header_feedback(const uint8_t *h, uint8_t version)
{
	return (int32_t)xcp_get32(h + xcp_header_back(version));
}

XCP_INLINE void xcp_header_head(uint8_t *h, uint8_t version, uint8_t format,
				uint8_t protocol)
{
	uint8_t tag = (uint8_t)(version << 4 | format);

	if (version == XCP_HEADER_2004) {
		h[0] = tag;
		h[1] = protocol;
		h[2] = XCP_HEADER_LEN;
	} else {
		h[0] = protocol;
		h[1] = XCP_HEADER_LEN;
		h[2] = tag;
	}
}

/* A standard header of version 1 or 3, for a packet of size_B. */
XCP_INLINE void xcp_build_header(uint8_t *h, uint8_t version, uint8_t protocol,
				 const struct xcp_forward *f, int32_t feedback,
				 uint32_t size_B)
{
	xcp_header_head(h, version, XCP_HEADER_STANDARD, protocol);
	h[XCP_HEADER_TTL] = f->xcp_ttl;
	if (version == XCP_HEADER_2004) {
		xcp_put32(h + 4, (uint32_t)(((uint64_t)f->rtt * 1000 +
					     XCP_TICKS_PER_SEC - 1) >>
					    XCP_TICK_SHIFT));
		xcp_put32(h + 8, xcp_header_throughput(f->x, size_B));
	} else {
		xcp_put32(h + 4, f->x);
		xcp_put32(h + 8, f->rtt);
	}
	xcp_put32(h + xcp_header_delta(version), (uint32_t)f->delta);
	xcp_put32(h + xcp_header_back(version), (uint32_t)feedback);
}

/* A minimal header; `hop_report` is from xcp_header_hop_report. */
XCP_INLINE void xcp_build_header_return(uint8_t *h, uint8_t version,
					uint8_t protocol, int32_t feedback,
					uint8_t hop_report)
{
	xcp_header_head(h, version, XCP_HEADER_MINIMAL, protocol);
	h[XCP_HEADER_TTL] = hop_report;
	xcp_put32(h + 4, 0);
	xcp_put32(h + 8, 0);
	xcp_put32(h + xcp_header_delta(version), 0);
	xcp_put32(h + xcp_header_back(version), (uint32_t)feedback);
}

/* The receiver's report of the hops that a packet has passed. */
XCP_INLINE uint8_t xcp_header_hop_report(uint8_t xcp_ttl, uint8_t ip_ttl)
{
	if (!xcp_ttl)
		return 0;
	return (uint8_t)((1 + xcp_ttl % 15) << 4 |
			 xcp_saturate4(xcp_other_hops(xcp_ttl, ip_ttl)));
}

/*
 * The number of XCP routers passed by packets with the initial TTL `ttl`, from
 * the receiver's report; -1 if the report is empty.
 */
XCP_INLINE int32_t xcp_header_hops(uint8_t hop_report, uint8_t ttl)
{
	if (!(hop_report >> 4))
		return -1;
	return (ttl % 15 + 15 - ((hop_report >> 4) - 1)) % 15;
}

/*
 * The edit of a standard header by a router, or by a virtual router that acts
 * for the `routers` of a cloud. No checksum covers the header.
 */
XCP_INLINE void xcp_edit_header(uint8_t *h, uint8_t version, int32_t delta,
				uint8_t ip_ttl, uint8_t routers)
{
	h[XCP_HEADER_TTL] = xcp_ttl_after(h[XCP_HEADER_TTL], ip_ttl, routers);
	xcp_put32(h + xcp_header_delta(version), (uint32_t)delta);
}

/*
 * The length of a sender's header on data packets, with room for
 * last_xcp_router: four bytes as in the format `option`, in IPv6 too. TCP has
 * no room for more.
 */
XCP_INLINE uint32_t xcp_header_data_len(uint8_t version)
{
	return version == XCP_HEADER_2007 ? XCP_HEADER_LEN + 4 : XCP_HEADER_LEN;
}

/* Sets the length field; `length` includes what is appended. */
XCP_INLINE void xcp_header_lengthen(uint8_t *h, uint8_t version,
				    uint32_t length)
{
	h[version == XCP_HEADER_2004 ? 2 : 1] = (uint8_t)length;
}

/*
 * Returns last_xcp_router in the form common to all formats. `h` is a header of
 * `length` bytes, appended bytes included. 0: no router, or no such field.
 */
XCP_INLINE uint32_t xcp_header_last_router(const uint8_t *h, uint8_t length)
{
	if (length == XCP_HEADER_LEN + 4)
		return xcp_get32(h + XCP_HEADER_LEN);
	if (length == XCP_HEADER_MAX_LEN)
		return xcp_router_id(h + XCP_HEADER_LEN);
	return 0;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The fields of all wire formats in one common form, and functions that read,
 * write and sum bytes.
 *
 *   forward    RTT, X (ticks of 2^-28 s, 0 = unknown), delta (B/s): from the
 *              sender to the routers, which change them
 *   return     feedback: from the receiver to the sender
 *
 * The checksum is TCP's, a one's-complement sum of 16-bit words: a change of
 * bytes changes it by the sum of the differences (RFC 1624), so it never has
 * to be computed again.
 */
#ifndef XCP_PACKET_H
#define XCP_PACKET_H

#include "xcp_fixed.h"

#define XCP_TCP_HEADER_LEN 20
#define XCP_TCP_HEADER_MAX 60
#define XCP_ADDRESS_LEN 16 /* IPv6; IPv4 is mapped: ::ffff:192.0.2.1 */
/* The usual first options: NOP NOP kind 8 length 10, as a word. */
#define XCP_WORD_TIMESTAMPS 0x0101080aU

/* The kind of a packet's XCP header or option. */
enum xcp_kind {
	XCP_NONE,
	XCP_MALFORMED,
	XCP_HANDSHAKE,
	XCP_RETURN,
	XCP_FORWARD,
	XCP_BOTH,
	XCP_FORWARD_2005,
	XCP_RETURN_2005,
};

struct xcp_forward {
	uint32_t rtt; /* ticks */
	uint32_t x; /* ticks */
	int32_t delta; /* B/s */
	uint32_t last_xcp_router;
	uint8_t xcp_ttl;
	uint8_t xcp_hops;
};

/* The meaning of the feedback in a return header. */
enum xcp_return_version {
	XCP_RETURN_CHANGE = 1, /* change since the last return header, B/s */
	XCP_RETURN_TOTAL = 2, /* running total, 8 B/s, wraps: xcp_receiver.h */
};

struct xcp_return {
	int32_t feedback;
	uint8_t xcp_hops;
	uint8_t other_hops;
	uint8_t version; /* enum xcp_return_version, or an unknown version */
};

/* Big-endian access at any alignment. */
XCP_INLINE uint32_t xcp_get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 |
	       (uint32_t)p[2] << 8 | p[3];
}

XCP_INLINE void xcp_put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

XCP_INLINE uint16_t xcp_get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

XCP_INLINE void xcp_put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

XCP_INLINE uint32_t xcp_saturate32(uint64_t v)
{
	return (uint32_t)xcp_min(v, UINT32_MAX);
}

XCP_INLINE uint8_t xcp_saturate4(uint32_t v)
{
	return (uint8_t)xcp_min(v, 15);
}

/*
 * The number of routers without XCP: they lower the IP TTL but not xcp_ttl. An
 * IP TTL above xcp_ttl is invalid; the unknown number counts as 1.
 */
XCP_INLINE uint8_t xcp_other_hops(uint8_t xcp_ttl, uint8_t ip_ttl)
{
	return xcp_ttl >= ip_ttl ? (uint8_t)(xcp_ttl - ip_ttl) : 1;
}

/* xcp_ttl after `routers` XCP routers, but not below the packet's TTL. */
XCP_INLINE uint8_t xcp_ttl_after(uint8_t xcp_ttl, uint8_t ip_ttl,
				 uint8_t routers)
{
	if (xcp_ttl <= ip_ttl)
		return xcp_ttl;
	return (uint8_t)xcp_max(xcp_excess(xcp_ttl, routers), ip_ttl);
}

/*
 * The identifier of a router in last_xcp_router, which has four bytes in most
 * formats: its IPv4 address, or the exclusive or of the words of its IPv6
 * address, 1 where that is 0. 0 means no router, and is returned for an address
 * of zeros.
 */
XCP_INLINE uint32_t xcp_router_id(const uint8_t address[XCP_ADDRESS_LEN])
{
	uint32_t a = xcp_get32(address), b = xcp_get32(address + 4);
	uint32_t c = xcp_get32(address + 8), d = xcp_get32(address + 12);

	if (!(a | b | c | d))
		return 0;
	if (!(a | b) && c == 0xffff) /* an IPv4 address */
		a = b = c = 0;
	a ^= b ^ c ^ d;
	return a ? a : 1;
}

/*
 * Updates a checksum field by a sum of differences, both in the byte order in
 * which the machine loads words.
 */
XCP_INLINE uint16_t xcp_update_checksum(uint16_t check, uint32_t sum)
{
	sum += (uint16_t)~check;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* The change of a packet's sum if one 16-bit word replaces another. */
XCP_INLINE uint32_t xcp_sum_change(uint32_t before, uint32_t after)
{
	return after + 0xffff - before;
}

/*
 * Folds a sum of changes to big-endian words that begin `offset` bytes from
 * the start of the summed bytes, into the byte order in which the machine loads
 * words. At an odd offset, the two bytes of each word are swapped.
 */
XCP_INLINE uint32_t xcp_sum_at(uint32_t sum, uint32_t offset)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	if (!(offset & 1))
#else
	if (offset & 1)
#endif
		sum = (sum << 8 | sum >> 8) & 0xffff;
	return sum;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The wire format `option-2005` (Zhang & Henderson 2005, section II-B): two
 * TCP options.
 *
 *   forward  0 kind 14 | 1 length 8 | 2 H_feedback | 4 H_rtt | 6 H_cwnd
 *   return   0 kind 15 | 1 length 4 | 2 H_feedback
 *
 *   H_feedback  packets: a signed mantissa m of 13 bits, an exponent e of 3,
 *               m 16^(e-3); here in units of 2^-12 packets, m 16^e
 *   H_rtt       ms, rounded up; 0 = unknown
 *   H_cwnd      packets in flight during H_rtt
 *
 * SYN and SYN-ACK carry a forward option without an RTT. A router clears a
 * positive requested delta in such a packet. So the feedback for a SYN shows
 * whether there was a router on the path.
 *
 * Routers and senders count in bytes per second:
 *
 *   X     = H_rtt / H_cwnd
 *   delta = H_feedback size / H_rtt
 *
 * An RTT below 1 ms is sent as 1 ms, with the packets of 1 ms in H_cwnd. So the
 * throughput is right for any rounding of H_rtt, and a feedback of n packets in
 * H_rtt moves the window by n RTT / H_rtt packets.
 *
 * A written value is cut to the 13 bits of the mantissa, towards 0. The rest is
 * not lost: sender, router and receiver add it to the next packet's value. With
 * `whole`, feedback is in whole packets and the rest is lost: the integers that
 * the paper warns of (section II-E.2), for its figure 3.
 */
#ifndef XCP_OPTION_2005_H
#define XCP_OPTION_2005_H

#include "xcp_packet.h"
#include "xcp_sender.h"

#define XCP_2005_FORWARD_KIND 14
#define XCP_2005_RETURN_KIND 15
#define XCP_2005_FORWARD_LEN 8
#define XCP_2005_RETURN_LEN 4
#define XCP_2005_BOTH_LEN (XCP_2005_FORWARD_LEN + XCP_2005_RETURN_LEN)

/* Offsets of the fields of an option. */
#define XCP_2005_FEEDBACK 2
#define XCP_2005_RTT 4
#define XCP_2005_CWND 6

#define XCP_2005_SHIFT 12 /* the unit of feedback is 2^-12 packets */
#define XCP_2005_PACKET (1 << XCP_2005_SHIFT)
#define XCP_2005_MANTISSA_MAX 4095
#define XCP_2005_VALUE_MAX ((int64_t)XCP_2005_MANTISSA_MAX << 28)
/* The smallest requested delta: 2^-12 packets. */
#define XCP_2005_PROBE (1 << 3)

struct xcp_2005 {
	uint16_t feedback; /* encoded as on the wire */
	uint16_t rtt_ms;
	uint16_t cwnd;
};

/* The value of H_feedback, 2^-12 packets. */
XCP_INLINE int64_t xcp_2005_value(uint16_t feedback)
{
	int64_t mantissa = (int16_t)feedback >> 3;

	return mantissa * (1LL << ((feedback & 7) * 4));
}

/* H_feedback for a value in 2^-12 packets, rounded towards 0, saturated. */
XCP_INLINE uint16_t xcp_2005_code(int64_t value, bool whole)
{
	uint64_t size = xcp_abs(value), exponent = 0, mantissa;

	if (whole)
		size &= ~(uint64_t)(XCP_2005_PACKET - 1);
	size = xcp_min(size, XCP_2005_VALUE_MAX);
	/* each step of the exponent drops 4 bits, until 12 remain */
	if (size)
		exponent = (xcp_max(xcp_bits(size), 12) - 12 + 3) / 4;
	mantissa = size >> (exponent * 4);
	if (value < 0)
		mantissa = 0 - mantissa;
	return (uint16_t)((mantissa & 0x1fff) << 3 | exponent);
}

/* X of a flow, in ticks; 0 if its RTT is unknown. */
XCP_INLINE uint32_t xcp_2005_x(const struct xcp_2005 *h)
{
	uint64_t rtt = ((uint64_t)h->rtt_ms << XCP_TICK_SHIFT) / 1000;
	uint64_t cwnd = xcp_max(h->cwnd, 1);

	return xcp_saturate32((rtt + cwnd / 2) / cwnd);
}

/* H_feedback in B/s, for packets of size_B, rounded towards 0. */
XCP_INLINE int32_t xcp_2005_to_Bps(const struct xcp_2005 *h, uint32_t size_B)
{
	int64_t value = xcp_2005_value(h->feedback);
	uint64_t size = xcp_abs(value), whole, rate;
	uint64_t by = xcp_max(h->rtt_ms, 1) << 9;

	/* size * bytes * 1000 / 4096 / ms = size * bytes * 125 / (512 ms) */
	size *= xcp_min(size_B, 0xffff); /* below 2^41 * 2^16 */
	whole = size / by;
	rate = xcp_min(whole, INT32_MAX) * 125 + (size - whole * by) * 125 / by;
	rate = xcp_min(rate, INT32_MAX);
	return (int32_t)xcp_signed(rate, value < 0);
}

/* B/s as 2^-12 packets of size_B per rtt_ms, rounded towards 0. */
XCP_INLINE int64_t xcp_2005_of_Bps(int64_t rate_Bps, uint32_t rtt_ms,
				   uint32_t size_B)
{
	uint64_t size = xcp_abs(rate_Bps);

	/* below 2^32 * 2^16 * 2^9 */
	size = (xcp_min(size, UINT32_MAX) * xcp_min(rtt_ms, 0xffff) << 9) /
	       (xcp_max(size_B, 1) * 125);
	return xcp_signed(size, rate_Bps < 0);
}

XCP_INLINE struct xcp_2005 xcp_2005_parse(const uint8_t *o)
{
	struct xcp_2005 h;

	h.feedback = xcp_get16(o + XCP_2005_FEEDBACK);
	h.rtt_ms = xcp_get16(o + XCP_2005_RTT);
	h.cwnd = xcp_get16(o + XCP_2005_CWND);
	return h;
}

XCP_INLINE void xcp_2005_build_forward(uint8_t *o, const struct xcp_2005 *h)
{
	o[0] = XCP_2005_FORWARD_KIND;
	o[1] = XCP_2005_FORWARD_LEN;
	xcp_put16(o + XCP_2005_FEEDBACK, h->feedback);
	xcp_put16(o + XCP_2005_RTT, h->rtt_ms);
	xcp_put16(o + XCP_2005_CWND, h->cwnd);
}

XCP_INLINE void xcp_2005_build_return(uint8_t *o, uint16_t feedback)
{
	o[0] = XCP_2005_RETURN_KIND;
	o[1] = XCP_2005_RETURN_LEN;
	xcp_put16(o + XCP_2005_FEEDBACK, feedback);
}

/* Whether a forward option is in the usual place, byte 32 of a TCP header. */
XCP_INLINE bool xcp_2005_at_32(const uint8_t *tcp, uint32_t header_len)
{
	return header_len >= 32 + XCP_2005_FORWARD_LEN &&
	       xcp_get32(tcp + 20) == XCP_WORD_TIMESTAMPS &&
	       xcp_get16(tcp + 32) ==
		       (XCP_2005_FORWARD_KIND << 8 | XCP_2005_FORWARD_LEN);
}

/* The forward fields of an option on a packet of size_B, for routers. */
XCP_INLINE struct xcp_forward xcp_2005_forward(const struct xcp_2005 *h,
					       uint32_t size_B)
{
	struct xcp_forward f = {0, 0, 0, 0, 0, 0};

	f.rtt = xcp_saturate32(((uint64_t)h->rtt_ms << XCP_TICK_SHIFT) / 1000);
	f.x = xcp_2005_x(h);
	f.delta = xcp_2005_to_Bps(h, size_B);
	return f;
}

/*
 * The router's answer: H_feedback for `*granted` B/s, at most the requested
 * delta, for each of the `n` packets that the option stands for. The rest goes
 * to `*carry` (B/s). A request of at most the granted delta is not changed.
 * Sets `*granted` to the delta that is written.
 */
XCP_INLINE uint16_t xcp_2005_grant(const struct xcp_2005 *h, uint32_t size_B,
				   uint32_t n, int32_t *granted, int64_t *carry,
				   bool whole)
{
	int32_t asked = xcp_2005_to_Bps(h, size_B);
	struct xcp_2005 answer = *h;
	int64_t target = *granted;

	if (!h->rtt_ms) {
		/* without an RTT, a router can only clear the request */
		if (*granted < asked)
			answer.feedback = 0;
		*granted = xcp_2005_to_Bps(&answer, size_B);
		return answer.feedback;
	}
	if (target >= asked && *carry >= 0)
		return h->feedback;
	if (!whole)
		target += xcp_part(*carry, n);
	if (target > asked)
		target = asked;
	answer.feedback = xcp_2005_code(
		xcp_2005_of_Bps(target, h->rtt_ms, size_B), whole);
	/* rounding towards 0 must not reduce a requested decrease */
	if (xcp_2005_value(answer.feedback) > xcp_2005_value(h->feedback))
		answer.feedback = h->feedback;
	target = *granted;
	*granted = xcp_2005_to_Bps(&answer, size_B);
	*carry += (target - *granted) * n;
	if (whole)
		*carry = 0;
	return answer.feedback;
}

/*
 * The router's edit at `offset` in a TCP header. Returns what to add to the
 * checksum, as xcp_edit_forward does.
 */
XCP_INLINE uint32_t xcp_2005_edit(uint8_t *o, uint32_t offset,
				  uint16_t feedback)
{
	uint32_t before = xcp_get16(o + XCP_2005_FEEDBACK);

	xcp_put16(o + XCP_2005_FEEDBACK, feedback);
	return xcp_sum_at(xcp_sum_change(before, feedback), offset);
}

/* H_rtt of a flow, ms; 0 if its RTT is unknown. */
XCP_INLINE uint32_t xcp_2005_rtt_ms(uint64_t rtt)
{
	return (uint32_t)xcp_min(
		(rtt * 1000 + XCP_TICKS_PER_SEC - 1) >> XCP_TICK_SHIFT, 0xffff);
}

/*
 * The forward option that a sender writes on a segment of size_B. `*rest` is
 * the part of earlier requests that rounding left out (2^-12 packets).
 */
XCP_INLINE struct xcp_2005 xcp_2005_request(const struct xcp_sender *s,
					    uint32_t size_B, int64_t *rest,
					    bool whole)
{
	struct xcp_num packets;
	struct xcp_2005 h = {0, 0, 0};
	uint64_t rtt_ms = xcp_2005_rtt_ms(xcp_sender_header_rtt(s));
	int64_t request;

	if (!rtt_ms)
		return h;
	h.rtt_ms = (uint16_t)rtt_ms;
	packets = xcp_num_div(
		xcp_num_mul(xcp_num_of(s->window_B),
			    xcp_num_of((rtt_ms << XCP_TICK_SHIFT) / 1000)),
		xcp_num_mul(xcp_num_of(s->wire_B), xcp_num_of(s->rtt)));
	/* rounded to the nearest integer */
	h.cwnd = (uint16_t)xcp_max(
		(xcp_num_fixed(packets, 1, 2 * 0xffff) + 1) / 2, 1);
	/* routers assume packets of this size; those of the window are full */
	request = xcp_2005_of_Bps(s->request_Bps, h.rtt_ms, s->wire_B);
	if (size_B < s->wire_B)
		request = xcp_signed(xcp_abs(request) * size_B / s->wire_B,
				     request < 0);
	request += *rest;
	/* above the largest value, requests do not add up */
	if (request > XCP_2005_VALUE_MAX)
		request = XCP_2005_VALUE_MAX;
	h.feedback = xcp_2005_code(request, whole);
	*rest = whole ? 0 : request - xcp_2005_value(h.feedback);
	return h;
}

/* Applies feedback of `value` 2^-12 packets per H_rtt. */
XCP_INLINE void xcp_2005_feedback(struct xcp_sender *s, int64_t value)
{
	uint64_t size = xcp_abs(value);
	uint64_t told = ((uint64_t)xcp_2005_rtt_ms(xcp_sender_header_rtt(s))
			 << XCP_TICK_SHIFT) /
			1000;
	uint64_t part = 1 << 28; /* RTT / H_rtt, 2^-28 */

	if (told > s->rtt)
		part = (s->rtt << 28) / told;
	size = xcp_min(size, 1ULL << 41) * s->wire_B;
	size = (size >> 28) * part + ((size & ((1 << 28) - 1)) * part >> 28);
	xcp_sender_move(s, value < 0, size >> XCP_2005_SHIFT,
			(uint32_t)(size & (XCP_2005_PACKET - 1))
				<< (XCP_CWND_FRAC_BITS - XCP_2005_SHIFT));
}

#endif

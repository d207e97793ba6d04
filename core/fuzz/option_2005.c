/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* Checks the format `option-2005`: its numbers, and who carries rounding. */
#include "fuzz.h"

static void check_code(uint16_t code, int64_t value)
{
	int64_t coded = xcp_2005_value(code);
	int64_t again = xcp_2005_value(xcp_2005_code(coded, false));
	uint64_t size = size_of(value), kept;

	/* the lowest code has no positive counterpart and is not written */
	CHECK(again == between(coded, -XCP_2005_VALUE_MAX, XCP_2005_VALUE_MAX));

	coded = xcp_2005_value(xcp_2005_code(value, false));
	kept = size_of(coded);
	CHECK(!coded || (coded < 0) == (value < 0));
	CHECK(kept <= size);
	if (size <= XCP_2005_VALUE_MAX)
		CHECK(!size || (size - kept) < (size + 255) / 256);
	else
		CHECK(kept == XCP_2005_VALUE_MAX);

	coded = xcp_2005_value(xcp_2005_code(value, true));
	CHECK(size_of(coded) <= kept && coded % XCP_2005_PACKET == 0);
}

/*
 * The router never writes more than the requested delta, and it carries the
 * part of the grant that it does not write.
 */
static uint16_t check_grant(struct input *in, const struct xcp_2005 *h)
{
	uint32_t size_B = (uint32_t)draw(in), n = 1 + (draw(in) & 0xffff);
	int64_t carry = between(draw_signed(in), -(1LL << 61), 1LL << 61);
	int32_t grant = (int32_t)draw_signed(in), asked, granted, lost;
	int64_t carried = carry;
	struct xcp_2005 answer = *h;

	asked = xcp_2005_forward(h, size_B).delta;
	CHECK(asked == xcp_2005_to_Bps(h, size_B));
	/* limit the grant as xcp_router_departure does */
	if (!h->rtt_ms)
		grant = asked > 0 ? 0 : asked;
	else if (grant > asked)
		grant = asked;

	granted = grant;
	answer.feedback =
		xcp_2005_grant(h, size_B, n, &granted, &carried, false);
	CHECK(xcp_2005_value(answer.feedback) <= xcp_2005_value(h->feedback));
	CHECK(granted == xcp_2005_to_Bps(&answer, size_B));
	CHECK(granted <= asked);
	CHECK((int64_t)granted * n + carried == (int64_t)grant * n + carry);

	lost = grant;
	answer.feedback = xcp_2005_grant(h, size_B, n, &lost, &carry, true);
	CHECK(xcp_2005_value(answer.feedback) <= xcp_2005_value(h->feedback));
	return xcp_2005_code(draw_signed(in), false);
}

void edit_option_2005(struct input *in, uint32_t offset)
{
	uint8_t *tcp = copy_of(in->packet, in->packet_len);
	uint8_t *again = copy_of(tcp + offset, XCP_2005_FORWARD_LEN);
	struct xcp_2005 h = xcp_2005_parse(tcp + offset);
	uint16_t feedback = check_grant(in, &h);
	uint32_t sum;

	memset(again, 0, XCP_2005_FORWARD_LEN);
	xcp_2005_build_forward(again, &h);
	CHECK(!memcmp(again, tcp + offset, XCP_2005_FORWARD_LEN));
	free(again);

	sum = xcp_2005_edit(tcp + offset, offset, feedback);
	CHECK(xcp_2005_parse(tcp + offset).feedback == feedback);
	check_edited(in, tcp, sum, offset + XCP_2005_FEEDBACK,
		     offset + XCP_2005_RTT);
	free(tcp);
}

/* The receiver returns everything that arrived, to the last unit. */
static void check_receiver(struct input *in)
{
	struct xcp_receiver r = {0};
	uint32_t copies = 1 + (draw(in) & 0xffff), n = 1 + (draw(in) & 0xffff);
	uint16_t came = (uint16_t)draw(in), code;
	uint32_t seen;
	int64_t before;
	uint64_t share;

	r.pending = between(draw_signed(in), -(1LL << 61), 1LL << 61);
	before = r.pending;
	xcp_receiver_add_2005(&r, came, n);
	CHECK(r.pending == before + xcp_2005_value(came) * n);
	before = r.pending;
	share = size_of(before) / copies;
	code = xcp_receiver_take_2005(&r, copies);
	CHECK(before == xcp_2005_value(code) * copies + r.pending);
	CHECK(!r.pending || (r.pending < 0) == (before < 0));
	CHECK(size_of(xcp_2005_value(code)) <= share);

	before = r.pending;
	xcp_receiver_add(&r, (int32_t)came - 0x8000, n);
	CHECK(r.pending == before + ((int32_t)came - 0x8000) * (int64_t)n);
	before = r.pending;
	CHECK(before ==
	      (int64_t)xcp_receiver_take(&r, copies) * copies + r.pending);

	r.pending = between(r.pending, -(1LL << 33), 1LL << 33);
	r.total = seen = (uint32_t)draw(in);
	before = r.pending;
	CHECK(before == xcp_receiver_total(&r) + r.pending);
	CHECK(xcp_total_change(&seen, (int32_t)r.total) + r.pending == before);
	CHECK(seen == r.total && r.pending >> XCP_TOTAL_SHIFT == 0);
}

/* The rest of a request is added to the next one, up to the largest value. */
static void check_ask(struct input *in)
{
	const int64_t most = XCP_2005_VALUE_MAX;
	struct xcp_sender s = draw_sender(in);
	uint32_t size_B = (uint32_t)draw(in) & 0xffff;
	int64_t before = between(draw_signed(in), -most, most);
	int64_t rest = 0, request;
	uint64_t told;
	struct xcp_2005 h = xcp_2005_request(&s, size_B, &rest, false);

	CHECK(xcp_2005_value(h.feedback) >= 0 && rest >= 0);
	request = xcp_2005_value(h.feedback) + rest;
	rest = before;
	h = xcp_2005_request(&s, size_B, &rest, false);
	if (!s.rtt) {
		CHECK(!h.rtt_ms && !h.cwnd && !h.feedback && rest == before);
		return;
	}
	CHECK(h.rtt_ms && h.cwnd);
	told = xcp_sender_header_rtt(&s);
	CHECK(told >= s.rtt);
	CHECK((uint64_t)h.rtt_ms * XCP_TICKS_PER_SEC >= told * 1000);
	CHECK((h.rtt_ms - 1ULL) * XCP_TICKS_PER_SEC < told * 1000);
	if (request < most)
		CHECK(xcp_2005_value(h.feedback) + rest ==
		      between(request + before, -most, most));
	CHECK(size_of(rest) <= (uint64_t)most / 256);
	CHECK(xcp_2005_forward(&h, size_B).rtt);
}

/*
 * The window changes by value * RTT / H_rtt packets; a window below one packet
 * is at most doubled.
 */
static void check_feedback(struct input *in)
{
	struct xcp_sender s = draw_sender(in);
	int64_t value = between(draw_signed(in), -(1LL << 41), 1LL << 41);
	/* windows in 2^-28 B */
	const __int128 byte = 1 << XCP_CWND_FRAC_BITS;
	const __int128 unit = byte / XCP_2005_PACKET * s.wire_B;
	__int128 before = s.cwnd_B * byte + s.cwnd_frac;
	__int128 want = value * unit, moved, error;
	uint64_t told = ((uint64_t)xcp_2005_rtt_ms(xcp_sender_header_rtt(&s))
			 << XCP_TICK_SHIFT) /
			1000;
	const uint64_t least_B = xcp_sender_least(&s);
	const bool below_a_packet = s.cwnd_B < s.wire_B;

	xcp_2005_feedback(&s, value);
	CHECK(s.cwnd_B >= least_B && s.cwnd_B <= XCP_CWND_MAX_B);
	if (s.cwnd_B == least_B || s.cwnd_B == XCP_CWND_MAX_B)
		return;
	moved = s.cwnd_B * byte + s.cwnd_frac - before;
	if (below_a_packet) {
		CHECK(moved < before + byte);
		return;
	}
	if (s.rtt)
		want = want * s.rtt / told;
	error = moved < want ? want - moved : moved - want;
	/* 2^-12 packets, and 2^-28 of the value */
	CHECK(error <= unit + unit * size_of(value) / byte);
}

void check_option_2005(struct input *in)
{
	const struct xcp_2005 h = {(uint16_t)draw(in), (uint16_t)draw(in),
				   (uint16_t)draw(in)};
	uint8_t *o = malloc(XCP_2005_FORWARD_LEN);
	struct xcp_2005 read;

	CHECK(o);
	xcp_2005_build_forward(o, &h);
	read = xcp_2005_parse(o);
	CHECK(read.feedback == h.feedback && read.rtt_ms == h.rtt_ms &&
	      read.cwnd == h.cwnd);
	free(o);
	o = malloc(XCP_2005_RETURN_LEN);
	CHECK(o);
	xcp_2005_build_return(o, h.feedback);
	CHECK(o[0] == XCP_2005_RETURN_KIND && o[1] == XCP_2005_RETURN_LEN);
	CHECK(xcp_get16(o + XCP_2005_FEEDBACK) == h.feedback);
	free(o);

	check_code(h.feedback, draw_signed(in));
	check_grant(in, &h);
	check_receiver(in);
	check_ask(in);
	check_feedback(in);
}

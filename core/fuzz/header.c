/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* Checks the formats `header` and `header-2004`. */
#include "fuzz.h"

/* Values are rounded up when built, and down when read. */
static void check_2004(struct xcp_forward got, struct xcp_forward said,
		       uint32_t size_B)
{
	uint64_t size = (uint64_t)size_B << XCP_TICK_SHIFT;
	uint64_t rate = xcp_header_throughput(said.x, size_B);

	CHECK(got.rtt >= said.rtt);
	CHECK(got.rtt - said.rtt <= XCP_TICKS_PER_SEC / 1000 + 1);
	CHECK(!got.rtt == !said.rtt);
	if (rate == UINT32_MAX) /* saturated */
		return;
	CHECK(!said.x || rate * 1000 * said.x >= size);
	CHECK(!rate || (rate - 1) * 1000 * said.x < size);
	CHECK(got.x <= said.x);
	CHECK(!rate || rate * 1000 * (got.x + 1ULL) > size);
}

/* A built header is read with the same fields, for any next protocol. */
static void check_built(struct input *in)
{
	const struct xcp_forward f = {
		.rtt = (uint32_t)draw_signed(in),
		.x = (uint32_t)draw_signed(in),
		.delta = (int32_t)draw_signed(in),
		.xcp_ttl = (uint8_t)draw(in),
	};
	int32_t feedback = (int32_t)draw_signed(in);
	uint32_t size_B = (uint32_t)(draw(in) & 0xfffff) + 40;
	uint8_t protocol = (uint8_t)draw(in);
	uint8_t version = draw(in) & 1 ? XCP_HEADER_2007 : XCP_HEADER_2004;
	uint8_t *h = malloc(XCP_HEADER_LEN);
	struct xcp_header head;
	struct xcp_forward got;

	CHECK(h);
	xcp_build_header(h, version, protocol, &f, feedback, size_B);
	CHECK(xcp_header_read(h, &head) == XCP_BOTH);
	CHECK(head.version == version && head.protocol == protocol);
	CHECK(head.length == XCP_HEADER_LEN);
	got = xcp_header_forward(h, version, size_B);
	CHECK(got.delta == f.delta && got.xcp_ttl == f.xcp_ttl);
	if (version == XCP_HEADER_2007)
		CHECK(got.rtt == f.rtt && got.x == f.x);
	else
		check_2004(got, f, size_B);
	CHECK(xcp_header_feedback(h, version) == feedback);

	xcp_build_header_return(h, version, protocol, feedback, f.xcp_ttl);
	CHECK(xcp_header_read(h, &head) == XCP_RETURN);
	CHECK(head.version == version && head.protocol == protocol);
	CHECK(head.length == XCP_HEADER_LEN);
	CHECK(h[XCP_HEADER_TTL] == f.xcp_ttl);
	CHECK(xcp_header_feedback(h, version) == feedback);
	free(h);
}

/* Building what was read gives the same bytes, in versions 1 and 3. */
static void check_rebuilt(const uint8_t *h, const struct xcp_header *head,
			  uint32_t size_B)
{
	struct xcp_forward f = xcp_header_forward(h, head->version, size_B);
	uint8_t *again = malloc(XCP_HEADER_LEN);
	uint32_t length_at = head->version == XCP_HEADER_2004 ? 2 : 1;

	CHECK(again);
	xcp_build_header(again, head->version, head->protocol, &f,
			 xcp_header_feedback(h, head->version), size_B);
	again[length_at] = h[length_at];
	if (head->version == XCP_HEADER_2007) {
		CHECK(!memcmp(again, h, XCP_HEADER_LEN));
	} else {
		CHECK(!memcmp(again, h, 4) && !memcmp(again + 12, h + 12, 8));
		/* ms stay the same, up to 16 s, the limit of 32-bit ticks */
		CHECK(xcp_get32(again + 4) == xcp_get32(h + 4) ||
		      f.rtt == UINT32_MAX);
		/* X is rounded down, so its throughput is not lower */
		CHECK(!f.x || xcp_get32(again + 8) >= xcp_get32(h + 8));
	}
	free(again);
}

static void check_read(struct input *in)
{
	uint8_t *h = copy_of(in->packet, XCP_HEADER_LEN);
	uint32_t size_B = (uint32_t)draw(in) & 0xfffff, at, i;
	int32_t delta = (int32_t)draw_signed(in);
	uint8_t ip_ttl = (uint8_t)draw(in), routers = (uint8_t)draw(in);
	struct xcp_header head;
	struct xcp_forward f, edited;
	enum xcp_kind kind = xcp_header_read(h, &head);

	if (kind == XCP_BOTH || kind == XCP_RETURN) {
		CHECK(head.version >= 1 && head.version <= XCP_HEADER_2007);
		CHECK(xcp_header_length_ok(head.length));
		CHECK((kind == XCP_BOTH) ==
		      (head.format == XCP_HEADER_STANDARD));
	} else {
		CHECK(kind == XCP_MALFORMED);
	}
	if (kind == XCP_BOTH) {
		if (head.version != 2)
			check_rebuilt(h, &head, size_B);
		f = xcp_header_forward(h, head.version, size_B);
		at = xcp_header_delta(head.version);
		xcp_edit_header(h, head.version, delta, ip_ttl, routers);
		edited = xcp_header_forward(h, head.version, size_B);
		CHECK(edited.delta == delta);
		CHECK(edited.xcp_ttl <= f.xcp_ttl);
		CHECK(f.xcp_ttl <= ip_ttl || edited.xcp_ttl >= ip_ttl);
		CHECK(f.xcp_ttl - edited.xcp_ttl <= routers);
		CHECK(edited.rtt == f.rtt && edited.x == f.x);
		for (i = 0; i < XCP_HEADER_LEN; i++)
			CHECK(h[i] == in->packet[i] || i == XCP_HEADER_TTL ||
			      (i >= at && i < at + 4));
	}
	free(h);
}

static void check_hops(struct input *in)
{
	uint8_t ttl = (uint8_t)draw(in), ip_ttl = (uint8_t)draw(in);
	uint8_t passed = (uint8_t)(draw(in) % 15), report;
	int32_t hops = xcp_header_hops((uint8_t)draw(in), ttl);

	CHECK(hops >= -1 && hops <= 14);
	CHECK(xcp_header_hop_report(0, ip_ttl) == 0);
	if (ttl > passed) {
		report = xcp_header_hop_report(ttl - passed, ip_ttl);
		CHECK(xcp_header_hops(report, ttl) == passed);
	}
}

/* Any length may be appended; nothing beyond it is read. */
static void check_last_router(struct input *in)
{
	uint8_t *h;
	uint32_t length = XCP_HEADER_LEN + 4 * (uint32_t)(draw(in) % 5), id;

	if (in->packet_len < length)
		return;
	h = copy_of(in->packet, length);
	id = xcp_header_last_router(h, (uint8_t)length);
	CHECK(!id || length == XCP_HEADER_LEN + 4 ||
	      length == XCP_HEADER_MAX_LEN);
	free(h);
}

void check_header(struct input *in)
{
	check_last_router(in);
	check_built(in);
	check_hops(in);
	if (in->packet_len >= XCP_HEADER_LEN)
		check_read(in);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* Checks the format `option`. */
#include "fuzz.h"

static bool forward_equal(struct xcp_forward a, struct xcp_forward b)
{
	return a.rtt == b.rtt && a.x == b.x && a.delta == b.delta &&
	       a.last_xcp_router == b.last_xcp_router &&
	       a.xcp_ttl == b.xcp_ttl && a.xcp_hops == b.xcp_hops;
}

static bool return_equal(struct xcp_return a, struct xcp_return b)
{
	return a.feedback == b.feedback && a.xcp_hops == b.xcp_hops &&
	       a.other_hops == b.other_hops && a.version == b.version;
}

/* Building what was read gives the same bytes. */
static void check_rebuilt(const uint8_t *o, enum xcp_kind kind)
{
	uint32_t length = o[1];
	uint8_t *again = copy_of(o, length);
	struct xcp_forward f;
	struct xcp_return r;

	if (kind == XCP_FORWARD || kind == XCP_BOTH)
		f = xcp_parse_forward(o);
	if (kind == XCP_RETURN || kind == XCP_BOTH)
		r = xcp_parse_return(o, kind);
	if (kind == XCP_HANDSHAKE)
		xcp_build_handshake(again);
	else if (kind == XCP_RETURN)
		xcp_build_return(again, &r);
	else if (kind == XCP_FORWARD)
		xcp_build_forward(again, &f);
	else
		xcp_build_both(again, &f, &r);
	CHECK(!memcmp(again, o, XCP_OPT_HANDSHAKE_LEN));
	CHECK(!memcmp(again, o, length));
	free(again);
}

/* Checks a router's edit of a forward option: its fields are now `want`. */
static void check_edit(const struct input *in, enum xcp_kind kind,
		       uint32_t offset, uint8_t *tcp, uint32_t sum,
		       struct xcp_forward want)
{
	uint8_t *o = tcp + offset;

	CHECK(forward_equal(xcp_parse_forward(o), want));
	CHECK(o[XCP_OPT_FLAGS] >> 4 == XCP_OPT_VERSION);
	CHECK(!memcmp(o + XCP_OPT_RTT, in->packet + offset + XCP_OPT_RTT,
		      XCP_OPT_DELTA - XCP_OPT_RTT));
	check_edited(in, tcp, sum, offset + XCP_OPT_FLAGS,
		     offset + XCP_OPT_FORWARD_LEN);
	check_rebuilt(o, kind);
}

static void edit_forward(struct input *in, enum xcp_kind kind, uint32_t offset)
{
	uint8_t *tcp = copy_of(in->packet, in->packet_len);
	uint8_t *o = tcp + offset;
	int32_t delta = (int32_t)draw_signed(in);
	uint8_t ip_ttl = (uint8_t)draw(in);
	struct xcp_forward want = xcp_parse_forward(o);
	uint32_t router = want.last_xcp_router, sum;

	want.delta = delta;
	want.xcp_hops = xcp_saturate4(want.xcp_hops + 1U);
	want.xcp_ttl -= want.xcp_ttl > ip_ttl;
	sum = xcp_edit_forward(o, offset, delta, ip_ttl);
	CHECK(xcp_parse_forward(o).last_xcp_router == router);
	if (draw(in) & 1) {
		/* the edge of a cloud: one checksum update for both */
		want.last_xcp_router = (uint32_t)draw(in);
		sum += xcp_edit_last_router(o, offset, want.last_xcp_router);
	}
	check_edit(in, kind, offset, tcp, sum, want);
	free(tcp);
}

static void edit_cloud(struct input *in, enum xcp_kind kind, uint32_t offset)
{
	uint8_t *tcp = copy_of(in->packet, in->packet_len);
	uint8_t *o = tcp + offset;
	int32_t delta = (int32_t)draw_signed(in);
	uint8_t ip_ttl = (uint8_t)draw(in), routers = (uint8_t)draw(in);
	struct xcp_forward want = xcp_parse_forward(o);
	uint32_t sum;

	want.delta = delta;
	if (want.xcp_ttl > ip_ttl)
		want.xcp_ttl -= xcp_min(routers, want.xcp_ttl - ip_ttl);
	sum = xcp_edit_forward_cloud(o, offset, delta, ip_ttl, routers);
	check_edit(in, kind, offset, tcp, sum, want);
	free(tcp);
}

void edit_option(struct input *in, enum xcp_kind kind, uint32_t offset)
{
	uint8_t *tcp = copy_of(in->packet, in->packet_len);

	check_rebuilt(tcp + offset, kind);
	free(tcp);
	if (kind != XCP_FORWARD && kind != XCP_BOTH)
		return;
	edit_forward(in, kind, offset);
	edit_cloud(in, kind, offset);
}

/* Built fields are read unchanged, except that hops saturate at 15. */
void check_option(struct input *in)
{
	const struct xcp_forward f = {
		(uint32_t)draw_signed(in), (uint32_t)draw_signed(in),
		(int32_t)draw_signed(in),  (uint32_t)draw(in),
		(uint8_t)draw(in),	   (uint8_t)draw(in),
	};
	const struct xcp_return r = {
		(int32_t)draw_signed(in),
		(uint8_t)draw(in),
		(uint8_t)draw(in),
		draw(in) & 1 ? XCP_RETURN_TOTAL : XCP_RETURN_CHANGE,
	};
	struct xcp_forward want_f = f;
	struct xcp_return want_r = r;
	uint8_t *o = malloc(XCP_OPT_BOTH_LEN);

	CHECK(o);
	want_f.xcp_hops = xcp_saturate4(f.xcp_hops);
	want_r.other_hops = xcp_saturate4(r.other_hops);
	xcp_build_both(o, &f, &r);
	CHECK(xcp_option_kind(o[1], o[XCP_OPT_FLAGS]) == XCP_BOTH);
	CHECK(forward_equal(xcp_parse_forward(o), want_f));
	CHECK(return_equal(xcp_parse_return(o, XCP_BOTH), want_r));
	free(o);

	o = malloc(XCP_OPT_FORWARD_LEN);
	CHECK(o);
	xcp_build_forward(o, &f);
	CHECK(xcp_option_kind(o[1], o[XCP_OPT_FLAGS]) == XCP_FORWARD);
	CHECK(forward_equal(xcp_parse_forward(o), want_f));
	free(o);

	o = malloc(XCP_OPT_RETURN_LEN);
	CHECK(o);
	xcp_build_return(o, &r);
	CHECK(xcp_option_kind(o[1], o[XCP_OPT_FLAGS]) == XCP_RETURN);
	CHECK(return_equal(xcp_parse_return(o, XCP_RETURN), want_r));
	free(o);
}

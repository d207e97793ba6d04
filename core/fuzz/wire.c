/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The fuzz target (libFuzzer): every wire format reads, edits and builds any
 * bytes and any numbers, and a router processes any sequence of them
 * (router.c), with the address and undefined-behaviour sanitizers. This file
 * checks the search for an option in a TCP header, of which any part may be
 * missing.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t ones_sum(const uint8_t *bytes, uint32_t len)
{
	uint32_t sum = 0, i;

	for (i = 0; i < len; i++)
		sum += i & 1 ? bytes[i] : (uint32_t)bytes[i] << 8;
	return sum % 0xffff;
}

void check_edited(const struct input *before, uint8_t *after, uint32_t sum,
		  uint32_t from, uint32_t to)
{
	uint16_t check;
	uint32_t i;

	for (i = 0; i < before->packet_len; i++)
		CHECK(after[i] == before->packet[i] || (i >= from && i < to));
	memcpy(&check, after + TCP_CHECK, sizeof(check));
	check = xcp_update_checksum(check, sum);
	memcpy(after + TCP_CHECK, &check, sizeof(check));
	CHECK(ones_sum(after, before->packet_len) ==
	      ones_sum(before->packet, before->packet_len));
}

/* The length of an option that has fields; else 0. */
static uint32_t length_of(enum xcp_kind kind)
{
	switch (kind) {
	case XCP_HANDSHAKE:
		return XCP_OPT_HANDSHAKE_LEN;
	case XCP_RETURN:
		return XCP_OPT_RETURN_LEN;
	case XCP_FORWARD:
		return XCP_OPT_FORWARD_LEN;
	case XCP_BOTH:
		return XCP_OPT_BOTH_LEN;
	case XCP_FORWARD_2005:
		return XCP_2005_FORWARD_LEN;
	default:
		return 0;
	}
}

/* The length in the header, or any other length. */
static uint32_t draw_header_len(struct input *in)
{
	uint64_t v = draw(in);

	if (v & 1 || in->packet_len <= 12)
		return v >> 1 & 127;
	return (in->packet[12] >> 4) * 4;
}

/* The fast check at byte 32 and the search find the same option. */
static void check_at_32(const uint8_t *tcp, uint32_t header_len,
			enum xcp_kind kind, uint32_t offset)
{
	enum xcp_kind quick = xcp_option_at_32(tcp, header_len);

	if (quick == XCP_NONE && xcp_2005_at_32(tcp, header_len))
		quick = XCP_FORWARD_2005;
	CHECK(quick == XCP_NONE || (quick == kind && offset == 32));
}

static void check_find(struct input *in)
{
	uint8_t *tcp = copy_of(in->packet, in->packet_len);
	uint32_t header_len = draw_header_len(in), offset = 0, length;
	enum xcp_kind kind;

	kind = xcp_option_find(tcp, header_len, tcp + in->packet_len, &offset);
	CHECK(offset >= XCP_TCP_HEADER_LEN);
	if (header_len <= XCP_TCP_HEADER_MAX && header_len <= in->packet_len)
		check_at_32(tcp, header_len, kind, offset);
	length = length_of(kind);
	if (length) {
		CHECK(offset + length <= header_len);
		CHECK(tcp[offset + 1] == length);
		/* the option may be cut off; its reader checks that */
		if (offset + length <= in->packet_len) {
			if (kind == XCP_FORWARD_2005)
				edit_option_2005(in, offset);
			else
				edit_option(in, kind, offset);
		}
	}
	free(tcp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {0};

	memcpy(in.numbers, data, xcp_min(size, sizeof(in.numbers)));
	if (size > sizeof(in.numbers)) {
		in.packet = data + sizeof(in.numbers);
		in.packet_len = (uint32_t)(size - sizeof(in.numbers));
	}
	/* cut off the end: a number varies the size sooner than the fuzzer */
	in.packet_len -= xcp_min(in.packet_len, draw(&in) & 63);
	check_find(&in);
	check_option(&in);
	check_option_2005(&in);
	check_header(&in);
	check_router(&in);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Helpers shared by the checks of all formats. An input is NUMBERS numbers of 8
 * bytes, from which the checks draw arguments for core/, and then a packet: a
 * TCP header, or the draft's header. Missing bytes of the numbers are 0.
 *
 * Packets are copied to memory of exactly their size, so that the address
 * sanitizer detects any access beyond the end.
 */
#ifndef XCP_FUZZ_H
#define XCP_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../xcp_receiver.h"
#include "../xcp_sender.h"
#include "../xcp_wire.h"

#define NUMBERS 12
#define TCP_CHECK 16 /* offset of the checksum in the TCP header */

struct input {
	uint64_t numbers[NUMBERS];
	uint32_t drawn;
	const uint8_t *packet;
	uint32_t packet_len;
};

#define CHECK(holds)                                                           \
	do {                                                                   \
		if (!(holds)) {                                                \
			fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, \
				__LINE__, #holds);                             \
			abort();                                               \
		}                                                              \
	} while (0)

static inline uint64_t draw(struct input *in)
{
	return in->numbers[in->drawn++ % NUMBERS];
}

/* A number of any sign; small and large magnitudes are equally likely. */
static inline int64_t draw_signed(struct input *in)
{
	uint64_t v = draw(in);

	return (int64_t)v >> (v & 63);
}

static inline int64_t between(int64_t v, int64_t least, int64_t most)
{
	return v < least ? least : v > most ? most : v;
}

static inline uint64_t size_of(int64_t v)
{
	return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

static inline uint8_t *copy_of(const uint8_t *bytes, uint32_t len)
{
	uint8_t *copy = malloc(len);

	CHECK(copy || !len);
	if (len)
		memcpy(copy, bytes, len);
	return copy;
}

/* Draws a valid sender: the fields are within the bounds of xcp_sender.h. */
static inline struct xcp_sender draw_sender(struct input *in)
{
	struct xcp_sender s = {0};

	s.wire_B = (uint32_t)between((int64_t)(draw(in) & 0xffff), 40, 65535);
	s.cwnd_B = size_of(draw_signed(in)) % (XCP_CWND_MAX_B + 1);
	s.cwnd_frac = (uint32_t)draw(in) & ((1U << XCP_CWND_FRAC_BITS) - 1);
	s.limit_B = size_of(draw_signed(in)) % (XCP_CWND_MAX_B + 1);
	s.rtt = size_of(draw_signed(in)) & XCP_TICKS_MAX;
	xcp_sender_update(&s);
	return s;
}

void check_option(struct input *in);
void check_option_2005(struct input *in);
void check_header(struct input *in);
void check_router(struct input *in);

/* Edits an option that is complete in a TCP header, and builds it again. */
void edit_option(struct input *in, enum xcp_kind kind, uint32_t offset);
void edit_option_2005(struct input *in, uint32_t offset);

/*
 * Updates by `sum` the checksum of a TCP header whose bytes `from` to `to` a
 * router has changed. Checks that nothing else has changed, and that the
 * one's-complement sum is the same as before.
 */
void check_edited(const struct input *before, uint8_t *after, uint32_t sum,
		  uint32_t from, uint32_t to);

#endif

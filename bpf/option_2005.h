/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The wire format `option-2005` on a host. It has no field that tells of the
 * routers on the way, so a wish without an RTT is the probe: an XCP router
 * takes it out, and what comes back tells.
 *
 *   handshake   SYN and SYN-ACK carry the probe, SYN-ACK and the ACK after it
 *               its answer
 *   later       a path that grants every wish for GRANTED_ROUNDS_MAX rounds on
 *               end has no router any more: a router grants all of it once
 *   fallen back every packet is a probe; ZEROES_MAX answers on end without a
 *               wish mean that a router is there
 */
#ifndef XCP_BPF_OPTION_2005_H
#define XCP_BPF_OPTION_2005_H

#include "host.h"

#define GRANTED_ROUNDS_MAX 6
#define ZEROES_MAX 16
/* of what was asked, in 1/32, that may be missing at a round's edges */
#define GRANTED_PARTS 31

static __always_inline struct xcp_2005
forward_2005(struct xcp_socket *s, __u32 size_B, __u32 n, bool whole)
{
	struct xcp_2005 h = {};

	if (s->fell_back || !s->sender.rtt) {
		h.feedback = XCP_2005_PROBE;
		return h;
	}
	h = xcp_2005_ask(&s->sender, size_B, &s->rest_2005, whole);
	s->asked += xcp_2005_value(h.feedback) * n;
	return h;
}

/* An answer came back. */
static __always_inline void answer_2005(struct xcp_socket *s, __u16 feedback,
					__u32 n)
{
	__s64 value = xcp_2005_value(feedback) * n;

	if (s->fell_back) {
		if (value)
			s->zeroes = 0;
		else if (s->zeroes < ZEROES_MAX)
			s->zeroes++;
		if (s->zeroes == ZEROES_MAX)
			s->xcp_hops = 1;
		return;
	}
	s->feedback += value;
	s->came += value;
	COUNT(sums_2005.feedback, value);
}

/* A round trip is over: was all granted that was asked for? */
static __always_inline void round_2005(struct xcp_socket *s)
{
	if (s->asked_before > XCP_2005_PACKET &&
	    s->came >= s->asked_before / 32 * GRANTED_PARTS)
		s->granted_rounds++;
	else
		s->granted_rounds = 0;
	s->asked_before = s->asked;
	s->asked = 0;
	s->came = 0;
	if (s->granted_rounds >= GRANTED_ROUNDS_MAX) {
		s->granted_rounds = 0;
		s->zeroes = 0;
		s->xcp_hops = 0;
	}
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * How CUBIC's window grows after a cut (RFC 9438), for a sender that shares a
 * path with CUBIC. The window is in wire bytes and only an upper bound, for
 * feedback may ask for less.
 *
 *   cut        W_max = cwnd, or 0.85 cwnd if cwnd had not reached the previous
 *              W_max (fast convergence, 4.7); cwnd = 0.7 cwnd (4.6)
 *   t s later  W_cubic = C (t - K)^3 + W_max, C = 0.4 packets / s^3,
 *              K = cbrt((W_max - W_epoch) / C)                         (4.2)
 *              W_est = what Reno would have with that cut: 9 / 17 packets more
 *              each RTT, and one more above W_max                      (4.3)
 *   window     max(W_cubic, W_est)
 *
 * Times are in ms here, and 1 / C = 2.5 10^9 ms^3 per packet.
 */
#ifndef XCP_CUBIC_H
#define XCP_CUBIC_H

#include "xcp_fixed.h"

struct xcp_cubic {
	uint64_t max_B; /* W_max */
	uint64_t epoch_B; /* W_epoch, the window after the cut */
	uint64_t epoch_us; /* time since the cut */
	uint64_t rounds; /* RTTs since the cut */
};

#define XCP_CUBIC_MS3 2500000000ULL
/* ms: 8 minutes, which keeps the cube below 57 bits */
#define XCP_CUBIC_AWAY_MAX (1ULL << 19)

/*
 * The integer cube root, 22 binary digits. It has no branches, because the BPF
 * verifier follows each one.
 */
XCP_INLINE uint64_t xcp_cbrt(uint64_t v)
{
	uint64_t root = 0, next, rest, less;
	int32_t shift;

	for (shift = 63; shift >= 0; shift -= 3) {
		root *= 2;
		next = 3 * root * (root + 1) + 1;
		rest = (v >> shift) - next; /* both are below 2^63 */
		less = rest >> 63;
		XCP_OPAQUE(less);
		v -= (next << shift) & (less - 1);
		root += 1 - less;
	}
	return root;
}

/* The window after a cut. */
XCP_INLINE uint64_t xcp_cubic_part(uint64_t cwnd_B)
{
	return cwnd_B - cwnd_B * 3 / 10;
}

/* Records a cut of the window and returns the window after it. */
XCP_INLINE uint64_t xcp_cubic_cut(struct xcp_cubic *c, uint64_t cwnd_B)
{
	c->max_B = cwnd_B < c->max_B ? cwnd_B - cwnd_B * 3 / 20 : cwnd_B;
	c->epoch_B = xcp_cubic_part(cwnd_B);
	c->epoch_us = 0;
	c->rounds = 0;
	return c->epoch_B;
}

/* An RTT is over. */
XCP_INLINE void xcp_cubic_round(struct xcp_cubic *c, uint64_t elapsed_us)
{
	c->epoch_us += xcp_min(elapsed_us, UINT32_MAX);
	c->rounds++;
}

/* W_est, the window that Reno would have now. */
XCP_INLINE uint64_t xcp_cubic_friendly(const struct xcp_cubic *c,
				       uint64_t wire_B)
{
	uint64_t now_B = c->epoch_B + c->rounds * wire_B * 9 / 17;

	if (now_B > c->max_B)
		now_B += (now_B - c->max_B) * 8 / 9;
	return now_B;
}

/* The allowed window one RTT from now. */
XCP_INLINE uint64_t xcp_cubic_window(const struct xcp_cubic *c, uint64_t wire_B,
				     uint64_t rtt_us)
{
	uint64_t t = (c->epoch_us + rtt_us) / 1000, k, away, change_B, now_B;
	/* 1/256 packets, below 2^39, so that K^3 fits in 63 bits */
	uint64_t cut = xcp_excess(c->max_B, c->epoch_B) * 256 / wire_B;

	k = xcp_cbrt(xcp_min(cut, 1ULL << 39) * (XCP_CUBIC_MS3 / 256));
	away = xcp_min(t < k ? k - t : t - k, XCP_CUBIC_AWAY_MAX);
	change_B = (away * away * away >> 10) * wire_B / (XCP_CUBIC_MS3 >> 10);
	now_B = t < k ? xcp_excess(c->max_B, change_B) : c->max_B + change_B;
	return xcp_max(now_B, xcp_cubic_friendly(c, wire_B));
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * A cloud: what lies between two XCP routers and is not XCP.
 * Source: Lopez-Pacheco, Pham & Lefevre, XCP-i (2006).
 *
 * Where packets leave the cloud, before the XCP router there, stands a virtual
 * one for those of one upstream router. It is a router as any other (its law is
 * core/xcp_router.h), and its link is the cloud: what has come through is what
 * left the link, and what a probe has waited in there tells the backlog.
 *
 *   came     bytes of those packets that have come through    B
 *   w        what the last probe waited in the cloud          ns
 *   L        what the cloud carries for them                  B/s
 *   A        what trains of probes have found free            B/s
 *   backlog  L w   where w > 2 ms, else 0                     B
 *
 * So L is found as it is for a link, by core/xcp_capacity.h: what came, while
 * no probe passed freely, else it is raised. It begins with A, after each time
 * without packets; and where a link's would be doubled, it grows in steps of A,
 * or of 20 KB / d if that is more, each when the last one was carried. (The
 * paper has F = alpha d A - beta Q, with A as measured for the cloud and Q of
 * the link behind it. What several paths find free there, each of them takes;
 * and an A that is wrong stays wrong. Here it is corrected a round trip later.)
 *
 * Other virtual routers, at other edges, may share its bottleneck unseen. While
 * that is busy, each hands out, in place of the e of a link,
 *   e = N 20 KB / d (1 - 4 w / d)       N: its flows, core/xcp_flows.h
 * and what all have too much stands in a queue, w, that all of them see. Each
 * takes back beta L w / d for it. So L w / N becomes the same for all, and L /
 * N too, as in FAST TCP (Jin, Wei, Low 2004): a flow keeps some packets in the
 * queue, and no more.
 *
 * Traffic that is not XCP may fill the cloud's queue, and then those cuts
 * starve XCP. What virtual routers leave in there is at most d / 4, and what
 * an overload has left is gone soon. So where
 *   w > d / 4 + 2 ms    in 12 times d more than not
 * the queue is others', and this one is suspended, for 10 s, 20 s and so on up
 * to 160 s, each time that trying again has the same end (after 4 times d).
 * Where it has not, in 160 s, that begins at 10 s again. Aside, it counts and
 * grants nothing. But it lowers what routers before the cloud have granted from
 * what their links have free, so that no flow grows faster than TCP, until the
 * first losses and between them. A window of W = RTT / X packets that Reno has
 * grows by one in an RTT. One that CUBIC has grows in a second by 1.2 K^2 =
 * W^(2/3) right after a cut (K = cbrt(0.3 W / 0.4)) and by a third of that on
 * average; half of it is for packets of which few are lost. Spread over W:
 *   delta <= size max(1 / (W RTT), 1 / (2 s cbrt(W)))
 *
 * The daemon that measures may end at any time. Then probes come no more, and
 * after max(2 d, 50 ms) it is suspended too. It touches nothing then, so the
 * cloud's routers count as what they are, and senders take the path for one
 * that is not all XCP: they answer losses as CUBIC does.
 */
#ifndef XCP_CLOUD_H
#define XCP_CLOUD_H

#include "xcp_capacity.h"
#include "xcp_cubic.h"
#include "xcp_flows.h"
#include "xcp_packet.h"
#include "xcp_router.h"

/* Less is what a probe waits behind a full packet or two: at 10 Mb/s 1.2 ms. */
#define XCP_CLOUD_FREE_NS 2000000ULL
/* Some probes, where few are granted: they come every 16 ms. */
#define XCP_CLOUD_PATIENCE_NS 50000000ULL
/* What a flow has too much in an RTT; 1.5 times that stands in the queue. */
#define XCP_CLOUD_OVER_B XCP_CAPACITY_STEP_B
/* Eight packets in a time d: nobody has less to grow from. */
#define XCP_CLOUD_LEAST_B 12000
/* 20 packets in an initial interval, where nothing was found free. */
#define XCP_CLOUD_FIRST_BPS 150000
/* An overload of all that a cloud carries is gone after 6 to 8 times d. */
#define XCP_CLOUD_BACKOFF_FULL 12
/* Where it was others' before. */
#define XCP_CLOUD_BACKOFF_AGAIN 4
#define XCP_CLOUD_BACKOFF_FIRST_NS (10 * XCP_NSEC_PER_SEC)
#define XCP_CLOUD_BACKOFF_TRIES 4
#define XCP_CLOUD_BACKOFF_MOST_NS                                              \
	(XCP_CLOUD_BACKOFF_FIRST_NS << XCP_CLOUD_BACKOFF_TRIES)
/* A wait counts as at most 100 s. */
#define XCP_CLOUD_WAIT_MAX_NS (100 * XCP_NSEC_PER_SEC)

/* Bits of xcp_cloud.flags. */
enum xcp_cloud_flag {
	XCP_CLOUD_NOT_HELD_BACK = 1, /* for experiments: aside, lower nothing */
};

/* What is known of a cloud; the daemon that measures writes it. */
struct xcp_cloud {
	uint64_t last_probe_ns; /* when a probe last came, 0: none */
	uint64_t wait_ns; /* w */
	uint64_t free_Bps; /* A, 0: not known */
	uint64_t error_Bps; /* its standard error, for people */
	uint64_t free_ns; /* when a train last told it, for people */
	/* a probe that met no queue, by its sender's clock and by ours: for who
	 * measures after a restart, and else would take a queue for the path */
	uint64_t base_sent_ns;
	uint64_t base_received_ns;
	uint32_t routers; /* in it, that are not XCP */
	uint32_t flags; /* enum xcp_cloud_flag */
};

/* Whose queue it is. */
struct xcp_cloud_backoff {
	uint64_t start_ns; /* of the present d */
	uint64_t min_wait_ns; /* w, the least in it */
	uint64_t aside_ns; /* it is suspended until then */
	uint32_t full; /* times d with a queue, less those without */
	uint32_t tries; /* that have ended in standing aside */
};

/* Takes in w as it is at now_ns; d is the control interval. */
XCP_INLINE void xcp_cloud_backoff_update(struct xcp_cloud_backoff *c,
					 uint64_t wait_ns, uint64_t now_ns,
					 uint64_t d_ns)
{
	/* nothing came for long: it is another queue now */
	if (xcp_excess(now_ns, c->start_ns) / XCP_CLOUD_BACKOFF_FULL > d_ns) {
		c->full = 0;
		c->min_wait_ns = wait_ns;
	}
	c->min_wait_ns = xcp_min(c->min_wait_ns, wait_ns);
	if (xcp_excess(now_ns, c->start_ns) < d_ns)
		return;
	if (c->min_wait_ns > d_ns / 4 + XCP_CLOUD_FREE_NS)
		c->full++;
	else if (c->full)
		c->full--;
	c->start_ns = now_ns;
	c->min_wait_ns = wait_ns;
	if (xcp_excess(now_ns, c->aside_ns) > XCP_CLOUD_BACKOFF_MOST_NS)
		c->tries = 0;
	if (c->full <
	    (c->tries ? XCP_CLOUD_BACKOFF_AGAIN : XCP_CLOUD_BACKOFF_FULL))
		return;
	c->full = 0;
	c->aside_ns = now_ns + (XCP_CLOUD_BACKOFF_FIRST_NS << (c->tries & 7));
	c->tries += c->tries < XCP_CLOUD_BACKOFF_TRIES;
}

/* The delta that a packet of this size leaves with while it is suspended. */
XCP_INLINE int32_t xcp_cloud_backoff_delta(const struct xcp_cloud *c,
					   const struct xcp_forward *h,
					   uint64_t size_B)
{
	uint64_t window, reno_Bps, cubic_Bps;

	if (h->delta < 0 || c->flags & XCP_CLOUD_NOT_HELD_BACK)
		return h->delta;
	if (!h->rtt || !h->x)
		return 0;
	window = xcp_max(h->rtt / h->x, 1);
	reno_Bps = xcp_rate(size_B, xcp_ticks_to_ns(h->rtt)) / window;
	/* the root in 2^-8 */
	cubic_Bps = (size_B << 8) / (2 * xcp_cbrt(window << 24));
	return (int32_t)xcp_min((uint64_t)h->delta,
				xcp_max(reno_Bps, cubic_Bps));
}

/* Is it suspended? */
XCP_INLINE bool xcp_cloud_backoff_active(const struct xcp_cloud_backoff *c,
					 uint64_t now_ns)
{
	return now_ns < c->aside_ns;
}

/* e, of N = `flows` (2^-8); at least 1. */
XCP_INLINE uint64_t xcp_cloud_over(const struct xcp_cloud *c, uint32_t flows,
				   uint64_t d_ns)
{
	uint64_t most_B =
		XCP_CLOUD_OVER_B * xcp_max(flows, 1 << XCP_FLOW_BITS) >>
		XCP_FLOW_BITS;
	uint64_t d_us = xcp_max(xcp_min(d_ns, XCP_NS_MAX) / 1000, 1);
	uint64_t left_us =
		xcp_excess(d_us, 4 * (xcp_min(c->wait_ns, d_ns) / 1000));

	return xcp_max(xcp_rate(most_B * left_us / d_us, d_ns), 1);
}

/*
 * The most that L may exceed what came, while the cloud seems free: trains tell
 * how much more it carries. Others may be raising theirs too.
 */
XCP_INLINE uint64_t xcp_cloud_step(const struct xcp_cloud *c, uint64_t d_ns)
{
	return xcp_max(c->free_Bps, xcp_rate(XCP_CAPACITY_STEP_B, d_ns));
}

/* Is it known well enough to speak for its routers? */
XCP_INLINE bool xcp_cloud_known(const struct xcp_cloud *c, uint64_t now_ns,
				uint64_t d_ns)
{
	return c->last_probe_ns &&
	       xcp_excess(now_ns, c->last_probe_ns) <=
		       xcp_max(2 * d_ns, XCP_CLOUD_PATIENCE_NS);
}

/*
 * L at the beginning; and later the least, eight packets in a time d: an
 * interval in which hardly anything came says nothing, and L can grow from
 * there.
 */
XCP_INLINE uint64_t xcp_cloud_least(const struct xcp_cloud *c,
				    uint64_t link_Bps, uint64_t d_ns)
{
	if (link_Bps)
		return xcp_max(link_Bps, xcp_rate(XCP_CLOUD_LEAST_B, d_ns));
	return xcp_max(xcp_min(c->free_Bps, XCP_CAPACITY_MAX_BPS),
		       XCP_CLOUD_FIRST_BPS);
}

/* The backlog in it, where it carries link_Bps (below 2^44). */
XCP_INLINE uint64_t xcp_cloud_backlog(const struct xcp_cloud *c,
				      uint64_t link_Bps)
{
	uint64_t wait_us = xcp_min(c->wait_ns, XCP_CLOUD_WAIT_MAX_NS) / 1000;

	if (c->wait_ns <= XCP_CLOUD_FREE_NS)
		return 0;
	/* link_Bps wait_us is below 2^44 2^27: in two steps */
	return xcp_max((link_Bps >> 8) * wait_us / 1000000 << 8, 1);
}

#endif

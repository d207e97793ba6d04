/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * A cloud: a path section between two XCP routers that has no XCP routers.
 * Source: Lopez-Pacheco, Pham & Lefevre, XCP-i (2006).
 *
 * Where packets leave the cloud, in front of the XCP router there, a virtual
 * router handles the packets of one upstream router. It follows the same law as
 * other routers (core/xcp_router.h), and the cloud is its link: bytes that
 * arrive through the cloud count as dequeued, and the time that a probe waited
 * in the cloud gives the backlog.
 *
 *   came     bytes of those packets that have arrived          B
 *   w        how long the last probe waited in the cloud       ns
 *   L        what the cloud carries for those packets          B/s
 *   A        free bandwidth measured with trains of probes     B/s
 *   backlog  L w   where w > 2 ms, else 0                      B
 *
 * L is measured as for a link (core/xcp_capacity.h): it is the rate of `came`
 * if every probe waited, else it is raised. L starts at A, also after each
 * pause in the traffic. Where the L of a link would be doubled, this L grows in
 * steps of A, or of 20 KB / d if that is more; each step requires that the
 * cloud carried the last one. (The paper has F = alpha d A - beta Q, with A
 * measured for the cloud and Q of the link after it. If several paths find the
 * same bandwidth free, each takes all of it; and a wrong A stays wrong. Here it
 * is corrected a round trip later.)
 *
 * Virtual routers at other edges may share the cloud's bottleneck, but each
 * sees only its own packets. While the bottleneck is busy, each hands out, in
 * place of the e of a link,
 *   e = N 20 KB / d (1 - 4 w / d)       N: its flows, core/xcp_flows.h
 * The sum of these excesses forms a queue, w, that all of them see. Each
 * takes back beta L w / d for it. So L w / N becomes the same for all, and L /
 * N too, as in FAST TCP (Jin, Wei, Low 2004): each flow keeps only a few
 * packets in the queue.
 *
 * Other traffic than XCP may fill the cloud's queue, and then those cuts starve
 * XCP. The virtual routers' own queue is at most d / 4, and the queue of an
 * overload drains soon. So if
 *   w > d / 4 + 2 ms    in 12 more control intervals than not
 * the queue belongs to other traffic, and this virtual router is suspended, for
 * 10 s, 20 s and so on up to 160 s, longer each time that a retry fails (after
 * 4 intervals). 160 s without a failure reset this to 10 s. A suspended router
 * counts and grants nothing. But it limits what routers before the cloud have
 * granted from spare capacity of their links, so that no flow grows faster than
 * TCP, before the first losses and between losses. With Reno, a window of
 * W = RTT / X packets grows by one per RTT. With CUBIC it grows in a second by
 * 1.2 K^2 = W^(2/3) right after a cut (K = cbrt(0.3 W / 0.4)) and by a third of
 * that on average; half of it is right for low loss. Spread over W packets:
 *   delta <= size max(1 / (W RTT), 1 / (2 s cbrt(W)))
 *
 * The daemon that measures may exit at any time. Then no more probes arrive,
 * and after max(2 d, 50 ms) the virtual router is suspended too. It does not
 * change packets then, so the cloud's routers count as routers without XCP, and
 * senders treat the path as only partly XCP: they answer losses as CUBIC does.
 */
#ifndef XCP_CLOUD_H
#define XCP_CLOUD_H

#include "xcp_capacity.h"
#include "xcp_cubic.h"
#include "xcp_flows.h"
#include "xcp_packet.h"
#include "xcp_router.h"

/* Shorter waits are one or two full packets: at 10 Mb/s, one takes 1.2 ms. */
#define XCP_CLOUD_FREE_NS 2000000ULL
/* A few probes at the lowest probe rate, one in 16 ms. */
#define XCP_CLOUD_PATIENCE_NS 50000000ULL
/* Excess bytes of a flow per RTT; it has 1.5 times that in the queue. */
#define XCP_CLOUD_OVER_B XCP_CAPACITY_STEP_B
/* Eight packets per control interval: the least L, from which L can grow. */
#define XCP_CLOUD_LEAST_B 12000
/* 20 packets in an initial interval, if no free bandwidth was measured. */
#define XCP_CLOUD_FIRST_BPS 150000
/* The queue of a 100 % overload drains within 6 to 8 control intervals. */
#define XCP_CLOUD_BACKOFF_FULL 12
/* The same after a suspension: the queue was other traffic's before. */
#define XCP_CLOUD_BACKOFF_AGAIN 4
#define XCP_CLOUD_BACKOFF_FIRST_NS (10 * XCP_NSEC_PER_SEC)
#define XCP_CLOUD_BACKOFF_TRIES 4
#define XCP_CLOUD_BACKOFF_MOST_NS                                              \
	(XCP_CLOUD_BACKOFF_FIRST_NS << XCP_CLOUD_BACKOFF_TRIES)
/* A wait counts as at most 100 s. */
#define XCP_CLOUD_WAIT_MAX_NS (100 * XCP_NSEC_PER_SEC)

/* Bits of xcp_cloud.flags. */
enum xcp_cloud_flag {
	/* for experiments: do not limit deltas while suspended */
	XCP_CLOUD_NO_DELTA_LIMIT = 1,
};

/* Measurements of a cloud, written by the measuring daemon. */
struct xcp_cloud {
	uint64_t last_probe_ns; /* when the last probe arrived, 0: none */
	uint64_t wait_ns; /* w */
	uint64_t free_Bps; /* A, 0: not known */
	uint64_t error_Bps; /* standard error of A, only for display */
	uint64_t free_ns; /* when A was last measured, only for display */
	/* when a probe that met no queue was sent, by its sender's clock: a
	 * restarted daemon would otherwise take a queue for path delay */
	uint64_t base_sent_ns;
	uint64_t base_received_ns; /* when it arrived, by the local clock */
	uint32_t routers; /* routers in the cloud, none of them XCP */
	uint32_t flags; /* enum xcp_cloud_flag */
};

/* Decides whether the queue in the cloud belongs to other traffic. */
struct xcp_cloud_backoff {
	uint64_t start_ns; /* start of the present interval d */
	uint64_t min_wait_ns; /* least w in the present interval d */
	uint64_t suspended_until_ns; /* the virtual router is suspended until
					then */
	uint32_t full; /* intervals with a queue, minus those without */
	uint32_t tries; /* tries that have ended in a suspension */
};

/* Updates with w at now_ns; d is the control interval. */
XCP_INLINE void xcp_cloud_backoff_update(struct xcp_cloud_backoff *c,
					 uint64_t wait_ns, uint64_t now_ns,
					 uint64_t d_ns)
{
	/* a long time without packets: it is another queue now */
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
	if (xcp_excess(now_ns, c->suspended_until_ns) >
	    XCP_CLOUD_BACKOFF_MOST_NS)
		c->tries = 0;
	if (c->full <
	    (c->tries ? XCP_CLOUD_BACKOFF_AGAIN : XCP_CLOUD_BACKOFF_FULL))
		return;
	c->full = 0;
	c->suspended_until_ns =
		now_ns + (XCP_CLOUD_BACKOFF_FIRST_NS << (c->tries & 7));
	c->tries += c->tries < XCP_CLOUD_BACKOFF_TRIES;
}

/* The delta of a departing packet of this size during a suspension. */
XCP_INLINE int32_t xcp_cloud_backoff_delta(const struct xcp_cloud *c,
					   const struct xcp_forward *h,
					   uint64_t size_B)
{
	uint64_t window, reno_Bps, cubic_Bps;

	if (h->delta < 0 || c->flags & XCP_CLOUD_NO_DELTA_LIMIT)
		return h->delta;
	if (!h->rtt || !h->x)
		return 0;
	window = xcp_max(h->rtt / h->x, 1);
	reno_Bps = xcp_rate(size_B, xcp_ticks_to_ns(h->rtt)) / window;
	/* the root is in units of 2^-8 */
	cubic_Bps = (size_B << 8) / (2 * xcp_cbrt(window << 24));
	return (int32_t)xcp_min((uint64_t)h->delta,
				xcp_max(reno_Bps, cubic_Bps));
}

/* Whether the virtual router is suspended. */
XCP_INLINE bool xcp_cloud_backoff_active(const struct xcp_cloud_backoff *c,
					 uint64_t now_ns)
{
	return now_ns < c->suspended_until_ns;
}

/* Returns e for N = `flows` (2^-8); at least 1. */
XCP_INLINE uint64_t xcp_cloud_excess(const struct xcp_cloud *c, uint32_t flows,
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
 * By how much L may exceed the rate of `came` while the cloud seems free.
 * Trains measure how much more it carries; other virtual routers may raise L
 * too.
 */
XCP_INLINE uint64_t xcp_cloud_step(const struct xcp_cloud *c, uint64_t d_ns)
{
	return xcp_max(c->free_Bps, xcp_rate(XCP_CAPACITY_STEP_B, d_ns));
}

/* Whether probes are recent enough to act for the cloud's routers. */
XCP_INLINE bool xcp_cloud_known(const struct xcp_cloud *c, uint64_t now_ns,
				uint64_t d_ns)
{
	return c->last_probe_ns &&
	       xcp_excess(now_ns, c->last_probe_ns) <=
		       xcp_max(2 * d_ns, XCP_CLOUD_PATIENCE_NS);
}

/*
 * The initial L; later its lower bound, eight packets per control interval. An
 * interval with hardly any packets is no measurement of L, and L can grow from
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

/* The backlog in a cloud that carries link_Bps (below 2^44). */
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

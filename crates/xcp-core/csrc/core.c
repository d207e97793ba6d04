/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * core/ with C linkage: each function calls the inline one of its name.
 * Besides those, a loop over many packets, for measuring what one costs without
 * the call.
 */
#include <stddef.h>

#include "xcp_cloud.h"
#include "xcp_receiver.h"
#include "xcp_router.h"
#include "xcp_loss.h"
#include "xcp_service.h"
#include "xcp_shaper.h"
#include "xcp_wire.h"

/* A forward XCP packet, as the loop below takes it. */
struct packet {
	uint64_t size_B;
	uint64_t x;
	uint64_t rtt;
	uint32_t n;
	int32_t delta;
	int32_t granted; /* result */
	uint32_t unused;
};

/* For the Rust mirror's tests: size, and offset of the last field. */
struct layout {
	size_t size;
	size_t last;
};

#define LAYOUT(type, field) {sizeof(struct type), offsetof(struct type, field)}

extern const struct layout xcp_core_layout[25];
const struct layout xcp_core_layout[25] = {
	LAYOUT(xcp_num, e),
	LAYOUT(xcp_share, shift),
	LAYOUT(xcp_router_params, max_rtt),
	LAYOUT(xcp_router_sums, granted_Bps),
	LAYOUT(xcp_router_law, carry_max),
	LAYOUT(xcp_router_pool, unused),
	LAYOUT(xcp_capacity, unused),
	LAYOUT(xcp_capacity_interval, free_sent_B),
	LAYOUT(xcp_sharing_interval, share),
	LAYOUT(xcp_sampler, busy),
	LAYOUT(xcp_sharing, unused),
	LAYOUT(xcp_flows, unused),
	LAYOUT(xcp_router_state, intervals),
	LAYOUT(xcp_receiver, totals),
	LAYOUT(xcp_sender, ends),
	LAYOUT(xcp_cubic, rounds),
	LAYOUT(xcp_loss, state),
	LAYOUT(xcp_shaper, last_B),
	LAYOUT(xcp_forward, xcp_hops),
	LAYOUT(xcp_return, version),
	LAYOUT(packet, unused),
	LAYOUT(xcp_2005, cwnd),
	LAYOUT(xcp_header, length),
	LAYOUT(xcp_cloud, flags),
	LAYOUT(xcp_crowd, tries),
};

/* Declares and opens a function that other languages call. */
#define EXPORT(type, name, ...)                                                \
	type xcp_core_##name(__VA_ARGS__);                                     \
	type xcp_core_##name(__VA_ARGS__)

/* Times */

EXPORT(uint64_t, ns_to_ticks, uint64_t ns)
{
	return xcp_ns_to_ticks(ns);
}

EXPORT(uint64_t, ticks_to_ns, uint64_t ticks)
{
	return xcp_ticks_to_ns(ticks);
}

EXPORT(uint32_t, bits, uint64_t v)
{
	return xcp_bits(v);
}

/* Router */

EXPORT(void, router_init, struct xcp_router_state *s,
       const struct xcp_router_params *params, struct xcp_router_law *law,
       uint64_t now_ns)
{
	xcp_router_init(s, params, law, now_ns);
}

EXPORT(bool, router_interval_due, const struct xcp_router_state *s,
       uint64_t now_ns)
{
	return xcp_router_interval_due(s, now_ns);
}

EXPORT(bool, router_too_long, struct xcp_router_state *s,
       const struct xcp_router_sums *sums, uint64_t now_ns)
{
	return xcp_router_check_due(s, now_ns) &&
	       xcp_router_too_long(s, sums, now_ns);
}

EXPORT(bool, router_queue_due, const struct xcp_router_state *s,
       uint64_t now_ns)
{
	return xcp_router_queue_due(s, now_ns);
}

EXPORT(void, router_arrival, struct xcp_router_sums *s, uint64_t bytes)
{
	xcp_router_arrival(s, bytes);
}

EXPORT(void, router_arrival_xcp, struct xcp_router_sums *s,
       const struct xcp_router_law *law, uint32_t n, uint64_t size_B,
       uint64_t x, uint64_t rtt)
{
	struct xcp_claim c = xcp_router_claim(law, size_B, x, rtt);

	xcp_router_arrival_xcp(s, n, &c);
}

EXPORT(int32_t, router_departure, const struct xcp_router_law *law,
       struct xcp_router_pool *pool, struct xcp_router_sums *sums, uint32_t n,
       uint64_t size_B, uint64_t x, uint64_t rtt, int32_t delta)
{
	struct xcp_claim c = xcp_router_claim(law, size_B, x, rtt);

	delta = xcp_router_departure(law, pool, n, &c, delta);
	xcp_router_granted(law, sums, n, &c, delta);
	return delta;
}

EXPORT(void, capacity_look, struct xcp_capacity_interval *i, uint64_t now_ns,
       uint64_t sent_B, uint64_t backlog_B)
{
	xcp_link_look(i, now_ns, sent_B, backlog_B);
}

EXPORT(bool, router_link_changed, const struct xcp_router_state *s,
       const struct xcp_capacity_interval *seen)
{
	return xcp_capacity_changed(&s->capacity, seen, s->interval_ns);
}

EXPORT(void, router_hint, struct xcp_router_state *s, uint64_t before_Bps,
       uint64_t hint_Bps)
{
	xcp_capacity_hint(&s->capacity, before_Bps, hint_Bps);
}

EXPORT(uint32_t, flows_gamma, const struct xcp_flows *f, bool published)
{
	return xcp_flows_gamma(f, published);
}

EXPORT(void, router_capacity, struct xcp_router_state *s,
       const struct xcp_router_params *params,
       const struct xcp_router_sums *sums, uint64_t now_ns,
       const struct xcp_capacity_interval *seen,
       const struct xcp_sharing_interval *other)
{
	xcp_router_capacity(s, params, sums, now_ns, seen, other);
}

EXPORT(bool, router_interval_end, struct xcp_router_state *s,
       const struct xcp_router_params *params,
       const struct xcp_router_sums *sums, uint64_t now_ns,
       struct xcp_router_law *law)
{
	return xcp_router_interval_end(s, params, sums, now_ns, law);
}

EXPORT(void, router_pool_fill, struct xcp_router_pool *pool, uint64_t pos,
       uint64_t neg, uint32_t shift)
{
	xcp_router_pool_fill(pool, pos, neg, shift);
}

EXPORT(uint64_t, router_split, uint64_t pool, uint64_t part, uint64_t total)
{
	return xcp_router_split(pool, part, total);
}

EXPORT(void, router_backlog, struct xcp_router_state *s, uint64_t backlog_B)
{
	xcp_router_backlog(s, backlog_B);
}

EXPORT(void, router_queue_end, struct xcp_router_state *s,
       const struct xcp_router_params *params, uint64_t backlog_B,
       uint64_t now_ns)
{
	xcp_router_queue_end(s, params, backlog_B, now_ns);
}

EXPORT(bool, sampler_due, uint64_t *left_B, uint64_t bytes, uint64_t every_B)
{
	return xcp_sampler_due(left_B, bytes, every_B);
}

EXPORT(void, sampler_add, struct xcp_sampler *s, uint32_t hash, uint64_t now_ns)
{
	xcp_sampler_add(s, hash, now_ns);
}

EXPORT(uint32_t, sampler_flows, const struct xcp_sampler *s, uint64_t now_ns)
{
	return xcp_sampler_flows(s, now_ns);
}

EXPORT(void, router_batch, const struct xcp_router_law *law,
       struct xcp_router_pool *pool, struct xcp_router_sums *sums,
       struct packet *packets, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct packet *p = &packets[i];
		struct xcp_claim c =
			xcp_router_claim(law, p->size_B, p->x, p->rtt);

		xcp_router_arrival(sums, p->size_B * p->n);
		if (c.rtt)
			xcp_router_arrival_xcp(sums, p->n, &c);
		p->granted =
			xcp_router_departure(law, pool, p->n, &c, p->delta);
		xcp_router_granted(law, sums, p->n, &c, p->granted);
	}
}

/* Cloud */

EXPORT(bool, cloud_known, const struct xcp_cloud *c, uint64_t now_ns,
       uint64_t d_ns)
{
	return xcp_cloud_known(c, now_ns, d_ns);
}

EXPORT(uint64_t, cloud_least, const struct xcp_cloud *c, uint64_t link_Bps,
       uint64_t d_ns)
{
	return xcp_cloud_least(c, link_Bps, d_ns);
}

EXPORT(int32_t, crowd_delta, const struct xcp_cloud *c, int32_t delta,
       uint32_t rtt, uint32_t x, uint64_t size_B)
{
	struct xcp_forward h = {.rtt = rtt, .x = x, .delta = delta};

	return xcp_crowd_delta(c, &h, size_B);
}

EXPORT(uint64_t, cloud_step, const struct xcp_cloud *c, uint64_t d_ns)
{
	return xcp_cloud_step(c, d_ns);
}

EXPORT(uint64_t, cloud_over, const struct xcp_cloud *c, uint32_t flows,
       uint64_t d_ns)
{
	return xcp_cloud_over(c, flows, d_ns);
}

EXPORT(void, crowd_look, struct xcp_crowd *c, uint64_t wait_ns, uint64_t now_ns,
       uint64_t d_ns)
{
	xcp_crowd_look(c, wait_ns, now_ns, d_ns);
}

EXPORT(bool, crowd_aside, const struct xcp_crowd *c, uint64_t now_ns)
{
	return xcp_crowd_aside(c, now_ns);
}

EXPORT(uint64_t, cloud_backlog, const struct xcp_cloud *c, uint64_t link_Bps)
{
	return xcp_cloud_backlog(c, link_Bps);
}

/* Wire */

EXPORT(uint32_t, option_at_32, const uint8_t *tcp, uint32_t header_len)
{
	return xcp_option_at_32(tcp, header_len);
}

EXPORT(uint32_t, option_find, const uint8_t *tcp, uint32_t header_len,
       const uint8_t *data_end, uint32_t *offset)
{
	return xcp_option_find(tcp, header_len, data_end, offset);
}

EXPORT(void, build_handshake, uint8_t *o)
{
	xcp_build_handshake(o);
}

EXPORT(void, build_return, uint8_t *o, const struct xcp_return *r)
{
	xcp_build_return(o, r);
}

EXPORT(void, build_forward, uint8_t *o, const struct xcp_forward *f)
{
	xcp_build_forward(o, f);
}

EXPORT(void, build_both, uint8_t *o, const struct xcp_forward *f,
       const struct xcp_return *r)
{
	xcp_build_both(o, f, r);
}

EXPORT(void, parse_forward, const uint8_t *o, struct xcp_forward *f)
{
	*f = xcp_parse_forward(o);
}

EXPORT(void, parse_return, const uint8_t *o, uint32_t kind,
       struct xcp_return *r)
{
	*r = xcp_parse_return(o, (enum xcp_kind)kind);
}

EXPORT(uint16_t, mend_checksum, uint16_t check, uint32_t sum)
{
	return xcp_mend_checksum(check, sum);
}

EXPORT(uint32_t, edit_forward, uint8_t *o, uint32_t offset, int32_t delta,
       uint8_t ip_ttl)
{
	return xcp_edit_forward(o, offset, delta, ip_ttl);
}

EXPORT(uint32_t, edit_forward_cloud, uint8_t *o, uint32_t offset, int32_t delta,
       uint8_t ip_ttl, uint8_t routers)
{
	return xcp_edit_forward_cloud(o, offset, delta, ip_ttl, routers);
}

EXPORT(uint32_t, edit_last_router, uint8_t *o, uint32_t offset, uint32_t router)
{
	return xcp_edit_last_router(o, offset, router);
}

/* The format option-2005 */

EXPORT(int64_t, 2005_value, uint16_t feedback)
{
	return xcp_2005_value(feedback);
}

EXPORT(uint16_t, 2005_code, int64_t value, bool whole)
{
	return xcp_2005_code(value, whole);
}

EXPORT(int64_t, 2005_of_Bps, int64_t rate_Bps, uint32_t rtt_ms, uint32_t size_B)
{
	return xcp_2005_of_Bps(rate_Bps, rtt_ms, size_B);
}

EXPORT(void, 2005_forward, const struct xcp_2005 *h, uint32_t size_B,
       struct xcp_forward *f)
{
	*f = xcp_2005_forward(h, size_B);
}

EXPORT(uint16_t, 2005_grant, const struct xcp_2005 *h, uint32_t size_B,
       uint32_t n, int32_t *granted, int64_t *carry, bool whole)
{
	return xcp_2005_grant(h, size_B, n, granted, carry, whole);
}

EXPORT(void, 2005_ask, const struct xcp_sender *s, uint32_t size_B,
       int64_t *rest, bool whole, struct xcp_2005 *h)
{
	*h = xcp_2005_ask(s, size_B, rest, whole);
}

EXPORT(void, 2005_feedback, struct xcp_sender *s, int64_t value)
{
	xcp_2005_feedback(s, value);
}

/* The formats header and header-2004 */

EXPORT(uint32_t, header_read, const uint8_t *h, struct xcp_header *head)
{
	return xcp_header_read(h, head);
}

EXPORT(void, header_forward, const uint8_t *h, uint8_t version, uint32_t size_B,
       struct xcp_forward *f)
{
	*f = xcp_header_forward(h, version, size_B);
}

EXPORT(uint32_t, header_last_router, const uint8_t *h, uint8_t length)
{
	return xcp_header_last_router(h, length);
}

EXPORT(uint32_t, router_id, const uint8_t *address)
{
	return xcp_router_id(address);
}

EXPORT(int32_t, header_feedback, const uint8_t *h, uint8_t version)
{
	return xcp_header_feedback(h, version);
}

EXPORT(void, build_header, uint8_t *h, uint8_t version, uint8_t protocol,
       const struct xcp_forward *f, int32_t feedback, uint32_t size_B)
{
	xcp_build_header(h, version, protocol, f, feedback, size_B);
}

EXPORT(void, build_header_return, uint8_t *h, uint8_t version, uint8_t protocol,
       int32_t feedback, uint8_t way)
{
	xcp_build_header_return(h, version, protocol, feedback, way);
}

EXPORT(uint8_t, header_way, uint8_t xcp_ttl, uint8_t ip_ttl)
{
	return xcp_header_way(xcp_ttl, ip_ttl);
}

EXPORT(int32_t, header_hops, uint8_t way, uint8_t ttl)
{
	return xcp_header_hops(way, ttl);
}

/* Receiver */

EXPORT(void, receiver_add, struct xcp_receiver *r, int32_t delta, uint32_t n)
{
	xcp_receiver_add(r, delta, n);
}

EXPORT(int32_t, receiver_take, struct xcp_receiver *r, uint32_t n)
{
	return xcp_receiver_take(r, n);
}

EXPORT(int64_t, receiver_total, struct xcp_receiver *r)
{
	return xcp_receiver_total(r);
}

EXPORT(int64_t, total_change, uint32_t *seen, int32_t total)
{
	return xcp_total_change(seen, total);
}

EXPORT(void, receiver_add_2005, struct xcp_receiver *r, uint16_t feedback,
       uint32_t n)
{
	xcp_receiver_add_2005(r, feedback, n);
}

EXPORT(uint16_t, receiver_take_2005, struct xcp_receiver *r, uint32_t n)
{
	return xcp_receiver_take_2005(r, n);
}

/* Sender */

EXPORT(void, sender_update, struct xcp_sender *s)
{
	xcp_sender_update(s);
}

EXPORT(uint64_t, sender_next_x, struct xcp_sender *s)
{
	return xcp_sender_next_x(s);
}

EXPORT(void, sender_rtt, struct xcp_sender *s, uint64_t sample, bool alone)
{
	xcp_sender_rtt(s, sample, alone);
}

EXPORT(uint64_t, sender_rtt_told, const struct xcp_sender *s)
{
	return xcp_sender_rtt_told(s);
}

EXPORT(void, sender_feedback, struct xcp_sender *s, int64_t fb_Bps)
{
	xcp_sender_feedback(s, fb_Bps);
}

EXPORT(void, sender_reset, struct xcp_sender *s, uint64_t packets)
{
	xcp_sender_reset(s, packets);
}

EXPORT(void, sender_restart, struct xcp_sender *s, uint64_t idle_us)
{
	xcp_sender_restart(s, idle_us);
}

EXPORT(void, sender_age, struct xcp_sender *s, uint64_t used_B, bool starved)
{
	xcp_sender_age(s, used_B, starved);
}

EXPORT(uint64_t, sender_packets, const struct xcp_sender *s)
{
	return xcp_sender_packets(s);
}

/* Losses */

EXPORT(uint64_t, cbrt, uint64_t v)
{
	return xcp_cbrt(v);
}

EXPORT(uint64_t, cubic_cut, struct xcp_cubic *c, uint64_t cwnd_B)
{
	return xcp_cubic_cut(c, cwnd_B);
}

EXPORT(void, cubic_round, struct xcp_cubic *c, uint64_t elapsed_us)
{
	xcp_cubic_round(c, elapsed_us);
}

EXPORT(uint64_t, cubic_window, const struct xcp_cubic *c, uint64_t wire_B,
       uint64_t rtt_us)
{
	return xcp_cubic_window(c, wire_B, rtt_us);
}

EXPORT(bool, loss_trusts, const struct xcp_loss *l)
{
	return xcp_loss_trusts(l);
}

EXPORT(bool, loss_is_tcp, const struct xcp_loss *l)
{
	return xcp_loss_is_tcp(l);
}

EXPORT(uint64_t, loss_limit, const struct xcp_loss *l, uint64_t limit_B)
{
	return xcp_loss_limit(l, limit_B);
}

EXPORT(void, loss_on_rtt, struct xcp_loss *l, uint64_t sample)
{
	xcp_loss_on_rtt(l, sample);
}

EXPORT(void, loss_on_feedback, struct xcp_loss *l, struct xcp_sender *s,
       uint64_t before_B)
{
	xcp_loss_on_feedback(l, s, before_B);
}

EXPORT(void, loss_on_recovery, struct xcp_loss *l, struct xcp_sender *s,
       bool other_hops)
{
	xcp_loss_on_recovery(l, s, other_hops);
}

EXPORT(void, loss_on_mark, struct xcp_loss *l, struct xcp_sender *s)
{
	xcp_loss_on_mark(l, s);
}

EXPORT(void, loss_on_timeout, struct xcp_loss *l, struct xcp_sender *s)
{
	xcp_loss_on_timeout(l, s);
}

EXPORT(void, loss_on_round, struct xcp_loss *l, struct xcp_sender *s,
       uint64_t elapsed_us, uint32_t lost, uint32_t arrived)
{
	xcp_loss_on_round(l, s, elapsed_us, lost, arrived);
}

/* Queues */

EXPORT(bool, service_a_next, int64_t owed, bool a_has, bool b_has)
{
	return xcp_service_a_next(owed, a_has, b_has);
}

EXPORT(int64_t, service_sent, int64_t owed, uint32_t weight, bool a,
       bool other_has, uint64_t bytes)
{
	return xcp_service_sent(owed, weight, a, other_has, bytes);
}

EXPORT(uint64_t, shaper_time, uint64_t rate_Bps, uint64_t bytes)
{
	return xcp_shaper_time(rate_Bps, bytes);
}

EXPORT(void, shaper_take, struct xcp_shaper *s, uint64_t *free_ns,
       uint64_t now_ns, uint64_t pay_ns, bool waited)
{
	xcp_shaper_take(s, free_ns, now_ns, pay_ns, waited);
}

EXPORT(void, shaper_begin, struct xcp_shaper *s, uint64_t *free_ns,
       uint64_t rate_Bps, uint64_t bytes)
{
	xcp_shaper_begin(s, free_ns, rate_Bps, bytes);
}

EXPORT(uint64_t, shaper_next_look, struct xcp_shaper *s, uint64_t *free_ns,
       uint64_t now_ns, uint64_t rate_Bps)
{
	return xcp_shaper_next_look(s, free_ns, now_ns, rate_Bps);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Functions that the programs of a host share: counters, the wire format of
 * each peer, and the forward and return headers of a socket.
 */
#ifndef XCP_BPF_HOST_H
#define XCP_BPF_HOST_H

#include "kernel.h"
#include "maps_host.h"
#include "../core/xcp_wire.h"

struct tcp_congestion_ops___name {
	char name[TCP_CA_NAME_MAX];
} XCP_KERNEL;

static __always_inline struct xcp_host_counters *count(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counters, &key);
}

#define COUNT(field, n)                                                        \
	do {                                                                   \
		struct xcp_host_counters *_c = count();                        \
		if (_c)                                                        \
			_c->field += (n);                                      \
	} while (0)

static __always_inline bool feature_enabled(enum xcp_sender_feature feature)
{
	return !(config.without & feature);
}

#define PEER_BITS(part) (8 * (sizeof(part)))

/* The wire format for a peer; -1 if none is configured. */
static __always_inline int wire_of(__u64 netns, const struct xcp_address *peer)
{
	struct xcp_peer_key key = {};
	__u8 *wire;

	key.prefix_len = PEER_BITS(key.netns) + PEER_BITS(key.address);
	key.netns[0] = (__u32)(netns >> 32);
	key.netns[1] = (__u32)netns;
	key.address = *peer;
	wire = bpf_map_lookup_elem(&peers, &key);
	return wire ? *wire : -1;
}

static __always_inline bool is_xcp(const char *name)
{
	return name[0] == 'x' && name[1] == 'c' && name[2] == 'p' && !name[3];
}

/* The network namespace's default congestion control; cubic if it is xcp. */
static __always_inline void default_name(struct sock *sk,
					 char name[TCP_CA_NAME_MAX])
{
	struct tcp_congestion_ops___name *ops;

	ops = (void *)BPF_CORE_READ(sk, __sk_common.skc_net.net,
				    ipv4.tcp_congestion_control);
	if (bpf_core_read_str(name, TCP_CA_NAME_MAX, &ops->name) < 0 ||
	    !name[0] || is_xcp(name))
		__builtin_memcpy(name, "cubic", 6);
}

/* Do a connection's other options leave no room for a header? */
static __always_inline bool has_no_room(const struct xcp_socket *s)
{
	return s->crowded >= XCP_CROWDED_SEGMENTS_MAX;
}

/*
 * Does xcp set the window? If not, the connection must make no claims, because
 * it does not do what routers answer.
 */
static __always_inline bool is_controlled(const struct xcp_socket *s)
{
	return !s->fell_back && !s->released;
}

/*
 * Does the next data segment have a forward header? Without xcp, only one per
 * RTT has, without a request, to find a router.
 */
static __always_inline bool needs_forward_header(struct xcp_socket *s,
						 __u64 rtt_us)
{
	__u64 now_us;

	if (is_controlled(s))
		return true;
	now_us = bpf_ktime_get_ns() / 1000;
	if (now_us - s->probed_us < rtt_us)
		return false;
	s->probed_us = now_us;
	return true;
}

/* The forward header of a data segment. */
static __always_inline struct xcp_forward forward_of(struct xcp_socket *s)
{
	struct xcp_forward f = {};

	f.xcp_ttl = s->ttl;
	if (is_controlled(s)) {
		f.rtt = xcp_saturate32(xcp_sender_header_rtt(&s->sender));
		f.x = xcp_saturate32(xcp_sender_next_x(&s->sender));
		f.delta = s->sender.request_Bps;
	}
	return f;
}

/*
 * The return header of a packet that will be copied n times. Arriving headers
 * may add to the sum at the same time, so what is returned is subtracted
 * atomically.
 */
static __always_inline struct xcp_return return_of(struct xcp_socket *s,
						   __u32 n)
{
	struct xcp_receiver now = s->receiver;
	struct xcp_return r = {};
	__s64 taken;

	if (now.totals) {
		taken = xcp_receiver_total(&now);
		s->receiver.total = now.total;
		r.feedback = (__s32)now.total;
		r.version = XCP_RETURN_TOTAL;
	} else {
		r.feedback = xcp_receiver_take(&now, n);
		taken = (__s64)r.feedback * n;
		r.version = XCP_RETURN_CHANGE;
	}
	__sync_fetch_and_add(&s->receiver.pending, -taken);
	r.xcp_hops = s->receiver.xcp_hops;
	r.other_hops = s->receiver.other_hops;
	COUNT(sums.returned, taken);
	COUNT(return_sent, n);
	return r;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* The wire formats `header` and `header-2004` on a host: core/xcp_header.h. */
#ifndef XCP_BPF_FMT_HEADER_H
#define XCP_BPF_FMT_HEADER_H

#include "host.h"
#include "sock_ops.h"

static __always_inline bool is_header(__u8 wire)
{
	return wire == XCP_WIRE_HEADER || wire == XCP_WIRE_HEADER_2004;
}

static __always_inline __u8 version_of(__u8 wire)
{
	return wire == XCP_WIRE_HEADER_2004 ? XCP_HEADER_2004 : XCP_HEADER_2007;
}

static __always_inline __u8 wire_of_version(__u8 version)
{
	return version == XCP_HEADER_2004 ? XCP_WIRE_HEADER_2004
					  : XCP_WIRE_HEADER;
}

/* The length of a header of this kind; data has room for last_xcp_router. */
static __always_inline __u32 fmt_header_len(__u8 wire, enum xcp_kind kind)
{
	return kind == XCP_RETURN ? XCP_HEADER_LEN
				  : xcp_header_data_len(version_of(wire));
}

/*
 * Builds the header of a packet that a socket sends: a standard one on data and
 * in the handshake, else a minimal one.
 */
static __always_inline void fmt_header_write(struct xcp_socket *s, __u8 *header,
					     bool data, __u32 length)
{
	__u8 version = version_of(s->wire);
	struct xcp_forward f = {};
	struct xcp_return r = {};

	f.xcp_ttl = s->ttl;
	if (s->uses_xcp) {
		r = return_of(s, 1);
		if (data)
			f = forward_of(s);
	}
	if (s->uses_xcp && !data) {
		xcp_build_header_return(header, version, IPPROTO_TCP,
					r.feedback, s->hop_report);
	} else {
		xcp_build_header(header, version, IPPROTO_TCP, &f, r.feedback,
				 s->sender.wire_B);
		xcp_header_lengthen(header, version, length);
		COUNT(forward_sent, 1);
	}
}

/*
 * Processes a received header of this version, on a packet that arrived with
 * this TTL. The socket is not locked, so sums are changed atomically.
 */
static __always_inline void fmt_header_parse(struct xcp_socket *s,
					     const __u8 *header, __u8 version,
					     enum xcp_kind kind, __u8 ttl)
{
	__s32 feedback = xcp_header_feedback(header, version);
	struct xcp_forward f;
	__s32 hops;

	s->silent_acks = 0;
	if (kind == XCP_BOTH) {
		f = xcp_header_forward(header, version, 0);
		__sync_fetch_and_add(&s->receiver.pending, f.delta);
		s->hop_report = xcp_header_hop_report(f.xcp_ttl, ttl);
		COUNT(sums.received, f.delta);
		COUNT(forward_received, 1);
	} else {
		hops = xcp_header_hops(header[XCP_HEADER_TTL], s->ttl);
		if (hops >= 0) {
			s->xcp_hops = (__u8)hops;
			s->other_hops = header[XCP_HEADER_TTL] & 15;
		}
	}
	__sync_fetch_and_add(&s->feedback, feedback);
	COUNT(sums.feedback, feedback);
	COUNT(return_received, 1);
}

/*
 * The wire format that a handshake agreed on by headers, -1 for none. For a
 * listener, a packet after the SYN must have had a header, too.
 */
static __noinline int fmt_header_agreed(struct bpf_sock_ops *skops,
					bool passive)
{
	struct xcp_flow_key names = flow_key(skops);
	struct xcp_cached_handshake *h =
		bpf_map_lookup_elem(&handshake_cache, &names);
	struct xcp_cached_handshake known;

	if (!h)
		return -1;
	known = *h;
	bpf_map_delete_elem(&handshake_cache, &names);
	return passive && !known.acked ? -1 : known.wire;
}

#endif

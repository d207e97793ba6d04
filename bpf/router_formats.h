/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * How a router handles the forward part of each wire format: it finds it at its
 * usual place, grants a delta and writes it.
 */
#ifndef XCP_BPF_ROUTER_FORMATS_H
#define XCP_BPF_ROUTER_FORMATS_H

#include "grant.h"
#include "maps_router.h"
#include "../core/xcp_wire.h"

/* The length of an option's forward part, 0 if it has none. */
static __always_inline __u32 forward_option_len(enum xcp_kind kind)
{
	switch (kind) {
	case XCP_FORWARD_2005:
		return XCP_2005_FORWARD_LEN;
	case XCP_FORWARD:
	case XCP_BOTH:
		return XCP_OPT_FORWARD_LEN;
	default:
		return 0;
	}
}

/* The option at byte 32 of a TCP header, which is readable up to `end`. */
static __always_inline enum xcp_kind
forward_option_at_32(const __u8 *tcp, const __u8 *end, __u32 header)
{
	enum xcp_kind kind = XCP_NONE;

	if (tcp + 32 + XCP_OPT_BOTH_LEN <= end)
		kind = xcp_option_at_32(tcp, header);
	if (kind == XCP_NONE && tcp + 32 + XCP_2005_FORWARD_LEN <= end &&
	    xcp_2005_at_32(tcp, header))
		kind = XCP_FORWARD_2005;
	return kind;
}

/* Grants the request of a forward option; returns the new H_feedback. */
__noinline int grant_2005(struct xcp_router_cpu *cpu, struct xcp_2005 *h,
			  struct gso_burst *s)
{
	struct xcp_forward f;
	__s32 granted, before;
	__u16 feedback;

	if (!cpu || !h || !s)
		return 0;
	f = xcp_2005_forward(h, length_of(s));
	before = grant(cpu, &f, s);
	granted = before;
	feedback = xcp_2005_grant(h, length_of(s), s->n, &granted,
				  &cpu->carry_2005, config.whole_feedback);
	cpu->counters.granted_Bps += ((__s64)granted - before) * s->n;
	cpu->sums.granted_Bps += ((__s64)granted - before) * s->n;
	return feedback;
}

/*
 * Grants the request of an option at `offset` of a TCP header. Returns the
 * change of the checksum, and sets `rtt` to the option's RTT. `fast` inlines
 * the grant, which takes more stack.
 */
static __always_inline __u32 edit_option(struct xcp_router_cpu *cpu,
					 struct gso_burst *s,
					 enum xcp_kind kind, __u8 *option,
					 __u32 offset, __u8 ttl, __u32 *rtt,
					 bool fast)
{
	struct xcp_forward h;
	struct xcp_2005 h2005;
	__u32 sum;

	if (kind == XCP_FORWARD_2005) {
		h2005 = xcp_2005_parse(option);
		*rtt = h2005.rtt_ms;
		return xcp_2005_edit(option, offset,
				     grant_2005(cpu, &h2005, s));
	}
	h = xcp_parse_forward(option);
	*rtt = h.rtt;
	h.delta = fast ? grant_inline(cpu, &h, s) : grant(cpu, &h, s);
	sum = xcp_edit_forward(option, offset, h.delta, ttl);
	if (XCP_UNLIKELY(config.edge))
		sum += xcp_edit_last_router(option, offset, config.edge);
	return sum;
}

/* A copy of the draft's header. */
struct header_copy {
	__u8 bytes[XCP_HEADER_LEN];
	__u32 left; /* bytes from the header to the packet's end */
	__u32 rtt; /* RTT in the header */
	__u32 length; /* with last_xcp_router, if the header has it */
	__u8 ttl;
};

/* Grants the request of a header and edits its copy; returns its kind. */
__noinline int edit_header(struct xcp_router_cpu *cpu, struct header_copy *h,
			   struct gso_burst *s)
{
	struct xcp_header head;
	struct xcp_forward f;
	enum xcp_kind kind;

	if (!cpu || !h || !s)
		return XCP_NONE;
	kind = xcp_header_read(h->bytes, &head);
	if (head.length > h->left)
		return XCP_MALFORMED;
	if (kind == XCP_BOTH) {
		f = xcp_header_forward(h->bytes, head.version, length_of(s));
		h->rtt = f.rtt;
		f.delta = grant(cpu, &f, s);
		xcp_edit_header(h->bytes, head.version, f.delta, h->ttl, 1);
		h->length = head.length;
	}
	return kind;
}

#endif

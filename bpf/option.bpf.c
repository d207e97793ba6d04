// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The wire format `option`, spoken by the sockets of a cgroup (sock_ops).
 *
 * 1. Handshake. A socket whose congestion control is `xcp` offers the option
 *    on its SYN. A listener answers it if its own is `xcp`. The client knows
 *    by the SYN-ACK, the server by the option on the first packet after it,
 *    so both know that both know: a middlebox that strips it from either
 *    leaves two ordinary TCP sockets with the default congestion control.
 * 2. Data segments carry the forward header, and the return header too if
 *    feedback is pending; pure ACKs carry the return header. Space for both
 *    is reserved when TCP computes its segment size.
 * 3. What arrives is added to the receiver's sum or handed to the congestion
 *    control, which runs later on the same ACK. One header stands for all
 *    the wire packets that receive offload merged (gso_segs), and segmentation
 *    offload will copy the return header as often, so it carries an n-th.
 * 4. A path on which no XCP router was seen falls back to the default; the
 *    headers go on, asking for nothing, and the first router that shows up
 *    brings `xcp` back.
 */
#include "chosen.h"
#include "host.h"
#include "route.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct xcp_host_config config SEC(".data.config");

#define OPTION_MAX 40

/* How many wire packets the packet of this callback stands for. */
static __always_inline __u32 wire_packets(const struct sk_buff *skb)
{
	struct skb_shared_info *info;
	__u16 segs = 0;

	info = (void *)(skb->head + skb->end);
	bpf_core_read(&segs, sizeof(segs), &info->gso_segs);
	return segs ? segs : 1;
}

/* The same for a packet that TCP is about to send. */
static __always_inline __u32 segments_to_send(const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	__u16 segs = 0;

	bpf_core_read(&segs, sizeof(segs), &cb->tcp_gso_segs);
	return segs ? segs : 1;
}

/* TTL or hop limit of a received packet. */
static __always_inline __u8 received_ttl(const struct sk_buff *skb)
{
	__u8 ip[9] = {};

	bpf_probe_read_kernel(ip, sizeof(ip), skb->head + skb->network_header);
	return ip[0] >> 4 == 6 ? ip[7] : ip[8];
}

/* TTL or hop limit that this socket's packets start with. */
static __always_inline __u8 initial_ttl(struct sock *sk)
{
	struct inet_sock *inet = (struct inet_sock *)sk;
	__s16 ttl;

	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6) {
		ttl = BPF_CORE_READ(inet, pinet6, hop_limit);
		if (ttl < 0)
			ttl = 64;
	} else {
		ttl = BPF_CORE_READ(inet, uc_ttl);
		if (ttl < 0)
			ttl = BPF_CORE_READ(sk, __sk_common.skc_net.net,
					    ipv4.sysctl_ip_default_ttl);
	}
	return (__u8)ttl;
}

static __always_inline struct sock *kernel_sock(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = bpf_cast_to_kern_ctx(skops);

	return kern->sk;
}

static __always_inline bool uses_xcp(struct bpf_sock_ops *skops)
{
	char name[TCP_CA_NAME_MAX] = {};

	return !bpf_getsockopt(skops, SOL_TCP, TCP_CONGESTION, name,
			       sizeof(name)) &&
	       is_xcp(name);
}

/* Was it opened by XCP's protocol number? */
static __always_inline bool is_chosen(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;

	return sk && bpf_sk_storage_get(&chosen, sk, NULL, 0);
}

/*
 * Gives xcp to a new socket that did not choose a congestion control, if it
 * was opened by number or if it is so configured.
 */
static __always_inline bool choose(struct bpf_sock_ops *skops,
				   bool make_default)
{
	char name[TCP_CA_NAME_MAX] = {}, preset[TCP_CA_NAME_MAX] = {};
	char xcp[TCP_CA_NAME_MAX] = "xcp";
	int i;

	if (uses_xcp(skops))
		return true;
	if ((!make_default && !is_chosen(skops)) ||
	    bpf_getsockopt(skops, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return false;
	default_name(kernel_sock(skops), preset);
	for (i = 0; i < TCP_CA_NAME_MAX; i++)
		if (name[i] != preset[i])
			return false;
	return !bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, xcp,
			       sizeof(xcp));
}

static __always_inline void set_callbacks(struct bpf_sock_ops *skops,
					  __u32 flags)
{
	__u32 ours = BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
		     BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG |
		     BPF_SOCK_OPS_STATE_CB_FLAG;

	bpf_sock_ops_cb_flags_set(
		skops, (skops->bpf_sock_ops_cb_flags & ~ours) | flags);
}

/* Loads our option of the packet at hand; XCP_NONE if it has none. */
static __always_inline enum xcp_kind
load_option(struct bpf_sock_ops *skops, __u8 option[OPTION_MAX], __u64 flags)
{
	int length;

	__builtin_memset(option, 0, OPTION_MAX);
	option[0] = XCP_OPT_KIND;
	option[1] = XCP_OPT_HANDSHAKE_LEN;
	option[2] = XCP_OPT_ID >> 8;
	option[3] = XCP_OPT_ID & 0xff;
	length = bpf_load_hdr_opt(skops, option, OPTION_MAX, flags);
	if (length < 0)
		return XCP_NONE;
	return xcp_option_kind((__u32)length, option[XCP_OPT_FLAGS]);
}

static __always_inline struct xcp_socket *socket_of(struct bpf_sock_ops *skops,
						    __u64 flags)
{
	struct bpf_sock *sk = skops->sk;

	return sk ? bpf_sk_storage_get(&sockets, sk, NULL, flags) : NULL;
}

/* Both ends speak: the socket gets its state and its callbacks. */
static __always_inline void begin(struct bpf_sock_ops *skops)
{
	struct xcp_socket *s = socket_of(skops, BPF_SK_STORAGE_GET_F_CREATE);

	if (!s) {
		set_callbacks(skops, 0);
		fall_back(skops, kernel_sock(skops));
		return;
	}
	s->xcp_hops = XCP_HOPS_UNKNOWN;
	s->receiver.xcp_hops = XCP_HOPS_UNKNOWN;
	set_callbacks(skops,
		      BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
			      BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG |
			      BPF_SOCK_OPS_STATE_CB_FLAG);
	COUNT(sockets, 1);
}

static __always_inline void established(struct bpf_sock_ops *skops)
{
	__u8 option[OPTION_MAX];
	enum xcp_kind kind;

	if (!uses_xcp(skops)) {
		set_callbacks(skops, 0);
		return;
	}
	kind = load_option(skops, option, 0);
	if (kind == XCP_NONE || kind == XCP_MALFORMED) {
		set_callbacks(skops, 0);
		fall_back(skops, kernel_sock(skops));
		return;
	}
	begin(skops);
}

/*
 * The SYN-ACK's request socket: will the connection use xcp, by its route or
 * else by its listener, and did the SYN offer it?
 */
static __always_inline bool answers(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = bpf_cast_to_kern_ctx(skops);
	struct request_sock *req = (struct request_sock *)kern->sk;
	__u32 route = route_control_of_packet(kern->skb);
	struct inet_connection_sock *listener;
	struct tcp_congestion_ops___name *ops;
	char name[TCP_CA_NAME_MAX] = {};
	__u8 option[OPTION_MAX];

	listener = (void *)BPF_CORE_READ(req, __req_common.skc_listener);
	ops = (void *)BPF_CORE_READ(listener, icsk_ca_ops);
	BPF_CORE_READ_INTO(&name, ops, name);
	return (route ? route == route_key_of_xcp() : is_xcp(name)) &&
	       load_option(skops, option, BPF_LOAD_HDR_OPT_TCP_SYN) ==
		       XCP_HANDSHAKE;
}

/* Reserves room for what this packet is to carry. */
static __always_inline void reserve(struct bpf_sock_ops *skops)
{
	__u32 flags = skops->skb_tcp_flags;
	struct xcp_socket *s;

	if (skops->args[0] != BPF_WRITE_HDR_TCP_CURRENT_MSS &&
	    flags & TCP_FLAG_SYN) {
		if (!(flags & TCP_FLAG_ACK) || answers(skops))
			bpf_reserve_hdr_opt(skops, XCP_OPT_HANDSHAKE_LEN, 0);
		return;
	}
	s = socket_of(skops, 0);
	if (!s)
		return;
	s->writing = XCP_NONE;
	if (skops->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS) {
		/* the segment size must leave room for the most there can be */
		if (bpf_reserve_hdr_opt(skops, XCP_OPT_BOTH_LEN, 0))
			bpf_reserve_hdr_opt(skops, XCP_OPT_FORWARD_LEN, 0);
	} else if (!skops->skb_len) {
		if (!bpf_reserve_hdr_opt(skops, XCP_OPT_RETURN_LEN, 0))
			s->writing = XCP_RETURN;
		else
			COUNT(return_crowded, 1);
	} else if (s->receiver.pending_Bps &&
		   !bpf_reserve_hdr_opt(skops, XCP_OPT_BOTH_LEN, 0)) {
		s->writing = XCP_BOTH;
	} else if (!bpf_reserve_hdr_opt(skops, XCP_OPT_FORWARD_LEN, 0)) {
		s->writing = XCP_FORWARD;
	}
}

static __always_inline struct xcp_forward forward_of(struct xcp_socket *s,
						     struct sock *sk)
{
	struct xcp_forward f = {};

	f.xcp_ttl = initial_ttl(sk);
	if (!s->fell_back) {
		f.rtt = xcp_saturate32(s->sender.rtt);
		f.x = xcp_saturate32(xcp_sender_next_x(&s->sender));
		f.delta = s->sender.request_Bps;
	}
	return f;
}

static __always_inline struct xcp_return return_of(struct xcp_socket *s,
						   __u32 n)
{
	struct xcp_return r = {};

	r.feedback = xcp_receiver_take(&s->receiver, n);
	r.xcp_hops = s->receiver.xcp_hops;
	r.other_hops = s->receiver.other_hops;
	COUNT(returned_Bps, (__s64)r.feedback * n);
	COUNT(return_sent, n);
	return r;
}

static __noinline void write(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = bpf_cast_to_kern_ctx(skops);
	__u8 option[OPTION_MAX] = {};
	struct xcp_socket *s;
	struct xcp_forward f;
	struct xcp_return r;
	__u32 n;

	if (skops->skb_tcp_flags & TCP_FLAG_SYN) {
		xcp_build_handshake(option);
		bpf_store_hdr_opt(skops, option, XCP_OPT_HANDSHAKE_LEN, 0);
		return;
	}
	s = socket_of(skops, 0);
	if (!s)
		return;
	n = segments_to_send(kern->skb);
	switch (s->writing) {
	case XCP_RETURN:
		r = return_of(s, 1);
		xcp_build_return(option, &r);
		bpf_store_hdr_opt(skops, option, XCP_OPT_RETURN_LEN, 0);
		break;
	case XCP_BOTH:
		f = forward_of(s, kern->sk);
		r = return_of(s, n);
		xcp_build_both(option, &f, &r);
		bpf_store_hdr_opt(skops, option, XCP_OPT_BOTH_LEN, 0);
		COUNT(forward_sent, n);
		break;
	case XCP_FORWARD:
		f = forward_of(s, kern->sk);
		xcp_build_forward(option, &f);
		bpf_store_hdr_opt(skops, option, XCP_OPT_FORWARD_LEN, 0);
		COUNT(forward_sent, n);
		break;
	}
}

/* What the other end reports of the path decides who controls this socket. */
static __always_inline void judge_path(struct bpf_sock_ops *skops,
				       struct xcp_socket *s)
{
	char xcp[TCP_CA_NAME_MAX] = "xcp";

	if (s->xcp_hops == 0 && !s->fell_back && uses_xcp(skops)) {
		s->fell_back = 1;
		fall_back(skops, kernel_sock(skops));
	} else if (s->xcp_hops && s->xcp_hops != XCP_HOPS_UNKNOWN &&
		   s->fell_back) {
		s->fell_back = 0;
		bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, xcp,
			       sizeof(xcp));
	}
}

static __noinline void parse(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = bpf_cast_to_kern_ctx(skops);
	__u8 option[OPTION_MAX], ttl;
	struct xcp_socket *s;
	struct xcp_forward f;
	struct xcp_return r;
	enum xcp_kind kind;
	__u32 n;

	kind = load_option(skops, option, 0);
	if (kind == XCP_NONE || kind == XCP_HANDSHAKE)
		return;
	s = socket_of(skops, 0);
	if (!s)
		return;
	if (kind == XCP_MALFORMED) {
		COUNT(malformed, 1);
		return;
	}
	n = wire_packets(kern->skb);
	if (kind != XCP_RETURN) {
		f = xcp_parse_forward(option);
		xcp_receiver_add(&s->receiver, f.delta, n);
		ttl = received_ttl(kern->skb);
		s->receiver.xcp_hops = f.xcp_hops;
		s->receiver.other_hops = f.xcp_ttl > ttl ? f.xcp_ttl - ttl : 0;
		COUNT(received_Bps, (__s64)f.delta * n);
		COUNT(forward_received, n);
	}
	if (kind != XCP_FORWARD) {
		r = xcp_parse_return(option, kind);
		s->feedback_Bps += (__s64)r.feedback * n;
		s->silent_acks = 0;
		COUNT(feedback_Bps, (__s64)r.feedback * n);
		COUNT(return_received, n);
		s->xcp_hops = r.xcp_hops;
		s->other_hops = r.other_hops;
		judge_path(skops, s);
	}
}

SEC("sockops")
int xcp_option(struct bpf_sock_ops *skops)
{
	struct xcp_socket *s;

	switch (skops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (choose(skops, config.make_default) ||
		    route_gives_xcp(kernel_sock(skops)))
			set_callbacks(skops,
				      BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		choose(skops, config.make_default);
		set_callbacks(skops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		established(skops);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		reserve(skops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write(skops);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		parse(skops);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (skops->args[1] != BPF_TCP_CLOSE)
			break;
		s = socket_of(skops, 0);
		if (s)
			COUNT(unreturned_Bps, s->receiver.pending_Bps);
		break;
	}
	return 1;
}

/* `xcp run`: the sockets of one group, below the one that speaks, use xcp. */
SEC("sockops")
int xcp_choose(struct bpf_sock_ops *skops)
{
	if (skops->op == BPF_SOCK_OPS_TCP_CONNECT_CB ||
	    skops->op == BPF_SOCK_OPS_TCP_LISTEN_CB)
		choose(skops, true);
	return 1;
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The sockets of a cgroup (sock_ops): the handshake of every wire format, and
 * the options of `option` and `option-2005`. Headers are put in and taken out
 * by device.bpf.c; here they only get their room.
 *
 * 1. Handshake. A socket whose congestion control is `xcp` offers the format
 *    that is set for its peer on its SYN. A listener answers it if its own is
 *    `xcp`, in whichever format it was asked. The client knows by the SYN-ACK,
 *    the server by the first packet after it, so both know that both know: a
 *    middlebox that strips it from either leaves two ordinary TCP sockets with
 *    the default congestion control.
 * 2. Data segments carry the forward header, and the return header too if
 *    feedback is pending; pure ACKs carry the return header. Space for both
 *    is reserved when TCP computes its segment size.
 * 3. What arrives is added to the receiver's sum or handed to the congestion
 *    control, which runs later on the same ACK. One header stands for all
 *    the wire packets that receive offload merged (segments.h). Segmentation
 *    offload copies a return header as often, so each carries an n-th.
 * 4. A path on which no XCP router was seen falls back to the default; once per
 *    RTT a header goes on, asking for nothing, and the first router that shows
 *    up brings `xcp` back.
 * 5. Signed connections (TCP-MD5, TCP-AO) never carry an option: the kernel
 *    computes the signature before this program writes. They use the default
 *    from the SYN on. Where other options (MPTCP, AccECN) leave no room on data
 *    segments, the connection falls back.
 */
#include "socket_mark.h"
#include "fallback.h"
#include "app_limit.h"
#include "option_2005.h"
#include "segments.h"
#include "ttl.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

XCP_DATA(xcp_host_config, config);
XCP_MAP(sockets);
XCP_MAP(counters);
XCP_MAP(fallback_reasons);
XCP_MAP(peers);
XCP_MAP(heard);
XCP_MAP(chosen);
XCP_MAP(callbacks);

#define OPTION_MAX 40
#define TCPOPT_MD5SIG 19
#define TCPOPT_AO 29
#define TCPOPT_MPTCP 30
#define ENOENT 2
#define ENOSPC 28
/* timeouts of one segment after which it is sent without a header */
#define SILENT_TIMEOUTS 2

/* How many wire packets a packet that TCP is about to send will be. */
static __always_inline __u32 segments_to_send(const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb->cb;
	__u16 segs = 0;

	bpf_core_read(&segs, sizeof(segs), &cb->tcp_gso_segs);
	return segs ? segs : 1;
}

static __always_inline struct sock *kernel_sock(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);

	return kern->sk;
}

static __always_inline bool uses_xcp(struct bpf_sock_ops *skops)
{
	struct inet_connection_sock *icsk =
		bpf_core_cast(kernel_sock(skops), struct inet_connection_sock);
	struct tcp_congestion_ops___name *ops = bpf_core_cast(
		icsk->icsk_ca_ops, struct tcp_congestion_ops___name);

	return is_xcp(ops->name);
}

/* Was it opened by XCP's protocol number? */
static __always_inline bool is_chosen(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;

	return is_marked(sk);
}

/*
 * Did the program set TCP_CONGESTION? The kernel notes that, and notes it too
 * where fall_back() has set it.
 */
static __always_inline bool has_chosen(struct bpf_sock_ops *skops)
{
	struct inet_connection_sock *icsk = (void *)kernel_sock(skops);
	struct bpf_sock *sk = skops->sk;

	return BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_setsockopt) &&
	       !(sk && bpf_sk_storage_get(&fallback_reasons, sk, NULL, 0));
}

/*
 * Gives xcp to a new socket that did not choose a congestion control, if it
 * was opened by number or if it is so configured.
 */
static __always_inline bool choose(struct bpf_sock_ops *skops,
				   bool make_default)
{
	char xcp[TCP_CA_NAME_MAX] = "xcp";

	if (uses_xcp(skops))
		return true;
	if ((!make_default && !is_chosen(skops)) || has_chosen(skops))
		return false;
	return !bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, xcp,
			       sizeof(xcp));
}

/* Has a socket keys for signatures (TCP-MD5, TCP-AO)? */
static __always_inline bool is_signed(struct bpf_sock_ops *skops)
{
	struct tcp_sock *tp = (void *)kernel_sock(skops);

	return (bpf_core_field_exists(tp->md5sig_info) &&
		BPF_CORE_READ(tp, md5sig_info)) ||
	       (bpf_core_field_exists(tp->ao_info) &&
		BPF_CORE_READ(tp, ao_info));
}

/* Does the packet at hand, or the SYN, carry this option of others? */
static __always_inline bool carries(struct bpf_sock_ops *skops, __u8 kind,
				    __u64 flags)
{
	__u8 option[4] = {kind};
	int length = bpf_load_hdr_opt(skops, option, sizeof(option), flags);

	return length > 0 || length == -ENOSPC;
}

/* Do both ends speak MPTCP? Its data segments have no room for `option`. */
static __always_inline bool speaks_mptcp(struct bpf_sock_ops *skops)
{
	struct tcp_sock *tp = (void *)kernel_sock(skops);

	return bpf_core_field_exists(tp->is_mptcp) &&
	       BPF_CORE_READ(tp, is_mptcp) && carries(skops, TCPOPT_MPTCP, 0);
}

/* Leaves a socket to the default congestion control. */
static __always_inline void leave(struct bpf_sock_ops *skops,
				  enum xcp_fallback reason)
{
	struct bpf_sock *sk = skops->sk;

	fall_back(skops, kernel_sock(skops), sk, reason);
}

static __always_inline void set_callbacks(struct bpf_sock_ops *skops,
					  __u32 flags)
{
	__u32 present = skops->bpf_sock_ops_cb_flags;
	struct bpf_sock *sk = skops->sk;
	__u32 *ours = NULL;

	if (sk)
		ours = bpf_sk_storage_get(&callbacks, sk, NULL,
					  flags ? BPF_SK_STORAGE_GET_F_CREATE
						: 0);
	if (!ours)
		return;
	present &= ~*ours;
	*ours = flags & ~present;
	bpf_sock_ops_cb_flags_set(skops, present | flags);
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

/* A SYN-ACK that was lost is answered again from the SYN: it is to be kept. */
static __always_inline void keep_syns(struct bpf_sock_ops *skops)
{
	int keep = 0;

	if (!bpf_getsockopt(skops, SOL_TCP, TCP_SAVE_SYN, &keep,
			    sizeof(keep)) &&
	    keep)
		return; /* the application wants it, perhaps with more */
	keep = 1;
	bpf_setsockopt(skops, SOL_TCP, TCP_SAVE_SYN, &keep, sizeof(keep));
}

/* Does the packet at hand say that its sender understands totals? */
static __always_inline bool has_totals(struct bpf_sock_ops *skops, __u64 flags)
{
	__u8 option[XCP_OPT_HANDSHAKE_LEN];

	xcp_build_totals(option);
	return bpf_load_hdr_opt(skops, option, sizeof(option), flags) ==
	       XCP_OPT_HANDSHAKE_LEN;
}

/* The value of an option of Zhang & Henderson's, -1 if the packet has none. */
static __always_inline int load_2005(struct bpf_sock_ops *skops, __u8 kind,
				     __u64 flags)
{
	__u8 option[XCP_2005_FORWARD_LEN] = {};
	int length = kind == XCP_2005_FORWARD_KIND ? XCP_2005_FORWARD_LEN
						   : XCP_2005_RETURN_LEN;

	option[0] = kind;
	if (bpf_load_hdr_opt(skops, option, sizeof(option), flags) != length)
		return -1;
	return xcp_get16(option + XCP_2005_FEEDBACK);
}

static __always_inline struct xcp_socket *socket_of(struct bpf_sock_ops *skops,
						    __u64 flags)
{
	struct bpf_sock *sk = skops->sk;

	return sk ? bpf_sk_storage_get(&sockets, sk, NULL, flags) : NULL;
}

static __always_inline void forget(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;

	set_callbacks(skops, 0);
	if (sk)
		bpf_sk_storage_delete(&sockets, sk);
}

/* Loads a word of the context where the compiler may not move it. */
#define LOAD(to, field)                                                        \
	do {                                                                   \
		__u32 _w = skops->field;                                       \
		barrier_var(_w);                                               \
		(to) = _w;                                                     \
	} while (0)

static __always_inline struct xcp_heard_key flow_key(struct bpf_sock_ops *skops)
{
	struct xcp_heard_key key = {};
	__u32 *local = (__u32 *)key.local.bytes;
	__u32 *remote = (__u32 *)key.remote.bytes;
	__u32 local4, remote4;

	key.netns = bpf_get_netns_cookie(skops);
	LOAD(local[0], local_ip6[0]);
	LOAD(local[1], local_ip6[1]);
	LOAD(local[2], local_ip6[2]);
	LOAD(local[3], local_ip6[3]);
	LOAD(remote[0], remote_ip6[0]);
	LOAD(remote[1], remote_ip6[1]);
	LOAD(remote[2], remote_ip6[2]);
	LOAD(remote[3], remote_ip6[3]);
	LOAD(local4, local_ip4);
	LOAD(remote4, remote_ip4);
	if (skops->family == AF_INET) {
		address_of_ipv4(&key.local, local4);
		address_of_ipv4(&key.remote, remote4);
	}
	key.local_port = (__u16)skops->local_port;
	key.remote_port = (__u16)bpf_ntohl(skops->remote_port);
	return key;
}

/* Is it of a network namespace that does not speak? */
static __always_inline bool is_elsewhere(struct bpf_sock_ops *skops)
{
	return config.netns && bpf_get_netns_cookie(skops) != config.netns;
}

/* Is nothing to be spoken with the other end? */
static __noinline bool is_silent(struct bpf_sock_ops *skops)
{
	struct xcp_heard_key names = flow_key(skops);

	if (is_elsewhere(skops))
		return true;
	return wire_of(names.netns, &names.remote) == XCP_WIRE_SILENT;
}

/* A socket with xcp connects: the peer's wire format is offered. */
static __noinline void offer(struct bpf_sock_ops *skops)
{
	struct xcp_heard_key names = flow_key(skops);
	struct xcp_socket *s;
	int wire;

	wire = wire_of(names.netns, &names.remote);
	forget(skops); /* of an earlier connection */
	if (is_signed(skops)) {
		if (uses_xcp(skops))
			leave(skops, XCP_FALLBACK_SIGNED);
		return;
	}
	if (wire == XCP_WIRE_SILENT)
		return;
	s = socket_of(skops, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		if (uses_xcp(skops))
			leave(skops, XCP_FALLBACK_MEMORY);
		return;
	}
	s->wire = wire < 0 ? XCP_WIRE_OPTION : (__u8)wire;
	s->ttl = initial_ttl(kernel_sock(skops));
	set_callbacks(skops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

static __always_inline bool is_kind(enum xcp_kind kind)
{
	return kind != XCP_NONE && kind != XCP_MALFORMED;
}

/* Has the program selected another congestion control after a fallback? */
static __always_inline bool has_chosen_another(struct bpf_sock_ops *skops)
{
	char name[TCP_CA_NAME_MAX] = {}, preset[TCP_CA_NAME_MAX] = {};
	int i;

	default_name(kernel_sock(skops), preset);
	if (bpf_getsockopt(skops, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return true;
	for (i = 0; i < TCP_CA_NAME_MAX; i++)
		if (name[i] != preset[i])
			return true;
	return false;
}

/* What the other end reports of the path decides who controls this socket. */
static __always_inline void judge_path(struct bpf_sock_ops *skops,
				       struct xcp_socket *s)
{
	char xcp[TCP_CA_NAME_MAX] = "xcp";

	if (s->xcp_hops == 0 && !s->fell_back && uses_xcp(skops)) {
		s->fell_back = 1;
		leave(skops, XCP_FALLBACK_NO_ROUTER);
	} else if (s->xcp_hops && s->xcp_hops != XCP_HOPS_UNKNOWN &&
		   s->fell_back && !has_no_room(s)) {
		s->fell_back = 0;
		if (has_chosen_another(skops))
			return;
		bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, xcp,
			       sizeof(xcp));
	}
}

/*
 * What the first window tells: a socket that was given xcp while it connected
 * has its congestion control look only at the first ACK.
 */
static __always_inline void begin_sender(struct bpf_sock_ops *skops,
					 struct xcp_socket *s)
{
	__u32 srtt, mss, cwnd; /* srtt is in 1/8 us */

	LOAD(srtt, srtt_us);
	LOAD(mss, mss_cache);
	LOAD(cwnd, snd_cwnd);
	if (!srtt)
		return;
	s->sender.wire_B = mss + XCP_TCP_HEADER_LEN + IPV4_LEN;
	xcp_sender_rtt(&s->sender, xcp_ns_to_ticks((__u64)srtt * 125), false);
	xcp_sender_reset(&s->sender, cwnd);
	s->sender.limit_B = s->sender.cwnd_B;
	xcp_sender_update(&s->sender);
}

/* Both ends speak: the socket gets its record and its callbacks. */
static __always_inline struct xcp_socket *begin(struct bpf_sock_ops *skops,
						enum xcp_wire wire)
{
	struct xcp_socket *s = socket_of(skops, BPF_SK_STORAGE_GET_F_CREATE);
	__u32 flags = BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;

	if (!s) {
		forget(skops);
		leave(skops, XCP_FALLBACK_MEMORY);
		return NULL;
	}
	s->wire = (__u8)wire;
	s->speaks = 1;
	s->ttl = initial_ttl(kernel_sock(skops));
	s->xcp_hops = XCP_HOPS_UNKNOWN;
	s->receiver.xcp_hops = XCP_HOPS_UNKNOWN;
	begin_sender(skops, s);
	flags |= is_header(s->wire)
			 ? BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG
			 : BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG;
	set_callbacks(skops, flags);
	COUNT(sockets, 1);
	return s;
}

/* The last packet of the handshake carries the probe, or its answer. */
static __noinline bool begin_2005(struct bpf_sock_ops *skops)
{
	int wish = load_2005(skops, XCP_2005_FORWARD_KIND, 0);
	int answer = load_2005(skops, XCP_2005_RETURN_KIND, 0);
	struct xcp_socket *s;

	if (wish < 0 && answer < 0)
		return false;
	s = begin(skops, XCP_WIRE_OPTION_2005);
	if (!s)
		return true;
	s->other_hops = 1; /* for all we know: nothing tells of them */
	if (wish > 0) {
		xcp_receiver_add_2005(&s->receiver, (__u16)wish, 1);
		COUNT(sums_2005.received, xcp_2005_value((__u16)wish));
	}
	/* the probe came back as it was: no router took it out */
	s->xcp_hops = answer > 0 ? 0 : 1;
	judge_path(skops, s);
	return true;
}

/* Was the handshake's packet before this one, or this one, with a header? */
static __noinline bool begin_header(struct bpf_sock_ops *skops, bool passive)
{
	struct xcp_heard_key names = flow_key(skops);
	struct xcp_heard *h = bpf_map_lookup_elem(&heard, &names);
	struct xcp_heard known;

	if (!h)
		return false;
	known = *h;
	bpf_map_delete_elem(&heard, &names);
	if (passive && !known.acked)
		return false;
	begin(skops, (enum xcp_wire)known.wire);
	return true;
}

/* Is what an option returns a total? */
static __always_inline bool tells_total(const __u8 *option, enum xcp_kind kind)
{
	return (kind == XCP_RETURN || kind == XCP_BOTH) &&
	       xcp_parse_return(option, kind).version == XCP_RETURN_TOTAL;
}

/* The other end's last packet of the handshake has the option. */
static __always_inline void begin_option(struct bpf_sock_ops *skops,
					 const __u8 *option, enum xcp_kind kind)
{
	struct xcp_socket *s = begin(skops, XCP_WIRE_OPTION);

	if (s && feature_enabled(XCP_CURE_TOTALS))
		s->receiver.totals = kind == XCP_HANDSHAKE
					     ? has_totals(skops, 0)
					     : tells_total(option, kind);
}

/*
 * Has the listener forgotten the SYN, which it was to keep (keep_syns)? Then
 * its answer was a SYN cookie, and the kernel has no listener to show us at
 * that moment.
 */
static __always_inline bool had_cookie(struct bpf_sock_ops *skops)
{
	int keeps = 0;
	__u8 syn;

	return !bpf_getsockopt(skops, SOL_TCP, TCP_SAVE_SYN, &keeps,
			       sizeof(keeps)) &&
	       keeps &&
	       bpf_getsockopt(skops, SOL_TCP, TCP_BPF_SYN, &syn, sizeof(syn)) ==
		       -ENOENT;
}

/* Why a connection that uses xcp does not speak it after its handshake. */
static __always_inline enum xcp_fallback
handshake_failure(struct bpf_sock_ops *skops, bool passive)
{
	if (is_signed(skops))
		return XCP_FALLBACK_SIGNED;
	if (speaks_mptcp(skops))
		return XCP_FALLBACK_NO_ROOM;
	if (passive && had_cookie(skops))
		return XCP_FALLBACK_SYN_COOKIE;
	return XCP_FALLBACK_PEER;
}

static __always_inline void established(struct bpf_sock_ops *skops,
					bool passive)
{
	__u8 option[OPTION_MAX];
	enum xcp_kind kind;

	if (!uses_xcp(skops)) {
		forget(skops);
		return;
	}
	if (!is_silent(skops) && !is_signed(skops)) {
		kind = load_option(skops, option, 0);
		if (is_kind(kind) && !speaks_mptcp(skops)) {
			begin_option(skops, option, kind);
			return;
		}
		if (begin_2005(skops) || begin_header(skops, passive))
			return;
	}
	forget(skops);
	leave(skops, handshake_failure(skops, passive));
}

/* What a SYN offers, -1 for nothing. */
static __always_inline int offered(struct bpf_sock_ops *skops)
{
	__u8 option[OPTION_MAX];

	if (load_option(skops, option, BPF_LOAD_HDR_OPT_TCP_SYN) ==
	    XCP_HANDSHAKE)
		return XCP_WIRE_OPTION;
	if (load_2005(skops, XCP_2005_FORWARD_KIND, BPF_LOAD_HDR_OPT_TCP_SYN) >=
	    0)
		return XCP_WIRE_OPTION_2005;
	return -1;
}

/* The option format of a SYN or SYN-ACK at hand, -1 for none. */
static __always_inline int handshake_of(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);
	struct xcp_socket *s;
	int wire;

	if (!(skops->skb_tcp_flags & TCP_FLAG_ACK)) {
		s = socket_of(skops, 0);
		return s && !is_header(s->wire) ? s->wire : -1;
	}
	if (!request_uses_xcp(kern->skb, (struct request_sock *)kern->sk) ||
	    is_silent(skops))
		return -1;
	wire = offered(skops);
	if (wire >= 0 &&
	    (carries(skops, TCPOPT_MD5SIG, BPF_LOAD_HDR_OPT_TCP_SYN) ||
	     carries(skops, TCPOPT_AO, BPF_LOAD_HDR_OPT_TCP_SYN)))
		return -1;
	return wire;
}

/* Is the SYN or SYN-ACK at hand to say that totals are understood? */
static __always_inline bool offers_totals(struct bpf_sock_ops *skops)
{
	return feature_enabled(XCP_CURE_TOTALS) &&
	       (!(skops->skb_tcp_flags & TCP_FLAG_ACK) ||
		has_totals(skops, BPF_LOAD_HDR_OPT_TCP_SYN));
}

static __always_inline __u32 handshake_len(int wire, bool ack)
{
	if (wire == XCP_WIRE_OPTION)
		return XCP_OPT_HANDSHAKE_LEN;
	return ack ? XCP_2005_BOTH_LEN : XCP_2005_FORWARD_LEN;
}

/*
 * TCP computes its segment size: it must leave room for the most there can be.
 * A header takes none of TCP's options, but as much of the packet.
 */
static __always_inline void reserve_most(struct bpf_sock_ops *skops,
					 const struct xcp_socket *s)
{
	if (!s->speaks)
		return;
	if (bpf_reserve_hdr_opt(skops, room_of(s->wire), 0) &&
	    s->wire == XCP_WIRE_OPTION)
		bpf_reserve_hdr_opt(skops, XCP_OPT_FORWARD_LEN, 0);
}

/* SACK blocks take the room of a header, but only for a while. */
static __always_inline bool sends_sacks(struct bpf_sock_ops *skops)
{
	struct tcp_sock *tp = (void *)kernel_sock(skops);

	return BPF_CORE_READ(tp, rx_opt.num_sacks);
}

/* Reserves room for what this packet is to carry. */
static __always_inline void reserve(struct bpf_sock_ops *skops)
{
	__u32 flags = skops->skb_tcp_flags, forward, back;
	struct xcp_socket *s;
	bool tells, owes;
	int wire;

	if (skops->args[0] != BPF_WRITE_HDR_TCP_CURRENT_MSS &&
	    flags & TCP_FLAG_SYN) {
		wire = handshake_of(skops);
		if (wire < 0)
			return;
		bpf_reserve_hdr_opt(
			skops, handshake_len(wire, flags & TCP_FLAG_ACK), 0);
		if (wire == XCP_WIRE_OPTION && offers_totals(skops))
			bpf_reserve_hdr_opt(skops, XCP_OPT_HANDSHAKE_LEN, 0);
		return;
	}
	s = socket_of(skops, 0);
	if (!s)
		return;
	s->writing = XCP_NONE;
	if (skops->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS) {
		reserve_most(skops, s);
		return;
	}
	if (is_header(s->wire))
		return;
	if (s->wire == XCP_WIRE_OPTION) {
		forward = XCP_OPT_FORWARD_LEN;
		back = XCP_OPT_RETURN_LEN;
	} else {
		forward = XCP_2005_FORWARD_LEN;
		back = XCP_2005_RETURN_LEN;
	}
	tells = s->wire == XCP_WIRE_OPTION_2005 || !skops->skb_len ||
		(!has_no_room(s) && tells_routers(s, skops->srtt_us >> 3));
	owes = xcp_receiver_owes(&s->receiver) ||
	       (s->receiver.totals && !s->answered);
	if (!skops->skb_len || (!tells && owes)) {
		/* not even asked where nothing is left: see sack.h */
		if (!bpf_reserve_hdr_opt(skops, back, 0))
			s->writing = XCP_RETURN;
		else
			COUNT(return_crowded, 1);
	} else if (!tells) {
		return;
	} else if (owes && !bpf_reserve_hdr_opt(skops, room_of(s->wire), 0)) {
		s->writing = XCP_BOTH;
		s->crowded = 0;
	} else if (!bpf_reserve_hdr_opt(skops, forward, 0)) {
		s->writing = XCP_FORWARD;
		s->crowded = 0;
	} else if (!has_no_room(s) && !sends_sacks(skops)) {
		s->crowded++; /* cc.bpf.c falls back with the next ACK */
	}
}

static __always_inline __u32 write_option(struct xcp_socket *s, __u8 *option,
					  __u32 n)
{
	struct xcp_forward f = {};
	struct xcp_return r = {};

	if (s->writing != XCP_RETURN)
		f = forward_of(s);
	if (s->writing != XCP_FORWARD)
		r = return_of(s, n);
	switch (s->writing) {
	case XCP_RETURN:
		xcp_build_return(option, &r);
		return XCP_OPT_RETURN_LEN;
	case XCP_FORWARD:
		xcp_build_forward(option, &f);
		return XCP_OPT_FORWARD_LEN;
	case XCP_BOTH:
		xcp_build_both(option, &f, &r);
		return XCP_OPT_BOTH_LEN;
	}
	return 0;
}

/* Two options, stored one by one. */
static __always_inline void write_2005(struct bpf_sock_ops *skops,
				       struct xcp_socket *s, __u32 n,
				       __u32 size_B)
{
	__u8 option[XCP_2005_FORWARD_LEN] = {};
	struct xcp_2005 h;

	if (s->writing != XCP_RETURN) {
		h = forward_2005(s, size_B, n, config.whole_feedback);
		xcp_2005_build_forward(option, &h);
		bpf_store_hdr_opt(skops, option, XCP_2005_FORWARD_LEN, 0);
	}
	if (s->writing != XCP_FORWARD) {
		xcp_2005_build_return(option, return_2005(s, n));
		bpf_store_hdr_opt(skops, option, XCP_2005_RETURN_LEN, 0);
	}
}

static __always_inline void write_handshake(struct bpf_sock_ops *skops)
{
	struct xcp_2005 probe = {XCP_2005_PROBE, 0, 0};
	__u8 option[XCP_2005_FORWARD_LEN] = {};
	int wire = handshake_of(skops), wish;

	if (wire == XCP_WIRE_OPTION) {
		xcp_build_handshake(option);
		bpf_store_hdr_opt(skops, option, XCP_OPT_HANDSHAKE_LEN, 0);
		if (offers_totals(skops)) {
			xcp_build_totals(option);
			bpf_store_hdr_opt(skops, option, XCP_OPT_HANDSHAKE_LEN,
					  0);
		}
		return;
	}
	if (wire != XCP_WIRE_OPTION_2005)
		return;
	xcp_2005_build_forward(option, &probe);
	bpf_store_hdr_opt(skops, option, XCP_2005_FORWARD_LEN, 0);
	if (!(skops->skb_tcp_flags & TCP_FLAG_ACK))
		return;
	wish = load_2005(skops, XCP_2005_FORWARD_KIND,
			 BPF_LOAD_HDR_OPT_TCP_SYN);
	xcp_2005_build_return(option, wish > 0 ? (__u16)wish : 0);
	bpf_store_hdr_opt(skops, option, XCP_2005_RETURN_LEN, 0);
}

static __noinline void write(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);
	__u8 option[OPTION_MAX] = {};
	struct xcp_socket *s;
	__u32 n, length, size_B;

	if (skops->skb_tcp_flags & TCP_FLAG_SYN) {
		write_handshake(skops);
		return;
	}
	s = socket_of(skops, 0);
	if (!s || s->writing == XCP_NONE)
		return;
	n = segments_to_send(kern->skb);
	if (sk && s->writing != XCP_RETURN)
		ask(sk, s);
	if (s->wire == XCP_WIRE_OPTION) {
		length = write_option(s, option, n);
		if (length)
			bpf_store_hdr_opt(skops, option, length, 0);
	} else {
		size_B = n > 1 ? s->sender.wire_B
			       : skops->skb_len + (skops->family == AF_INET
							   ? IPV4_LEN
							   : IPV6_LEN);
		write_2005(skops, s, n, size_B);
	}
	if (s->writing != XCP_RETURN)
		COUNT(forward_sent, n);
}

static __noinline void parse_2005(struct bpf_sock_ops *skops,
				  struct xcp_socket *s, __u32 n)
{
	int wish = load_2005(skops, XCP_2005_FORWARD_KIND, 0);
	int answer = load_2005(skops, XCP_2005_RETURN_KIND, 0);

	if (wish >= 0) {
		xcp_receiver_add_2005(&s->receiver, (__u16)wish, n);
		COUNT(sums_2005.received, xcp_2005_value((__u16)wish) * n);
		COUNT(forward_received, n);
	}
	if (answer >= 0) {
		s->silent_acks = 0;
		answer_2005(s, (__u16)answer, n);
		COUNT(return_received, n);
		judge_path(skops, s);
	}
}

static __noinline void parse(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);
	__u8 option[OPTION_MAX], ttl;
	struct xcp_socket *s;
	struct xcp_forward f;
	struct xcp_return r;
	enum xcp_kind kind;
	__s64 feedback;
	__u32 n;

	s = socket_of(skops, 0);
	if (!s)
		return;
	n = segments_of(kern->skb);
	if (s->wire == XCP_WIRE_OPTION_2005) {
		parse_2005(skops, s, n);
		return;
	}
	kind = load_option(skops, option, 0);
	if (kind == XCP_NONE || kind == XCP_HANDSHAKE)
		return;
	if (kind == XCP_MALFORMED) {
		COUNT(malformed, 1);
		return;
	}
	if (kind != XCP_RETURN) {
		f = xcp_parse_forward(option);
		xcp_receiver_add(&s->receiver, f.delta, n);
		ttl = received_ttl(kern->skb);
		s->receiver.xcp_hops = f.xcp_hops;
		s->receiver.other_hops = xcp_other_hops(f.xcp_ttl, ttl);
		COUNT(sums.received, (__s64)f.delta * n);
		COUNT(forward_received, n);
	}
	if (kind != XCP_FORWARD) {
		r = xcp_parse_return(option, kind);
		if (r.version == XCP_RETURN_TOTAL) {
			feedback = xcp_total_change(&s->total_seen, r.feedback);
			s->receiver.totals = feature_enabled(XCP_CURE_TOTALS);
		} else if (r.version == XCP_RETURN_CHANGE) {
			feedback = (__s64)r.feedback * n;
		} else {
			COUNT(malformed, 1);
			return;
		}
		s->feedback += feedback;
		s->silent_acks = 0;
		s->answered = 1;
		COUNT(sums.feedback, feedback);
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
		if (!is_elsewhere(skops) &&
		    (choose(skops, config.make_default) ||
		     route_gives_xcp(kernel_sock(skops))))
			offer(skops);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		if (is_elsewhere(skops))
			break;
		if (choose(skops, config.make_default))
			keep_syns(skops);
		set_callbacks(skops, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		established(skops, false);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		established(skops, true);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		/* perhaps the other end takes no headers any more */
		s = socket_of(skops, 0);
		if (s && is_header(s->wire) &&
		    skops->args[0] >= SILENT_TIMEOUTS) {
			/* it gives back what it set while it knows of it */
			if (uses_xcp(skops))
				leave(skops, XCP_FALLBACK_SILENT);
			forget(skops);
		}
		break;
	case BPF_SOCK_OPS_RTT_CB:
		/* headers are read where nobody may be judged */
		s = socket_of(skops, 0);
		if (s)
			judge_path(skops, s);
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

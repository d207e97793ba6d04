// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The programs on a host's device (tc egress and ingress). They insert the
 * headers of the wire formats `header` and `header-2004` behind the IP header
 * of packets that XCP sockets send, and remove them from received packets
 * before TCP. They also make room for feedback on ACKs full of SACK blocks
 * (sack.h).
 *
 * Egress. The packet's socket has the state, in the storage that option.bpf.c
 * uses too. SYNs and data carry a standard header, pure ACKs a minimal one. A
 * partial checksum stays correct, as its start moves with the TCP header.
 *
 * Ingress. Headers are removed only if they belong to connections that use XCP,
 * or come from configured peers to an address of this host. All other packets
 * are left to the kernel, which treats them as packets of an unknown protocol.
 * TCP has not seen the packet yet, so a header counts only if its sequence and
 * acknowledgement numbers are ones that TCP could accept: an attacker who does
 * not see the connection must guess them. Feedback is added to the socket's
 * sums without its lock, by atomic operations.
 *
 * Handshake. A header on a SYN or SYN-ACK means that its sender uses XCP;
 * `handshake_cache` stores that until the socket exists (option.bpf.c). If a
 * SYN or SYN-ACK with a header and its retransmission get no answer, the next
 * one is sent without.
 */
#include "app_limit.h"
#include "fmt_header.h"
#include "ip.h"
#include "ip_edit.h"
#include "route.h"
#include "sack.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

XCP_DATA(xcp_host_config, config);
XCP_MAP(sockets);
XCP_MAP(counters);
XCP_MAP(peers);
XCP_MAP(handshake_cache);

#define SYNS_WITH_HEADER 2
/* the longest pure ACK */
#define ACK_MAX (IPV6_LEN + XCP_TCP_HEADER_MAX)
#define TCP_FLAGS 13 /* offset in the TCP header, like the next two */
#define TCP_SEQ 4
#define TCP_ACK 8
/* retransmitted packets may begin at least this far before rcv_nxt */
#define WINDOW_LEAST 65535

const volatile struct xcp_device_options options = {};

/* Reads a TCP packet to send; false if the IP header has options. */
static __always_inline bool read_sent(struct __sk_buff *skb, struct sent *p)
{
	__u8 tcp[16];

	p->l3 = options.l2_len;
	if (!load_plain_ip(skb, p->l3, IPPROTO_TCP, &p->l4, &p->ttl) ||
	    bpf_skb_load_bytes(skb, p->l4, tcp, sizeof(tcp)))
		return false;
	p->flags = tcp[TCP_FLAGS];
	p->header_len = (tcp[12] >> 4) * 4;
	if (p->l4 + p->header_len > skb->len)
		return false;
	p->payload = skb->len - p->l4 - p->header_len;
	return true;
}

/* Makes room for a header and updates the IP header. */
static __always_inline bool open_packet(struct __sk_buff *skb,
					const struct sent *p, __u32 length)
{
	if (bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_NET,
				BPF_F_ADJ_ROOM_NO_CSUM_RESET)) {
		COUNT(header_omitted, 1);
		return false;
	}
	set_ip_protocol(skb, p->l3, is_v4(p), (__u8)options.ip_proto);
	set_ip_length(skb, p->l3, is_v4(p), length);
	return true;
}

/*
 * Does a packet with a header fit into the path MTU? TCP reserves room for it
 * among its options, which other options may need: SACK blocks, or those of a
 * SYN with data.
 */
static __always_inline bool fits_path(struct bpf_sock *sk, const struct sent *p,
				      __u32 length)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	return !tp || p->header_len + p->payload + length <=
			      tp->mss_cache + tp->tcp_header_len;
}

static __always_inline void put_in(struct __sk_buff *skb, struct bpf_sock *sk,
				   struct xcp_socket *s, const struct sent *p)
{
	__u8 header[XCP_HEADER_MAX_LEN] = {};
	__u32 length = XCP_HEADER_LEN;

	if (skb->gso_segs > 1) {
		/*
		 * A GSO packet with an unknown protocol cannot be segmented.
		 * GSO is enabled on the device again: send no more headers.
		 */
		s->uses_xcp = 0;
		return;
	}
	if (s->uses_xcp && p->payload && !s->receiver.pending &&
	    !needs_forward_header(s, xcp_ticks_to_ns(s->sender.rtt) / 1000))
		return;
	if (s->uses_xcp && p->payload)
		length = fmt_header_len(s->wire, XCP_BOTH);
	if (!fits_path(sk, p, length)) {
		COUNT(header_omitted, 1);
		return;
	}
	if (!open_packet(skb, p, length))
		return;
	s->ttl = p->ttl;
	if (s->uses_xcp && p->payload)
		ask(sk, s);
	fmt_header_write(s, header, p->payload, length);
	bpf_skb_store_bytes(skb, p->l4, header, length, 0);
}

/* Reads a packet's addresses and ports, as the local socket has them. */
static __always_inline bool packet_flow_key(struct __sk_buff *skb, __u32 l3,
					    bool v4, __u32 l4, bool sent,
					    struct xcp_flow_key *key)
{
	struct xcp_address from, to;
	__be16 ports[2];
	__u32 ip[2];

	__builtin_memset(key, 0, sizeof(*key));
	if (bpf_skb_load_bytes(skb, l4, ports, sizeof(ports)))
		return false;
	if (v4) {
		if (bpf_skb_load_bytes(skb, l3 + IPV4_SOURCE, ip, sizeof(ip)))
			return false;
		address_of_ipv4(&from, ip[0]);
		address_of_ipv4(&to, ip[1]);
	} else if (bpf_skb_load_bytes(skb, l3 + IPV6_SOURCE, &from,
				      sizeof(from)) ||
		   bpf_skb_load_bytes(skb, l3 + IPV6_DESTINATION, &to,
				      sizeof(to))) {
		return false;
	}
	key->netns = options.netns;
	key->local = sent ? from : to;
	key->remote = sent ? to : from;
	key->local_port = bpf_ntohs(ports[sent ? 0 : 1]);
	key->remote_port = bpf_ntohs(ports[sent ? 1 : 0]);
	return true;
}

/* Adds a header to a SYN-ACK (of a request socket), in the SYN's format. */
static __noinline int answer(struct __sk_buff *skb, struct sent *p)
{
	struct sk_buff *kskb = kernel_skb(skb);
	__u8 header[XCP_HEADER_LEN], version;
	struct xcp_forward f = {};
	struct sock *request = kskb->sk;
	struct xcp_flow_key names;
	struct xcp_cached_handshake *h;

	if (!p || !request || !(p->flags & TCP_FLAG_SYN) ||
	    !(p->flags & TCP_FLAG_ACK) ||
	    !packet_flow_key(skb, p->l3, is_v4(p), p->l4, true, &names))
		return 0;
	h = bpf_map_lookup_elem(&handshake_cache, &names);
	if (!h || !request_uses_xcp(kskb, (struct request_sock *)request))
		return 0;
	version = version_of(h->wire);
	if (h->syn_acks_sent++ >= SYNS_WITH_HEADER)
		return 0;
	if (!open_packet(skb, p, sizeof(header)))
		return 0;
	f.xcp_ttl = p->ttl;
	xcp_build_header(header, version, IPPROTO_TCP, &f, 0, 0);
	bpf_skb_store_bytes(skb, p->l4, header, sizeof(header), 0);
	return 0;
}

SEC("tc")
int xcp_egress(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct xcp_socket *s;
	struct sent p = {};

	if (!sk)
		return XCP_TC_NEXT;
	sk = bpf_sk_fullsock(sk);
	if (!sk) {
		if (read_sent(skb, &p))
			answer(skb, &p);
		return XCP_TC_NEXT;
	}
	s = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!s)
		return XCP_TC_NEXT;
	if (is_header(s->wire)) {
		if (!read_sent(skb, &p)) {
			COUNT(header_omitted, 1);
			return XCP_TC_NEXT;
		}
		if (s->uses_xcp ||
		    (p.flags & TCP_FLAG_SYN && s->syns++ < SYNS_WITH_HEADER))
			put_in(skb, sk, s, &p);
	} else if (s->uses_xcp && skb->len <= options.l2_len + ACK_MAX &&
		   read_sent(skb, &p)) {
		make_room(skb, s, &p);
	}
	return XCP_TC_NEXT;
}

/* A received packet with an XCP header. */
struct arrived {
	__u32 l3;
	__u32 l4; /* offset of the XCP header */
	__u8 header[XCP_HEADER_LEN];
	struct xcp_header head;
	enum xcp_kind kind;
	__u32 seq; /* from the TCP header, like ack and flags */
	__u32 ack;
	__u8 flags;
	__u8 ttl;
	__u8 v4;
};

/* Reads a received packet: false unless it is plain IP, XCP header, TCP. */
static __always_inline bool read_arrived(struct __sk_buff *skb,
					 struct arrived *a)
{
	__u8 tcp[TCP_FLAGS + 1];

	a->l3 = options.l2_len;
	if (!load_plain_ip(skb, a->l3, options.ip_proto, &a->l4, &a->ttl))
		return false;
	a->v4 = a->l4 == a->l3 + IPV4_LEN;
	if (bpf_skb_load_bytes(skb, a->l4, a->header, XCP_HEADER_LEN))
		a->kind = XCP_MALFORMED;
	else
		a->kind = xcp_header_read(a->header, &a->head);
	if (a->kind != XCP_MALFORMED && a->head.protocol == IPPROTO_TCP &&
	    !bpf_skb_load_bytes(skb, a->l4 + a->head.length, tcp,
				sizeof(tcp))) {
		a->seq = xcp_get32(tcp + TCP_SEQ);
		a->ack = xcp_get32(tcp + TCP_ACK);
		a->flags = tcp[TCP_FLAGS];
		return true;
	}
	COUNT(malformed, 1);
	return false;
}

/* Is `value` between the two, as sequence numbers, which wrap around? */
static __always_inline bool is_between(__u32 low, __u32 value, __u32 high)
{
	return value - low <= high - low;
}

/*
 * Could TCP accept the packet? TCP's own bounds are tighter: here late and
 * retransmitted packets are accepted too, and an ACK may arrive before TCP has
 * updated snd_nxt for what it has sent.
 */
static __always_inline bool fits_windows(const struct tcp_sock *tp,
					 const struct arrived *a)
{
	__u32 late = (__u32)xcp_max(tp->rcv_wnd, WINDOW_LEAST);

	return a->flags & TCP_FLAG_ACK &&
	       is_between(tp->rcv_nxt - late, a->seq,
			  tp->rcv_wup + tp->rcv_wnd) &&
	       is_between(tp->snd_una - tp->max_window, a->ack, tp->write_seq);
}

/*
 * Does a packet of a handshake acknowledge what was sent? A SYN has nothing to
 * acknowledge. An ACK to a listener without a request socket may have a SYN
 * cookie, which only TCP can check: its header is ignored.
 */
static __always_inline bool fits_handshake(struct bpf_sock *sk,
					   const struct arrived *a)
{
	struct tcp_request_sock *request;
	struct tcp_sock *tp;

	if (!(a->flags & TCP_FLAG_ACK))
		return true;
	request = bpf_skc_to_tcp_request_sock(sk);
	if (request)
		return a->ack == request->snt_isn + 1;
	if (!(a->flags & TCP_FLAG_SYN))
		return sk->state != BPF_TCP_LISTEN;
	tp = bpf_skc_to_tcp_sock(sk);
	return tp && sk->state == BPF_TCP_SYN_SENT &&
	       is_between(tp->snd_una + 1, a->ack, tp->write_seq);
}

static __always_inline void cache_handshake(const struct arrived *a,
					    const struct xcp_flow_key *names)
{
	struct xcp_cached_handshake h = {}, *before;

	if (!(a->flags & TCP_FLAG_SYN)) {
		before = bpf_map_lookup_elem(&handshake_cache, names);
		if (!before)
			return;
		h = *before;
		h.acked = 1;
	}
	h.wire = wire_of_version(a->head.version);
	bpf_map_update_elem(&handshake_cache, names, &h, BPF_ANY);
}

/* Is the local address of a packet one of this host's? */
static __noinline bool is_local(struct __sk_buff *skb,
				const struct xcp_flow_key *names, bool v4)
{
	struct bpf_fib_lookup fib = {};
	long result;

	fib.ifindex = skb->ifindex;
	fib.l4_protocol = IPPROTO_TCP;
	if (v4) {
		fib.family = AF_INET;
		__builtin_memcpy(&fib.ipv4_src, names->remote.bytes + 12, 4);
		__builtin_memcpy(&fib.ipv4_dst, names->local.bytes + 12, 4);
	} else {
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, &names->remote, 16);
		__builtin_memcpy(fib.ipv6_dst, &names->local, 16);
	}
	result = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	/* with forwarding disabled, all received packets are local */
	return result == BPF_FIB_LKUP_RET_NOT_FWDED ||
	       result == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Is the sender a configured peer with a wire format of headers? */
static __always_inline bool is_peer(const struct xcp_flow_key *names)
{
	int wire = wire_of(options.netns, &names->remote);

	return wire >= 0 && is_header((__u8)wire);
}

/* Passes the header to its socket; false if it must stay in the packet. */
static __noinline bool deliver(struct __sk_buff *skb, struct arrived *a,
			       struct xcp_flow_key *names)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk, *full;
	struct xcp_socket *s = NULL;
	bool ours = false, fits = false;
	struct tcp_sock *tp;

	if (a->v4) {
		__builtin_memcpy(&tuple.ipv4.saddr, names->remote.bytes + 12,
				 4);
		__builtin_memcpy(&tuple.ipv4.daddr, names->local.bytes + 12, 4);
		tuple.ipv4.sport = bpf_htons(names->remote_port);
		tuple.ipv4.dport = bpf_htons(names->local_port);
		sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4),
					BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, &names->remote, 16);
		__builtin_memcpy(tuple.ipv6.daddr, &names->local, 16);
		tuple.ipv6.sport = bpf_htons(names->remote_port);
		tuple.ipv6.dport = bpf_htons(names->local_port);
		sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6),
					BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk) {
		/* no socket: TCP will answer with a reset */
		return is_peer(names) && is_local(skb, names, a->v4);
	}
	full = bpf_sk_fullsock(sk);
	if (full)
		s = bpf_sk_storage_get(&sockets, full, NULL, 0);
	if (s && s->uses_xcp && is_header(s->wire)) {
		tp = bpf_skc_to_tcp_sock(full);
		fits = tp && fits_windows(tp, a);
		if (fits)
			fmt_header_parse(s, a->header, a->head.version, a->kind,
					 a->ttl);
		ours = true;
	} else if (is_peer(names) && (sk->state != BPF_TCP_LISTEN ||
				      is_local(skb, names, a->v4))) {
		fits = fits_handshake(sk, a);
		if (fits)
			cache_handshake(a, names);
		ours = true;
	}
	if (ours && !fits)
		COUNT(implausible, 1);
	bpf_sk_release(sk);
	return ours;
}

SEC("tc")
int xcp_ingress(struct __sk_buff *skb)
{
	struct xcp_flow_key names;
	struct arrived a = {};

	if (!read_arrived(skb, &a) ||
	    !packet_flow_key(skb, a.l3, a.v4, a.l4 + a.head.length, false,
			     &names))
		return XCP_TC_NEXT;
	if (!deliver(skb, &a, &names))
		return XCP_TC_NEXT;
	if (bpf_skb_adjust_room(skb, -(__s32)a.head.length, BPF_ADJ_ROOM_NET,
				BPF_F_ADJ_ROOM_NO_CSUM_RESET))
		return XCP_TC_NEXT;
	set_ip_protocol(skb, a.l3, a.v4, IPPROTO_TCP);
	set_ip_length(skb, a.l3, a.v4, -(__s32)a.head.length);
	return XCP_TC_NEXT;
}

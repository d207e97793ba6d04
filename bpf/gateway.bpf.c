// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * The gateway: delivers forwarded TCP connections between LAN and WAN to the
 * proxy of `xcp gateway run`. tcx ingress of the LAN and WAN devices.
 *
 * 1. A packet of a connection that a socket of this network namespace has, and
 *    an ICMP error about one, gets the mark XCP_GATEWAY_MARK. A rule of the
 *    routing policy delivers marked packets locally, although their destination
 *    is the address of another host.
 * 2. A SYN that the proxy should accept gets the mark too, and one of the
 *    proxy's listeners. The conditions: it would be forwarded from LAN to WAN,
 *    or back; its source is where it came from; the configuration includes it;
 *    it is not signed; the proxy is below its limits; the rule exists.
 * 3. Everything else is forwarded unchanged. This includes all SYNs while there
 *    is no proxy: the kernel removes listeners of a process that has ended.
 */
#include "abi.h"
#include "parse.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define IPPROTO_ICMP 1
#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
/* ICMPv6 errors have the types 1 to 127 */
#define ICMPV6_ERRORS_MAX 127
#define ICMP_LEN 8
#define TCP_FLAGS 13
#define TCPOPT_EOL 0
#define TCPOPT_NOP 1
#define MPTCP_JOIN 1
/* for installed headers that are older */
#define FIB_LOOKUP_SKIP_NEIGH (1U << 2)
#define FIB_LOOKUP_MARK (1U << 5)

XCP_DATA(xcp_gateway_config, config);

/* The devices, by index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, XCP_GATEWAY_DEVICES_MAX);
	__type(key, __u32);
	__type(value, struct xcp_gateway_device);
} devices SEC(".maps");

/* enum xcp_gateway_filter, by prefix of either address. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, XCP_GATEWAY_FILTERS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct xcp_gateway_prefix);
	__type(value, __u32);
} prefixes SEC(".maps");

/* enum xcp_gateway_filter, by destination port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, XCP_GATEWAY_FILTERS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

/* Sources with as many connections as one may have. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, XCP_GATEWAY_FILTERS_MAX);
	__type(key, struct xcp_address);
	__type(value, __u32);
} full_sources SEC(".maps");

/* The proxy's listeners: 2 x enum xcp_gateway_side, plus 1 for IPv6. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, XCP_GATEWAY_LISTENERS);
	__type(key, __u32);
	__type(value, __u64);
} listeners SEC(".maps");

/* The listener for SYNs that reuse the ports of a connection in TIME_WAIT. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, XCP_GATEWAY_REOPENED_MAX);
	__type(key, struct xcp_flow_key);
	__type(value, __u32);
} reopened SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct xcp_gateway_counters);
} counters SEC(".maps");

/* A packet's addresses and ports; IPv4 addresses are mapped to IPv6. */
struct packet {
	struct xcp_flow_key c;
	struct xcp_gateway_device device;
	struct found at;
	bool is_ipv6;
};

/* Reads the addresses of the IP header at `at`, the sender's as the remote. */
static __always_inline int read_addresses(struct __sk_buff *skb, __u32 at,
					  struct packet *p)
{
	__u32 ipv4[2];

	if (p->is_ipv6)
		return bpf_skb_load_bytes(skb, at + IPV6_SOURCE, &p->c.remote,
					  sizeof(p->c.remote)) ||
		       bpf_skb_load_bytes(skb, at + IPV6_DESTINATION,
					  &p->c.local, sizeof(p->c.local));
	if (bpf_skb_load_bytes(skb, at + IPV4_SOURCE, ipv4, sizeof(ipv4)))
		return -1;
	address_of_ipv4(&p->c.remote, ipv4[0]);
	address_of_ipv4(&p->c.local, ipv4[1]);
	return 0;
}

/*
 * The state of the socket that has the packet's connection; -1 if there is
 * none. A listener is none: it listens on a port of this machine, and the
 * lookup compares no address with it.
 */
static __always_inline int connection_state(struct __sk_buff *skb,
					    const struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	int state;

	if (p->is_ipv6) {
		__builtin_memcpy(tuple.ipv6.saddr, &p->c.remote, 16);
		__builtin_memcpy(tuple.ipv6.daddr, &p->c.local, 16);
		tuple.ipv6.sport = p->c.remote_port;
		tuple.ipv6.dport = p->c.local_port;
		sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6),
					BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(&tuple.ipv4.saddr, p->c.remote.bytes + 12, 4);
		__builtin_memcpy(&tuple.ipv4.daddr, p->c.local.bytes + 12, 4);
		tuple.ipv4.sport = p->c.remote_port;
		tuple.ipv4.dport = p->c.local_port;
		sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4),
					BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return -1;
	state = sk->state;
	bpf_sk_release(sk);
	return state == TCP_LISTEN ? -1 : state;
}

/* Marks an ICMP error about a connection of this network namespace. */
static __always_inline void deliver_error(struct __sk_buff *skb,
					  struct packet *p)
{
	__u32 inner = p->at.l4 + ICMP_LEN, l4, protocol;
	struct xcp_address sender;
	__u8 ip[IPV4_LEN], type;
	__u16 tcp[2];

	if (bpf_skb_load_bytes(skb, p->at.l4, &type, 1) ||
	    bpf_skb_load_bytes(skb, inner, ip, sizeof(ip)))
		return;
	if (p->is_ipv6) {
		if (type > ICMPV6_ERRORS_MAX || IP_VERSION(ip) != 6)
			return;
		protocol = read_ipv6(ip).protocol;
		l4 = inner + IPV6_LEN;
	} else {
		if ((type != ICMP_UNREACHABLE && type != ICMP_TIME_EXCEEDED &&
		     type != ICMP_PARAMETER_PROBLEM) ||
		    IP_VERSION(ip) != 4)
			return;
		protocol = read_ipv4(ip).protocol;
		l4 = inner + read_ipv4(ip).header_len;
	}
	if (protocol != IPPROTO_TCP || read_addresses(skb, inner, p) ||
	    bpf_skb_load_bytes(skb, l4, tcp, sizeof(tcp)))
		return;
	/* this host sent the packet that the error is about */
	sender = p->c.remote;
	p->c.remote = p->c.local;
	p->c.local = sender;
	p->c.local_port = tcp[0];
	p->c.remote_port = tcp[1];
	if (connection_state(skb, p) >= 0)
		skb->mark = XCP_GATEWAY_MARK;
}

/*
 * Looks up the route of a packet with this mark from one address to the other.
 * Returns the device that it leaves by, 0 if it is not forwarded. Sets `local`
 * if it is delivered locally.
 */
static __always_inline __u32 route(struct __sk_buff *skb,
				   const struct packet *p, bool back,
				   __u32 mark, bool *local)
{
	const struct xcp_address *from = &p->c.remote;
	const struct xcp_address *to = &p->c.local;
	struct bpf_fib_lookup fib = {
		.l4_protocol = IPPROTO_TCP,
		.ifindex = skb->ifindex,
	};
	__u32 flags = FIB_LOOKUP_SKIP_NEIGH;
	long result;

	if (back) {
		from = &p->c.local;
		to = &p->c.remote;
	}
	if (p->is_ipv6) {
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, from, 16);
		__builtin_memcpy(fib.ipv6_dst, to, 16);
	} else {
		fib.family = AF_INET;
		__builtin_memcpy(&fib.ipv4_src, from->bytes + 12, 4);
		__builtin_memcpy(&fib.ipv4_dst, to->bytes + 12, 4);
	}
	if (mark) {
		/* struct bpf_fib_lookup of Linux 6.10: a union with smac */
		__builtin_memcpy(fib.smac, &mark, sizeof(mark));
		flags |= FIB_LOOKUP_MARK;
	}
	result = bpf_fib_lookup(skb, &fib, sizeof(fib), flags);
	*local = result == BPF_FIB_LKUP_RET_NOT_FWDED;
	return result == BPF_FIB_LKUP_RET_SUCCESS ? fib.ifindex : 0;
}

/* Is this device on this side? */
static __always_inline bool is_on_side(__u32 ifindex, __u32 side)
{
	struct xcp_gateway_device *device;

	device = ifindex ? bpf_map_lookup_elem(&devices, &ifindex) : NULL;
	return device && device->side == side;
}

/* What the configuration says of an address. */
static __always_inline __u32 filter_address(struct xcp_address *address)
{
	struct xcp_gateway_prefix key = {
		.length = 128,
		.address = *address,
	};
	__u32 *filter = bpf_map_lookup_elem(&prefixes, &key);

	return filter ? *filter : XCP_GATEWAY_UNSPECIFIED;
}

/* Does the configuration include this connection? */
static __always_inline bool is_included(struct packet *p)
{
	__u32 remote = filter_address(&p->c.remote);
	__u32 local = filter_address(&p->c.local);
	__u32 port = bpf_ntohs(p->c.local_port);
	__u32 *filter = bpf_map_lookup_elem(&ports, &port);

	if (remote == XCP_GATEWAY_EXCLUDE || local == XCP_GATEWAY_EXCLUDE ||
	    (filter && *filter == XCP_GATEWAY_EXCLUDE))
		return false;
	if (config.only_prefixes && remote != XCP_GATEWAY_INCLUDE &&
	    local != XCP_GATEWAY_INCLUDE)
		return false;
	return !config.only_ports || filter;
}

/*
 * Does a SYN have an option that no proxy can copy: a signature (TCP-MD5,
 * TCP-AO), or the key of a connection that it joins (MPTCP)?
 */
__noinline int is_unsplittable(struct tcp_copy *tcp)
{
	__u32 at = XCP_TCP_HEADER_LEN, length, i;
	__u8 kind;

	if (!tcp)
		return 0;
	XCP_FOR(i, XCP_TCP_HEADER_MAX - XCP_TCP_HEADER_LEN)
	{
		XCP_FORGET(at); /* one verifier state per option */
		if (at + 1 >= tcp->header_len || at >= XCP_TCP_HEADER_MAX)
			break;
		kind = tcp->bytes[at];
		if (kind == TCPOPT_EOL)
			break;
		if (kind == TCPOPT_NOP) {
			at++;
			continue;
		}
		length = tcp->bytes[at + 1];
		if (length < 2)
			break;
		if (kind == TCPOPT_MD5SIG || kind == TCPOPT_AO ||
		    (kind == TCPOPT_MPTCP &&
		     tcp->bytes[at + 2] >> 4 == MPTCP_JOIN))
			return 1;
		at += length;
	}
	return 0;
}

static __always_inline __u32 listener_of(const struct packet *p)
{
	return 2 * p->device.side + p->is_ipv6;
}

/* Gives a packet to the proxy's listener. Returns false if there is none. */
static __always_inline bool assign(struct __sk_buff *skb, __u32 index)
{
	struct bpf_sock *listener = bpf_map_lookup_elem(&listeners, &index);
	bool done;

	if (!listener)
		return false;
	done = !bpf_sk_assign(skb, listener, 0);
	bpf_sk_release(listener);
	return done;
}

/* Handles a SYN of a new connection. */
static __always_inline void open_connection(struct __sk_buff *skb,
					    struct packet *p,
					    struct xcp_gateway_counters *n,
					    bool reuses)
{
	__u32 other_side = !p->device.side, index = listener_of(p);
	bool local;

	if (!is_on_side(route(skb, p, false, 0, &local), other_side)) {
		n->not_across++;
		return;
	}
	if (!is_on_side(route(skb, p, true, 0, &local), p->device.side)) {
		n->spoofed++;
		return;
	}
	if (!is_included(p)) {
		n->excluded++;
		return;
	}
	if (config.full || bpf_map_lookup_elem(&full_sources, &p->c.remote)) {
		n->over_limit++;
		return;
	}
	route(skb, p, false, XCP_GATEWAY_MARK, &local);
	if (!local) {
		n->no_rule++;
		return;
	}
	/* TCP looks for a listener itself if there is a socket in TIME_WAIT */
	if (reuses)
		bpf_map_update_elem(&reopened, &p->c, &index, BPF_ANY);
	else if (!assign(skb, index)) {
		n->no_proxy++;
		return;
	}
	skb->mark = XCP_GATEWAY_MARK;
	n->intercepted++;
}

/*
 * Handles a packet without a socket that is no SYN: it may complete a handshake
 * of which the kernel kept a SYN cookie only. Cookies are valid for every
 * listener, so a packet to a service of this machine is not the proxy's.
 */
static __always_inline void check_cookie(struct __sk_buff *skb,
					 struct packet *p, __u8 *tcp)
{
	__u32 index = listener_of(p);
	__u8 ip[IPV6_LEN] = {};
	struct bpf_sock *listener;
	bool ours, local;

	if (bpf_skb_load_bytes(skb, p->at.ip, ip,
			       p->is_ipv6 ? IPV6_LEN : IPV4_LEN))
		return;
	listener = bpf_map_lookup_elem(&listeners, &index);
	if (!listener)
		return;
	ours = !bpf_tcp_check_syncookie(listener, ip, sizeof(ip), (void *)tcp,
					XCP_TCP_HEADER_LEN) &&
	       is_on_side(route(skb, p, false, 0, &local), !p->device.side) &&
	       !bpf_sk_assign(skb, listener, 0);
	bpf_sk_release(listener);
	if (ours)
		skb->mark = XCP_GATEWAY_MARK;
}

static __always_inline void handle_tcp(struct __sk_buff *skb, struct packet *p,
				       struct xcp_gateway_counters *n)
{
	struct tcp_copy tcp = {};
	__u8 flags;
	int state;

	if (find_in_tcp(skb, p->at.l4, p->at.l4_len, &tcp) == XCP_MALFORMED &&
	    !tcp.header_len)
		return;
	__builtin_memcpy(&p->c.remote_port, tcp.bytes, 2);
	__builtin_memcpy(&p->c.local_port, tcp.bytes + 2, 2);
	flags = tcp.bytes[TCP_FLAGS];
	state = connection_state(skb, p);
	if (flags & TCP_FLAG_SYN && !(flags & TCP_FLAG_ACK) &&
	    (state < 0 || state == TCP_TIME_WAIT)) {
		if (is_unsplittable(&tcp))
			n->unsplittable++;
		else
			open_connection(skb, p, n, state == TCP_TIME_WAIT);
	} else if (state >= 0) {
		skb->mark = XCP_GATEWAY_MARK;
	} else if (flags & TCP_FLAG_ACK) {
		check_cookie(skb, p, tcp.bytes);
	}
}

SEC("tc")
int xcp_gateway(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, key = 0;
	struct xcp_gateway_device *device;
	struct xcp_gateway_counters *n;
	struct packet p = {};
	enum xcp_kind kind;

	device = bpf_map_lookup_elem(&devices, &ifindex);
	n = bpf_map_lookup_elem(&counters, &key);
	if (!device || !n)
		return XCP_TC_NEXT;
	p.device = *device;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		kind = find_ipv4(skb, device->l2_len, IPPROTO_ICMP, &p.at);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		kind = find_ipv6(skb, device->l2_len, IPPROTO_ICMPV6, &p.at);
		p.is_ipv6 = true;
	} else {
		return XCP_TC_NEXT;
	}
	if (kind != XCP_FORWARD || read_addresses(skb, p.at.ip, &p)) {
		n->other_packets++;
		return XCP_TC_NEXT;
	}
	if (p.at.protocol == IPPROTO_TCP) {
		handle_tcp(skb, &p, n);
	} else {
		n->other_packets++;
		deliver_error(skb, &p);
	}
	return XCP_TC_NEXT;
}

/*
 * TCP looks for a listener: a SYN reuses the ports of a connection in
 * TIME_WAIT, and xcp_gateway has marked it.
 */
SEC("sk_lookup")
int xcp_gateway_reopen(struct bpf_sk_lookup *ctx)
{
	struct xcp_flow_key c = {};
	struct bpf_sock *listener;
	__u32 *index;

	if (ctx->protocol != IPPROTO_TCP)
		return SK_PASS;
	if (ctx->family == AF_INET) {
		address_of_ipv4(&c.remote, ctx->remote_ip4);
		address_of_ipv4(&c.local, ctx->local_ip4);
	} else {
		__u32 *remote = (void *)c.remote.bytes;
		__u32 *local = (void *)c.local.bytes;

		remote[0] = ctx->remote_ip6[0];
		remote[1] = ctx->remote_ip6[1];
		remote[2] = ctx->remote_ip6[2];
		remote[3] = ctx->remote_ip6[3];
		local[0] = ctx->local_ip6[0];
		local[1] = ctx->local_ip6[1];
		local[2] = ctx->local_ip6[2];
		local[3] = ctx->local_ip6[3];
	}
	c.remote_port = ctx->remote_port;
	c.local_port = bpf_htons((__u16)ctx->local_port);
	index = bpf_map_lookup_elem(&reopened, &c);
	if (!index)
		return SK_PASS;
	listener = bpf_map_lookup_elem(&listeners, index);
	bpf_map_delete_elem(&reopened, &c);
	if (!listener)
		return SK_PASS;
	bpf_sk_assign(ctx, listener, 0);
	bpf_sk_release(listener);
	return SK_PASS;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * All records, enums and constants that BPF programs and user space share. The
 * Rust side, crates/xcp-abi/src/generated.rs, is generated from this file and
 * from core/; a test fails if it is out of date.
 */
#ifndef XCP_BPF_ABI_H
#define XCP_BPF_ABI_H

#include "../core/xcp_cloud.h"
#include "../core/xcp_frame.h"
#include "../core/xcp_loss.h"
#include "../core/xcp_receiver.h"
#include "../core/xcp_router.h"

/* Options of the program of a router or virtual router, set before loading. */
struct xcp_router_options {
	uint32_t l2_len; /* 14 on Ethernet, 0 on devices without a link layer */
	uint32_t cpus;
	uint32_t merge_chains; /* the kernel segments merged chains correctly */
	uint32_t upstream; /* virtual routers only: the ID of the upstream
			      router, as in last_xcp_router */
};

/* The configuration of a router (`xcp router add`); may change at any time. */
struct xcp_router_config {
	struct xcp_router_params params; /* capacity 0: measure it only */
	struct xcp_frame frame;
	uint16_t measure; /* 1: measure the capacity while the link is busy */
	uint16_t unused;
	uint32_t queue; /* 1 + index in the map `queues`; 0: none */
	uint32_t share; /* XCP's share of the link, 2^-16; 0: by flow counts */
	uint16_t ip_proto; /* IP protocol of the wire format `header` */
	uint16_t whole_feedback; /* `option-2005`: whole packets only */
	/* ID to write into last_xcp_router; 0: do not write it */
	uint32_t edge;
	uint8_t edge_address[XCP_ADDRESS_LEN]; /* written if there is room */
	uint64_t hint_Bps; /* capacity hint from a modem; 0: none */
	uint64_t hint_until_ns; /* when the hint expires */
};

/* Counters of one CPU on one link. */
struct xcp_router_counters {
	uint64_t xcp_packets; /* wire packets with a forward header */
	uint64_t other_packets; /* wire packets without one */
	uint64_t malformed; /* wire packets with a malformed header */
	int64_t granted_Bps; /* sum of granted deltas, per wire packet */
	uint64_t chained; /* wire packets of fraglist GRO, merged and edited */
	uint64_t chained_unedited; /* the same, passed on unchanged */
};

/* The state of one CPU on one link. */
struct xcp_router_cpu {
	struct xcp_router_sums sums;
	struct xcp_router_pool pool;
	uint32_t epoch; /* epoch of the law that filled the pool */
	uint32_t unused;
	struct xcp_router_counters counters;
	int64_t carry_2005; /* remainder of rounding in `option-2005`, B/s */
	uint64_t other_B; /* bytes that arrived for the other queue */
	uint64_t other_left_B; /* bytes of these until the next sample */
	/* written only by the CPU that ends an interval */
	uint64_t seen_traffic_B; /* total when the last interval ended */
	uint64_t seen_sum_x;
	uint64_t last_traffic_B; /* increase in the last interval */
	uint64_t last_sum_x;
	uint64_t next_pos[2]; /* this CPU's pool for an epoch: [epoch & 1] */
	uint64_t next_neg[2];
} __attribute__((aligned(128)));

/* The state of one link, which all CPUs share. */
struct xcp_router_link {
	struct xcp_router_state state;
	struct xcp_router_law law[2]; /* the law in force is [epoch & 1] */
	struct xcp_router_sums sums; /* all CPUs, at the interval's end */
	uint32_t epoch; /* number of the law in force */
	uint32_t claimed; /* 1 while a CPU writes this record */
	uint64_t started; /* time of the first packet; 0: none yet */
	uint64_t next_sample_ns; /* time of the next sample of the link */
	uint64_t last_sent_B; /* bytes sent until the last sample, as Linux
				 counts */
	uint64_t last_sent_packets;
	uint64_t last_qdiscs; /* hash of the queue disciplines counted */
	struct xcp_link_samples seen;
	struct xcp_sharing_interval other;
	struct xcp_sampler sampler;
	uint64_t sample_B; /* bytes of other traffic between two samples */
	uint32_t end_now; /* capacity or hint changed: end the interval now */
	uint32_t has_classes; /* 1: the link uses the qdisc `xcp` */
	/* values at the end of the last interval */
	uint64_t configured_Bps;
	uint64_t hint_Bps;
};

/* One control interval, as reported in the ring buffer `trace`. */
struct xcp_router_record {
	uint64_t time_ns; /* end of the interval, monotonic clock */
	uint64_t interval_ns;
	uint64_t d_ns; /* average RTT */
	uint64_t capacity_Bps; /* capacity that XCP may hand out */
	uint64_t link_Bps; /* measured capacity of the link; 0: unknown */
	uint64_t y_Bps; /* input traffic that counts against the capacity */
	uint64_t other_Bps; /* input traffic of the other queue */
	uint64_t queue_B; /* Q */
	uint64_t backlog_B;
	int64_t f_Bps; /* F */
	uint64_t pos_Bps; /* pool of positive feedback */
	uint64_t neg_Bps; /* pool of negative feedback */
	uint32_t share; /* XCP's share of the link, 2^-16 */
	uint32_t flows; /* number of XCP flows N, 2^-8 */
};

/*
 * The two classes, and queues, of the queue discipline `xcp`. Its records are
 * found by an index, which the map `queue_index` has for each device.
 */
enum xcp_class {
	XCP_CLASS_XCP, /* packets with an XCP header */
	XCP_CLASS_OTHER, /* all other packets */
	XCP_CLASSES,
};

/*
 * The router writes these into tc_classid of packets of XCP_CLASS_XCP: the
 * second if the packet resolves an address, the first for all others.
 */
#define XCP_CLASSID 0x5843
#define XCP_CLASSID_RESOLVES 0x5844

#define XCP_QUEUES_MAX 1024

/* A device. */
struct xcp_queue_key {
	uint32_t netns; /* inode number of its network namespace */
	uint32_t ifindex;
};

/* The configuration of a queue discipline; may change at any time. */
struct xcp_queue_config {
	uint64_t rate_Bps; /* 0: as fast as the device takes packets */
	uint32_t limit_B; /* limit of each queue; 0: no limit in bytes */
	uint32_t limit_packets;
	struct xcp_frame frame;
	uint32_t medium; /* ID of a medium shared with other queues; 0: none */
};

/*
 * Counters of one class: bytes as on the link, packets as Linux hands them
 * over (a GSO packet is one).
 */
struct xcp_queue_class {
	uint64_t backlog_B;
	uint64_t backlog_packets;
	uint64_t sent_B;
	uint64_t sent_packets;
	uint64_t dropped_packets;
};

/* The state of a device's queue discipline. */
struct xcp_queue {
	struct xcp_queue_class class[XCP_CLASSES];
	uint32_t share; /* weight of XCP, 2^-16, set by the router */
	uint32_t present; /* number of queue disciplines using this record */
};

/* Features of a sender that the drafts do not have; each can be disabled. */
enum xcp_sender_feature {
	XCP_FEATURE_LOSSES = 1, /* reacts to losses: core/xcp_loss.h */
	XCP_FEATURE_IDLE = 2, /* halves the window per timeout of idle time */
	XCP_FEATURE_APP_LIMIT =
		4, /* window and requests follow the data to send */
	XCP_FEATURE_TOTALS = 8, /* `option` returns running totals */
};

/* The configuration of a host, set by `xcp host on`. */
struct xcp_host_config {
	uint32_t make_default; /* 1: xcp is the default of new sockets */
	uint32_t whole_feedback; /* `option-2005`: whole packets only */
	uint32_t without; /* disabled features, enum xcp_sender_feature */
	uint32_t unused;
	uint64_t netns; /* cookie of the only namespace with XCP; 0: all */
};

/* An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. */
struct xcp_address {
	uint8_t bytes[16];
};

/*
 * The key of the map that has the wire format for each peer. The longest prefix
 * that matches a network namespace and an address decides.
 */
struct xcp_peer_key {
	uint32_t prefix_len; /* bits of the fields below that count */
	uint32_t netns[2]; /* cookie; LPM keys have no 64-bit words */
	struct xcp_address address;
};

/* Instead of a wire format: no XCP with this peer. */
#define XCP_WIRE_DISABLED 255

/* Addresses and ports of a connection. */
struct xcp_flow_key {
	uint64_t netns; /* cookie */
	struct xcp_address local, remote;
	uint16_t local_port, remote_port;
	uint32_t unused;
};

/* A handshake in which the peer sent an XCP header. */
struct xcp_cached_handshake {
	uint8_t wire; /* enum xcp_wire */
	uint8_t acked; /* a packet after the SYN had a header, too */
	uint8_t syn_acks_sent; /* number of SYN-ACKs sent with a header */
	uint8_t unused;
};

/* Sums of feedback on a host, as receiver and as sender. */
struct xcp_host_sums {
	int64_t received; /* deltas that arrived in forward headers */
	int64_t returned; /* part of these that was sent back to the peer */
	int64_t unreturned; /* part that was pending when its socket closed */
	int64_t feedback; /* feedback that arrived in return headers */
	int64_t applied; /* part of it that was applied to a window */
};

/* Options of the programs on a host's device, set before loading. */
struct xcp_device_options {
	uint64_t netns; /* cookie of the device's network namespace */
	uint32_t l2_len;
	uint32_t ip_proto; /* IP protocol of the wire formats with a header */
};

/* A device that `xcp host on --dev` has attached to. */
struct xcp_device_key {
	uint64_t netns; /* cookie */
	uint32_t ifindex;
	uint32_t unused;
};

/* The settings of a device before XCP changed them. */
struct xcp_device_record {
	uint32_t gso_max_segs;
	uint32_t tx_checksums;
	uint32_t ip_proto;
	uint32_t complete; /* 1: all changes are done */
};

/* The configuration set by `xcp host on --socket-protocol`. */
struct xcp_protocol_config {
	uint32_t number; /* IPPROTO_XCP */
	uint32_t unused;
};

/* Why a connection uses the default congestion control. */
enum xcp_fallback {
	XCP_FALLBACK_PEER, /* the peer did not answer the handshake */
	XCP_FALLBACK_SYN_COOKIE, /* a listener under load used SYN cookies */
	XCP_FALLBACK_SIGNED, /* TCP-MD5 or TCP-AO: options must not be added */
	XCP_FALLBACK_NO_ROOM, /* other options leave no room for a header */
	XCP_FALLBACK_NO_ROUTER, /* the path has no XCP router */
	XCP_FALLBACK_SILENT, /* the peer stopped returning feedback or ACKs */
	XCP_FALLBACK_STOPPED, /* the device no longer adds headers */
	XCP_FALLBACK_MEMORY, /* the kernel had no memory for the state */
	XCP_FALLBACKS,
};

/* Counters of a host's programs, per CPU. */
struct xcp_host_counters {
	uint64_t sockets; /* connections that used XCP since `host on` */
	uint64_t fallbacks[XCP_FALLBACKS]; /* by reason */
	uint64_t forward_sent;
	uint64_t forward_received;
	uint64_t return_sent;
	uint64_t return_received;
	uint64_t return_no_room; /* ACKs without room for the option */
	uint64_t sacks_trimmed; /* SACK blocks left out to make room */
	uint64_t header_omitted; /* packets too long, or with IP options */
	uint64_t malformed;
	uint64_t implausible; /* headers on packets outside TCP's windows */
	struct xcp_host_sums sums; /* B/s */
	struct xcp_host_sums sums_2005; /* 2^-12 packets */
};

/*
 * A connection falls back after this many data segments in a row without room
 * for a header. One is not enough: some options are only on some segments.
 */
#define XCP_CROWDED_SEGMENTS_MAX 3

/* One connection. */
struct xcp_socket {
	uint8_t wire; /* enum xcp_wire */
	uint8_t uses_xcp; /* the handshake agreed on XCP */
	uint8_t fell_back; /* default congestion control, probes for routers */
	uint8_t xcp_hops; /* XCP routers on the path, as the peer reports */
	uint8_t other_hops; /* other routers on the path, as it reports */
	uint8_t crowded; /* data segments in a row without room for a header */
	uint8_t started; /* the congestion control has set the first window */
	uint8_t ttl; /* initial TTL of our packets */
	struct xcp_sender sender;
	struct xcp_receiver receiver;
	struct xcp_loss loss;
	int64_t feedback; /* to apply with this ACK; unit: receiver.pending */
	int64_t remainder_2005; /* remainder of rounding requests, `option-2005`
				 */
	int64_t requested; /* sum of requests in this round */
	int64_t requested_before; /* sum of requests in the round before */
	int64_t received_feedback; /* sum of feedback received in this round */
	uint64_t round_start_us;
	uint64_t acked_us; /* time of the last ACK */
	uint64_t probed_us; /* time of the last probe for a router */
	uint32_t round_delivered; /* packets delivered when the round began */
	uint32_t round_lost; /* packets lost when the round began */
	uint32_t delivered_ce; /* packets delivered with an ECN mark */
	uint32_t total_seen; /* last running total that was returned */
	uint32_t silent_acks; /* ACKs since the last feedback */
	uint8_t header_kind; /* enum xcp_kind of the packet being built */
	uint8_t paced; /* xcp switched on TCP's pacing */
	uint8_t syns; /* number of SYNs sent with a header */
	uint8_t hop_report; /* xcp_header_hop_report of received data */
	uint8_t granted_rounds; /* rounds in a row that granted all requests */
	uint8_t zero_answers; /* answers in a row whose probe a router set to 0
			       */
	uint8_t retransmit_pending; /* fast recovery: first retransmission not
				       yet sent */
	uint8_t starved; /* too little data to send in this round */
	uint8_t window_granted; /* feedback has changed the window */
	uint8_t answered; /* a return header has arrived */
	uint8_t released; /* another congestion control sets the window */
};

#define XCP_HOPS_UNKNOWN 255

/*
 * The gateway (bpf/gateway.bpf.c).
 */

/* The mark of packets that are delivered to the proxy, and the number of the
 * routing table that delivers them: "XC". */
#define XCP_GATEWAY_MARK 0x5843
#define XCP_GATEWAY_DEVICES_MAX 64
#define XCP_GATEWAY_FILTERS_MAX 4096 /* prefixes; ports; full sources */
#define XCP_GATEWAY_LISTENERS 4 /* LAN and WAN, IPv4 and IPv6 */
#define XCP_GATEWAY_REOPENED_MAX 1024 /* SYNs between two layers of one CPU */

/* The side of a gateway that a device is on. */
enum xcp_gateway_side {
	XCP_GATEWAY_LAN = 0,
	XCP_GATEWAY_WAN = 1,
};

/* What the configuration says of a prefix or port. */
enum xcp_gateway_filter {
	XCP_GATEWAY_UNSPECIFIED = 0,
	XCP_GATEWAY_INCLUDE = 1,
	XCP_GATEWAY_EXCLUDE = 2,
};

/* A gateway's configuration; may change at any time. */
struct xcp_gateway_config {
	uint32_t only_prefixes; /* 1: only prefixes that are included */
	uint32_t only_ports; /* 1: only ports that are included */
	uint32_t full; /* 1: the proxy takes no more connections */
	uint32_t unused;
};

/* A device of a gateway. */
struct xcp_gateway_device {
	uint32_t side; /* enum xcp_gateway_side */
	uint32_t l2_len; /* as in xcp_router_options */
};

/* A key of the map of prefixes. */
struct xcp_gateway_prefix {
	uint32_t length; /* bits */
	struct xcp_address address;
};

/* Counters of one CPU: SYNs by what happened to them, and other packets. */
struct xcp_gateway_counters {
	uint64_t intercepted; /* SYNs given to the proxy */
	uint64_t excluded; /* SYNs that the configuration excludes */
	uint64_t unsplittable; /* SYNs with a signature, or of MPTCP */
	uint64_t not_across; /* SYNs not forwarded between LAN and WAN */
	uint64_t spoofed; /* SYNs from a side that has no route to the source */
	uint64_t over_limit; /* SYNs forwarded, because the proxy is full */
	uint64_t no_proxy; /* SYNs forwarded, because there is no proxy */
	uint64_t no_rule; /* SYNs forwarded, because the rule is missing */
	uint64_t other_packets; /* packets of other protocols, and fragments */
};

#endif

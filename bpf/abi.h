/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * All records, enums and constants that BPF programs and user space share. The
 * Rust side, crates/xcp-abi/src/generated.rs, is generated from this file and
 * from core/; a test fails while it is not current.
 */
#ifndef XCP_BPF_ABI_H
#define XCP_BPF_ABI_H

#include "../core/xcp_cloud.h"
#include "../core/xcp_frame.h"
#include "../core/xcp_loss.h"
#include "../core/xcp_receiver.h"
#include "../core/xcp_router.h"

/* Of a router's or virtual router's program; set before loading. */
struct xcp_router_options {
	uint32_t l2_len; /* 14 on Ethernet, 0 on devices without a link layer */
	uint32_t cpus;
	uint32_t merge_chains; /* the kernel segments merged chains correctly */
	uint32_t upstream; /* of a virtual router: whose packets, as in
			      last_xcp_router */
};

/* What `xcp router add` sets; may change while traffic flows. */
struct xcp_router_config {
	struct xcp_router_params params; /* capacity 0: only measured */
	struct xcp_frame frame;
	uint16_t measure; /* the capacity, where the link has a backlog */
	uint16_t unused;
	uint32_t queue; /* 1 + index in the map `queues`, 0 for none */
	uint32_t share; /* XCP's, 2^-16 of the link; 0: by flow counts */
	uint16_t ip_proto; /* of the wire format `header` */
	uint16_t whole_feedback; /* `option-2005` without fractions */
	/* what to write into last_xcp_router; 0: nothing */
	uint32_t edge;
	uint8_t edge_address[XCP_ADDRESS_LEN]; /* where there is room for it */
	uint64_t hint_Bps; /* of the capacity, from a modem; 0: none */
	uint64_t hint_until_ns; /* when it expires */
};

/* What one CPU saw on one link. */
struct xcp_router_counters {
	uint64_t xcp_packets; /* wire packets with a forward header */
	uint64_t other_packets; /* wire packets without */
	uint64_t malformed; /* passed untouched */
	int64_t granted_Bps; /* sum of the deltas that left, per wire packet */
	/* wire packets that fraglist GRO had chained: merged and edited, or
	 * passed untouched */
	uint64_t chained;
	uint64_t chained_unedited;
};

struct xcp_router_cpu {
	struct xcp_router_sums sums;
	struct xcp_router_pool pool;
	uint32_t epoch; /* of the law that filled the pool */
	uint32_t unused;
	struct xcp_router_counters counters;
	int64_t carry_2005; /* B/s that `option-2005` could not say */
	uint64_t other_B; /* arrived at the other queue */
	uint64_t other_left_B; /* of it, before the next sample */
	/* the claimer's: what it saw until the last end, and of that in the
	 * last interval; what comes next */
	uint64_t seen_traffic_B;
	uint64_t seen_sum_x;
	uint64_t last_traffic_B;
	uint64_t last_sum_x;
	uint64_t next_pos[2]; /* for the law of an epoch: [epoch & 1] */
	uint64_t next_neg[2];
} __attribute__((aligned(128)));

struct xcp_router_link {
	struct xcp_router_state state;
	struct xcp_router_law law[2]; /* the one in force: [epoch & 1] */
	struct xcp_router_sums sums; /* of all CPUs, as an interval ended */
	uint32_t epoch;
	uint32_t claimed;
	uint64_t started; /* 0 until the first packet */
	uint64_t look_ns; /* when the link is looked at again */
	uint64_t seen_B; /* sent until the last look, as Linux counts */
	uint64_t seen_packets;
	uint64_t seen_queues; /* which they were counted by */
	struct xcp_capacity_interval seen;
	struct xcp_sharing_interval other;
	struct xcp_sampler sampler;
	uint64_t sample_B; /* of other traffic, from one sample to the next */
	uint32_t fell; /* what it carries, or d: the interval ends now */
	uint32_t has_classes; /* the queue discipline with queues by class */
	/* as of the last interval's end */
	uint64_t configured_Bps;
	uint64_t hint_Bps;
};

/* One control interval, for people: the ring buffer `trace`. */
struct xcp_router_record {
	uint64_t time_ns; /* its end, on the monotonic clock */
	uint64_t interval_ns;
	uint64_t d_ns; /* average RTT */
	uint64_t capacity_Bps; /* that XCP may hand out */
	uint64_t link_Bps; /* that the link was found to carry; 0 if unknown */
	uint64_t y_Bps; /* input traffic that counts against the capacity */
	uint64_t other_Bps; /* input traffic of the other queue */
	uint64_t queue_B; /* Q */
	uint64_t backlog_B;
	int64_t f_Bps; /* F */
	uint64_t pos_Bps; /* pools */
	uint64_t neg_Bps;
	uint32_t share; /* XCP's, 2^-16 of the link */
	uint32_t flows; /* N, 2^-8 */
};

/*
 * The queue discipline `xcp` of a device: two queues, a shaper. Records are
 * found by index; the map `queue_index` gives it for a device.
 */
enum xcp_class {
	XCP_CLASS_XCP, /* all packets with a header, both ways */
	XCP_CLASS_OTHER,
	XCP_CLASSES,
};

/* What the router writes into tc_classid for packets of XCP_CLASS_XCP. */
#define XCP_CLASSID 0x5843

#define XCP_QUEUES_MAX 1024

struct xcp_queue_key {
	uint32_t netns; /* inode number */
	uint32_t ifindex;
};

/* What is set for it; may change while traffic flows. */
struct xcp_queue_config {
	uint64_t rate_Bps; /* 0: as fast as the device takes packets */
	uint32_t limit_B; /* of each queue */
	uint32_t limit_packets;
	struct xcp_frame frame;
	uint32_t medium; /* queues of one medium share its time; 0: its own */
};

/* Bytes as they are on the link; packets as Linux hands them over. */
struct xcp_queue_class {
	uint64_t backlog_B;
	uint64_t backlog_packets;
	uint64_t sent_B;
	uint64_t sent_packets;
	uint64_t dropped_packets;
};

struct xcp_queue {
	struct xcp_queue_class class[XCP_CLASSES];
	uint32_t share; /* XCP's weight, 2^-16; the router sets it */
	uint32_t present; /* queue disciplines that use this record */
};

/* What a sender does beyond the drafts, unless it is switched off. */
enum xcp_sender_feature {
	XCP_FEATURE_LOSSES = 1, /* core/xcp_loss.h */
	XCP_FEATURE_IDLE = 2, /* a timeout of a pause halves the window */
	XCP_FEATURE_USE = 4, /* windows and requests follow the data to send */
	XCP_FEATURE_TOTALS = 8, /* `option` returns running totals */
};

/* What `xcp host on` sets. */
struct xcp_host_config {
	uint32_t make_default; /* new sockets that did not choose use xcp */
	uint32_t whole_feedback; /* `option-2005` without fractions */
	uint32_t without; /* enum xcp_sender_feature, disabled ones */
	uint32_t unused;
	uint64_t netns; /* cookie of the only one that speaks; 0: all do */
};

/* Addresses in 16 bytes, IPv4 as ::ffff:a.b.c.d. */
struct xcp_address {
	uint8_t bytes[16];
};

/*
 * Which wire format is spoken to whom, in a network namespace: the longest
 * prefix that fits decides. Counted in bits after prefix_len.
 */
struct xcp_peer_key {
	uint32_t prefix_len;
	uint32_t netns[2]; /* its cookie: LPM keys know no 64-bit words */
	struct xcp_address address;
};

/* In place of a wire format: nothing is spoken. */
#define XCP_WIRE_SILENT 255

/* A connection whose handshake came with a header. */
struct xcp_flow_key {
	uint64_t netns;
	struct xcp_address local, remote;
	uint16_t local_port, remote_port;
	uint32_t unused;
};

struct xcp_cached_handshake {
	uint8_t wire; /* enum xcp_wire */
	uint8_t acked; /* a packet after the SYN came with one, too */
	uint8_t answers; /* SYN-ACKs with a header so far */
	uint8_t unused;
};

/* Sums of feedback. */
struct xcp_host_sums {
	int64_t received; /* of the deltas that arrived */
	int64_t returned; /* sent back */
	int64_t unreturned; /* still pending when its socket closed */
	int64_t feedback; /* came back */
	int64_t applied; /* of it, applied to a window */
};

/* Of the programs of a host's device; set before loading. */
struct xcp_device_options {
	uint64_t netns; /* cookie of the device's */
	uint32_t l2_len;
	uint32_t ip_proto; /* of the wire formats with a header */
};

/* A device that `xcp host on --dev` has attached to. */
struct xcp_device_key {
	uint64_t netns; /* cookie */
	uint32_t ifindex;
	uint32_t unused;
};

/* What the device was before. */
struct xcp_device_record {
	uint32_t gso_max_segs;
	uint32_t tx_checksums;
	uint32_t ip_proto;
	uint32_t complete; /* all was done */
};

/* What `xcp host on --socket-protocol` sets. */
struct xcp_protocol_config {
	uint32_t number; /* IPPROTO_XCP */
	uint32_t unused;
};

/* Why a connection uses the default congestion control. */
enum xcp_fallback {
	XCP_FALLBACK_PEER, /* the peer did not answer the handshake */
	XCP_FALLBACK_SYN_COOKIE, /* a listener under load remembers no SYN */
	XCP_FALLBACK_SIGNED, /* TCP-MD5 or TCP-AO: options must not be added */
	XCP_FALLBACK_NO_ROOM, /* other options leave no room for a header */
	XCP_FALLBACK_NO_ROUTER, /* the path has no XCP router */
	XCP_FALLBACK_SILENT, /* feedback, or any answer, stopped coming back */
	XCP_FALLBACK_STOPPED, /* the device does not carry headers any more */
	XCP_FALLBACK_MEMORY, /* the kernel had no memory for the state */
	XCP_FALLBACKS,
};

/* What the hosts' programs did, per CPU. */
struct xcp_host_counters {
	uint64_t sockets; /* connections that speak XCP, since `host on` */
	uint64_t fallbacks[XCP_FALLBACKS]; /* by reason */
	uint64_t forward_sent;
	uint64_t forward_received;
	uint64_t return_sent;
	uint64_t return_received;
	uint64_t return_crowded; /* ACKs seen without room for the option */
	uint64_t sacks_trimmed; /* SACK blocks left out to make room */
	uint64_t header_left_out; /* too long a packet, or IP options */
	uint64_t malformed;
	uint64_t implausible; /* headers that TCP's windows do not fit */
	struct xcp_host_sums sums; /* B/s */
	struct xcp_host_sums sums_2005; /* 2^-12 packets */
};

/*
 * Data segments in a row without room for a header after which the connection
 * falls back. One alone means nothing: some options are only on some segments.
 */
#define XCP_CROWDED_SEGMENTS_MAX 3

/* One connection. */
struct xcp_socket {
	uint8_t wire; /* enum xcp_wire */
	uint8_t speaks; /* the handshake said so */
	uint8_t fell_back; /* and looks for a router, unless it has no room */
	uint8_t xcp_hops; /* as the other end reports of our direction */
	uint8_t other_hops;
	uint8_t crowded; /* data segments in a row without room for a header */
	uint8_t started; /* its congestion control has its first window */
	uint8_t ttl; /* that our packets begin with */
	struct xcp_sender sender;
	struct xcp_receiver receiver;
	struct xcp_loss loss;
	int64_t feedback; /* to be applied with this ACK; as receiver.pending */
	int64_t rest_2005; /* of what `option-2005` asks for */
	int64_t asked; /* in this round and in the one before */
	int64_t asked_before;
	int64_t came; /* of feedback, in this round */
	uint64_t round_start_us;
	uint64_t acked_us; /* when the last ACK came */
	uint64_t probed_us; /* when it last looked for a router */
	uint32_t round_delivered;
	uint32_t round_lost; /* in all, as the round began */
	uint32_t marked; /* packets that arrived with a mark, in all */
	uint32_t total_seen; /* the last running total that came back */
	uint32_t silent_acks; /* since feedback last came back */
	uint8_t writing; /* enum xcp_kind of the packet being built */
	uint8_t paced;
	uint8_t syns; /* sent so far, with a header */
	uint8_t hop_report; /* xcp_header_hop_report of received data */
	uint8_t granted_rounds; /* in which all that was asked for came */
	uint8_t zeroes; /* answers without a wish, when all were wishes */
	uint8_t recovers; /* its first retransmission is to go */
	uint8_t starved; /* in this round there was too little to send */
	uint8_t routed; /* a router has moved its window */
	uint8_t answered; /* a return header has come back */
};

#define XCP_HOPS_UNKNOWN 255

#endif

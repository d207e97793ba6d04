/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Records that BPF programs and user space share. Their layout is mirrored in
 * crates/xcp-datapath/src/intf.rs; a test compares the two through BTF.
 */
#ifndef XCP_BPF_INTF_H
#define XCP_BPF_INTF_H

#include "../core/xcp_receiver.h"
#include "../core/xcp_router.h"
#include "../core/xcp_sender.h"

/* What `xcp router add` sets; may change while traffic flows. */
struct xcp_router_config {
	struct xcp_router_params params;
	uint32_t overhead_B; /* added to every wire packet */
	uint32_t unused;
};

/* What one CPU saw on one link. */
struct xcp_router_counters {
	uint64_t xcp_packets; /* wire packets with a forward header */
	uint64_t other_packets; /* wire packets without */
	uint64_t malformed; /* passed untouched */
	int64_t granted_Bps; /* sum of the deltas that left, per wire packet */
};

struct xcp_router_cpu {
	struct xcp_router_sums sums;
	struct xcp_router_pool pool;
	uint32_t epoch; /* of the law that filled the pool */
	uint32_t unused;
	struct xcp_router_counters counters;
	/* the claimer's: what it saw at the last end, what comes next */
	uint64_t seen_traffic_B;
	uint64_t seen_sum_x;
	uint64_t next_pos;
	uint64_t next_neg;
} __attribute__((aligned(128)));

struct xcp_router_link {
	struct xcp_router_state state;
	struct xcp_router_law law[2]; /* the one in force: [epoch & 1] */
	uint32_t epoch;
	uint32_t claimed;
	uint64_t started; /* 0 until the first packet */
	uint64_t backlog_B; /* at the last packet */
};

/* What `xcp host on` sets. */
struct xcp_host_config {
	uint32_t make_default; /* new sockets that did not choose use xcp */
	uint32_t unused;
};

/* What `xcp host on --socket-protocol` sets. */
struct xcp_protocol_config {
	uint32_t number; /* IPPROTO_XCP */
	uint32_t unused;
};

/* What the hosts' programs did, per CPU. */
struct xcp_host_counters {
	uint64_t sockets; /* connections that speak XCP, since `host on` */
	uint64_t fallbacks; /* left to the default congestion control */
	uint64_t forward_sent;
	uint64_t forward_received;
	uint64_t return_sent;
	uint64_t return_received;
	uint64_t return_crowded; /* no room beside other options */
	uint64_t malformed;
	int64_t received_Bps; /* sum of the deltas that arrived */
	int64_t returned_Bps; /* sum of the feedback sent back */
	int64_t unreturned_Bps; /* still pending when its socket closed */
	int64_t feedback_Bps; /* sum of the feedback that came back */
	int64_t applied_Bps; /* of it, applied to a window */
};

/* One connection. */
struct xcp_socket {
	struct xcp_sender sender;
	struct xcp_receiver receiver;
	int64_t feedback_Bps; /* arrived, to be applied with this ACK */
	uint64_t round_start_us;
	uint32_t round_delivered;
	uint32_t silent_acks; /* since feedback last came back */
	uint8_t writing; /* enum xcp_kind of the packet being built */
	uint8_t fell_back;
	uint8_t paced;
	uint8_t xcp_hops; /* as the other end reports of our direction */
	uint8_t other_hops;
	uint8_t started; /* its congestion control has its first window */
	uint8_t unused[2];
};

#define XCP_HOPS_UNKNOWN 255

#endif

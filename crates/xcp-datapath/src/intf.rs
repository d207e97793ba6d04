// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Records shared with the BPF programs: bpf/intf.h and core/, mirrored. The
//! tests compare every size and offset with the programs' own type
//! information (BTF).

use std::mem::size_of;

/// `XCP_HOPS_UNKNOWN` of bpf/intf.h.
pub const HOPS_UNKNOWN: u8 = 255;
/// `XCP_WIRE_SILENT` of bpf/intf.h.
pub const WIRE_SILENT: u8 = 255;
/// `CROWDED_SEGMENTS_MAX` of bpf/host.h.
pub const CROWDED_SEGMENTS_MAX: u8 = 3;
/// Binary places of a number of flows, `XCP_FLOW_BITS` of core/xcp_flows.h.
pub const FLOW_BITS: u8 = 8;
/// Binary places of packets in the format option-2005, `XCP_2005_SHIFT` of
/// core/xcp_option_2005.h.
pub const PACKET_2005_BITS: u8 = 12;

/// A plain record, whose bytes are its value.
///
/// # Safety
/// Implementors are `repr(C)`, with padding that matters, and valid for
/// any bytes.
pub unsafe trait Record: Copy + Default {
    /// The record in these bytes, if they are as many.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        // SAFETY: the length is right and any bytes are a valid record.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a record of this size, borrowed for as long as self is.
        unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) }
    }
}

macro_rules! record {
    ($($(#[$doc:meta])* struct $name:ident $(align($align:literal))? { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[repr(C $(, align($align))?)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }
        // SAFETY: integers only, in C order.
        unsafe impl Record for $name {}
        impl $name {
            /// Field names and offsets, for the comparison with BTF.
            pub const LAYOUT: &'static [(&'static str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*];
        })*
    };
}

record! {
    /// `struct xcp_num`: m * 2^e.
    struct Num { m: u64, e: i32, }

    /// `struct xcp_share`.
    struct Share { m: u64, total: u64, shift: u32, }

    /// `struct xcp_router_params`.
    struct RouterParams {
        capacity_Bps: u64,
        most_Bps: u64,
        min_interval_ns: u64,
        without: u32,
        max_rtt: u32,
    }

    /// `struct xcp_frame`.
    struct Frame { overhead_B: i32, mpu_B: u32, cells: u32, }

    /// `struct xcp_medium` of bpf/medium.bpf.c.
    struct Medium {
        rate_Bps: u64,
        limit_packets: u32,
        frame: Frame,
    }

    /// `struct xcp_router_config`.
    struct RouterConfig {
        params: RouterParams,
        frame: Frame,
        measure: u16,
        unused: u16,
        queue: u32,
        share: u32,
        ip_proto: u16,
        whole_feedback: u16,
        edge: u32,
        edge_address: [u8; 16],
        hint_Bps: u64,
        hint_until_ns: u64,
    }

    /// `struct xcp_cloud`.
    struct Cloud {
        told_ns: u64,
        wait_ns: u64,
        free_Bps: u64,
        error_Bps: u64,
        free_ns: u64,
        base_sent_ns: u64,
        base_received_ns: u64,
        routers: u32,
        flags: u32,
    }

    /// `struct xcp_crowd`.
    struct Crowd {
        start_ns: u64,
        min_wait_ns: u64,
        aside_ns: u64,
        full: u32,
        tries: u32,
    }

    /// `struct xcp_router_sums`.
    struct RouterSums {
        input_traffic_B: u64,
        sum_x: u64,
        sum_rtt_x_lo: u64,
        sum_rtt_x_hi: u64,
        granted_Bps: i64,
    }

    /// `struct xcp_router_law`.
    struct RouterLaw {
        pos: Share,
        neg: Share,
        pos_pool: u64,
        neg_pool: u64,
        d: u64,
        max_rtt: u32,
        shift: u32,
        carry_max: u64,
    }

    /// `struct xcp_router_pool`.
    struct RouterPool { pos: u64, neg: u64, carry: u64, shift: u32, unused: u32, }

    /// `struct xcp_link_mark`.
    struct LinkMark { ns: u64, sent_B: u64, }

    /// `struct xcp_capacity`.
    struct Capacity {
        seen: LinkMark,
        min_backlog_B: u64,
        link_Bps: u64,
        left_Bps: u64,
        tried_Bps: u64,
        step_Bps: u64,
        most_Bps: u64,
        state: u32,
        unused: u32,
    }

    /// `struct xcp_capacity_interval`.
    struct CapacityInterval {
        now_ns: u64,
        sent_B: u64,
        backlog_B: u64,
        min_backlog_B: u64,
        free_ns: u64,
        free_sent_B: u64,
    }

    /// `struct xcp_sampler`.
    struct Sampler {
        last_ns: u64,
        hash: [u32; 32],
        next: u32,
        pairs: u32,
        same: u32,
        busy: u32,
    }

    /// `struct xcp_sharing_interval`.
    struct SharingInterval {
        other_B: u64,
        other_min_backlog_B: u64,
        other_flows: u32,
        share: u32,
    }

    /// `struct xcp_sharing`.
    struct Sharing { seen_other_B: u64, other_Bps: u64, share: u32, unused: u32, }

    /// `struct xcp_flows`.
    struct Flows { now: u32, mean: u32, changed: u32, unused: u32, }

    /// `struct xcp_rtt_sums`.
    struct RttSums { sum_x: u64, sum_rtt_x_lo: u64, sum_rtt_x_hi: u64, }

    /// `struct xcp_router_state`.
    struct RouterState {
        last: RouterSums,
        rtts_from: RttSums,
        checked: RttSums,
        interval_start_ns: u64,
        interval_ns: u64,
        queue_start_ns: u64,
        tq_ns: u64,
        checked_ns: u64,
        min_backlog_B: u64,
        queue_B: u64,
        d: Num,
        capacity: Capacity,
        sharing: Sharing,
        flows: Flows,
        capacity_Bps: u64,
        over_Bps: u64,
        step_Bps: u64,
        y_Bps: u64,
        f_Bps: i64,
        granted_Bps: i64,
        intervals: u64,
    }

    /// `struct xcp_router_counters`.
    struct RouterCounters {
        xcp_packets: u64,
        other_packets: u64,
        malformed: u64,
        granted_Bps: i64,
        chained: u64,
        chained_unedited: u64,
    }

    /// `struct xcp_router_cpu`.
    struct RouterCpu align(128) {
        sums: RouterSums,
        pool: RouterPool,
        epoch: u32,
        unused: u32,
        counters: RouterCounters,
        carry_2005: i64,
        other_B: u64,
        other_left_B: u64,
        seen_traffic_B: u64,
        seen_sum_x: u64,
        last_traffic_B: u64,
        last_sum_x: u64,
        next_pos: [u64; 2],
        next_neg: [u64; 2],
    }

    /// `struct xcp_router_link`.
    struct RouterLink {
        state: RouterState,
        law: [RouterLaw; 2],
        sums: RouterSums,
        epoch: u32,
        claimed: u32,
        started: u64,
        look_ns: u64,
        seen_B: u64,
        seen_packets: u64,
        seen_queues: u64,
        seen: CapacityInterval,
        other: SharingInterval,
        sampler: Sampler,
        sample_B: u64,
        fell: u32,
        has_classes: u32,
        configured_Bps: u64,
        hint_Bps: u64,
    }

    /// `struct xcp_queue_key`.
    struct QueueKey { netns: u32, ifindex: u32, }

    /// `struct xcp_queue_config`.
    struct QueueConfig {
        rate_Bps: u64,
        limit_B: u32,
        limit_packets: u32,
        frame: Frame,
        medium: u32,
    }

    /// `struct xcp_queue_class`.
    struct QueueClass {
        backlog_B: u64,
        backlog_packets: u64,
        sent_B: u64,
        sent_packets: u64,
        dropped_packets: u64,
    }

    /// `struct xcp_queue`, its classes as `enum xcp_class`.
    struct Queue { class: [QueueClass; 2], share: u32, present: u32, }

    /// `struct xcp_router_record`.
    struct RouterRecord {
        time_ns: u64,
        interval_ns: u64,
        d_ns: u64,
        capacity_Bps: u64,
        link_Bps: u64,
        y_Bps: u64,
        other_Bps: u64,
        queue_B: u64,
        backlog_B: u64,
        f_Bps: i64,
        pos_Bps: u64,
        neg_Bps: u64,
        share: u32,
        flows: u32,
    }

    /// `struct xcp_host_config`.
    struct HostConfig {
        make_default: u32,
        whole_feedback: u32,
        without: u32,
        unused: u32,
        netns: u64,
    }

    /// `struct xcp_peer_key`.
    struct PeerKey { prefix_len: u32, netns: [u32; 2], address: [u8; 16], }

    /// `struct xcp_host_sums`.
    struct HostSums {
        received: i64,
        returned: i64,
        unreturned: i64,
        feedback: i64,
        applied: i64,
    }

    /// A device that `xcp host on` attached to, in its own map.
    struct DeviceKey { netns: u64, ifindex: u32, unused: u32, }

    /// What it was before.
    struct DeviceRecord {
        gso_max_segs: u32,
        tx_checksums: u32,
        ip_proto: u32,
        /// All was done.
        complete: u32,
    }

    /// `struct xcp_protocol_config`.
    struct ProtocolConfig { number: u32, unused: u32, }

    /// `struct xcp_sender`.
    struct Sender {
        cwnd_B: u64,
        cwnd_frac: u32,
        wire_B: u32,
        limit_B: u64,
        used_B: u64,
        rtt: u64,
        rtt_base: u64,
        window_B: u64,
        x: u64,
        x_rem: u64,
        x_acc: u64,
        pacing_Bps: u64,
        request_Bps: i32,
        arrived: u32,
        ends: u32,
    }

    /// `struct xcp_receiver`.
    struct Receiver {
        pending: i64,
        total: u32,
        xcp_hops: u8,
        other_hops: u8,
        totals: u8,
    }

    /// `struct xcp_cubic`.
    struct Cubic { max_B: u64, epoch_B: u64, epoch_us: u64, rounds: u64, }

    /// `struct xcp_loss`.
    struct Loss {
        cubic: Cubic,
        ceiling_B: u64,
        threshold_B: u64,
        rtt: u64,
        base: u64,
        taken_B: u64,
        given_B: u64,
        run_lost: u32,
        run_sent: u32,
        run: u16,
        clean: u16,
        wait: u16,
        answered: u8,
        lifted: u8,
        state: u8,
    }

    /// The beginning of `struct xcp_socket`.
    struct SocketRecord {
        wire: u8,
        speaks: u8,
        fell_back: u8,
        xcp_hops: u8,
        other_hops: u8,
        crowded: u8,
        started: u8,
        ttl: u8,
        sender: Sender,
        receiver: Receiver,
        loss: Loss,
    }

    /// `struct xcp_host_counters`.
    struct HostCounters {
        sockets: u64,
        /// By `enum xcp_fallback`.
        fallbacks: [u64; 8],
        forward_sent: u64,
        forward_received: u64,
        return_sent: u64,
        return_received: u64,
        return_crowded: u64,
        sacks_trimmed: u64,
        header_left_out: u64,
        malformed: u64,
        implausible: u64,
        sums: HostSums,
        sums_2005: HostSums,
    }
}

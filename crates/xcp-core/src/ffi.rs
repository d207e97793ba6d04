// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What csrc/core.c exports. Every record is integers in C order; the test
//! below compares sizes and last offsets with what the C compiler says.

use crate::cloud::{Cloud, Crowd};
use crate::cubic::Cubic;
use crate::loss::Loss;
use crate::receiver::Receiver;
use crate::router::{Flows, Law, Other, Packet, Params, Pool, Seen, State, Sums};
use crate::sampler::Sampler;
use crate::sender::Sender;
use crate::shaper::Shaper;
use crate::wire::header::Head;
use crate::wire::option_2005::Option2005;
use crate::wire::{Forward, Return};

/// Size of a record, and offset of its last field.
#[cfg(test)]
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout(pub usize, pub usize);

extern "C" {
    #[cfg(test)]
    pub(crate) static xcp_core_layout: [Layout; 25];

    pub(crate) fn xcp_core_ns_to_ticks(ns: u64) -> u64;
    pub(crate) fn xcp_core_ticks_to_ns(ticks: u64) -> u64;
    pub(crate) fn xcp_core_bits(v: u64) -> u32;

    pub(crate) fn xcp_core_router_init(
        s: *mut State,
        params: *const Params,
        law: *mut Law,
        now_ns: u64,
    );
    pub(crate) fn xcp_core_router_too_long(s: *mut State, sums: *const Sums, now_ns: u64) -> bool;
    pub(crate) fn xcp_core_router_interval_due(s: *const State, now_ns: u64) -> bool;
    pub(crate) fn xcp_core_router_queue_due(s: *const State, now_ns: u64) -> bool;
    pub(crate) fn xcp_core_router_arrival(s: *mut Sums, bytes: u64);
    pub(crate) fn xcp_core_router_arrival_xcp(
        s: *mut Sums,
        law: *const Law,
        n: u32,
        size_B: u64,
        x: u64,
        rtt: u64,
    );
    pub(crate) fn xcp_core_router_departure(
        law: *const Law,
        pool: *mut Pool,
        sums: *mut Sums,
        n: u32,
        size_B: u64,
        x: u64,
        rtt: u64,
        delta: i32,
    ) -> i32;
    pub(crate) fn xcp_core_router_interval_end(
        s: *mut State,
        params: *const Params,
        sums: *const Sums,
        now_ns: u64,
        law: *mut Law,
    ) -> bool;
    pub(crate) fn xcp_core_capacity_look(i: *mut Seen, now_ns: u64, sent_B: u64, backlog_B: u64);
    pub(crate) fn xcp_core_router_hint(s: *mut State, before_Bps: u64, hint_Bps: u64);
    pub(crate) fn xcp_core_router_link_changed(s: *const State, seen: *const Seen) -> bool;
    pub(crate) fn xcp_core_router_capacity(
        s: *mut State,
        params: *const Params,
        sums: *const Sums,
        now_ns: u64,
        seen: *const Seen,
        other: *const Other,
    );
    pub(crate) fn xcp_core_router_pool_fill(pool: *mut Pool, pos: u64, neg: u64, shift: u32);
    pub(crate) fn xcp_core_router_split(pool: u64, part: u64, total: u64) -> u64;
    pub(crate) fn xcp_core_router_backlog(s: *mut State, backlog_B: u64);
    pub(crate) fn xcp_core_flows_gamma(f: *const Flows, published: bool) -> u32;
    pub(crate) fn xcp_core_router_queue_end(
        s: *mut State,
        params: *const Params,
        backlog_B: u64,
        now_ns: u64,
    );
    pub(crate) fn xcp_core_sampler_due(left_B: *mut u64, bytes: u64, every_B: u64) -> bool;
    pub(crate) fn xcp_core_sampler_add(s: *mut Sampler, hash: u32, now_ns: u64);
    pub(crate) fn xcp_core_sampler_flows(s: *const Sampler, now_ns: u64) -> u32;
    pub(crate) fn xcp_core_router_batch(
        law: *const Law,
        pool: *mut Pool,
        sums: *mut Sums,
        packets: *mut Packet,
        count: usize,
    );

    pub(crate) fn xcp_core_cloud_known(c: *const Cloud, now_ns: u64, d_ns: u64) -> bool;
    pub(crate) fn xcp_core_cloud_least(c: *const Cloud, link_Bps: u64, d_ns: u64) -> u64;
    pub(crate) fn xcp_core_cloud_step(c: *const Cloud, d_ns: u64) -> u64;
    pub(crate) fn xcp_core_cloud_over(c: *const Cloud, flows: u32, d_ns: u64) -> u64;
    pub(crate) fn xcp_core_crowd_look(c: *mut Crowd, wait_ns: u64, now_ns: u64, d_ns: u64);
    pub(crate) fn xcp_core_crowd_delta(
        c: *const Cloud,
        delta: i32,
        rtt: u32,
        x: u32,
        size_B: u64,
    ) -> i32;
    pub(crate) fn xcp_core_crowd_aside(c: *const Crowd, now_ns: u64) -> bool;
    pub(crate) fn xcp_core_cloud_backlog(c: *const Cloud, link_Bps: u64) -> u64;

    pub(crate) fn xcp_core_option_at_32(tcp: *const u8, header_len: u32) -> u32;
    pub(crate) fn xcp_core_option_find(
        tcp: *const u8,
        header_len: u32,
        data_end: *const u8,
        offset: *mut u32,
    ) -> u32;
    pub(crate) fn xcp_core_build_handshake(o: *mut u8);
    pub(crate) fn xcp_core_build_return(o: *mut u8, r: *const Return);
    pub(crate) fn xcp_core_build_forward(o: *mut u8, f: *const Forward);
    pub(crate) fn xcp_core_build_both(o: *mut u8, f: *const Forward, r: *const Return);
    pub(crate) fn xcp_core_parse_forward(o: *const u8, f: *mut Forward);
    pub(crate) fn xcp_core_parse_return(o: *const u8, kind: u32, r: *mut Return);
    pub(crate) fn xcp_core_mend_checksum(check: u16, sum: u32) -> u16;
    pub(crate) fn xcp_core_edit_forward(o: *mut u8, offset: u32, delta: i32, ip_ttl: u8) -> u32;
    pub(crate) fn xcp_core_edit_forward_cloud(
        o: *mut u8,
        offset: u32,
        delta: i32,
        ip_ttl: u8,
        routers: u8,
    ) -> u32;
    pub(crate) fn xcp_core_edit_last_router(o: *mut u8, offset: u32, router: u32) -> u32;

    pub(crate) fn xcp_core_2005_value(feedback: u16) -> i64;
    pub(crate) fn xcp_core_2005_code(value: i64, whole: bool) -> u16;
    pub(crate) fn xcp_core_2005_of_Bps(rate_Bps: i64, rtt_ms: u32, size_B: u32) -> i64;
    pub(crate) fn xcp_core_2005_forward(h: *const Option2005, size_B: u32, f: *mut Forward);
    pub(crate) fn xcp_core_2005_grant(
        h: *const Option2005,
        size_B: u32,
        n: u32,
        granted: *mut i32,
        carry: *mut i64,
        whole: bool,
    ) -> u16;
    pub(crate) fn xcp_core_2005_ask(
        s: *const Sender,
        size_B: u32,
        rest: *mut i64,
        whole: bool,
        h: *mut Option2005,
    );
    pub(crate) fn xcp_core_2005_feedback(s: *mut Sender, value: i64);

    pub(crate) fn xcp_core_header_read(h: *const u8, head: *mut Head) -> u32;
    pub(crate) fn xcp_core_header_forward(h: *const u8, version: u8, size_B: u32, f: *mut Forward);
    pub(crate) fn xcp_core_header_last_router(h: *const u8, length: u8) -> u32;
    pub(crate) fn xcp_core_router_id(address: *const u8) -> u32;
    pub(crate) fn xcp_core_header_feedback(h: *const u8, version: u8) -> i32;
    pub(crate) fn xcp_core_build_header(
        h: *mut u8,
        version: u8,
        protocol: u8,
        f: *const Forward,
        feedback: i32,
        size_B: u32,
    );
    pub(crate) fn xcp_core_build_header_return(
        h: *mut u8,
        version: u8,
        protocol: u8,
        feedback: i32,
        way: u8,
    );
    pub(crate) fn xcp_core_header_way(xcp_ttl: u8, ip_ttl: u8) -> u8;
    pub(crate) fn xcp_core_header_hops(way: u8, ttl: u8) -> i32;

    pub(crate) fn xcp_core_receiver_add(r: *mut Receiver, delta: i32, n: u32);
    pub(crate) fn xcp_core_receiver_take(r: *mut Receiver, n: u32) -> i32;
    pub(crate) fn xcp_core_receiver_total(r: *mut Receiver) -> i64;
    pub(crate) fn xcp_core_total_change(seen: *mut u32, total: i32) -> i64;
    pub(crate) fn xcp_core_receiver_add_2005(r: *mut Receiver, feedback: u16, n: u32);
    pub(crate) fn xcp_core_receiver_take_2005(r: *mut Receiver, n: u32) -> u16;

    pub(crate) fn xcp_core_sender_update(s: *mut Sender);
    pub(crate) fn xcp_core_sender_next_x(s: *mut Sender) -> u64;
    pub(crate) fn xcp_core_sender_rtt(s: *mut Sender, sample: u64, alone: bool);
    pub(crate) fn xcp_core_sender_rtt_told(s: *const Sender) -> u64;
    pub(crate) fn xcp_core_sender_feedback(s: *mut Sender, fb_Bps: i64);
    pub(crate) fn xcp_core_sender_reset(s: *mut Sender, packets: u64);
    pub(crate) fn xcp_core_sender_restart(s: *mut Sender, idle_us: u64);
    pub(crate) fn xcp_core_sender_age(s: *mut Sender, used_B: u64, starved: bool);
    pub(crate) fn xcp_core_sender_packets(s: *const Sender) -> u64;

    pub(crate) fn xcp_core_cbrt(v: u64) -> u64;
    pub(crate) fn xcp_core_cubic_cut(c: *mut Cubic, cwnd_B: u64) -> u64;
    pub(crate) fn xcp_core_cubic_round(c: *mut Cubic, elapsed_us: u64);
    pub(crate) fn xcp_core_cubic_window(c: *const Cubic, wire_B: u64, rtt_us: u64) -> u64;

    pub(crate) fn xcp_core_loss_trusts(l: *const Loss) -> bool;
    pub(crate) fn xcp_core_loss_is_tcp(l: *const Loss) -> bool;
    pub(crate) fn xcp_core_loss_limit(l: *const Loss, limit_B: u64) -> u64;
    pub(crate) fn xcp_core_loss_on_rtt(l: *mut Loss, sample: u64);
    pub(crate) fn xcp_core_loss_on_feedback(l: *mut Loss, s: *mut Sender, before_B: u64);
    pub(crate) fn xcp_core_loss_on_recovery(l: *mut Loss, s: *mut Sender, other_hops: bool);
    pub(crate) fn xcp_core_loss_on_mark(l: *mut Loss, s: *mut Sender);
    pub(crate) fn xcp_core_loss_on_timeout(l: *mut Loss, s: *mut Sender);
    pub(crate) fn xcp_core_loss_on_round(
        l: *mut Loss,
        s: *mut Sender,
        elapsed_us: u64,
        lost: u32,
        arrived: u32,
    );

    pub(crate) fn xcp_core_service_a_next(owed: i64, a_has: bool, b_has: bool) -> bool;
    pub(crate) fn xcp_core_service_sent(
        owed: i64,
        weight: u32,
        a: bool,
        other_has: bool,
        bytes: u64,
    ) -> i64;
    pub(crate) fn xcp_core_shaper_time(rate_Bps: u64, bytes: u64) -> u64;
    pub(crate) fn xcp_core_shaper_take(
        s: *mut Shaper,
        free_ns: *mut u64,
        now_ns: u64,
        pay_ns: u64,
        waited: bool,
    );
    pub(crate) fn xcp_core_shaper_next_look(
        s: *mut Shaper,
        free_ns: *mut u64,
        now_ns: u64,
        rate_Bps: u64,
    ) -> u64;
    pub(crate) fn xcp_core_shaper_begin(
        s: *mut Shaper,
        free_ns: *mut u64,
        rate_Bps: u64,
        bytes: u64,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::{Capacity, Num, Share, Sharing};
    use std::mem::{offset_of, size_of};

    #[test]
    fn records_have_the_layout_of_core() {
        let ours = [
            Layout(size_of::<Num>(), offset_of!(Num, e)),
            Layout(size_of::<Share>(), offset_of!(Share, shift)),
            Layout(size_of::<Params>(), offset_of!(Params, max_rtt)),
            Layout(size_of::<Sums>(), offset_of!(Sums, granted_Bps)),
            Layout(size_of::<Law>(), offset_of!(Law, carry_max)),
            Layout(size_of::<Pool>(), offset_of!(Pool, unused)),
            Layout(size_of::<Capacity>(), offset_of!(Capacity, unused)),
            Layout(size_of::<Seen>(), offset_of!(Seen, free_sent_B)),
            Layout(size_of::<Other>(), offset_of!(Other, share)),
            Layout(size_of::<Sampler>(), offset_of!(Sampler, busy)),
            Layout(size_of::<Sharing>(), offset_of!(Sharing, unused)),
            Layout(size_of::<Flows>(), offset_of!(Flows, unused)),
            Layout(size_of::<State>(), offset_of!(State, intervals)),
            Layout(size_of::<Receiver>(), offset_of!(Receiver, totals)),
            Layout(size_of::<Sender>(), offset_of!(Sender, ends)),
            Layout(size_of::<Cubic>(), offset_of!(Cubic, rounds)),
            Layout(size_of::<Loss>(), offset_of!(Loss, state)),
            Layout(size_of::<Shaper>(), offset_of!(Shaper, last_B)),
            Layout(size_of::<Forward>(), offset_of!(Forward, xcp_hops)),
            Layout(size_of::<Return>(), offset_of!(Return, version)),
            Layout(size_of::<Packet>(), offset_of!(Packet, unused)),
            Layout(size_of::<Option2005>(), offset_of!(Option2005, cwnd)),
            Layout(size_of::<Head>(), offset_of!(Head, length)),
            Layout(size_of::<Cloud>(), offset_of!(Cloud, flags)),
            Layout(size_of::<Crowd>(), offset_of!(Crowd, tries)),
        ];
        // SAFETY: a constant of C, never written.
        assert_eq!(ours, unsafe { xcp_core_layout });
    }
}

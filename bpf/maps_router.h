/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The maps and globals of the programs that run the router's law: a router
 * (router.bpf.c) and a virtual router (cloud.bpf.c). One instance of a program
 * has one link. XCP_MAP and XCP_DATA define those that a program uses.
 */
#ifndef XCP_BPF_MAPS_ROUTER_H
#define XCP_BPF_MAPS_ROUTER_H

#include "abi.h"
#include "kernel.h"

extern const volatile struct xcp_router_options options;

extern struct xcp_router_config config SEC(".data.config");
/* The link's state; of all CPUs, only the one that has claimed it writes it. */
extern struct xcp_router_link link SEC(".data.link");

extern struct cpus_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set to the number of CPUs before loading */
	__type(key, __u32);
	__type(value, struct xcp_router_cpu);
} cpus SEC(".maps");

/* The records of the queue discipline `xcp`; config.queue has the index. */
extern struct queues_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct xcp_queue);
} queues SEC(".maps");

/* A reader of the trace provides a ring buffer of any size. */
struct trace_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* The reader's ring buffer; empty without a reader. */
extern struct trace_map {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct trace_ring);
} trace SEC(".maps");

/*
 * A per-CPU value whose addresses qdisc_stats.h uses to follow the kernel's
 * per-CPU pointers.
 */
extern struct here_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} here SEC(".maps");

#endif

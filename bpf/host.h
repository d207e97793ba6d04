/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * What the two programs of a host share: the socket's state, the counters,
 * and the way back to the system's default congestion control.
 */
#ifndef XCP_BPF_HOST_H
#define XCP_BPF_HOST_H

#include "kernel.h"
#include "intf.h"
#include "../core/xcp_wire.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct xcp_socket);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct xcp_host_counters);
} counters SEC(".maps");

struct tcp_congestion_ops___name {
	char name[TCP_CA_NAME_MAX];
} XCP_KERNEL;

static __always_inline struct xcp_host_counters *count(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counters, &key);
}

#define COUNT(field, n)                                                        \
	do {                                                                   \
		struct xcp_host_counters *_c = count();                        \
		if (_c)                                                        \
			_c->field += (n);                                      \
	} while (0)

static __always_inline bool is_xcp(const char *name)
{
	return name[0] == 'x' && name[1] == 'c' && name[2] == 'p' && !name[3];
}

/* The name of the network namespace's default; cubic if that is xcp. */
static __always_inline void default_name(struct sock *sk,
					 char name[TCP_CA_NAME_MAX])
{
	struct tcp_congestion_ops___name *ops;

	ops = (void *)BPF_CORE_READ(sk, __sk_common.skc_net.net,
				    ipv4.tcp_congestion_control);
	if (bpf_core_read_str(name, TCP_CA_NAME_MAX, &ops->name) < 0 ||
	    !name[0] || is_xcp(name))
		__builtin_memcpy(name, "cubic", 6);
}

/*
 * Leaves a socket to the default congestion control, or to reno where that is
 * not loaded. `ctx` is what bpf_setsockopt takes in the calling program.
 */
static __always_inline void fall_back(void *ctx, struct sock *sk)
{
	char name[TCP_CA_NAME_MAX] = {};
	char reno[TCP_CA_NAME_MAX] = "reno";

	default_name(sk, name);
	if (bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, reno,
			       sizeof(reno));
	COUNT(fallbacks, 1);
}

#endif

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * socket(AF_INET or AF_INET6, SOCK_STREAM, IPPROTO_XCP).
 *
 * 1. socket() asks update_socket_protocol() which protocol is meant (with
 *    CONFIG_MPTCP, whose hook it is). Ours is TCP, and the thread is
 *    remembered.
 * 2. The socket that the same call goes on to create is marked (sock_create),
 *    and option.bpf.c gives it xcp when it connects or listens.
 *
 * A call that fails in between leaves the thread remembered: its next call of
 * socket() begins with forgetting it. (Only io_uring makes sockets without
 * asking; at worst one of them gets xcp after such a failure.)
 */
#include "abi.h"
#include "maps_host.h"
#include "socket_mark.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SOCK_TYPE_MASK 0xf
#define SOCK_STREAM 1
/* threads between 1 and 2; beyond that the oldest are forgotten */
#define THREADS_MAX 4096

/* Not maps_host.h's; user space knows both by the section. */
struct xcp_protocol_config protocol_config SEC(".data.config");

XCP_MAP(chosen);

/* The control group that `xcp host on` covers. */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} group SEC(".maps");

/* Threads whose socket() is to give a socket with xcp. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, __u64);
	__type(value, __u8);
} asking SEC(".maps");

/* Returns TCP's number instead of ours; 0 leaves the number as it is. */
SEC("fmod_ret/update_socket_protocol")
int BPF_PROG(xcp_protocol, int family, int type, int protocol)
{
	/* as a number only, which all kernels give to both programs */
	__u64 thread = bpf_get_current_task();
	__u8 yes = 1;

	if (bpf_map_lookup_elem(&asking, &thread))
		bpf_map_delete_elem(&asking, &thread);
	if ((__u32)protocol != protocol_config.number ||
	    (type & SOCK_TYPE_MASK) != SOCK_STREAM ||
	    (family != AF_INET && family != AF_INET6) ||
	    bpf_current_task_under_cgroup(&group, 0) != 1 ||
	    bpf_map_update_elem(&asking, &thread, &yes, BPF_ANY))
		return 0;
	return IPPROTO_TCP;
}

SEC("cgroup/sock_create")
int xcp_socket_created(struct bpf_sock *sk)
{
	__u64 thread = bpf_get_current_task();

	if (sk->protocol != IPPROTO_TCP ||
	    !bpf_map_lookup_elem(&asking, &thread))
		return 1;
	bpf_map_delete_elem(&asking, &thread);
	mark_socket(sk);
	return 1;
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * socket(AF_INET or AF_INET6, SOCK_STREAM, IPPROTO_XCP).
 *
 * 1. socket() calls update_socket_protocol() to get the protocol to use (the
 *    hook exists with CONFIG_MPTCP). For IPPROTO_XCP the program returns TCP
 *    and stores the thread.
 * 2. The socket that the same call then creates is marked (sock_create), and
 *    option.bpf.c gives it xcp when it connects or listens.
 *
 * If the call fails in between, the thread stays stored; its next call of
 * socket() first deletes it. (Only io_uring creates sockets without the hook;
 * at worst one of them gets xcp after such a failure.)
 */
#include "abi.h"
#include "maps_host.h"
#include "socket_mark.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SOCK_TYPE_MASK 0xf
#define SOCK_STREAM 1
/* threads between steps 1 and 2; the oldest are dropped if there are more */
#define THREADS_MAX 4096

/* Not `config` of maps_host.h; user space finds both by their section. */
struct xcp_protocol_config protocol_config SEC(".data.config");

XCP_MAP(chosen);

/* The control group that `xcp host on` covers. */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} group SEC(".maps");

/* Threads in a call of socket() that is to create a socket with xcp. */
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
	/* used as a number only: all kernels allow that in both programs */
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

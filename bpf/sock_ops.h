/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * How the sock_ops program reads and changes a socket through its context.
 */
#ifndef XCP_BPF_SOCK_OPS_H
#define XCP_BPF_SOCK_OPS_H

#include "fallback.h"
#include "host.h"
#include "ip.h"

#define ENOSPC 28

static __always_inline struct sock *kernel_sock(struct bpf_sock_ops *skops)
{
	struct bpf_sock_ops_kern *kern = kernel_sock_ops(skops);

	return kern->sk;
}

static __always_inline bool uses_xcp(struct bpf_sock_ops *skops)
{
	struct inet_connection_sock *icsk =
		bpf_core_cast(kernel_sock(skops), struct inet_connection_sock);
	struct tcp_congestion_ops___name *ops = bpf_core_cast(
		icsk->icsk_ca_ops, struct tcp_congestion_ops___name);

	return is_xcp(ops->name);
}

/* Does the current packet, or the SYN, carry this TCP option? */
static __always_inline bool carries(struct bpf_sock_ops *skops, __u8 kind,
				    __u64 flags)
{
	__u8 option[4] = {kind};
	int length = bpf_load_hdr_opt(skops, option, sizeof(option), flags);

	return length > 0 || length == -ENOSPC;
}

/* Switches a socket to the default congestion control. */
static __always_inline void leave(struct bpf_sock_ops *skops,
				  enum xcp_fallback reason)
{
	struct bpf_sock *sk = skops->sk;

	fall_back(skops, kernel_sock(skops), sk, reason);
}

static __always_inline void set_callbacks(struct bpf_sock_ops *skops,
					  __u32 flags)
{
	__u32 present = skops->bpf_sock_ops_cb_flags;
	struct bpf_sock *sk = skops->sk;
	__u32 *ours = NULL;

	if (sk)
		ours = bpf_sk_storage_get(&callbacks, sk, NULL,
					  flags ? BPF_SK_STORAGE_GET_F_CREATE
						: 0);
	if (!ours)
		return;
	present &= ~*ours;
	*ours = flags & ~present;
	bpf_sock_ops_cb_flags_set(skops, present | flags);
}

static __always_inline struct xcp_socket *socket_of(struct bpf_sock_ops *skops,
						    __u64 flags)
{
	struct bpf_sock *sk = skops->sk;

	return sk ? bpf_sk_storage_get(&sockets, sk, NULL, flags) : NULL;
}

static __always_inline void forget(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;

	set_callbacks(skops, 0);
	if (sk)
		bpf_sk_storage_delete(&sockets, sk);
}

/* Loads a word of the context; the compiler cannot move the load. */
#define LOAD(to, field)                                                        \
	do {                                                                   \
		__u32 _w = skops->field;                                       \
		barrier_var(_w);                                               \
		(to) = _w;                                                     \
	} while (0)

static __always_inline struct xcp_flow_key flow_key(struct bpf_sock_ops *skops)
{
	struct xcp_flow_key key = {};
	__u32 *local = (__u32 *)key.local.bytes;
	__u32 *remote = (__u32 *)key.remote.bytes;
	__u32 local4, remote4;

	key.netns = bpf_get_netns_cookie(skops);
	LOAD(local[0], local_ip6[0]);
	LOAD(local[1], local_ip6[1]);
	LOAD(local[2], local_ip6[2]);
	LOAD(local[3], local_ip6[3]);
	LOAD(remote[0], remote_ip6[0]);
	LOAD(remote[1], remote_ip6[1]);
	LOAD(remote[2], remote_ip6[2]);
	LOAD(remote[3], remote_ip6[3]);
	LOAD(local4, local_ip4);
	LOAD(remote4, remote_ip4);
	if (skops->family == AF_INET) {
		address_of_ipv4(&key.local, local4);
		address_of_ipv4(&key.remote, remote4);
	}
	key.local_port = (__u16)skops->local_port;
	key.remote_port = (__u16)bpf_ntohl(skops->remote_port);
	return key;
}

#endif

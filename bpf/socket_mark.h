/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The mark on sockets that were opened with XCP's protocol number: socket.bpf.c
 * sets it, and option.bpf.c gives these sockets xcp when they connect or
 * listen.
 */
#ifndef XCP_BPF_SOCKET_MARK_H
#define XCP_BPF_SOCKET_MARK_H

#include "maps_host.h"

static __always_inline void mark_socket(struct bpf_sock *sk)
{
	__u32 *mark = bpf_sk_storage_get(&chosen, sk, NULL,
					 BPF_SK_STORAGE_GET_F_CREATE);

	if (mark)
		*mark = 1;
}

static __always_inline bool is_marked(struct bpf_sock *sk)
{
	return sk && bpf_sk_storage_get(&chosen, sk, NULL, 0);
}

#endif

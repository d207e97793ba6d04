/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The sockets that were opened by XCP's protocol number: socket.bpf.c marks
 * them, option.bpf.c gives them xcp when they connect or listen.
 */
#ifndef XCP_BPF_SOCKET_MARK_H
#define XCP_BPF_SOCKET_MARK_H

#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} chosen SEC(".maps");

#endif

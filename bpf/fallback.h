/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The fallback to the system's default congestion control. Its reason is
 * counted, and stored with the socket for `xcp host show --connections`.
 */
#ifndef XCP_BPF_FALLBACK_H
#define XCP_BPF_FALLBACK_H

#include "host.h"

/* Gives a socket the default congestion control, or reno if that fails. */
static __always_inline void use_default(void *ctx, struct sock *sk)
{
	char name[TCP_CA_NAME_MAX] = {};
	char reno[TCP_CA_NAME_MAX] = "reno";

	default_name(sk, name);
	if (bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, reno,
			       sizeof(reno));
}

/*
 * Switches a socket to the default congestion control. In the calling program,
 * bpf_setsockopt takes `ctx` and bpf_sk_storage_get takes `owner` as the
 * socket.
 */
#define fall_back(ctx, sk, owner, reason)                                      \
	do {                                                                   \
		__u32 _reason = (reason), *_kept = NULL;                       \
                                                                               \
		use_default(ctx, sk);                                          \
		if (_reason < XCP_FALLBACKS)                                   \
			COUNT(fallbacks[_reason], 1);                          \
		if (owner)                                                     \
			_kept = bpf_sk_storage_get(                            \
				&fallback_reasons, owner, NULL,                \
				BPF_SK_STORAGE_GET_F_CREATE);                  \
		if (_kept)                                                     \
			*_kept = _reason;                                      \
	} while (0)

#endif

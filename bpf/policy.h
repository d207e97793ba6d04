/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Which sockets use XCP: which ones get the congestion control `xcp`, and which
 * fall back, or return to it, depending on the routers on the path.
 */
#ifndef XCP_BPF_POLICY_H
#define XCP_BPF_POLICY_H

#include "host.h"
#include "maps_host.h"
#include "sock_ops.h"
#include "socket_mark.h"
#include "ttl.h"

/* Was the socket opened with XCP's protocol number? */
static __always_inline bool is_chosen(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;

	return is_marked(sk);
}

/*
 * Has the application set TCP_CONGESTION? The kernel has a flag for that, which
 * fall_back() sets too: that does not count.
 */
static __always_inline bool has_chosen(struct bpf_sock_ops *skops)
{
	struct inet_connection_sock *icsk = (void *)kernel_sock(skops);
	struct bpf_sock *sk = skops->sk;

	return BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_setsockopt) &&
	       !(sk && bpf_sk_storage_get(&fallback_reasons, sk, NULL, 0));
}

/*
 * Gives xcp to a new socket whose application has not set a congestion control,
 * if it was opened with XCP's protocol number, or if xcp is the default.
 */
static __always_inline bool choose(struct bpf_sock_ops *skops,
				   bool make_default)
{
	char xcp[TCP_CA_NAME_MAX] = "xcp";

	if (uses_xcp(skops))
		return true;
	if ((!make_default && !is_chosen(skops)) || has_chosen(skops))
		return false;
	return !bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, xcp,
			       sizeof(xcp));
}

/* Does a socket have keys for signatures (TCP-MD5, TCP-AO)? */
static __always_inline bool is_signed(struct bpf_sock_ops *skops)
{
	struct tcp_sock *tp = (void *)kernel_sock(skops);

	return (bpf_core_field_exists(tp->md5sig_info) &&
		BPF_CORE_READ(tp, md5sig_info)) ||
	       (bpf_core_field_exists(tp->ao_info) &&
		BPF_CORE_READ(tp, ao_info));
}

/* Do both peers use MPTCP? Its data segments have no room for `option`. */
static __always_inline bool negotiated_mptcp(struct bpf_sock_ops *skops)
{
	struct tcp_sock *tp = (void *)kernel_sock(skops);

	return bpf_core_field_exists(tp->is_mptcp) &&
	       BPF_CORE_READ(tp, is_mptcp) && carries(skops, TCPOPT_MPTCP, 0);
}

/* Keeps the SYNs of a listener: a SYN-ACK sent again is built from the SYN. */
static __always_inline void keep_syns(struct bpf_sock_ops *skops)
{
	int keep = 0;

	if (!bpf_getsockopt(skops, SOL_TCP, TCP_SAVE_SYN, &keep,
			    sizeof(keep)) &&
	    keep)
		return; /* set by the application, perhaps to another value */
	keep = 1;
	bpf_setsockopt(skops, SOL_TCP, TCP_SAVE_SYN, &keep, sizeof(keep));
}

/* Is the socket in a network namespace that does not use XCP? */
static __always_inline bool is_elsewhere(struct bpf_sock_ops *skops)
{
	return config.netns && bpf_get_netns_cookie(skops) != config.netns;
}

/* Has the application set another congestion control after a fallback? */
static __always_inline bool has_chosen_another(struct bpf_sock_ops *skops)
{
	char name[TCP_CA_NAME_MAX] = {}, preset[TCP_CA_NAME_MAX] = {};
	int i;

	default_name(kernel_sock(skops), preset);
	if (bpf_getsockopt(skops, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return true;
	for (i = 0; i < TCP_CA_NAME_MAX; i++)
		if (name[i] != preset[i])
			return true;
	return false;
}

/* Falls back, or returns to xcp, by the number of routers the peer reports. */
static __always_inline void judge_path(struct bpf_sock_ops *skops,
				       struct xcp_socket *s)
{
	char xcp[TCP_CA_NAME_MAX] = "xcp";

	if (s->xcp_hops == 0 && !s->fell_back && uses_xcp(skops)) {
		s->fell_back = 1;
		leave(skops, XCP_FALLBACK_NO_ROUTER);
	} else if (s->xcp_hops && s->xcp_hops != XCP_HOPS_UNKNOWN &&
		   s->fell_back && !has_no_room(s)) {
		s->fell_back = 0;
		if (has_chosen_another(skops))
			return;
		bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, xcp,
			       sizeof(xcp));
	}
}

#endif

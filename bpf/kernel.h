/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * Excerpts of the kernel structures that the programs read (CO-RE): only the
 * names matter, libbpf finds the offsets in the running kernel.
 */
#ifndef XCP_BPF_KERNEL_H
#define XCP_BPF_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <linux/version.h>
#include <stdbool.h>
#include <stdint.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define XCP_KERNEL __attribute__((preserve_access_index))

/*
 * Headers declare maps and globals; each program defines those that it uses,
 * since an object file contains all maps defined in it, used or not.
 */
#define XCP_MAP(name) struct name##_map name SEC(".maps")
#define XCP_DATA(type, name) struct type name SEC(".data." #name)

/* the state of bpf_for, for installed headers that are older */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));
#endif

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_ICMPV6 58
#define ND_ROUTER_SOLICIT 133
#define ND_REDIRECT 137
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define TCP_SAVE_SYN 27
#define TCP_CA_NAME_MAX 16
#define TCP_CA_LOSS 4
#define TCP_CONG_NON_RESTRICTED 1
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
#define CHECKSUM_PARTIAL 3
#define SKB_GSO_FRAGLIST (1 << 18)
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_ACK 0x10
#define TCPOPT_MD5SIG 19
#define TCPOPT_AO 29
#define TCPOPT_MPTCP 30
#define TCP_SYN_SENT 2
#define TCP_FIN_WAIT1 4
#define TCP_TIME_WAIT 6
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
#define IPV4_LEN 20
#define IPV6_LEN 40
/* offsets of the checksums in the IP and TCP headers */
#define IPV4_CHECK 10
#define TCP_CHECK 16

/* Continue with the next program (TCX_NEXT). */
#define XCP_TC_NEXT (-1)

struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
} XCP_KERNEL;

struct qdisc_skb_head {
	__u32 qlen;
} XCP_KERNEL;

typedef struct {
	long counter;
} u64_stats_t;

struct gnet_stats_basic_sync {
	u64_stats_t bytes;
	u64_stats_t packets;
} XCP_KERNEL;

struct Qdisc {
	struct gnet_stats_queue *cpu_qstats; /* per CPU, or NULL */
	struct gnet_stats_basic_sync *cpu_bstats;
	struct gnet_stats_basic_sync bstats;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
} XCP_KERNEL;

struct netdev_queue {
	struct net_device *dev;
	struct Qdisc *qdisc;
} XCP_KERNEL;

struct net;

typedef struct {
	struct net *net;
} possible_net_t;

struct ipv6_devconf {
	__s32 hop_limit;
} XCP_KERNEL;

struct inet6_dev {
	struct ipv6_devconf cnf;
} XCP_KERNEL;

struct net_device {
	struct inet6_dev *ip6_ptr;
	struct Qdisc *qdisc;
	struct netdev_queue *_tx;
	__u32 real_num_tx_queues;
	possible_net_t nd_net;
	int ifindex;
} XCP_KERNEL;

struct bpf_array {
	void *pptrs[0]; /* per CPU */
} XCP_KERNEL;

struct tcp_skb_cb {
	__u16 tcp_gso_segs;
} XCP_KERNEL;

struct skb_shared_info {
	__u16 gso_size;
	__u16 gso_segs;
	struct sk_buff *frag_list;
	unsigned int gso_type;
} XCP_KERNEL;

struct dst_entry {
	struct net_device *dev;
	unsigned long _metrics;
} XCP_KERNEL;

struct sk_buff {
	struct net_device *dev;
	unsigned long _skb_refdst;
	unsigned char *head;
	unsigned char *data;
	__u32 len;
	__u32 end;
	__u16 network_header;
	__u8 ip_summed : 2;
	struct sock *sk;
	char cb[48];
} XCP_KERNEL;

struct tcp_congestion_ops;

struct netns_ipv4 {
	const struct tcp_congestion_ops *tcp_congestion_control;
	__u8 sysctl_ip_default_ttl;
} XCP_KERNEL;

struct ns_common {
	unsigned int inum;
} XCP_KERNEL;

struct net {
	struct ns_common ns;
	struct netns_ipv4 ipv4;
} XCP_KERNEL;

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
} XCP_KERNEL;

struct sock_common {
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	__be32 skc_daddr;
	struct in6_addr skc_v6_daddr;
	struct sock *skc_listener; /* of a request socket */
} XCP_KERNEL;

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate; /* SO_MAX_PACING_RATE; ~0: none */
	__u32 sk_pacing_status;
} XCP_KERNEL;

struct ipv6_pinfo {
	__s16 hop_limit;
} XCP_KERNEL;

struct inet_sock {
	struct sock sk;
	struct ipv6_pinfo *pinet6;
	__s16 uc_ttl;
} XCP_KERNEL;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u8 icsk_ca_setsockopt : 1; /* icsk_ca_ops set by setsockopt() */
} XCP_KERNEL;

struct tcp_md5sig_info;
struct tcp_ao_info;

struct tcp_rack {
	__u32 rtt_us;
} XCP_KERNEL;

struct tcp_options_received {
	__u8 num_sacks; /* blocks to send */
} XCP_KERNEL;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u16 tcp_header_len;
	__u32 srtt_us; /* 1/8 us */
	__u32 rcv_nxt;
	__u32 rcv_wnd;
	__u32 rcv_wup; /* rcv_nxt at the last window update sent */
	__u32 snd_wnd;
	__u32 max_window; /* largest snd_wnd so far */
	__u32 snd_una;
	__u32 write_seq; /* end of the data that the application gave */
	__u32 snd_nxt;
	__u32 mss_cache;
	__u32 snd_cwnd;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 delivered;
	__u32 delivered_ce; /* with an ECN mark */
	__u32 lost; /* total */
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	struct tcp_options_received rx_opt;
	struct tcp_rack rack;
	__u64 tcp_mstamp; /* us */
	struct tcp_md5sig_info *md5sig_info; /* keys; CONFIG_TCP_MD5SIG */
	struct tcp_ao_info *ao_info; /* the same; CONFIG_TCP_AO, from 6.7 on */
	bool is_mptcp; /* a subflow; CONFIG_MPTCP */
} XCP_KERNEL;

struct request_sock {
	struct sock_common __req_common;
} XCP_KERNEL;

struct tcp_request_sock {
	__u32 snt_isn;
} XCP_KERNEL;

/* the kernel's context of sock_ops programs */
struct bpf_sock_ops_kern {
	struct sk_buff *skb;
	struct sock *sk;
} XCP_KERNEL;

struct rate_sample;

struct tcp_congestion_ops {
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, __u8 new_state);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*cong_control)(struct sock *sk, __u32 ack, int flag,
			     const struct rate_sample *rs);
	void (*cwnd_event)(struct sock *sk, __u32 event);
	void (*cwnd_event_tx_start)(struct sock *sk); /* from 7.1 on */
	__u32 (*sndbuf_expand)(struct sock *sk);
	char name[TCP_CA_NAME_MAX];
} XCP_KERNEL;

/* bpf_cast_to_kern_ctx exists from 6.2 on, the oldest supported kernel */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym;

/*
 * The kernel's context of a program, for reading. The cast makes it untrusted
 * memory: in a trusted context, the verifier searches the names of all kernel
 * types, several times, for each pointer that is read.
 */
#define kernel_skb(skb) bpf_core_cast(bpf_cast_to_kern_ctx(skb), struct sk_buff)
#define kernel_sock_ops(skops)                                                 \
	bpf_core_cast(bpf_cast_to_kern_ctx(skops), struct bpf_sock_ops_kern)

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The kernel's interface for a queue discipline in BPF (6.16 and later): its
 * operations, and lists of objects that own packets.
 */
#ifndef XCP_BPF_QDISC_H
#define XCP_BPF_QDISC_H

#include "kernel.h"
#include <linux/version.h>
#include <bpf/bpf_tracing.h>

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define IFNAMSIZ 16

/* for installed headers that are older than these types */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
struct bpf_list_head {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	__u64 opaque[3];
} __attribute__((aligned(8)));
#endif

struct nlattr;
struct netlink_ext_ack;

/* list of packets that are dropped under the qdisc's lock */
struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
} XCP_KERNEL;

/* contents of skb->cb in queue disciplines */
struct qdisc_skb_cb {
	__u32 pkt_len;
	__u16 tc_classid;
} XCP_KERNEL;

struct Qdisc_ops {
	char id[IFNAMSIZ];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch,
		       struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *arg,
		    struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
} XCP_KERNEL;

/* Declares a list of objects of this type, linked by this member. */
#define XCP_LIST_OF(type, link)                                                \
	__attribute__((btf_decl_tag("contains:" #type ":" #link)))

#define xcp_new(type)                                                          \
	((type *)bpf_obj_new_impl(bpf_core_type_id_local(type), NULL))
#define xcp_drop(object) bpf_obj_drop_impl(object, NULL)

extern void *bpf_obj_new_impl(__u64 local_type, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *head,
				   struct bpf_list_node *node, void *meta,
				   __u64 off) __ksym;
extern int bpf_list_push_front_impl(struct bpf_list_head *head,
				    struct bpf_list_node *node, void *meta,
				    __u64 off) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head)
	__ksym;
extern struct bpf_list_node *bpf_list_front(struct bpf_list_head *head) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;

extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb,
			       struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire_ns,
					__u64 slack_ns) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch,
				    const struct sk_buff *skb) __ksym;

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* The half-duplex medium of the lab, configured by user space. */
#ifndef XCP_BPF_MEDIUM_H
#define XCP_BPF_MEDIUM_H

#include "../core/xcp_frame.h"

struct xcp_medium {
	uint64_t rate_Bps;
	uint32_t limit_packets; /* limit of each device's queue */
	struct xcp_frame frame;
};

#endif

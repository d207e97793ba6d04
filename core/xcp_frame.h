/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The size of a packet on its link: more than what Linux counts.
 *
 *   len    bytes as Linux counts them, the link layer's header included
 *   L      max(len + overhead, mpu)
 *   plain  L
 *   ATM    cells of 53 bytes carry 48:      ceil(L / 48) 53
 *   PTM    65 bytes on the link carry 64:   ceil(65 L / 64)
 *
 * The names and the order of the steps are those of tc-cake(8).
 */
#ifndef XCP_FRAME_H
#define XCP_FRAME_H

#include "xcp_fixed.h"

enum xcp_cells {
	XCP_CELLS_NONE,
	XCP_CELLS_ATM,
	XCP_CELLS_PTM,
};

struct xcp_frame {
	int32_t overhead_B; /* -64 to 4096 */
	uint32_t mpu_B; /* minimum packet size on the link */
	uint32_t cells; /* enum xcp_cells */
};

/* The bytes of one wire packet on the link. */
XCP_INLINE uint64_t xcp_frame_one(const struct xcp_frame *f, uint64_t len)
{
	uint64_t more = f->overhead_B < 0 ? 0 : (uint64_t)f->overhead_B;
	uint64_t less = f->overhead_B < 0 ? xcp_abs(f->overhead_B) : 0;
	uint64_t bytes = xcp_max(xcp_excess(len + more, less), f->mpu_B);

	if (XCP_UNLIKELY(f->cells == XCP_CELLS_ATM))
		return (bytes + 47) / 48 * 53;
	if (XCP_UNLIKELY(f->cells == XCP_CELLS_PTM))
		return bytes + (bytes + 63) / 64;
	return bytes;
}

/*
 * The bytes of n wire packets on the link. They have `len` bytes in total, and
 * all but the last have the same size.
 */
XCP_INLINE uint64_t xcp_frame_bytes(const struct xcp_frame *f, uint64_t len,
				    uint32_t n)
{
	if (XCP_LIKELY(n == 1))
		return xcp_frame_one(f, len);
	/* n is 0 if the packets were not counted: their overhead is unknown */
	return n ? xcp_frame_one(f, len / n) * n : len;
}

#endif

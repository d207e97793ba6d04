/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * What a packet takes on its link: more than what Linux counts.
 *
 *   len    bytes as Linux counts them, the link layer's header included
 *   L      max(len + overhead, mpu)
 *   plain  L
 *   ATM    cells of 53 bytes carry 48:      ceil(L / 48) 53
 *   PTM    65 bytes on the link carry 64:   ceil(65 L / 64)
 *
 * The names and the order are those of tc-cake(8).
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
	uint32_t mpu_B;
	uint32_t cells; /* enum xcp_cells */
};

/* Bytes on the link of one wire packet. */
XCP_INLINE uint64_t xcp_frame_one(const struct xcp_frame *f, uint64_t len)
{
	uint64_t more = f->overhead_B < 0 ? 0 : (uint64_t)f->overhead_B;
	uint64_t less = f->overhead_B < 0 ? xcp_size(f->overhead_B) : 0;
	uint64_t bytes = xcp_max(xcp_excess(len + more, less), f->mpu_B);

	if (XCP_UNLIKELY(f->cells == XCP_CELLS_ATM))
		return (bytes + 47) / 48 * 53;
	if (XCP_UNLIKELY(f->cells == XCP_CELLS_PTM))
		return bytes + (bytes + 63) / 64;
	return bytes;
}

/* Of n wire packets, `len` bytes together, all but the last alike. */
XCP_INLINE uint64_t xcp_frame_bytes(const struct xcp_frame *f, uint64_t len,
				    uint32_t n)
{
	if (XCP_LIKELY(n == 1))
		return xcp_frame_one(f, len);
	/* n is 0 if nobody counted them: what they add is unknown */
	return n ? xcp_frame_one(f, len / n) * n : len;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/*
 * The wire formats, and the search for their options in a TCP header.
 *
 *   option        xcp_option.h       TCP option 254 "XC", this project's own
 *   option-2005   xcp_option_2005.h  TCP options 14 and 15, Zhang & Henderson
 *   header        xcp_header.h       between IP and TCP, draft -03 of 2007
 *   header-2004   xcp_header.h       the same, draft -00 and the thesis
 */
#ifndef XCP_WIRE_H
#define XCP_WIRE_H

#include "xcp_header.h"
#include "xcp_option.h"
#include "xcp_option_2005.h"

/* The wire format of a flow's packets. */
enum xcp_wire {
	XCP_WIRE_OPTION,
	XCP_WIRE_OPTION_2005,
	XCP_WIRE_HEADER,
	XCP_WIRE_HEADER_2004,
};

/*
 * Finds an XCP option at any place in a TCP header of `header_len` bytes (20 to
 * 60). An option that routers change is preferred to one that they do not
 * change. `data_end` is the end of the readable bytes. Sets `*offset` from the
 * start of the header. Returns XCP_MALFORMED if the options before it are
 * invalid.
 */
XCP_INLINE enum xcp_kind xcp_option_find(const uint8_t *tcp,
					 uint32_t header_len,
					 const uint8_t *data_end,
					 uint32_t *offset)
{
	uint32_t at, length, i, seen = 0;
	const uint8_t *p;

	*offset = XCP_TCP_HEADER_LEN;
	XCP_FOR(i, XCP_TCP_HEADER_MAX - XCP_TCP_HEADER_LEN)
	{
		XCP_FORGET(*offset); /* one verifier state per option */
		at = *offset;
		if (at >= header_len || at >= XCP_TCP_HEADER_MAX)
			break;
		p = tcp + at;
		if (p + 1 > data_end)
			return XCP_MALFORMED;
		if (p[0] == 0) /* end of options */
			break;
		if (p[0] == 1) { /* no operation */
			*offset = at + 1;
			continue;
		}
		if (p + 2 > data_end || at + 2 > header_len)
			return XCP_MALFORMED;
		length = p[1];
		if (length < 2 || at + length > header_len)
			return XCP_MALFORMED;
		if (p[0] == XCP_OPT_KIND && length >= XCP_OPT_HANDSHAKE_LEN) {
			if (p + XCP_OPT_HANDSHAKE_LEN > data_end)
				return XCP_MALFORMED;
			if (p[2] == XCP_OPT_ID >> 8 &&
			    p[3] == (XCP_OPT_ID & 0xff)) {
				if (length == XCP_OPT_HANDSHAKE_LEN)
					return XCP_HANDSHAKE;
				if (p + XCP_OPT_FLAGS + 1 > data_end)
					return XCP_MALFORMED;
				return xcp_option_kind(length,
						       p[XCP_OPT_FLAGS]);
			}
		}
		/* options of other lengths are not XCP options */
		if (p[0] == XCP_2005_FORWARD_KIND &&
		    length == XCP_2005_FORWARD_LEN)
			return XCP_FORWARD_2005;
		if (p[0] == XCP_2005_RETURN_KIND &&
		    length == XCP_2005_RETURN_LEN)
			seen = at;
		*offset = at + length;
	}
	if (!seen)
		return XCP_NONE;
	*offset = seen;
	return XCP_RETURN_2005;
}

#endif

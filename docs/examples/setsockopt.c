// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/* A TCP client that chooses XCP, before it connects. */
#include "receive.h"

int main(int argc, char **argv)
{
	struct addrinfo *to = server(argc, argv);
	int fd = socket(to->ai_family, SOCK_STREAM, 0);

	if (fd < 0)
		die("socket");
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "xcp", 3))
		die("xcp");
	receive(fd, to);
	return 0;
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/*
 * A plain TCP client, which gets XCP by `xcp run`, by `xcp host on --default`
 * or by its route.
 */
#include "receive.h"

int main(int argc, char **argv)
{
	struct addrinfo *to = server(argc, argv);
	int fd = socket(to->ai_family, SOCK_STREAM, 0);

	if (fd < 0)
		die("socket");
	receive(fd, to);
	return 0;
}

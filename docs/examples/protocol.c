// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
/* A client whose socket is of type IPPROTO_XCP. */
#include "receive.h"

#define IPPROTO_XCP 200

int main(int argc, char **argv)
{
	struct addrinfo *to = server(argc, argv);
	int fd = socket(to->ai_family, SOCK_STREAM, IPPROTO_XCP);

	if (fd < 0)
		die("IPPROTO_XCP");
	receive(fd, to);
	return 0;
}

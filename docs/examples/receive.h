/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later */
/* What the examples have in common: connect, copy to standard output, print the
 * congestion control. */
#ifndef RECEIVE_H
#define RECEIVE_H

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* The server that the command line names: ADDRESS PORT. */
static struct addrinfo *server(int argc, char **argv)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found;

	if (argc != 3 || getaddrinfo(argv[1], argv[2], &hints, &found)) {
		fprintf(stderr, "usage: %s ADDRESS PORT\n", argv[0]);
		exit(2);
	}
	return found;
}

/* Copies all that the server sends; prints the congestion control. */
static void receive(int fd, const struct addrinfo *to)
{
	char buffer[65536], control[16] = "";
	socklen_t length = sizeof(control);
	long total = 0;
	ssize_t n;

	if (connect(fd, to->ai_addr, to->ai_addrlen))
		die("connect");
	while ((n = read(fd, buffer, sizeof(buffer))) > 0) {
		fwrite(buffer, 1, (size_t)n, stdout);
		total += n;
	}
	if (n < 0)
		die("read");
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &length))
		die("TCP_CONGESTION");
	fprintf(stderr, "%s, %ld bytes\n", control, total);
}

#endif

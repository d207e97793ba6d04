# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
"""What the examples have in common: connect, copy to standard output, print the congestion control."""
import socket
import sys


def server():
    """Family and address of the server that the command line names."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} ADDRESS PORT")
    found = socket.getaddrinfo(*sys.argv[1:], type=socket.SOCK_STREAM)[0]
    return found[0], found[4]


def receive(s, address):
    """Copies all that the server sends; prints the congestion control."""
    s.connect(address)
    total = 0
    while data := s.recv(65536):
        sys.stdout.buffer.write(data)
        total += len(data)
    control = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    print(f"{control.split(bytes(1))[0].decode()}, {total} bytes", file=sys.stderr)

# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
"""A TCP client that chooses XCP, before it connects."""
import socket

from receive import receive, server

family, address = server()
with socket.socket(family, socket.SOCK_STREAM) as s:
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"xcp")
    receive(s, address)

# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
"""A client whose socket is of type IPPROTO_XCP."""
import socket

from receive import receive, server

IPPROTO_XCP = 200

family, address = server()
with socket.socket(family, socket.SOCK_STREAM, IPPROTO_XCP) as s:
    receive(s, address)

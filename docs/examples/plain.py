# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
"""A plain TCP client, which gets XCP by `xcp run`, by `xcp host on --default`
or by its route."""
import socket

from receive import receive, server

family, address = server()
with socket.socket(family, socket.SOCK_STREAM) as s:
    receive(s, address)

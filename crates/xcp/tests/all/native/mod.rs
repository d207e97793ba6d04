// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! On this host's kernel, in network namespaces: each with a turn of its own,
//! since they share where the command pins what stays.

mod conservation;
mod devices;
mod experiments;
mod fallback;
mod formats;
mod host;
mod queues;
mod router;
mod run;
mod sockets;
mod trace;
mod transfer;

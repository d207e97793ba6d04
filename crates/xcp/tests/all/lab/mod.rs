// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab` in the virtual-time machine: nothing here loads a program into
//! this host's kernel.

mod costs;
mod experiments;
mod formats;
mod kept;
mod links;
mod qdisc;
mod routers;

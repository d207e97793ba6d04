// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of `xcp lab` in the virtual-time machine. None of them loads a program
//! into this host's kernel.

mod applications;
mod boot;
mod cache;
mod captures;
mod cases;
mod checks;
mod costs;
mod debian;
mod exec;
mod experiments;
mod links;
mod results;
mod traces;
mod tutorial;

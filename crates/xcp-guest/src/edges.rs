// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! As `main.rs`, with the daemons of XCP-i: for variants that have them. Results of
//! the others stay valid while those change.

fn main() {
    xcp_player::guest::main()
}

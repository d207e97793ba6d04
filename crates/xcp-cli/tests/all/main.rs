// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of the documentation against the command line and the tree of files.

mod documents;
mod reference;

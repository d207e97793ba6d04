// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The error says that the kernel's verifier refused a program.

use xcp_testbed::{can_run, load_refused, shared_test_lock};

#[test]
fn a_refusal_by_the_verifier_names_it_and_the_program() {
    let _turn = shared_test_lock().expect("the lock of the tests");
    if !can_run("a_refusal_by_the_verifier_names_it_and_the_program") {
        return;
    }
    let e = load_refused().expect_err("no verifier takes it");
    let reason = "this kernel's verifier refused the program (xcp_refused, EACCES): ";
    assert!(e.reason.starts_with(reason), "{e}");
    // the verifier's own words, not those that it says of every program
    let line = &e.reason[reason.len()..];
    assert!(line.contains("packet"), "{e}");
    for part in ["`xcp doctor --json`", "--verbose"] {
        assert!(e.remedy.contains(part), "{e:?}");
    }
    assert!(!format!("{e:?}").contains("root"), "{e:?}");
}

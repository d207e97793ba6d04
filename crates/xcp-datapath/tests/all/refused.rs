// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests the error that is returned when the kernel's verifier refuses a program.

use xcp_testbed::{can_run, load_refused, shared_test_lock};

#[test]
fn verifier_error_names_the_verifier_and_the_program() {
    let _lock = shared_test_lock().expect("the test lock is available");
    if !can_run("verifier_error_names_the_verifier_and_the_program") {
        return;
    }
    let e = load_refused().expect_err("every verifier refuses it");
    let reason = "this kernel's verifier rejected the program (xcp_refused, EACCES): ";
    assert!(e.reason.starts_with(reason), "{e}");
    // a message of the verifier about this program, not a general one
    let line = &e.reason[reason.len()..];
    assert!(line.contains("packet"), "{e}");
    for part in ["`xcp doctor --json`", "--verbose"] {
        assert!(e.remedy.contains(part), "{e:?}");
    }
    assert!(!format!("{e:?}").contains("root"), "{e:?}");
}

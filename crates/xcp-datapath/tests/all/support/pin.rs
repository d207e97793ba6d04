// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Pins a thread to its CPU.

/// Pins this thread to the CPU on which it runs. Returns false if the system refuses.
pub fn stay_on_this_cpu() -> bool {
    // SAFETY: a cpu_set_t is plain bits, valid for any value, and outlives the calls.
    unsafe {
        let cpu = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu.max(0) as usize, &mut set);
        cpu >= 0 && libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set) == 0
    }
}

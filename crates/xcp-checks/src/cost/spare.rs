// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Counts the idle time of the machine's single processor: a thread at idle priority
//! runs only when no other thread does, and counts its turns, each with the same
//! number of instructions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Number of loop iterations in a turn.
const LOOPS: u64 = 500;
/// How long the thread runs alone, to measure the length of a turn.
const ALONE: Duration = Duration::from_millis(20);

/// Counts the instructions that the processor executed outside of the idle thread.
pub struct IdleCounter<'a> {
    turns: &'a AtomicU64,
    instructions_per_turn: f64,
}

/// A time, and the number of turns until then.
#[derive(Clone, Copy)]
pub struct Mark {
    time: Instant,
    turns: u64,
}

impl IdleCounter<'_> {
    pub fn mark(&self) -> Mark {
        Mark {
            time: Instant::now(),
            turns: self.turns.load(Ordering::Relaxed),
        }
    }

    /// Number of instructions since a mark, without those of the idle thread.
    pub fn used_since(&self, mark: Mark) -> f64 {
        let now = self.mark();
        let all = (now.time - mark.time).as_nanos() as f64;
        all - (now.turns - mark.turns) as f64 * self.instructions_per_turn
    }
}

/// Runs `work` while the idle thread counts the unused time of the processor.
pub fn count_idle_during<T>(work: impl FnOnce(&IdleCounter) -> Result<T>) -> Result<T> {
    let (turns, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let idler = scope.spawn(|| idle(&turns, &stop));
        let mut spare = IdleCounter {
            turns: &turns,
            instructions_per_turn: 0.0,
        };
        thread::sleep(ALONE);
        let begin = spare.mark();
        thread::sleep(ALONE);
        let end = spare.mark();
        spare.instructions_per_turn =
            (end.time - begin.time).as_nanos() as f64 / (end.turns - begin.turns).max(1) as f64;
        let result = work(&spare);
        stop.store(true, Ordering::Relaxed);
        idler
            .join()
            .unwrap_or_else(|_| Err(Error::new("idle thread", "panicked", "report this")))
            .and(result)
    })
}

/// Counts turns at the lowest scheduling priority until `stop` is set.
fn idle(turns: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the record lives through the call; 0 is this thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &priority) } != 0 {
        return Err(Error::io("idle thread", &std::io::Error::last_os_error()));
    }
    while !stop.load(Ordering::Relaxed) {
        // SAFETY: only counts a register down.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "2:",
                "dec {loops}",
                "jnz 2b",
                loops = inout(reg) LOOPS => _,
                options(nomem, nostack)
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                "2:",
                "subs {loops}, {loops}, #1",
                "b.ne 2b",
                loops = inout(reg) LOOPS => _,
                options(nomem, nostack)
            );
        }
        turns.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

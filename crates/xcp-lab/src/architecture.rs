// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a machine is made of that depends on its processor's architecture.

use std::env::consts::ARCH;

/// An architecture that the machine can have.
#[derive(Debug)]
pub struct Architecture {
    /// As Rust calls it.
    pub name: &'static str,
    /// As Debian calls it.
    pub debian: &'static str,
    pub qemu: &'static str,
    /// Debian's package of that.
    pub package: &'static str,
    /// The files that the machine loads, as `info roms` of QEMU's monitor lists
    /// them. They may come from packages with versions of their own (SeaBIOS).
    pub firmware: &'static [&'static str],
    pub cpu: &'static str,
    /// QEMU's arguments for the way out of the machine, which leads to its
    /// character device `voice`: what the player's `guest.rs` writes to.
    pub voice: &'static [&'static str],
    /// The kernel's parameters that others do not have, and those from 7.0 on.
    pub parameters: &'static str,
    pub parameters_7: &'static str,
    /// What the kernel must be configured with besides what all need.
    pub configuration: &'static str,
}

pub static X86_64: Architecture = Architecture {
    name: "x86_64",
    debian: "amd64",
    qemu: "qemu-system-x86_64",
    package: "qemu-system-x86",
    firmware: &["bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin"],
    // Without true randomness. And without CMPXCHG16B: where a timer's interrupt
    // met it, QEMU 7.2 left an address in the flags (seen: the direction flag set,
    // memory cleared backwards, and a panic at boot for one archive in many).
    // And without fast strings, with which kernels copy byte by byte: QEMU counts
    // an instruction for each.
    cpu: "max,rdrand=off,rdseed=off,cx16=off,erms=off,fsrm=off",
    voice: &["-device", "isa-debugcon,iobase=0xe9,chardev=voice"],
    // The timer of an APIC is measured at boot by reading the time for 0.1 s. QEMU goes
    // round all processors after each reading, which takes seconds: with 40, over a minute.
    parameters: "console=ttyS0 earlyprintk=ttyS0 nolapic_timer",
    // Without CMPXCHG16B these kernels take what BPF stores with sockets from
    // checked caches only.
    parameters_7: " slab_debug=F,kmalloc-*",
    configuration: "CONFIG_SERIAL_8250_CONSOLE and CONFIG_X86_IOPL_IOPERM",
};

pub static AARCH64: Architecture = Architecture {
    name: "aarch64",
    debian: "arm64",
    qemu: "qemu-system-aarch64",
    package: "qemu-system-arm",
    firmware: &[],
    // has atomic instructions, and no true randomness
    cpu: "cortex-a76",
    voice: &[
        "-machine",
        "virt",
        "-semihosting-config",
        "enable=on,target=native,userspace=on,chardev=voice",
    ],
    parameters: "console=ttyAMA0",
    parameters_7: "",
    configuration: "CONFIG_SERIAL_AMBA_PL011_CONSOLE",
};

impl Architecture {
    /// That of this program.
    pub fn native() -> &'static Self {
        Self::find(|a| a.name == ARCH).unwrap_or(&X86_64)
    }

    pub fn find(is_wanted: impl Fn(&Self) -> bool) -> Option<&'static Self> {
        [&X86_64, &AARCH64].into_iter().find(|a| is_wanted(a))
    }

    pub fn is_native(&self) -> bool {
        self.name == Self::native().name
    }
}

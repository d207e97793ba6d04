// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The properties of a machine that depend on the processor architecture.

use std::env::consts::ARCH;

/// A processor architecture of the machine.
#[derive(Debug)]
pub struct Architecture {
    /// Rust's name.
    pub name: &'static str,
    /// Debian's name.
    pub debian: &'static str,
    pub qemu: &'static str,
    /// Debian's package of QEMU.
    pub package: &'static str,
    /// The firmware files that the machine loads, as listed by `info roms` of QEMU's
    /// monitor. They may come from packages with other versions (SeaBIOS).
    pub firmware: &'static [&'static str],
    pub cpu: &'static str,
    /// QEMU's arguments for the output channel of the machine, the character device
    /// `voice`, to which the player's `guest.rs` writes.
    pub voice: &'static [&'static str],
    /// Kernel parameters for this architecture; the second ones from Linux 7.0 on.
    pub parameters: &'static str,
    pub parameters_7: &'static str,
    /// Kernel options that this architecture needs in addition to the common ones.
    pub configuration: &'static str,
}

pub static X86_64: Architecture = Architecture {
    name: "x86_64",
    debian: "amd64",
    qemu: "qemu-system-x86_64",
    package: "qemu-system-x86",
    firmware: &["bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin"],
    // RDRAND and RDSEED are off because they return true random numbers. CMPXCHG16B is
    // off because QEMU 7.2 left an address in the flags if a timer interrupt occurred
    // during it (seen: the direction flag set, memory cleared backwards, and, with a few
    // archives, a panic at boot). Fast strings are off because kernels use them to copy
    // byte by byte, and QEMU counts an instruction for each byte.
    cpu: "max,rdrand=off,rdseed=off,cx16=off,erms=off,fsrm=off",
    voice: &["-device", "isa-debugcon,iobase=0xe9,chardev=voice"],
    // At boot, the kernel calibrates the APIC timer by reading the time for 0.1 s. QEMU
    // visits all processors after each reading, which takes seconds: with 40, over a minute.
    parameters: "console=ttyS0 earlyprintk=ttyS0 nolapic_timer",
    // Without CMPXCHG16B these kernels allocate BPF socket storage only from slab
    // caches with debugging.
    parameters_7: " slab_debug=F,kmalloc-*",
    configuration: "CONFIG_SERIAL_8250_CONSOLE and CONFIG_X86_IOPL_IOPERM",
};

pub static AARCH64: Architecture = Architecture {
    name: "aarch64",
    debian: "arm64",
    qemu: "qemu-system-aarch64",
    package: "qemu-system-arm",
    firmware: &[],
    // has atomic instructions, and no true random numbers
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
    /// The architecture of this program.
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

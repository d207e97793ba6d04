// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs the host's ingress program on single packets.

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use xcp_abi::{xcp_host_counters, Record};
use xcp_datapath::internal::{host, netns, object};
use xcp_datapath::wire::IP_PROTO;
use xcp_datapath::{Result, Wire};

/// The host's ingress program, not attached, for this network namespace. All peers may use
/// the format `header`.
pub struct Ingress {
    object: Object,
}

impl Ingress {
    /// Loads the program.
    pub fn new() -> Result<Self> {
        let netns = netns::cookie()?;
        let open = host::open_device(netns, 14, IP_PROTO)?;
        let object = object::load(&object::DEVICE, open)?;
        object::map(&object, "peers")?
            .update(
                host::peer_key(netns, None).bytes(),
                &[Wire::Header as u8],
                MapFlags::ANY,
            )
            .map_err(|e| object::failure("map of peers", &e))?;
        Ok(Self { object })
    }

    /// Runs the program on one Ethernet frame. Returns the frame as TCP would receive it, or
    /// None if the kernel's test run rejects the frame.
    pub fn packet(&self, frame: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut out = vec![0; frame.len() + 256];
        let program = object::program(&self.object, "xcp_ingress")?;
        let result = program.test_run(ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat: 1,
            ..Default::default()
        });
        match result {
            Ok(result) => {
                let length = result.data.as_ref().map_or(0, |d| d.len());
                out.truncate(length);
                Ok(Some(out))
            }
            Err(e) if e.kind() == libbpf_rs::ErrorKind::InvalidInput => Ok(None),
            Err(e) => Err(object::failure("test run", &e)),
        }
    }

    /// The number of malformed headers so far.
    pub fn malformed(&self) -> Result<u64> {
        let map = object::map(&self.object, "counters")?;
        let all = object::read_per_cpu::<xcp_host_counters>(&map)?;
        Ok(all.iter().map(|c| c.malformed).sum())
    }
}

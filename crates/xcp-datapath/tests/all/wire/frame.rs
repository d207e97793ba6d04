// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Builds Ethernet frames layer by layer, including malformed ones.

use super::checksum;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
/// The default IP protocol number of XCP headers: 253, reserved for experiments (RFC 3692).
pub const XCP: u8 = 253;
pub const ETHERTYPE_IPV4: u16 = 0x0800;
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
/// 192.0.2.1 to 198.51.100.2
const V4: [u8; 8] = [192, 0, 2, 1, 198, 51, 100, 2];
/// 2001:db8::1 to 2001:db8:1::2
const V6: [u8; 32] = [
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
];

/// The network layer.
#[derive(Clone)]
pub enum Ip {
    V4 {
        options: Vec<u8>,
        /// The 16-bit word of fragment flags and offset.
        fragment: u16,
    },
    V6 {
        /// The protocol number and bytes of each extension header; the first byte
        /// (next header) is filled in later.
        extensions: Vec<(u8, Vec<u8>)>,
    },
}

impl Ip {
    pub fn v4() -> Self {
        Ip::V4 {
            options: vec![],
            fragment: 0x4000,
        }
    }

    pub fn v6() -> Self {
        Ip::V6 { extensions: vec![] }
    }

    fn addresses(&self) -> &'static [u8] {
        match self {
            Ip::V4 { .. } => &V4,
            Ip::V6 { .. } => &V6,
        }
    }

    pub fn version(&self) -> u8 {
        match self {
            Ip::V4 { .. } => 4,
            Ip::V6 { .. } => 6,
        }
    }
}

/// The description of a frame; the default is an IPv4 packet with a TCP payload of 40 bytes.
#[derive(Clone)]
pub struct Frame {
    /// The TPIDs of the VLAN tags, outermost first.
    pub tags: Vec<u16>,
    pub ip: Ip,
    pub ttl: u8,
    /// An XCP header, with `xcp_protocol` as its protocol number in the IP header.
    pub xcp_header: Vec<u8>,
    pub xcp_protocol: u8,
    /// The protocol number of the segment.
    pub protocol: u8,
    pub flags: u8,
    /// The TCP options; padded with NOPs to a multiple of 4.
    pub options: Vec<u8>,
    pub payload: usize,
    /// A wrong data offset, in words.
    pub doff: Option<u8>,
    /// Added to the length in the IP header.
    pub excess: u16,
    pub spoil_checksum: bool,
    /// The length of the Ethernet padding.
    pub padding: usize,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            tags: vec![],
            ip: Ip::v4(),
            ttl: 64,
            xcp_header: vec![],
            xcp_protocol: XCP,
            protocol: TCP,
            flags: 0x18,
            options: vec![],
            payload: 40,
            doff: None,
            excess: 0,
            spoil_checksum: false,
            padding: 0,
        }
    }
}

/// A layer's name and bytes.
pub type Layer = (&'static str, Vec<u8>);

impl Frame {
    /// Returns the length of all headers before TCP.
    pub fn tcp_offset(&self) -> usize {
        self.xcp_offset() + self.xcp_header.len()
    }

    /// Returns the length of the link and network headers.
    pub fn xcp_offset(&self) -> usize {
        14 + 4 * self.tags.len()
            + match &self.ip {
                Ip::V4 { options, .. } => 20 + options.len(),
                Ip::V6 { extensions } => 40 + extensions.iter().map(|e| e.1.len()).sum::<usize>(),
            }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.layers().into_iter().flat_map(|l| l.1).collect()
    }

    pub fn layers(&self) -> Vec<Layer> {
        let mut layers = vec![("Ethernet", self.ethernet())];
        let (header, payload) = self.segment();
        layers.extend(self.network(self.xcp_header.len() + header.len() + payload.len()));
        layers.push(("XCP header", self.xcp_header.clone()));
        let fixed = if self.protocol == TCP { 20 } else { 8 };
        let name = match self.protocol {
            TCP => "TCP",
            UDP => "UDP",
            _ => "another protocol",
        };
        layers.push((name, header[..fixed].to_vec()));
        layers.push(("TCP options", header[fixed..].to_vec()));
        layers.push(("payload", payload));
        layers.push(("Ethernet padding", vec![0; self.padding]));
        layers.retain(|l| !l.1.is_empty());
        layers
    }

    /// Returns the layers of a packet that ends with the XCP header.
    pub fn without_segment(&self) -> Vec<Layer> {
        let mut layers = vec![("Ethernet", self.ethernet())];
        layers.extend(self.network(self.xcp_header.len()));
        layers.push(("XCP header", self.xcp_header.clone()));
        layers
    }

    fn ip_protocol(&self) -> u8 {
        if self.xcp_header.is_empty() {
            self.protocol
        } else {
            self.xcp_protocol
        }
    }

    fn ethernet(&self) -> Vec<u8> {
        let mut out = MACS.to_vec();
        for (i, tpid) in self.tags.iter().enumerate() {
            out.extend(tpid.to_be_bytes());
            out.extend((100 + i as u16).to_be_bytes());
        }
        let ethertype = match self.ip {
            Ip::V4 { .. } => ETHERTYPE_IPV4,
            Ip::V6 { .. } => ETHERTYPE_IPV6,
        };
        out.extend(ethertype.to_be_bytes());
        out
    }

    fn network(&self, segment: usize) -> Vec<Layer> {
        match &self.ip {
            Ip::V4 { options, fragment } => {
                let header = 20 + options.len();
                let total = (header + segment) as u16 + self.excess;
                let mut ip = vec![0x40 | (header / 4) as u8, 0];
                ip.extend(total.to_be_bytes());
                ip.extend([0x12, 0x34]);
                ip.extend(fragment.to_be_bytes());
                ip.extend([self.ttl, self.ip_protocol(), 0, 0]);
                ip.extend(V4);
                ip.extend(options);
                let check = !checksum::sum(&[&ip]);
                ip[10..12].copy_from_slice(&check.to_be_bytes());
                vec![("IPv4", ip)]
            }
            Ip::V6 { extensions } => {
                let length = extensions.iter().map(|e| e.1.len()).sum::<usize>() + segment;
                let mut next: Vec<u8> = extensions.iter().map(|e| e.0).collect();
                next.push(self.ip_protocol());
                let mut ip = vec![0x60, 0, 0, 0];
                ip.extend((length as u16 + self.excess).to_be_bytes());
                ip.extend([next[0], self.ttl]);
                ip.extend(V6);
                let mut layers = vec![("IPv6", ip)];
                for (i, (_, bytes)) in extensions.iter().enumerate() {
                    let mut bytes = bytes.clone();
                    bytes[0] = next[i + 1];
                    layers.push(("IPv6 extension header", bytes));
                }
                layers
            }
        }
    }

    /// Returns the header, with its checksum, and the payload of the segment.
    fn segment(&self) -> (Vec<u8>, Vec<u8>) {
        let payload: Vec<u8> = (0..self.payload).map(|i| (i * 7 + 1) as u8).collect();
        let mut header = vec![0x9c, 0x40, 0, 80];
        let check = if self.protocol == TCP {
            let mut options = self.options.clone();
            options.resize(options.len().next_multiple_of(4), 1);
            let doff = self.doff.unwrap_or((5 + options.len() / 4) as u8);
            header.extend([0, 0, 0x10, 1, 0, 0, 0x20, 2]);
            header.extend([doff << 4, self.flags, 0x01, 0xf5, 0, 0, 0, 0]);
            header.extend(options);
            16
        } else {
            header.extend((8 + self.payload as u16).to_be_bytes());
            header.extend([0, 0]);
            6
        };
        let whole = [header.as_slice(), &payload].concat();
        let mut sum = checksum::of(self.ip.addresses(), self.protocol, &whole);
        if self.spoil_checksum {
            sum = sum.wrapping_sub(0x0bad);
        }
        header[check..check + 2].copy_from_slice(&sum.to_be_bytes());
        (header, payload)
    }
}

//! What may be reached on a stranger's word: public addresses, and the networks that the operator exempts.
//!
//! Always true: an address is judged at the moment of connecting to it, by the very address that is then connected
//! to. A name is resolved here and nowhere else, so one that changes its answer changes nothing; no redirect and no
//! proxy leads around it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

mod client;
mod lookup;
mod names;
mod special;
mod url;

pub use client::client;
pub use lookup::{Lookup, SharedLookup, SystemLookup};
pub use url::{ReadUrl, read_url};

/// A network such as `10.0.0.0/8`; a single address is one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    address: IpAddr,
    bits: u8,
}

/// A text that is no network.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a network such as 10.0.0.0/8")]
pub struct NotANet(String);

impl FromStr for Net {
    type Err = NotANet;

    fn from_str(text: &str) -> Result<Self, NotANet> {
        let wrong = || NotANet(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(net, bits)| (net, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits <= most { Ok(Self { address, bits }) } else { Err(wrong()) }
    }
}

impl Net {
    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let alike = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            _ => return false,
        };
        alike >= u32::from(self.bits)
    }
}

/// The rule of an instance.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Networks that may be reached although they are not public.
    pub exempt: Vec<Net>,
    /// A developer's machine: plain HTTP and any port will do.
    pub is_dev: bool,
}

/// Why an address is not connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {what}, which NOTIFY_ALLOW_NETS does not exempt")]
pub struct NotOutside {
    address: IpAddr,
    what: &'static str,
}

impl Outside {
    /// Whether the address is exempt.
    #[must_use]
    pub fn exempts(&self, address: IpAddr) -> bool {
        self.exempt.iter().any(|net| net.contains(address.to_canonical()))
    }

    /// Makes sure that an address may be connected to.
    ///
    /// # Errors
    /// [`NotOutside`] says what it is instead of public.
    pub fn check(&self, address: IpAddr) -> Result<(), NotOutside> {
        match special::what_is(address) {
            Some(what) if !self.exempts(address) => Err(NotOutside { address, what }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_hold_what_is_in_them() {
        let is_in = |net: &str, address: &str| {
            net.parse::<Net>().unwrap().contains(address.parse::<IpAddr>().unwrap())
        };
        assert!(is_in("10.0.0.0/8", "10.255.0.1") && !is_in("10.0.0.0/8", "11.0.0.1"));
        assert!(is_in("0.0.0.0/0", "8.8.8.8") && !is_in("0.0.0.0/0", "::1"));
        assert!(is_in("192.0.2.7", "192.0.2.7") && !is_in("192.0.2.7", "192.0.2.6"));
        assert!(is_in("fd00::/8", "fd12::1") && !is_in("fd00::/8", "fe80::1"));
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/-1", "10.0.0.0/8/8", "localhost"] {
            assert!(wrong.parse::<Net>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_exempt_network_is_reached_in_every_notation_and_no_other_is() {
        let outside = Outside { exempt: vec!["127.0.0.0/8".parse().unwrap()], is_dev: false };
        for (address, is_fine) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("::1", false),
            ("10.0.0.1", false),
            ("8.8.8.8", true),
        ] {
            assert_eq!(outside.check(address.parse().unwrap()).is_ok(), is_fine, "{address}");
        }
    }
}

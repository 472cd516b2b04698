//! Addresses that are not the public internet, by IANA's registries of special-purpose addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of IPv4, with what they are.
const V4: [(Ipv4Addr, u32, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an address of this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address behind a carrier's NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    // Where clouds keep their metadata, too.
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "an address of protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "an address of documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "an anycast address"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "an address of benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "an address of documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "an address of documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved address"),
];

/// Networks within 2000::/3, the only part of IPv6 that is handed out, with what they are.
const V6: [(Ipv6Addr, u32, &str); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "an address of protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "an address of documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4 address"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "an address of documentation"),
];

/// Where NAT64 puts an address of IPv4 in its last 32 bits.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// What an address is, when it is not a public one.
pub(super) fn what_is(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let is_in =
                |net: &Ipv4Addr, bits: u32| (net.to_bits() ^ address.to_bits()).leading_zeros() >= bits;
            V4.iter().find(|(net, bits, _)| is_in(net, *bits)).map(|(_, _, what)| *what)
        }
        IpAddr::V6(address) => what_is_v6(address),
    }
}

fn what_is_v6(address: Ipv6Addr) -> Option<&'static str> {
    let is_in = |net: &Ipv6Addr, bits: u32| (net.to_bits() ^ address.to_bits()).leading_zeros() >= bits;
    if is_in(&NAT64, 96) {
        let [.., a, b, c, d] = address.octets();
        return what_is(Ipv4Addr::new(a, b, c, d).into());
    }
    match address.segments()[0] {
        _ if address.is_loopback() => Some("a loopback address"),
        0x2000..=0x3fff => V6.iter().find(|(net, bits, _)| is_in(net, *bits)).map(|(_, _, what)| *what),
        0xfc00..=0xfdff => Some("a private address"),
        0xfe80..=0xfebf => Some("a link-local address"),
        0xff00.. => Some("a multicast address"),
        _ => Some("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_public_is_told_in_every_notation() {
        for special in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(what_is(special.parse().unwrap()).is_some(), "{special}");
        }
    }

    #[test]
    fn what_is_public_is_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "2003::1",
            "2001:4860::8888",
        ] {
            assert_eq!(what_is(public.parse().unwrap()), None, "{public}");
        }
    }
}

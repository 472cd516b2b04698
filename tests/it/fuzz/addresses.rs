//! URLs that strangers give, and networks that operators give: nothing inside is ever reached by writing it oddly.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use payonce::infra::outside::{Net, Outside, read_url};
use proptest::prelude::*;

use super::cases;

/// What certainly is no public address, by the standard library's own words and a few of the registry's.
fn is_inner(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || first == 0
        || first >= 240
        || (first == 100 && (64..128).contains(&second))
}

/// An address of IPv4, inner ones as often as others.
fn v4() -> impl Strategy<Value = Ipv4Addr> {
    let first = prop_oneof![Just(10_u8), Just(127), Just(169), Just(172), Just(192), Just(100), any::<u8>()];
    let second = prop_oneof![Just(254_u8), Just(168), Just(16), Just(0), any::<u8>()];
    (first, second, any::<u8>(), any::<u8>()).prop_map(|(a, b, c, d)| Ipv4Addr::new(a, b, c, d))
}

/// The ways in which an address of IPv4 can be written in a URL.
fn written(address: Ipv4Addr, how: u8) -> String {
    let ([a, b, c, d], all) = (address.octets(), address.to_bits());
    match how {
        0 => address.to_string(),
        1 => all.to_string(),
        2 => format!("{all:#x}"),
        3 => format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        4 => format!("{a:#x}.{b}.{}", u16::from_be_bytes([c, d])),
        5 => format!("[::ffff:{address}]"),
        6 => format!("[::{address}]"),
        7 => format!("[64:ff9b::{address}]"),
        8 => format!("[{}]", address.to_ipv6_mapped()),
        9 => format!("{address}."),
        _ => format!("{a}%2e{b}%2e{c}%2e{d}"),
    }
}

fn strict() -> Outside {
    Outside { exempt: Vec::new(), is_dev: false }
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn an_inner_address_is_refused_however_it_is_written(address in v4(), how in 0..11_u8, path in "[a-z0-9/?#@:.]{0,20}") {
        let text = format!("https://{}/{path}", written(address, how));
        if let Ok(read) = read_url(&strict(), &text) {
            prop_assert!(!is_inner(address), "{} is called as {:?}", text, read);
            prop_assert!(read.address.is_some(), "{} is looked up as {}", text, read.host);
        }
    }

    #[test]
    fn what_may_be_called_is_called_at_its_own_host(text in prop_oneof![
        "https?://[a-z0-9.@:\\[\\]%/-]{0,60}",
        "[a-zA-Z0-9:/@.?#%\\[\\]\\\\ -]{0,80}",
        "\\PC{0,80}",
        "https://[a-z]{1,10}\\.(local|internal|example|com|localhost|home\\.arpa)\\.?(:[0-9]{1,6})?/",
    ]) {
        let Ok(read) = read_url(&strict(), &text) else { return Ok(()) };
        // Read again by whoever makes the connection, it is the same place.
        let url = reqwest::Url::parse(&text).expect("it was read");
        prop_assert_eq!(url.scheme(), "https");
        prop_assert_eq!(url.host_str().unwrap_or_default().trim_matches(['[', ']']), read.host.as_str());
        prop_assert!(url.username().is_empty() && url.password().is_none(), "{}", text);
        prop_assert!([443, 4443, 8443, 9443].contains(&url.port_or_known_default().unwrap_or(0)), "{}", text);
        prop_assert!(text.len() <= 2_000);
        let name = read.host.trim_end_matches('.');
        prop_assert!(read.address.is_some() || name.contains('.'), "{} has no public name", text);
        for inner in ["local", "internal", "localhost", "home.arpa"] {
            prop_assert!(!name.ends_with(&format!(".{inner}")), "{} is an inner name", text);
        }
    }

    #[test]
    fn a_network_is_read_back_and_holds_what_its_bits_say(a in any::<u32>(), b in any::<u32>(), bits in 0..=32_u8, text in "[0-9a-f.:/]{0,30}") {
        let net: Net = format!("{}/{bits}", Ipv4Addr::from_bits(a)).parse().expect("a network");
        prop_assert_eq!(net.to_string().parse::<Net>().ok(), Some(net));
        let kept = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        prop_assert_eq!(net.contains(IpAddr::V4(Ipv4Addr::from_bits(b))), a & kept == b & kept);
        prop_assert!(!net.contains(IpAddr::V6(Ipv6Addr::from_bits(b.into()))));
        if let Ok(read) = text.parse::<Net>() {
            prop_assert_eq!(read.to_string().parse::<Net>().ok(), Some(read));
        }
    }
}

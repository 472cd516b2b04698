//! URLs that strangers give: what they may look like.

use std::net::IpAddr;

use reqwest::Url;

use super::Outside;

/// Bytes of a URL at most.
const MAX_URL: usize = 2000;
/// Bytes of a host's name at most, and of what stands between two of its dots.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;
/// Where HTTPS is listened for.
const PORTS: [u16; 4] = [443, 4443, 8443, 9443];
/// Names that no public name ends with.
const INNER: [&str; 7] = ["localhost", "local", "internal", "intranet", "lan", "home.arpa", "localdomain"];

/// A URL that may be called.
#[derive(Clone, Debug)]
pub struct ReadUrl {
    /// Scheme, host and port: whose lane it is.
    pub origin: String,
    /// The host, where it is an address.
    pub address: Option<IpAddr>,
    /// The host as it is looked up.
    pub host: String,
}

/// Reads a URL and makes sure that it may be called, as far as that can be seen without looking its name up.
///
/// # Errors
/// What is wrong with it, for whoever gave it.
pub fn read_url(outside: &Outside, text: &str) -> Result<ReadUrl, String> {
    let expected = format!("expected an http(s) URL of at most {MAX_URL} bytes");
    let url = Url::parse(text).map_err(|_| expected.clone())?;
    if text.len() > MAX_URL || !matches!(url.scheme(), "http" | "https") {
        return Err(expected);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user or a password in it is not called".to_owned());
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let address: Option<IpAddr> = host.parse().ok();
    check_host(outside, text, &host, address)?;
    let is_exempt = outside.is_dev || address.is_some_and(|address| outside.exempts(address));
    if url.scheme() != "https" && !is_exempt {
        return Err("expected https: what is told is not for everybody on the way".to_owned());
    }
    let port = url.port_or_known_default().unwrap_or_default();
    if !PORTS.contains(&port) && !is_exempt {
        return Err(format!("port {port} is none of those of HTTPS ({PORTS:?})"));
    }
    Ok(ReadUrl { origin: url.origin().ascii_serialization(), address, host })
}

fn check_host(outside: &Outside, text: &str, host: &str, address: Option<IpAddr>) -> Result<(), String> {
    let Some(address) = address else {
        let name = host.trim_end_matches('.');
        if name.len() > MAX_NAME || name.split('.').any(|label| label.is_empty() || label.len() > MAX_LABEL) {
            return Err(format!(
                "expected the name of a host: {MAX_NAME} bytes at most, and 1 to {MAX_LABEL} between its dots"
            ));
        }
        let is_inner = INNER
            .iter()
            .any(|inner| name.strip_suffix(inner).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
        if (is_inner || !name.contains('.')) && !outside.is_dev {
            return Err(format!("{host} is a name of an inner network"));
        }
        return Ok(());
    };
    // 2130706433, 0x7f.1 and 0177.0.0.1 are read as 127.0.0.1: whoever writes so means to be misread.
    if !text.to_ascii_lowercase().contains(host) {
        return Err(format!("expected an address in its plain form, {host}"));
    }
    outside.check(address).map_err(|refusal| refusal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside() -> Outside {
        Outside { exempt: vec!["192.0.2.0/24".parse().unwrap()], is_dev: false }
    }

    #[test]
    fn public_https_is_fine_and_so_is_what_the_operator_exempts() {
        for fine in [
            "https://shop.example.com/hook?x=1",
            "https://shop.example.com:8443/",
            "https://8.8.8.8/hook",
            "https://[2606:4700:4700::1111]/",
            "http://192.0.2.7:9000/hook",
            "https://SHOP.example.com./",
        ] {
            assert!(read_url(&outside(), fine).is_ok(), "{fine}: {:?}", read_url(&outside(), fine));
        }
        let read = read_url(&outside(), "https://shop.example.com:443/hook").unwrap();
        assert_eq!((read.origin.as_str(), read.address), ("https://shop.example.com", None));
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "an http(s) URL"),
            ("ftp://shop.example.com/", "an http(s) URL"),
            ("http://shop.example.com/", "expected https"),
            ("https://user@shop.example.com/", "a user"),
            ("https://user:word@shop.example.com/", "a user"),
            ("https://shop.example.com:22/", "port 22"),
            ("https://shop.example.com:6379/", "port 6379"),
            ("https://localhost/", "inner network"),
            ("https://localhost./", "inner network"),
            ("https://api.internal/", "inner network"),
            ("https://intranet/", "inner network"),
            ("https://127.0.0.1/", "loopback"),
            ("https://2130706433/", "plain form"),
            ("https://0x7f000001/", "plain form"),
            ("https://0177.0.0.1/", "plain form"),
            ("https://127.1/", "plain form"),
            ("https://%31%32%37.0.0.1/", "plain form"),
            ("https://[::1]/", "loopback"),
            ("https://[::ffff:127.0.0.1]/", "plain form"),
            ("https://[::ffff:7f00:1]/", "loopback"),
            ("https://[64:ff9b::a00:1]/", "private"),
            ("https://[2002:7f00:1::]/", "6to4"),
            ("https://[fd00::1]/", "private"),
            ("https://169.254.169.254/latest/meta-data", "link-local"),
            ("https://100.100.100.200/", "carrier"),
            ("https://0.0.0.0/", "this network"),
            ("https://10.1.2.3/", "private"),
        ] {
            let refused = read_url(&outside(), text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        let long = format!("https://shop.example.com/{}", "x".repeat(MAX_URL));
        assert!(read_url(&outside(), &long).is_err());
        let (label, name) = ("x".repeat(MAX_LABEL + 1), "abcdefg.".repeat(32));
        for host in [format!("{label}.example.com"), format!("{name}com"), "shop..example.com".to_owned()] {
            for outside in [outside(), Outside { exempt: Vec::new(), is_dev: true }] {
                let refused = read_url(&outside, &format!("https://{host}/")).unwrap_err();
                assert!(refused.contains("the name of a host"), "{host}: {refused}");
            }
        }
    }

    #[test]
    fn on_a_developers_machine_plain_http_and_any_port_will_do() {
        let dev = Outside { exempt: vec!["127.0.0.0/8".parse().unwrap()], is_dev: true };
        for fine in ["http://127.0.0.1:9000/", "http://localhost:3000/hook", "http://shop.example:81/"] {
            assert!(read_url(&dev, fine).is_ok(), "{fine}");
        }
        assert!(read_url(&dev, "http://10.0.0.1/").is_err());
    }
}

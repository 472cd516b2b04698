//! Base64 in its standard alphabet, padded (RFC 4648): what Standard Webhooks writes secrets and signatures in.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of some bytes.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let is_padding = place > three.len();
            let sextet = (bits >> (18 - 6 * place)) & 63;
            text.push(if is_padding { '=' } else { char::from(ALPHABET[sextet as usize]) });
        }
    }
    text
}

/// The bytes of a text; nothing where it is no such text. Padding may be missing.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if digits.len() % 4 == 1 || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bytes, mut pending, mut bits) = (Vec::with_capacity(digits.len() * 3 / 4), 0_u32, 0_u32);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        pending = pending << 6 | u32::try_from(value).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(pending >> bits & 255).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_one_of_the_rfc_and_comes_back() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        assert_eq!(decode("Zg").unwrap(), b"f");
        for wrong in ["Z", "Zg===", "Zm9v!", "Zm 9v", "Zm-_"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}

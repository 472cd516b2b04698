//! The name of a kept callback in a URL.

use std::fmt;
use std::str::FromStr;

/// Longest name, and more: a channel's short one, and the ids of an event and of its payment, of 256 bytes each, every byte
/// escaped.
const MAX_LEN: usize = 2048;

/// A callback by channel and event, as `channel:event`. What is not a letter, a digit, `_`, `.` or `-` is escaped as
/// `~` and two hexadecimal digits, so that the text can stand in a path as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxId {
    /// Which channel.
    pub channel: String,
    /// The channel's own id of the event.
    pub event_id: String,
}

impl fmt::Display for InboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(f, &self.channel)?;
        f.write_str(":")?;
        escape(f, &self.event_id)
    }
}

fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"_.-".contains(&byte) {
            write!(f, "{}", char::from(byte))?;
        } else {
            write!(f, "~{byte:02x}")?;
        }
    }
    Ok(())
}

/// A text that names no callback.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected channel:event, as the list of callbacks gives it")]
pub struct NoInboxId;

impl FromStr for InboxId {
    type Err = NoInboxId;

    fn from_str(text: &str) -> Result<Self, NoInboxId> {
        if text.len() > MAX_LEN {
            return Err(NoInboxId);
        }
        let (channel, event_id) = text.split_once(':').ok_or(NoInboxId)?;
        Ok(Self { channel: unescape(channel)?, event_id: unescape(event_id)? })
    }
}

fn unescape(text: &str) -> Result<String, NoInboxId> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'~' => hex(rest.next())? * 16 + hex(rest.next())?,
            plain => plain,
        });
    }
    // PostgreSQL cannot hold U+0000 in a text, so no callback has it in its name.
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or(NoInboxId)
}

fn hex(digit: Option<u8>) -> Result<u8, NoInboxId> {
    let value = digit.and_then(|digit| char::from(digit).to_digit(16)).ok_or(NoInboxId)?;
    u8::try_from(value).map_err(|_| NoInboxId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_event_has_a_name_that_fits_a_path_and_is_read_back() {
        let longest = ["\u{fc}".repeat(128), "\u{fc}".repeat(128)].join(" ");
        for event_id in ["evt_1", "a/b?c#d", "~7e", "M\u{fc}nzen 100%", "a:b", "..", &longest] {
            let id = InboxId { channel: "sandbox".into(), event_id: event_id.into() };
            let text = id.to_string();
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-~:".contains(&b)), "{text}");
            assert_eq!(text.parse::<InboxId>().unwrap(), id);
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in
            ["", "sandbox", "sandbox:~", "sandbox:~g0", "sandbox:~00", "sandbox:~ff", &"x:".repeat(MAX_LEN)]
        {
            assert!(text.parse::<InboxId>().is_err(), "{text}");
        }
    }
}

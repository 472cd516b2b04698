//! What is told of an event: the same bytes at every destination and each time.

use time::format_description::well_known::Rfc3339;

use super::model::NewEvent;

/// Bytes of a body at most; what the service itself writes has a few hundred.
const MAX_BODY: usize = 256 * 1024;
/// Bytes of a name at most: it is a routing key too.
const MAX_NAME: usize = 200;

/// The body: `{type, version, timestamp, data}`.
///
/// # Errors
/// Why it cannot be told at all.
pub(super) fn body(event: &NewEvent) -> Result<String, String> {
    let payload = event.payload.as_str();
    if !payload.starts_with('{') {
        return Err("it cannot be told: its payload is no JSON object".to_owned());
    }
    if payload.len() > MAX_BODY {
        return Err(format!("it cannot be told: {} bytes, {MAX_BODY} at most", payload.len()));
    }
    if event.name.is_empty() || event.name.len() > MAX_NAME {
        return Err(format!("it cannot be told: a name of {} bytes", event.name.len()));
    }
    let name = serde_json::to_string(&event.name).map_err(|error| error.to_string())?;
    let at = event.created_at.format(&Rfc3339).map_err(|error| error.to_string())?;
    Ok(format!(r#"{{"type":{name},"version":{},"timestamp":"{at}","data":{payload}}}"#, event.version))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn event(name: &str, payload: &str) -> NewEvent {
        NewEvent {
            has_more: false,
            id: 7,
            merchant_id: None,
            order_no: None,
            name: name.to_owned(),
            version: 1,
            payload: payload.to_owned(),
            created_at: datetime!(2026-11-21 10:00 UTC),
            is_again: false,
            order_url: None,
            merchant_url: None,
            is_disabled: false,
            callback_behind: None,
            message_behind: None,
        }
    }

    #[test]
    fn a_body_tells_type_version_instant_and_data() {
        assert_eq!(
            body(&event("order.paid", r#"{"order_no": "A"}"#)).unwrap(),
            r#"{"type":"order.paid","version":1,"timestamp":"2026-11-21T10:00:00Z","data":{"order_no": "A"}}"#
        );
    }

    #[test]
    fn what_cannot_be_told_says_why() {
        let huge = format!(r#"{{"a": "{}"}}"#, "x".repeat(MAX_BODY));
        let (long, empty) = ("x".repeat(MAX_NAME + 1), String::new());
        for (name, payload) in
            [("a", "null"), ("a", "[1]"), ("a", huge.as_str()), (&long, "{}"), (&empty, "{}")]
        {
            assert!(body(&event(name, payload)).unwrap_err().contains("cannot be told"));
        }
    }
}

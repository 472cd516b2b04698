//! Bodies of requests, bounded in size and in time, and read strictly as JSON: the same at every edge.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, header};
use futures_util::stream;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// Largest body, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// Longest wait for a whole body.
const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// More than [`MAX_BODY`].
    #[error("the body is too large")]
    TooLarge,
    /// It ended early.
    #[error("the body ended early")]
    Incomplete,
    /// It did not arrive in time.
    #[error("the body did not arrive in time")]
    Late,
}

/// A body as it came.
///
/// # Errors
/// See [`Unreadable`].
pub async fn read(body: Body) -> Result<Bytes, Unreadable> {
    match tokio::time::timeout(BODY_DEADLINE, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(why(&error)),
        Err(_) => Err(Unreadable::Late),
    }
}

/// Waits for a body, so that whoever reads what is given need not: its bytes, or why there are none.
pub async fn arrived(body: Body) -> Body {
    match read(body).await {
        Ok(bytes) => Body::from(bytes),
        Err(unreadable) => Body::from_stream(stream::iter([Err::<Bytes, _>(unreadable)])),
    }
}

fn why(error: &axum::Error) -> Unreadable {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(unreadable) = error.downcast_ref() {
            return *unreadable;
        }
        if error.to_string().contains("length limit exceeded") {
            return Unreadable::TooLarge;
        }
        cause = error.source();
    }
    Unreadable::Incomplete
}

/// Whether the headers announce JSON.
#[must_use]
pub fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// What is wrong with one field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FieldError {
    /// The field, as a path from the top of the body.
    pub field: String,
    /// What was expected.
    pub detail: String,
}

/// Why a body is not what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadJson {
    /// No JSON at all; says where.
    Malformed(String),
    /// JSON in which a field is missing, unknown, or of a wrong type.
    Invalid(FieldError),
}

/// Reads a JSON object.
///
/// # Errors
/// See [`BadJson`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadJson> {
    let bad = match read_object(bytes) {
        Ok(value) => return Ok(value),
        Err(bad) => bad,
    };
    // What is no JSON is told first, whatever else is wrong; and serde_json counts some values that are JSON,
    // such as 1e400, as mistakes of syntax.
    let text = std::str::from_utf8(bytes).map_err(|error| BadJson::Malformed(error.to_string()))?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| BadJson::Malformed(error.to_string()))?;
    Err(BadJson::Invalid(bad))
}

/// Whether a JSON text says U+0000: not where the backslash is the second of a pair, which says a backslash.
#[must_use]
pub fn says_nul(json: &[u8]) -> bool {
    let is_said =
        |at: usize| json[..at].iter().rev().take_while(|byte| **byte == b'\\').count().is_multiple_of(2);
    json.windows(6).enumerate().any(|(at, window)| window == br"\u0000" && is_said(at))
}

fn read_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FieldError> {
    let wrong = |field: &str, detail: String| FieldError { field: field.to_owned(), detail };
    // PostgreSQL cannot hold U+0000 in a text; nobody's order needs one.
    if says_nul(bytes) {
        return Err(wrong("body", "expected text without U+0000".to_owned()));
    }
    // A struct would also be read from an array, by the order of its fields.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(wrong("body", "expected a JSON object".to_owned()));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        wrong(if path == "." { "body" } else { &path }, error.into_inner().to_string())
    })?;
    deserializer.end().map_err(|error| wrong("body", error.to_string()))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Thing {
        count: i64,
    }

    fn field_of(text: &str) -> String {
        match parse::<Thing>(text.as_bytes()) {
            Err(BadJson::Invalid(error)) => error.field,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_json_differs_from_what_does_not_fit() {
        assert_eq!(parse::<Thing>(br#" {"count": 7} "#), Ok(Thing { count: 7 }));
        for text in ["", "{", "[7", "{\"count\":7} x", "nul", "{\"count\":01}", "{\"more\":"] {
            assert!(matches!(parse::<Thing>(text.as_bytes()), Err(BadJson::Malformed(_))), "{text}");
        }
        for text in ["[7]", "7", "null", "\"x\"", "true"] {
            assert_eq!(field_of(text), "body", "{text}");
        }
        for text in ["{\"count\":1e400}", "{\"count\":1.5}", "{\"count\":\"7\"}", "{\"count\":null}"] {
            assert_eq!(field_of(text), "count", "{text}");
        }
        assert_eq!(field_of("{\"count\":7,\"more\":1}"), "more");
        assert_eq!(field_of("{}"), "body");
    }

    #[test]
    fn a_backslash_that_stands_before_a_u_is_no_nul() {
        for (json, says) in [
            (r#""\u0000""#, true),
            (r#""\\u0000""#, false),
            (r#""\\\u0000""#, true),
            (r#""\\u0000 \u0000""#, true),
            (r#""\u0001""#, false),
            (r#""u0000""#, false),
        ] {
            let is_nul = serde_json::from_str::<String>(json).unwrap().contains('\0');
            assert_eq!((says_nul(json.as_bytes()), is_nul), (says, says), "{json}");
        }
    }
}

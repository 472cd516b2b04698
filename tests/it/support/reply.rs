//! An answer, read once.

use serde_json::Value;

/// What an HTTP call answered.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
    /// The body as JSON; null when it is none.
    pub body: Value,
}

impl Reply {
    pub async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap_or_default();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Self { status, headers, text, body }
    }

    /// The answer, when it has this status; a story that expected another fails with the whole answer.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// The problem's code, when it is a problem of this status and has all its members.
    #[track_caller]
    pub fn problem(&self, status: u16) -> &str {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text);
        assert_eq!(self.body["status"], status, "{}", self.text);
        for member in ["type", "title", "detail", "request_id"] {
            assert!(
                self.body[member].as_str().is_some_and(|text| !text.is_empty()),
                "{member}: {}",
                self.text
            );
        }
        assert_eq!(self.header("x-request-id"), self.body["request_id"].as_str());
        self.body["code"].as_str().expect("a code")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A text member of the body.
    #[track_caller]
    pub fn text_of(&self, member: &str) -> &str {
        self.body[member].as_str().unwrap_or_else(|| panic!("no {member} in {}", self.text))
    }
}

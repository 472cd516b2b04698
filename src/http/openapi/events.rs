//! What merchants are told of: the section `webhooks`, made from the catalogue of events.

use serde_json::{Value, json};
use utoipa::PartialSchema;

use crate::outbox::{Event, Told, catalogue};

/// One entry for each event.
pub(super) fn webhooks() -> Value {
    Value::Object(catalogue().into_iter().map(|told| (told.name.to_owned(), webhook(&told))).collect())
}

fn webhook(told: &Told) -> Value {
    let header = |name: &str, description: &str| {
        json!({"name": name, "in": "header", "required": true, "description": description,
               "schema": {"type": "string"}})
    };
    json!({"post": {
        "tags": ["events"],
        "operationId": format!("event_{}", told.name.replace('.', "_")),
        "summary": told.summary,
        "description": format!("Version {}; fields may be added to it and none changes.", told.version),
        "parameters": [
            header("webhook-id", "The event's id, the same each time it is sent"),
            header("webhook-timestamp", "When it is sent, in seconds since 1970"),
            header("webhook-signature", "`v1,` and the signature of `id.timestamp.body` (Standard Webhooks), one for each valid secret"),
        ],
        "requestBody": {"required": true, "content": {"application/json": {
            "schema": schema(told), "example": told.example,
        }}},
        "responses": {
            "200": {"description": "Any 2xx: it has arrived"},
            "410": {"description": "Nothing more is wanted there"},
            "503": {"description": "Like anything else: it comes again by the schedule, or after `Retry-After`"},
        },
    }})
}

/// The schema of a body: the event's own fields under `data`, of which each is always there.
fn schema(told: &Told) -> Value {
    let all = serde_json::to_value(Event::schema()).unwrap_or_default();
    let mut kinds = all["oneOf"].as_array().into_iter().flatten();
    let mut data = kinds.find(|kind| kind["title"] == told.name).cloned().unwrap_or_default();
    let names = data["properties"].as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
    data["required"] = json!(names);
    json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "const": told.name},
            "version": {"type": "integer", "const": told.version},
            "timestamp": {"type": "string", "format": "date-time", "description": "When it happened"},
            "data": data,
        },
        "required": ["type", "version", "timestamp", "data"],
    })
}

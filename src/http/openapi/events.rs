//! What merchants are told of: the section `webhooks`, made from the catalogue of events.

use serde_json::{Map, Value, json};

use crate::outbox::{Told, catalogue};

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
            "schema": schema(&told.example), "example": told.example,
        }}},
        "responses": {
            "200": {"description": "Any 2xx: it has arrived"},
            "410": {"description": "Nothing more is wanted there"},
            "503": {"description": "Like anything else: it comes again by the schedule, or after `Retry-After`"},
        },
    }})
}

/// The schema that an example is one of.
fn schema(example: &Value) -> Value {
    match example {
        Value::Object(members) => {
            let properties: Map<_, _> =
                members.iter().map(|(name, member)| (name.clone(), schema(member))).collect();
            json!({"type": "object", "properties": properties, "required": members.keys().collect::<Vec<_>>()})
        }
        Value::Number(_) => json!({"type": "integer"}),
        Value::Null => json!({"type": ["string", "null"]}),
        _ => json!({"type": "string"}),
    }
}

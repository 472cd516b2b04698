//! Examples: those that the schemas give, put together for whole bodies.

use serde_json::{Map, Value, json};

/// Gives every body and parameter of a request its example.
pub(super) fn of_request(operation: &mut Value, components: &Value) {
    let bodies = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut);
    for (_, body) in bodies.into_iter().flatten() {
        add(body, components);
    }
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        // A page has no need to start anywhere; an optional filter is best left out of a try.
        if parameter["required"] == true {
            add(parameter, components);
        }
    }
}

/// Gives a body or a parameter its example, unless it has one.
pub(super) fn add(holder: &mut Value, components: &Value) {
    if holder["example"].is_null() && holder["examples"].is_null() {
        holder["example"] = of_schema(&holder["schema"], components);
    }
}

fn of_schema(schema: &Value, components: &Value) -> Value {
    let given = [schema.get("example"), schema.pointer("/examples/0"), schema.get("default")];
    if let Some(example) = given.into_iter().flatten().next() {
        return example.clone();
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return of_schema(&components["schemas"][name], components);
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        let is_something = |choice: &&Value| choice["type"] != "null";
        if let Some(first) = schema[choice].as_array().and_then(|all| all.iter().find(is_something)) {
            return of_schema(first, components);
        }
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    of_type(schema, components)
}

fn of_type(schema: &Value, components: &Value) -> Value {
    // `["string", "null"]` is an optional text.
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or_default();
    match kind {
        "object" => {
            let properties = schema["properties"].as_object().cloned().unwrap_or_default();
            let example =
                properties.iter().map(|(name, schema)| (name.clone(), of_schema(schema, components)));
            Value::Object(example.collect::<Map<_, _>>())
        }
        "array" => json!([of_schema(&schema["items"], components)]),
        "string" if schema["format"] == "date-time" => json!("2026-11-21T10:00:00Z"),
        "string" => json!("text"),
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or(json!(1)),
        "boolean" => json!(false),
        _ => Value::Null,
    }
}

//! What a command takes: read from the description of its route, so the two cannot differ.

use clap::{Arg, Command};
use serde_json::Value;

use super::table::Deed;

/// Where a value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Path,
    Query,
    Body,
    /// The body is a file as it is.
    File,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Whole,
    Truth,
    Json,
}

/// One thing that a route takes.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) kind: Kind,
    is_required: bool,
    help: String,
}

/// The routes as JSON.
pub(super) struct Description(Value);

impl Description {
    /// Of the routes of this very binary.
    pub(super) fn new() -> Self {
        Self(serde_json::to_value(crate::http::document()).unwrap_or(Value::Null))
    }

    fn operation(&self, deed: Deed) -> &Value {
        &self.0["paths"][deed.path][deed.method.to_lowercase()]
    }

    /// Everything that a command takes, in the order of its description.
    pub(super) fn fields(&self, deed: Deed) -> Vec<Field> {
        let operation = self.operation(deed);
        let parameters = operation["parameters"].as_array().into_iter().flatten().map(|parameter| {
            let place = if parameter["in"] == "path" { Place::Path } else { Place::Query };
            let is_required = parameter["required"] == true;
            self.field(
                &parameter["name"],
                place,
                &parameter["schema"],
                &parameter["description"],
                is_required,
            )
        });
        let body = self.resolve(&operation["requestBody"]["content"]["application/json"]["schema"]);
        let is_required =
            |name: &str| body["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
        let members = body["properties"].as_object().into_iter().flatten().map(|(name, schema)| {
            let text = Value::String(name.clone());
            self.field(&text, Place::Body, schema, &schema["description"], is_required(name))
        });
        let has_file = operation["requestBody"]["content"]["application/octet-stream"].is_object();
        let file = has_file.then(|| Field {
            name: "file".to_owned(),
            place: Place::File,
            kind: Kind::Text,
            is_required: true,
            help: "The path of the file".to_owned(),
        });
        parameters.chain(members).chain(file).collect()
    }

    fn field(&self, name: &Value, place: Place, schema: &Value, help: &Value, is_required: bool) -> Field {
        Field {
            name: name.as_str().unwrap_or_default().to_owned(),
            place,
            kind: self.kind(schema),
            is_required,
            help: help.as_str().unwrap_or_default().replace('\n', " "),
        }
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        name.map_or(schema, |name| &self.0["components"]["schemas"][name])
    }

    fn kind(&self, schema: &Value) -> Kind {
        // "This, or null" is written as a choice or as a list of types.
        let choice = schema["oneOf"].as_array().into_iter().flatten().find(|one| one["type"] != "null");
        let schema = self.resolve(choice.unwrap_or(schema));
        let has = |name: &str| {
            schema["type"] == name
                || schema["type"].as_array().is_some_and(|all| all.iter().any(|it| it == name))
        };
        match () {
            () if has("integer") => Kind::Whole,
            () if has("boolean") => Kind::Truth,
            () if has("object") || has("array") => Kind::Json,
            () => Kind::Text,
        }
    }

    /// The command itself.
    pub(super) fn command(&self, deed: Deed) -> Command {
        let summary = self.operation(deed)["summary"].as_str().unwrap_or_default().to_owned();
        let about = format!("{summary} ({} {})", deed.method, deed.path);
        self.fields(deed)
            .into_iter()
            .fold(Command::new(deed.name).about(about), |command, field| command.arg(argument(field)))
    }
}

fn argument(field: Field) -> Arg {
    let arg = Arg::new(field.name.clone()).help(field.help).required(field.is_required);
    match (field.place, field.kind) {
        (Place::Path, _) => arg,
        // By itself it means yes; `--name=false` says no, which is not the same as nothing.
        (_, Kind::Truth) => arg
            .long(field.name.replace('_', "-"))
            .required(false)
            .num_args(0..=1)
            .require_equals(true)
            .value_parser(["true", "false"])
            .default_missing_value("true"),
        (place, Kind::Whole) => {
            let is_in_body = place == Place::Body;
            let arg = arg.long(field.name.replace('_', "-")).allow_negative_numbers(true);
            arg.value_parser(move |text: &str| whole(text, is_in_body))
        }
        _ => arg.long(field.name.replace('_', "-")),
    }
}

/// A whole number; in a body `null` takes one away.
fn whole(text: &str, may_be_null: bool) -> Result<String, String> {
    if may_be_null && text == "null" {
        return Ok(text.to_owned());
    }
    text.parse::<i64>().map(|whole| whole.to_string()).map_err(|error| error.to_string())
}

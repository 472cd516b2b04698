//! Any answer as a table: a page as rows, anything else as its members.

use serde_json::Value;

/// Characters of a cell at most.
const WIDEST: usize = 60;

/// The text of an answer.
pub(super) fn table(answer: &Value) -> String {
    match answer["data"].as_array() {
        Some(rows) => rows_of(rows, answer["has_more"] == true),
        None => members_of(answer),
    }
}

fn rows_of(rows: &[Value], has_more: bool) -> String {
    let Some(first) = rows.first().and_then(Value::as_object) else { return "nothing".to_owned() };
    let columns: Vec<&String> = first.keys().collect();
    let mut lines: Vec<Vec<String>> = vec![columns.iter().map(|name| name.to_uppercase()).collect()];
    lines.extend(rows.iter().map(|row| columns.iter().map(|name| cell(&row[name.as_str()])).collect()));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let pad = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = lines.iter().map(pad).collect::<Vec<_>>().join("\n");
    if has_more {
        text.push_str("\n… there are more: --starting-after the last one");
    }
    text
}

fn members_of(answer: &Value) -> String {
    let Some(members) = answer.as_object() else { return cell(answer) };
    let width = members.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (name, value) in members {
        match value.as_array().filter(|rows| rows.first().is_some_and(Value::is_object)) {
            Some(rows) => {
                let rows = rows_of(rows, false).replace('\n', "\n  ");
                lines.push(format!("{name}\n  {rows}"));
            }
            None => lines.push(format!("{name:width$}  {}", plain(value))),
        }
    }
    lines.join("\n")
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn cell(value: &Value) -> String {
    let text = plain(value).replace('\n', " ");
    if text.chars().count() <= WIDEST {
        return text;
    }
    text.chars().take(WIDEST - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_rows_and_things_their_members() {
        let page =
            serde_json::json!({"data": [{"a": 1, "b": null}, {"a": "long", "b": true}], "has_more": true});
        assert_eq!(
            table(&page),
            "A     B\n1     -\nlong  true\n… there are more: --starting-after the last one"
        );
        let thing = serde_json::json!({"ok": true, "list": [{"x": 1}], "none": []});
        assert_eq!(table(&thing), "ok    true\nlist\n  X\n  1\nnone  []");
        assert_eq!(cell(&Value::String("x".repeat(61))).chars().count(), 60);
    }
}

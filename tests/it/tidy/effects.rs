//! Effects as the sources have them: what the world keeps when the process dies. Each stands alone in `effect!`, under
//! a name of its own, so that there is a crash point between any two.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::source::{Source, end_of_item, is_word, line_of, read, sources, words};
use super::{Faults, expect_none, module_of};

/// Questions to a channel, and what it does without going anywhere: everything else moves something there.
const CHANNEL_READS: [&str; 10] = [
    "name",
    "link_life",
    "day_offset",
    "query",
    "query_refund",
    "query_payout",
    "statement",
    "verify",
    "read",
    "acknowledge",
];
/// Commands of group commit that only ask.
const GATHERED_READS: [&str; 7] = [
    "FindFacts(",
    "FindFacts {",
    "FindHeld {",
    "FindFingerprint(",
    "FindVerdict {",
    "FindFacts::of(",
    "report.question()",
];
/// Functions that only ask Redis.
const REDIS_READS: [&str; 2] = ["were_lost", "look"];
/// Marks behind an effect that has its points: a replay that died before its mark is told again, and moves nothing.
const ONLY_MARKS: [(&str, &str); 4] = [
    ("webhooks", "set_verdict"),
    ("settlement", "note_error"),
    ("reconciliation", "release"),
    ("reconciliation", "rest"),
];

/// Where the service's own effects are: not in the gateway of the sandbox, which is somebody else's, nor in what
/// stores are made of.
fn homes() -> impl Iterator<Item = &'static Source> {
    let elsewhere = ["src/infra/", "src/local/", "src/channels/sandbox/", "src/audit/"];
    sources("src").filter(move |source| !elsewhere.iter().any(|folder| source.path.starts_with(folder)))
}

fn is_store(source: &Source) -> bool {
    source.path.ends_with("/store.rs") || source.path.contains("/store/")
}

/// The text of an `effect!` with what it runs, as places in the code.
fn spans(code: &str) -> Vec<Range<usize>> {
    let starts = words(code, "effect").filter(|at| code[at + "effect".len()..].starts_with("!("));
    starts.map(|at| at..closing(code, at + "effect!".len())).collect()
}

/// Behind the bracket that closes the one which opens here.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return open + at + 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The name of each `effect!` of a file: the first text behind it.
fn names_in(source: &Source) -> Vec<String> {
    let text = read(&source.path);
    let lines: Vec<&str> = text.lines().collect();
    let name_at = |span: Range<usize>| {
        let below = lines[line_of(&source.shipped, span.start) - 1..].join("\n");
        let rest = &below[below.find("effect!(").expect("an effect")..];
        rest.split('"').nth(1).expect("a name").to_owned()
    };
    spans(&source.shipped).into_iter().map(name_at).collect()
}

/// The names of all effects, also of those that a store's own machinery has, such as a message that is sent on.
pub fn names() -> BTreeSet<String> {
    all_names().collect()
}

fn all_names() -> impl Iterator<Item = String> {
    let ours = sources("src").filter(|source| !source.path.starts_with("src/channels/sandbox/"));
    ours.flat_map(names_in)
}

/// The functions of each module's store that write on the connection that they are given.
fn writers() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut writers: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for source in homes().filter(|source| is_store(source)) {
        let text = read(&source.path);
        let lines: Vec<&str> = text.lines().collect();
        for function in source.functions() {
            let body = lines[function.line - 1..function.line - 1 + function.lines].join("\n");
            let body = with_statements(&body).replace("FOR UPDATE", "").replace("FOR NO KEY UPDATE", "");
            if ["INSERT INTO", "UPDATE ", "DELETE FROM"].iter().any(|word| body.contains(word)) {
                writers.entry(module_of(&source.path)).or_default().insert(function.name);
            }
        }
    }
    writers
}

/// A function with the statements that it has in files.
fn with_statements(body: &str) -> String {
    let files = body.split('"').filter(|text| text.starts_with("src/") && text.ends_with(".sql"));
    let statements = files.filter_map(|file| {
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).ok()
    });
    statements.fold(body.to_owned(), |whole, statement| whole + statement.as_str())
}

/// Whether the word that ends right here is this one.
fn follows(code: &str, at: usize, word: &str) -> bool {
    let before = code[..at].trim_end();
    before.strip_suffix(word).is_some_and(|rest| !rest.chars().next_back().is_some_and(is_word))
}

/// The function that a place is in: the last one that begins before it and ends behind it.
fn function_around(code: &str, place: usize) -> &str {
    let around = words(code, "fn").filter(|at| *at < place && place < end_of_item(code, *at)).last();
    around.map_or("", |at| &code[at..end_of_item(code, at)])
}

/// Every place of a file that has an effect, by what shows it.
fn effects_in(source: &Source, writers: &BTreeMap<&str, BTreeSet<String>>) -> BTreeSet<usize> {
    let code = source.shipped.as_str();
    let mut places = BTreeSet::new();
    let calls =
        words(code, "finish").filter(|at| code[*at..].starts_with("finish(") && code[..*at].ends_with('.'));
    // A transaction that only reads leaves nothing; a formatter is no transaction.
    let is_writing = |at: &usize| {
        let around = function_around(code, *at);
        around.contains("begin()") || around.contains("tx.finish") && !around.contains("begin_")
    };
    places.extend(calls.filter(is_writing));
    for (module, names) in writers {
        for name in names.iter().filter(|name| !ONLY_MARKS.contains(&(*module, name.as_str()))) {
            let calls = words(code, name).filter(|at| code[at + name.len()..].starts_with('('));
            places.extend(calls.filter(|at| {
                let own = module_of(&source.path) == *module && follows(code, *at, "store::");
                let argument = code[at + name.len() + 1..].trim_start();
                let in_tx = ["tx,", "&mut tx,"].iter().any(|tx| argument.starts_with(tx));
                (own || follows(code, *at, &format!("{module}::"))) && !in_tx
            }));
        }
    }
    for method in channel_methods().iter().filter(|method| !CHANNEL_READS.contains(&method.as_str())) {
        let calls = words(code, method).filter(|at| code[at + method.len()..].starts_with('('));
        places.extend(calls.filter(|at| follows(code, *at, "channel.")));
    }
    let gathered = words(code, "gather").filter(|at| code[..*at].ends_with('.'));
    places.extend(gathered.filter(|at| {
        let command = code[at + "gather(".len()..].trim_start();
        !GATHERED_READS.iter().any(|read| command.starts_with(read))
    }));
    for method in ["put", "take_due", "done"] {
        let calls = words(code, method).filter(|at| code[at + method.len()..].starts_with('('));
        places.extend(calls.filter(|at| follows(code, *at, "delays.")));
    }
    // What the relay tells the outside.
    for (method, receiver) in [("send", "request."), ("publish", "broker.")] {
        let calls = words(code, method).filter(|at| code[at + method.len()..].starts_with('('));
        places.extend(
            calls.filter(|at| source.path.starts_with("src/outbox/") && follows(code, *at, receiver)),
        );
    }
    for method in ["put", "done"] {
        let calls = words(code, method).filter(|at| code[at + method.len()..].starts_with('('));
        places.extend(calls.filter(|at| follows(code, *at, "spill.")));
    }
    for method in ["run", "script"] {
        let calls = words(code, method).filter(|at| code[at + method.len()..].starts_with(['(', ':']));
        let calls = calls.filter(|at| follows(code, *at, "redis."));
        places.extend(calls.filter(|at| {
            let around = function_around(code, *at);
            !REDIS_READS.iter().any(|name| around.starts_with(&format!("fn {name}(")))
        }));
    }
    places
}

/// What a channel can be told and asked.
fn channel_methods() -> Vec<String> {
    let channels = sources("src").find(|source| source.path == "src/channels/mod.rs").expect("the trait");
    let code = &channels.shipped;
    let start = code.find("pub trait Channel").expect("the trait");
    let end = start + code[start..].find("\n}").expect("its end");
    let methods = words(code, "fn").filter(|at| (start..end).contains(at));
    methods.map(|at| code[at + 3..].chars().take_while(|c| is_word(*c)).collect()).collect()
}

#[test]
fn every_effect_stands_between_crash_points() {
    let (writers, mut faults) = (writers(), Faults::new());
    for source in homes().filter(|source| !is_store(source)) {
        let (code, path) = (&source.shipped, &source.path);
        let (spans, places) = (spans(code), effects_in(source, &writers));
        for at in &places {
            if !spans.iter().any(|span| span.contains(at)) {
                let line = line_of(code, *at);
                faults.push(format!(
                    "{path}:{line} has an effect and no crash point: write effect!(\"its.name\", …), and tell its \
                     death in crash_points.rs"
                ));
            }
        }
        for span in spans {
            let count = places.iter().filter(|at| span.contains(at)).count();
            if count != 1 {
                let line = line_of(code, span.start);
                faults.push(format!(
                    "{path}:{line} effect! runs {count} effects: one each, so that a point is between"
                ));
            }
        }
    }
    expect_none(faults);
}

#[test]
fn every_effect_has_a_name_of_its_own() {
    let all: Vec<String> = all_names().collect();
    let (count, distinct) = (all.len(), all.into_iter().collect::<BTreeSet<_>>());
    assert_eq!(count, distinct.len(), "two effects share a name of {distinct:?}");
}

#[test]
fn effects_are_recognised() {
    let writers = BTreeMap::from([("tasks", BTreeSet::from(["set_done".to_owned()]))]);
    let count = |code: &str| {
        let source = Source { path: "src/tasks/run.rs".into(), code: code.into(), shipped: code.into() };
        effects_in(&source, &writers).len()
    };
    assert_eq!(count("fn a() { store::set_done(&mut conn, 1); store::find(&mut conn); }"), 1);
    assert_eq!(
        count("fn a() { store::set_done(tx, 1); store::set_done(&mut tx, 2); }"),
        0,
        "its commit counts"
    );
    assert_eq!(count("fn a() { let tx = db.begin(); tx.finish(outcome); }"), 1);
    assert_eq!(count("fn a() { let tx = db.begin_read(); tx.finish(outcome); }"), 0, "nothing was written");
    assert_eq!(count("fn a() { channel.refund(&call); channel.query(&trade); app.redis.run(&add); }"), 2);
    assert_eq!(count("fn a() { db.gather(begin); db.gather(FindFacts(key)); }"), 1);
    assert_eq!(count("fn were_lost() { app.redis.run(&exists) }"), 0);
}

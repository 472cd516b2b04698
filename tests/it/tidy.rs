//! The shape of the code: who may import whom, what lives where, how long things are. It never gets worse: when a
//! number here could be lower, lower it; raise one only with a reason in the commit.

use std::collections::{BTreeMap, BTreeSet};

pub mod effects;
mod project;
pub mod source;

use source::{Source, is_word, line_of, path_starts, read, sources, words};

/// Lines of a file at most, in `src`, `tests` and `benches`.
const LONGEST_FILE: usize = 500;
/// Lines of a function at most, its signature included.
const LONGEST_FUNCTION: usize = 70;
/// What excuses a longer one, with its reason: a single statement and its parameters.
const EXCUSE: &str = "#[expect(clippy::too_many_lines";
/// How many are excused.
const EXCUSED_FUNCTIONS: usize = 2;
/// Lines of half of the files in `src` at most; 120 is the wish.
const MEDIAN_FILE: usize = 110;
/// Lines of half of the functions in `src` at most; 12 is the wish.
const MEDIAN_FUNCTION: usize = 9;
/// Lines of nine in ten functions in `src` at most; 40 is the wish.
const NINETIETH_FUNCTION: usize = 24;

/// What may be used where: the start of a path, the places, and what to do elsewhere.
const HOMES: [(&str, &[&str], &str); 3] = [
    (
        "axum",
        &[
            "src/http/",
            "src/channels/sandbox/pages.rs",
            "src/channels/sandbox/routes.rs",
            "src/channels/sandbox/problem.rs",
            // Bodies are read alike at both edges.
            "src/infra/body.rs",
        ],
        "HTTP is for src/http/ and the sandbox's pages; give the feature a plain function, and call that",
    ),
    (
        "redis",
        &["src/infra/", "src/orders/deadlines/zset.rs", "src/app.rs"],
        "Redis is for src/infra/ and src/orders/deadlines/zset.rs; offer what is needed from there",
    ),
    ("lapin", &["src/infra/amqp/"], "RabbitMQ is for src/infra/amqp/; offer what is needed from there"),
];

/// What makes a query of a text.
const SQL: [&str; 10] = [
    "query",
    "query_as",
    "query_scalar",
    "query_file",
    "query_as_with",
    "query_with",
    "raw_sql",
    "QueryBuilder",
    "migrate",
    "AssertSqlSafe",
];

/// What is wrong, one line each; empty when all is well.
type Faults = Vec<String>;

#[track_caller]
fn expect_none(faults: Faults) {
    assert!(faults.is_empty(), "{} to mend:\n{}", faults.len(), faults.join("\n"));
}

/// The tiers as the head of `src/lib.rs` tells them: the text that people read is the rule.
fn tiers() -> BTreeMap<String, u8> {
    let lib = read("src/lib.rs");
    let rows = lib.lines().filter_map(|line| line.strip_prefix("//! | "));
    let mut tiers = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let Some(tier) = cells[0].parse().ok() else { continue };
        for module in cells[1].split(", ") {
            let module = module.trim_matches(['[', ']', '`']);
            assert!(tiers.insert(module.to_owned(), tier).is_none(), "src/lib.rs gives {module} two tiers");
        }
    }
    tiers
}

/// `src/pay/store.rs` and `src/config.rs` belong to `pay` and `config`.
fn module_of(path: &str) -> &str {
    let below = path.strip_prefix("src/").unwrap_or(path);
    below.split(['/', '.']).next().unwrap_or(below)
}

/// The modules of this crate that a file names, each with where it does.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in words(code, "crate") {
        let Some(rest) = code[at..].strip_prefix("crate::") else { continue };
        let Some(group) = rest.strip_prefix('{') else {
            found.push((at, rest.chars().take_while(|c| is_word(*c)).collect()));
            continue;
        };
        let mut depth = 0_usize;
        let mut name = String::new();
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => found.push((at, std::mem::take(&mut name))),
                c if depth == 0 => name.push(c),
                _ => {}
            }
        }
        found.push((at, name));
    }
    let heads =
        found.into_iter().map(|(at, path)| (at, path.split("::").next().unwrap_or("").trim().to_owned()));
    heads.filter(|(_, name)| !name.is_empty()).collect()
}

/// How many modules deep the file's own module is, below the crate.
fn depth_of(path: &str) -> usize {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    path.trim_end_matches("/mod").split('/').count()
}

#[test]
fn every_module_has_a_tier() {
    let (tiers, lib) = (tiers(), read("src/lib.rs"));
    let declared: BTreeSet<_> =
        lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let told: BTreeSet<_> = tiers.keys().map(String::as_str).collect();
    assert_eq!(declared, told, "the table at the head of src/lib.rs and its modules differ");
}

#[test]
fn imports_go_downward_or_sideways() {
    let (tiers, mut faults) = (tiers(), Faults::new());
    for source in sources("src") {
        let (code, path) = (&source.shipped, &source.path);
        let Some(own) = tiers.get(module_of(path)) else { continue };
        for (at, name) in imports(code) {
            if tiers.get(&name).is_some_and(|tier| tier > own) {
                let line = line_of(code, at);
                faults.push(format!(
                    "{path}:{line} uses crate::{name}, which is above it: move what both need down, or hand it in"
                ));
            }
        }
        let climb = vec!["super"; depth_of(path)].join("::");
        for at in path_starts(code, "super").filter(|at| code[*at..].starts_with(&climb)) {
            let line = line_of(code, at);
            faults.push(format!(
                "{path}:{line} climbs to the crate by super: write crate::, which this check reads"
            ));
        }
    }
    expect_none(faults);
}

#[test]
fn everything_has_one_home() {
    let mut faults = Faults::new();
    for source in sources("src") {
        let (code, path) = (&source.shipped, &source.path);
        for (name, homes, what_to_do) in HOMES {
            let is_home = homes.iter().any(|home| path.starts_with(home)) || path.starts_with("src/local/");
            // A module of that name is not the crate.
            if is_home || code.contains(&format!("mod {name};")) {
                continue;
            }
            let places = path_starts(code, name).chain(code.find(&format!("use {name};")));
            faults.extend(places.map(|at| format!("{path}:{} uses {name}: {what_to_do}", line_of(code, at))));
        }
    }
    expect_none(faults);
}

#[test]
fn sql_lives_in_stores() {
    let mut faults = Faults::new();
    for source in sources("src") {
        let (code, path) = (&source.shipped, &source.path);
        let homes = ["src/audit/", "src/infra/", "src/local/postgres.rs"];
        let is_store = path.ends_with("/store.rs") || path.contains("/store/");
        if is_store || homes.iter().any(|home| path.starts_with(home)) {
            continue;
        }
        for at in path_starts(code, "sqlx") {
            let path_or_group = code[at + "sqlx::".len()..].split([';', '(', '!', '<']).next().unwrap_or("");
            for item in SQL.into_iter().filter(|item| words(path_or_group, item).next().is_some()) {
                let line = line_of(code, at);
                faults
                    .push(format!("{path}:{line} has SQL (sqlx::{item}): move it to the feature's store.rs"));
            }
        }
    }
    expect_none(faults);
}

/// As `src/infra/gather/rows.rs` says.
#[test]
fn statements_read_columns_side_by_side_in_their_select_lists() {
    let mut faults = Faults::new();
    for path in source::files("src") {
        let text = read(&path);
        for (at, call) in text.match_indices("unnest($") {
            let (arrays, rest) = text[at + call.len()..].split_once(')').unwrap_or_default();
            if arrays.contains(',') && !rest.starts_with(" WITH ORDINALITY") {
                let line = line_of(&text, at);
                faults.push(format!(
                    "{path}:{line} unnests several arrays by one call: unnest each in the select list"
                ));
            }
        }
    }
    expect_none(faults);
}

#[test]
fn nobody_reads_the_clock_but_the_clock() {
    let mut faults = Faults::new();
    for source in sources("src") {
        let (code, path) = (&source.shipped, &source.path);
        for call in ["OffsetDateTime::now_utc", "OffsetDateTime::now_local", "SystemTime::now"] {
            if path != "src/infra/clock.rs" && code.contains(call) {
                faults.push(format!("{path} calls {call}: take the time from App::now"));
            }
        }
    }
    expect_none(faults);
}

#[test]
fn stores_are_private() {
    let mut faults = Faults::new();
    for source in sources("src") {
        for line in source.code.lines().map(str::trim) {
            if line.starts_with("pub") && line.ends_with("mod store;") {
                faults.push(format!(
                    "{}: `{line}` opens a feature's SQL to others: write `mod store;`",
                    source.path
                ));
            }
        }
    }
    expect_none(faults);
}

#[test]
fn nothing_is_too_long() {
    let (mut faults, mut excused) = (Faults::new(), 0);
    for source in sources("") {
        let path = &source.path;
        let lines = source.code.lines().count();
        if lines > LONGEST_FILE {
            faults
                .push(format!("{path} has {lines} lines, {LONGEST_FILE} at most: split it by what it does"));
        }
        for function in source.functions().into_iter().filter(|function| function.lines > LONGEST_FUNCTION) {
            let (name, line, lines) = (&function.name, function.line, function.lines);
            if source.code.lines().nth(line.saturating_sub(2)).is_some_and(|above| above.contains(EXCUSE)) {
                excused += 1;
                continue;
            }
            faults.push(format!(
                "{path}:{line} {name} has {lines} lines, {LONGEST_FUNCTION} at most: cut it up"
            ));
        }
    }
    expect_none(faults);
    assert!(
        excused <= EXCUSED_FUNCTIONS,
        "{excused} functions are excused for their length: cut up the new one"
    );
}

/// The middle one, or the one below which so many in a hundred are.
fn percentile(mut sizes: Vec<usize>, percent: usize) -> usize {
    sizes.sort_unstable();
    sizes[(sizes.len() - 1) * percent / 100]
}

#[test]
fn most_things_are_short() {
    let files: Vec<usize> = sources("src").map(|source| source.code.lines().count()).collect();
    let functions: Vec<usize> =
        sources("src").flat_map(Source::functions).map(|function| function.lines).collect();
    let figures = [
        ("the median file", percentile(files, 50), MEDIAN_FILE),
        ("the median function", percentile(functions.clone(), 50), MEDIAN_FUNCTION),
        ("nine in ten functions", percentile(functions, 90), NINETIETH_FUNCTION),
    ];
    println!("{figures:?}");
    for (what, lines, most) in figures {
        assert!(lines <= most, "{what} in src: {lines} lines, {most} at most; cut up what was added");
    }
}

#[test]
fn no_shortcuts_are_left() {
    // Cut in two, so that this file does not speak of itself.
    let unfinished = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];
    let mut faults = Faults::new();
    for source in sources("") {
        let path = &source.path;
        let shipped = &source.shipped;
        for shortcut in [".unwrap()", ".expect(", ".unwrap_err()", ".expect_err(", "todo!", "unimplemented!"]
        {
            let places = shipped.match_indices(shortcut).map(|(at, _)| line_of(shipped, at));
            faults.extend(
                places.map(|line| format!("{path}:{line} has {shortcut}: give the failure a way out")),
            );
        }
        for shortcut in ["#[allow", "#![allow", "dbg!("] {
            let places = source.code.match_indices(shortcut).map(|(at, _)| line_of(&source.code, at));
            faults.extend(places.map(|line| {
                format!("{path}:{line} has {shortcut}: mend it, or #[expect(lint, reason = \"…\")]")
            }));
        }
        let text = read(path);
        for word in unfinished {
            let places = words(&text, word).map(|at| line_of(&text, at));
            faults.extend(
                places.map(|line| format!("{path}:{line} has {word}: finish it, or tell it as it is")),
            );
        }
    }
    expect_none(faults);
}

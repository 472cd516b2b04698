//! The shape of what stands around the code: dependencies, what is promised, what is kept and what is not.

use std::collections::BTreeSet;

use super::source::{files, path_starts, read, root, sources, story};
use super::{Faults, expect_none};

/// Files that the tests read or that anyone who comes here looks for.
const PRESENT: [&str; 13] = [
    ".ci/run",
    ".dockerignore",
    ".env.example",
    ".sqlx",
    "Cargo.lock",
    "Dockerfile",
    "LICENSE",
    "README.md",
    "docker-compose.yml",
    "docs/promises.md",
    "docs/upgrading.md",
    "migrations",
    "templates",
];

/// The names below a heading of `Cargo.toml`.
fn dependencies(heading: &str) -> Vec<String> {
    let manifest = read("Cargo.toml");
    let after = manifest.lines().skip_while(|line| *line != heading).skip(1);
    let entries = after.take_while(|line| !line.starts_with('['));
    let names =
        entries.filter_map(|line| line.split_once(['=', '.'])).map(|(name, _)| name.trim().to_owned());
    names.filter(|name| !name.is_empty() && !name.starts_with('#')).collect()
}

/// Whether any file below these folders names the crate: by a path, or by an import of it alone.
fn is_used(name: &str, folders: &[&str]) -> bool {
    let name = name.replace('-', "_");
    let alone = format!("use {name};");
    folders
        .iter()
        .flat_map(|folder| sources(folder))
        .any(|source| path_starts(&source.code, &name).next().is_some() || source.code.contains(&alone))
}

#[test]
fn every_dependency_is_used() {
    let mut faults = Faults::new();
    for name in dependencies("[dependencies]") {
        if !is_used(&name, &["src"]) {
            faults.push(format!("{name}: nothing in src names it; take it out of [dependencies]"));
        }
    }
    for name in dependencies("[dev-dependencies]") {
        if !is_used(&name, &["src", "tests", "benches"]) {
            faults.push(format!("{name}: no test names it; take it out of [dev-dependencies]"));
        }
    }
    expect_none(faults);
}

/// Where the promises stand.
const PROMISES: &str = "docs/promises.md";

/// Paths such as `` `races::two_instances_pay_once` `` in the rows of its table.
fn promised_tests() -> BTreeSet<String> {
    let promises = read(PROMISES);
    let rows = promises.lines().filter(|line| line.starts_with('|'));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let paths = quoted.filter(|text| text.contains("::") && text.split("::").all(is_name));
    paths.map(str::to_owned).collect()
}

#[test]
fn every_promise_names_a_test_by_the_path_that_runs_it() {
    let promised = promised_tests();
    assert!(promised.len() >= 200, "{PROMISES} names {} tests", promised.len());
    let mut faults = Faults::new();
    for path in promised.into_iter().filter(|path| story(path).is_none()) {
        faults.push(format!(
            "{PROMISES} promises {path}, and no test has this path, so that `cargo test --test it -- {path}` would \
             run none: name the real one"
        ));
    }
    expect_none(faults);
}

#[test]
fn every_story_is_told() {
    let mut faults = Faults::new();
    for path in
        files("tests/it").into_iter().filter(|path| path.ends_with(".rs") && path != "tests/it/main.rs")
    {
        let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let (folder, name) = module.rsplit_once('/').expect("a folder");
        let above = match folder {
            "tests/it" => "tests/it/main.rs".to_owned(),
            _ if root().join(format!("{folder}.rs")).exists() => format!("{folder}.rs"),
            _ => format!("{folder}/mod.rs"),
        };
        if !read(&above).contains(&format!("mod {name};")) {
            faults.push(format!("{path} is not run: write `mod {name};` in {above}"));
        }
    }
    expect_none(faults);
}

#[test]
fn what_is_needed_is_present_and_what_is_private_is_not_kept() {
    for path in PRESENT {
        assert!(root().join(path).exists(), "{path} is missing");
    }
    let ignored = read(".gitignore");
    for name in ["target/", ".dev/", ".env"] {
        assert!(ignored.lines().any(|line| line == name), ".gitignore lacks {name}");
    }
}

/// The folder of this checkout, and the one above it unless that is a common place such as `/tmp`.
fn this_machine() -> Vec<String> {
    let mut names: Vec<String> = ["/home/", "/root/", "/Users/"].map(str::to_owned).to_vec();
    for folder in root().ancestors().take(2).filter(|folder| folder.components().count() > 2) {
        names.push(folder.display().to_string());
    }
    names
}

#[test]
fn nothing_speaks_of_the_machine_it_was_written_on() {
    let mut faults = Faults::new();
    for path in files(".") {
        // Its own list of such names.
        if path == file!() {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        for name in this_machine() {
            let places = text.lines().enumerate().filter(|(_, line)| line.contains(&name));
            faults.extend(
                places.map(|(index, _)| format!("{path}:{} has {name}: make it relative", index + 1)),
            );
        }
    }
    expect_none(faults);
}

//! Rust files as the shape check reads them: line by line, with comments and texts blanked out.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A Rust file of the project.
pub struct Source {
    /// From the project's root, with slashes.
    pub path: String,
    /// The code alone: what stood in comments, texts and characters is blank, and every line is still there.
    pub code: String,
    /// The code that ships: nothing of a file for tests, and no `#[cfg(test)]` item of the others.
    pub shipped: String,
}

/// A function: where it begins and how many lines it takes, its signature included.
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// The project's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the project as text.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below these folders that the project keeps: what `.gitignore` names is left out.
pub fn files(folder: &str) -> Vec<String> {
    let ignored: Vec<String> =
        read(".gitignore").lines().map(|line| line.trim_matches('/').to_owned()).collect();
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path: PathBuf = entry.path();
            if name == ".git" || ignored.contains(&name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Files in `src` that only tests are built with: in these folders, or of these names.
const TEST_FILES: [&str; 6] = ["/tests.rs", "/tests/", "/fuzz.rs", "/fuzz/", "/simulation/", "/simulated.rs"];

/// Every Rust file there is, read once for all tests.
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let folders = ["src", "tests", "benches"].into_iter().flat_map(files);
    let rust = folders.filter(|path| path.ends_with(".rs"));
    rust.map(|path| {
        let code = code_of(&read(&path));
        let is_test = !path.starts_with("src/") || TEST_FILES.iter().any(|name| path.contains(name));
        let shipped = if is_test { String::new() } else { without_tests(&code) };
        Source { path, code, shipped }
    })
    .collect()
});

/// Every Rust file below a folder; all of them for an empty name.
pub fn sources(folder: &str) -> impl Iterator<Item = &'static Source> + use<> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    SOURCES.iter().filter(move |source| source.path.starts_with(&prefix))
}

fn without_tests(code: &str) -> String {
    let mut code = code.to_owned();
    while let Some(start) = code.find("#[cfg(test)]") {
        let end = end_of_item(&code, start);
        let blank: String = code[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        code.replace_range(start..end, &blank);
    }
    code
}

impl Source {
    /// Its functions, those in functions and tests included.
    pub fn functions(&self) -> Vec<Function> {
        let starts = words(&self.code, "fn").filter_map(|at| {
            let name = next_word(&self.code[at + 2..]);
            // Without a name it is the type of a function; without a body, a promise of a trait.
            let end = end_of_item(&self.code, at);
            let has_body = self.code[..end].ends_with('}');
            (has_body && !name.is_empty()).then(|| Function {
                name,
                line: self.code[..at].matches('\n').count() + 1,
                lines: self.code[at..end].matches('\n').count() + 1,
            })
        });
        starts.collect()
    }
}

/// The code of a story by the whole path that `cargo test` knows it by, `hostile::smuggling::chunks_are_cut_in_one_way`;
/// nothing when there is no such test.
pub fn story(name: &str) -> Option<&'static str> {
    sources("tests/it")
        .filter(|source| name.starts_with(&source.story_module()))
        .find_map(|source| source.test(name))
}

impl Source {
    /// The code of the test of that path: a function below a test's attribute.
    fn test(&self, path: &str) -> Option<&str> {
        let (module, name) = path.rsplit_once("::")?;
        words(&self.code, "fn").find_map(|at| {
            let is_it = next_word(&self.code[at + 2..]) == name;
            let above = self.code[..at].trim_end_matches("async ").lines().rev();
            let mut attributes = above.map(str::trim).skip_while(|line| line.is_empty());
            let is_test = attributes
                .by_ref()
                .take_while(|line| line.starts_with("#["))
                .any(|line| line == "#[test]" || line.starts_with("#[tokio::test"));
            (is_it && is_test && self.module_at(at) == module)
                .then(|| &self.code[at..end_of_item(&self.code, at)])
        })
    }

    /// The module that a file below `tests/it` is.
    fn story_module(&self) -> String {
        let file = self.path.trim_start_matches("tests/it/").trim_end_matches(".rs");
        file.trim_end_matches("/mod").replace('/', "::")
    }

    /// The module that a place of it is in: the file, and those in the file that are around.
    fn module_at(&self, place: usize) -> String {
        let around =
            words(&self.code, "mod").filter(|at| (*at..end_of_item(&self.code, *at)).contains(&place));
        let names = around.map(|at| next_word(&self.code[at + 3..]));
        std::iter::once(self.story_module()).chain(names).collect::<Vec<_>>().join("::")
    }
}

/// The word that comes next, if one does.
fn next_word(code: &str) -> String {
    code.trim_start().chars().take_while(|c| is_word(*c)).collect()
}

/// Where a word stands alone.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Where a path begins with this crate or module: `sqlx::`, and neither `my_sqlx::` nor `self::sqlx::`.
pub fn path_starts<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    words(code, name).filter(move |at| {
        let is_first = !code[..*at].ends_with(':');
        is_first && code[at + name.len()..].starts_with("::")
    })
}

/// The line of a place, for messages.
pub fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Behind the `;` or the closing brace that ends the item which begins here.
pub fn end_of_item(code: &str, start: usize) -> usize {
    let mut depth = 0_u32;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if c == '}' && depth == 0 {
                    return start + at + 1;
                }
            }
            ';' if depth == 0 => return start + at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Blanks comments, texts and characters, and keeps every line's end.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let blank = blank_length(rest, code.chars().next_back());
        if blank == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            let (gone, left) = rest.split_at(blank);
            code.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = left;
        }
    }
    code
}

/// How many bytes from here on are no code.
fn blank_length(rest: &str, before: Option<char>) -> usize {
    let upto = |end: &str, skip: usize| rest[skip..].find(end).map_or(rest.len(), |at| skip + at + end.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return upto("*/", 2);
    }
    if rest.starts_with('"') {
        return quoted_length(rest, '"');
    }
    if rest.starts_with('r') && !before.is_some_and(is_word) || rest.starts_with('r') && before == Some('b') {
        let hashes = rest[1..].chars().take_while(|c| *c == '#').count();
        if rest[1 + hashes..].starts_with('"') {
            return upto(&format!("\"{}", "#".repeat(hashes)), 2 + hashes);
        }
    }
    if let Some(character) = rest.strip_prefix('\'') {
        // A character ends after one; a lifetime does not.
        let mut chars = character.chars();
        let is_character = chars.next() == Some('\\') || chars.next() == Some('\'');
        return if is_character { quoted_length(rest, '\'') } else { 0 };
    }
    0
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[test]
fn code_is_told_from_text() {
    let text =
        "fn a() { let x = \"fn b() {\"; // fn c() {\n    let y = r#\"}\"#; let z = '}'; }\nfn d<'a>() {}";
    let source = Source { path: String::new(), code: code_of(text), shipped: String::new() };
    let functions: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(functions, [("a".to_owned(), 1, 2), ("d".to_owned(), 3, 1)]);
}

#[test]
fn a_story_is_known_by_its_whole_path() {
    let text = "mod other {}\nmod inner {\n    #[tokio::test]\n    async fn a() {}\n}\n#[test]\nfn b() {}\nfn c() {}";
    let source =
        Source { path: "tests/it/hostile/idle.rs".into(), code: text.into(), shipped: String::new() };
    for path in ["hostile::idle::inner::a", "hostile::idle::b"] {
        assert!(source.test(path).is_some(), "{path}");
    }
    for path in ["hostile::idle::a", "hostile::a", "hostile::b", "idle::b", "b", "hostile::idle::c"] {
        assert!(source.test(path).is_none(), "{path}");
    }
}

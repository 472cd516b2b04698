//! The page of the figures, `docs/benchmarks.md`: what was measured last stands between two marks, and what people say
//! of it around them.

use std::fs;
use std::path::Path;

use super::Failure;

const BEGIN: &str = "<!-- figures -->\n";
const END: &str = "<!-- end of figures -->";

/// Puts the figures into the page, where `PAYONCE_WRITE` asks for it.
pub fn write(figures: &str) -> Result<(), Failure> {
    if std::env::var_os("PAYONCE_WRITE").is_none() {
        return Ok(());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks.md");
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page.split_once(BEGIN).ok_or("docs/benchmarks.md has no place for figures")?;
    let (_, after) = rest.split_once(END).ok_or("docs/benchmarks.md has no end of figures")?;
    fs::write(&path, format!("{before}{BEGIN}```text\n{figures}\n```\n{END}{after}"))?;
    Ok(())
}

//! Which answers of PostgreSQL tell of a commit: both sides of one connection, read as version 3 of its protocol has it.
//!
//! A commit is the end of an exchange that leaves no transaction open, after something was written: a `COMMIT`, or a
//! statement that stands alone. What was rolled back is none. TLS is not spoken here.

use std::collections::{HashSet, VecDeque};

/// What stands in place of a version when a connection begins with a wish for TLS. The answer is one byte: no.
const WISH_FOR_TLS: [u8; 4] = 80_877_103_u32.to_be_bytes();

/// What is asked in one exchange, by its most serious statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    #[default]
    Reads,
    Commits,
    Writes,
}

/// Both sides of one connection, however their messages are cut.
#[derive(Default)]
pub struct Exchanges {
    questions: Pieces,
    answers: Pieces,
    has_begun: bool,
    refusals_due: usize,
    statements: HashSet<Vec<u8>>,
    portals: HashSet<Vec<u8>>,
    /// What is asked since the last exchange was closed.
    open: Asked,
    /// Exchanges that are not answered to the end.
    under_way: VecDeque<Asked>,
    is_refused: bool,
    /// Whether the open transaction has.
    has_written: bool,
}

impl Exchanges {
    /// Hears what the service says.
    pub fn hear_question(&mut self, piece: &[u8]) {
        self.questions.0.extend_from_slice(piece);
        while !self.has_begun {
            let Some(first) = self.questions.take(0) else { return };
            if first[4..] == WISH_FOR_TLS {
                self.refusals_due += 1;
            } else {
                self.has_begun = true;
                self.under_way.push_back(Asked::Reads);
            }
        }
        while let Some(message) = self.questions.take(1) {
            self.note(message[0], &message[5..]);
        }
    }

    fn note(&mut self, kind: u8, body: &[u8]) {
        let mut texts = body.split(|byte| *byte == 0);
        let mut text = || texts.next().unwrap_or_default();
        match kind {
            // A text on its own is an exchange.
            b'Q' => self.under_way.push_back(asked_by(text())),
            b'P' => {
                let (name, statement) = (text(), text());
                remember(&mut self.statements, name, asked_by(statement) == Asked::Writes);
            }
            b'B' => {
                let (portal, statement) = (text(), text());
                remember(&mut self.portals, portal, self.statements.contains(statement));
            }
            b'E' if self.portals.contains(text()) => self.open = Asked::Writes,
            b'S' => self.under_way.push_back(std::mem::take(&mut self.open)),
            _ => {}
        }
    }

    /// Hears what PostgreSQL says; gives whether it has told the end of a commit.
    pub fn hear_answer(&mut self, piece: &[u8]) -> bool {
        self.answers.0.extend_from_slice(piece);
        let refusals = self.refusals_due.min(self.answers.0.len());
        self.answers.0.drain(..refusals);
        self.refusals_due -= refusals;
        let mut has_committed = false;
        while let Some(message) = self.answers.take(1) {
            let body = &message[5..];
            match message[0] {
                b'E' => self.is_refused = true,
                b'C' => self.is_refused |= body.starts_with(b"ROLLBACK"),
                b'Z' => has_committed |= self.end_of_exchange(body == b"I"),
                _ => {}
            }
        }
        has_committed
    }

    fn end_of_exchange(&mut self, is_outside_transactions: bool) -> bool {
        let is_refused = std::mem::take(&mut self.is_refused);
        self.has_written |= self.under_way.pop_front() == Some(Asked::Writes);
        is_outside_transactions && std::mem::take(&mut self.has_written) && !is_refused
    }

    /// Whether the exchange that is answered now may end with a commit: handed on by half, its answer would tell.
    pub fn is_about_to_commit(&self) -> bool {
        match self.under_way.front() {
            Some(Asked::Writes) => true,
            Some(Asked::Commits) => self.has_written,
            Some(Asked::Reads) | None => false,
        }
    }
}

fn remember(names: &mut HashSet<Vec<u8>>, name: &[u8], writes: bool) {
    if writes {
        names.insert(name.to_vec());
    } else {
        names.remove(name);
    }
}

/// By the words outside of comments and quotes. Whoever locks a row with `FOR UPDATE` has not written.
fn asked_by(statement: &[u8]) -> Asked {
    let text = String::from_utf8_lossy(statement);
    let lines: Vec<_> = text.lines().filter_map(|line| line.split("--").next()).collect();
    let (mut asked, mut before) = (Asked::Reads, String::new());
    for unquoted in lines.join("\n").split('\'').step_by(2) {
        let words = unquoted.split(|c: char| !c.is_alphanumeric() && c != '_');
        for word in words.filter(|word| !word.is_empty()) {
            let word = word.to_ascii_uppercase();
            let is_lock = word == "UPDATE" && matches!(before.as_str(), "FOR" | "KEY");
            asked = asked.max(match word.as_str() {
                "INSERT" | "UPDATE" | "DELETE" | "MERGE" if !is_lock => Asked::Writes,
                "COMMIT" => Asked::Commits,
                _ => Asked::Reads,
            });
            before = word;
        }
    }
    asked
}

/// What one side said and is not understood yet.
#[derive(Default)]
struct Pieces(Vec<u8>);

impl Pieces {
    /// Takes the next message once all of it is there: so many bytes of a kind, four of a length, and the rest.
    fn take(&mut self, kind: usize) -> Option<Vec<u8>> {
        let length = self.0.get(kind..kind + 4)?.try_into().expect("four bytes");
        let end = kind + usize::try_from(u32::from_be_bytes(length)).expect("small");
        (end <= self.0.len()).then(|| self.0.drain(..end).collect())
    }
}

//! The figures of the workspace's language: how its comments read, and how its types are named.
//!
//! The limits stand in CONTRIBUTING.md. They are far above what admired codebases have, and keep
//! the worst habits of this one from coming back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// Words that let a sentence avoid its noun.
const VAGUE: [&str; 22] = [
    "what",
    "whatever",
    "who",
    "whoever",
    "whose",
    "whom",
    "which",
    "where",
    "wherever",
    "nobody",
    "nothing",
    "none",
    "somebody",
    "something",
    "everybody",
    "everything",
    "told",
    "tells",
    "said",
    "says",
    "thing",
    "things",
];

/// First words of a doc comment that does not open with its subject.
const OPENINGS: [&str; 8] = [
    "What", "Who", "Whose", "Whether", "How", "Where", "That", "When",
];

/// The most vague words in a thousand words of comments.
const MAX_VAGUE: f64 = 12.0;
/// The largest share of doc comments with one of [`OPENINGS`].
const MAX_OPENINGS: f64 = 0.03;
/// The largest share of types whose name is one plain word.
const MAX_PLAIN: f64 = 0.45;
/// The most types of one name.
const MAX_PER_NAME: usize = 3;

/// Counts of one file or of many.
#[derive(Debug, Default)]
struct Figures {
    words: usize,
    vague: usize,
    docs: usize,
    openings: usize,
    /// The files that define each type.
    types: BTreeMap<String, BTreeSet<PathBuf>>,
    type_count: usize,
    plain: usize,
    /// Functions with a tuple of parameters, and their files.
    tuples: Vec<(PathBuf, String)>,
    /// Files by their vague words.
    worst: BTreeMap<PathBuf, usize>,
}

impl Figures {
    fn add(&mut self, file: &Path, text: &str) {
        self.add_comments(file, text);
        if !is_of_tests(file) {
            self.add_types(file, text);
            self.add_tuples(file, text);
        }
    }

    fn add_comments(&mut self, file: &Path, text: &str) {
        let mut in_docs = false;
        for line in text.lines() {
            let Some((is_doc, comment)) = comment(line) else {
                in_docs = false;
                continue;
            };
            let lower = comment.to_lowercase();
            let words = lower
                .split(|c: char| !c.is_ascii_lowercase() && c != '\'')
                .filter(|word| !word.is_empty());
            for word in words {
                self.words += 1;
                if VAGUE.contains(&word) {
                    self.vague += 1;
                    *self.worst.entry(file.to_owned()).or_default() += 1;
                }
            }
            if is_doc && !in_docs {
                self.docs += 1;
                let first = comment
                    .split(|c: char| !c.is_ascii_alphabetic())
                    .next()
                    .unwrap_or_default();
                self.openings += usize::from(OPENINGS.contains(&first));
            }
            in_docs = true;
        }
    }

    fn add_types(&mut self, file: &Path, text: &str) {
        for line in text.lines() {
            let Some(name) = defined_type(line) else {
                continue;
            };
            self.type_count += 1;
            let words = name.chars().filter(char::is_ascii_uppercase).count();
            self.plain += usize::from(words == 1);
            let files = self.types.entry(name.to_owned()).or_default();
            files.insert(file.to_owned());
        }
    }

    fn add_tuples(&mut self, file: &Path, text: &str) {
        for rest in text.split("fn ").skip(1) {
            let head = rest.split(['{', ';']).next().unwrap_or_default();
            let Some((name, parameters)) = head.split_once('(') else {
                continue;
            };
            if has_tuple_parameter(parameters) {
                let name = name.split('<').next().unwrap_or_default();
                self.tuples.push((file.to_owned(), name.to_owned()));
            }
        }
    }

    fn vague_in_a_thousand(&self) -> f64 {
        1_000.0 * ratio(self.vague, self.words)
    }

    fn shared_names(&self) -> Vec<String> {
        self.types
            .iter()
            .filter(|(_, files)| files.len() > MAX_PER_NAME)
            .map(|(name, files)| format!("{name} ({})", files.len()))
            .collect()
    }

    /// One line for each figure above its limit.
    fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.vague_in_a_thousand() > MAX_VAGUE {
            let mut worst: Vec<_> = self.worst.iter().collect();
            worst.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let worst: Vec<String> = worst
                .into_iter()
                .take(10)
                .map(|(file, count)| format!("{} ({count})", file.display()))
                .collect();
            complaints.push(format!(
                "too many vague words, most in {}",
                worst.join(", ")
            ));
        }
        if ratio(self.openings, self.docs) > MAX_OPENINGS {
            complaints.push(format!(
                "too many doc comments open with one of {}",
                OPENINGS.join(", ")
            ));
        }
        if ratio(self.plain, self.type_count) > MAX_PLAIN {
            complaints.push("too many types have a name of one plain word".to_owned());
        }
        let shared = self.shared_names();
        if !shared.is_empty() {
            complaints.push(format!("one name for many types: {}", shared.join(", ")));
        }
        for (file, function) in &self.tuples {
            complaints.push(format!(
                "`{function}` takes several parameters as one tuple ({})",
                file.display()
            ));
        }
        complaints
    }

    fn print(&self) {
        println!(
            "language: {:.1} vague words in 1,000 words of comments (at most {MAX_VAGUE}); {:.1} % \
             of doc comments open with What, Who, How ... (at most {:.0} %); {:.0} % of types have a \
             name of one word (at most {:.0} %); {} functions take a tuple of parameters (none)",
            self.vague_in_a_thousand(),
            100.0 * ratio(self.openings, self.docs),
            100.0 * MAX_OPENINGS,
            100.0 * ratio(self.plain, self.type_count),
            100.0 * MAX_PLAIN,
            self.tuples.len(),
        );
    }
}

/// Prints the figures of every tracked source file.
///
/// # Errors
/// If a figure is above its limit, with the places to mend; if git does not list the files.
pub(crate) fn check() -> anyhow::Result<()> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "*.rs"])
        .output()
        .context("git does not list the source files")?;
    let mut figures = Figures::default();
    for name in output.stdout.split(|byte| *byte == 0) {
        let file = PathBuf::from(String::from_utf8_lossy(name).into_owned());
        // A file that is deleted and not yet committed is still listed.
        if let Ok(text) = std::fs::read_to_string(&file) {
            figures.add(&file, &text);
        }
    }
    if figures.words == 0 {
        // An archive without history has no list of files.
        eprintln!("git lists no source files here: the language was not checked");
        return Ok(());
    }
    figures.print();
    let complaints = figures.complaints();
    anyhow::ensure!(
        complaints.is_empty(),
        "{}\nCONTRIBUTING.md has the rules",
        complaints.join("\n")
    );
    Ok(())
}

fn ratio(part: usize, whole: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of words are small")]
    let (part, whole) = (part as f64, whole.max(1) as f64);
    part / whole
}

/// Reports if the file is test code, in which short private names are common.
fn is_of_tests(file: &Path) -> bool {
    let first = file.iter().next().unwrap_or_default();
    ["tests", "xtask", "benches"]
        .iter()
        .any(|folder| first == *folder)
        || file.iter().skip(1).any(|folder| folder == "tests")
}

/// The text of a line that is a comment, and whether it is documentation.
fn comment(line: &str) -> Option<(bool, &str)> {
    let rest = line.trim_start().strip_prefix("//")?;
    let (is_doc, rest) = match rest.strip_prefix(['/', '!']) {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    Some((is_doc, rest.trim_start()))
}

/// The name of the struct, enum or trait that a line begins to define.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let mut word = words.next()?;
    if word.starts_with("pub") {
        word = words.find(|word| !word.starts_with("in") && !word.ends_with(')'))?;
    }
    if !["struct", "enum", "trait"].contains(&word) {
        return None;
    }
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    let name = &name[..end.unwrap_or(name.len())];
    name.starts_with(|c: char| c.is_ascii_uppercase())
        .then_some(name)
}

/// Reports if a parameter is a pattern that takes several values apart: `(a, b): (A, B)`.
fn has_tuple_parameter(parameters: &str) -> bool {
    parameters.match_indices('(').any(|(at, _)| {
        let Some((names, rest)) = parameters[at + 1..].split_once(')') else {
            return false;
        };
        let is_names = names
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == ',' || c.is_whitespace());
        let Some(of_type) = rest.trim_start().strip_prefix(':') else {
            return false;
        };
        is_names && names.contains(',') && of_type.trim_start().starts_with('(')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(text: &str) -> Figures {
        let mut figures = Figures::default();
        figures.add(Path::new("crates/x/src/lib.rs"), text);
        figures
    }

    #[test]
    fn vague_words_and_openings_are_counted_once_a_comment() {
        let read = figures("/// What nobody told.\n/// Who knows.\nfn f() {}\n/// A pool.\n// x\n");
        assert_eq!((read.words, read.vague), (8, 4));
        assert_eq!((read.docs, read.openings), (2, 1));
        assert_eq!(read.complaints().len(), 2);
    }

    #[test]
    fn types_of_one_word_and_shared_names_are_counted() {
        let mut all = Figures::default();
        for file in ["a", "b", "c", "d"] {
            let path = PathBuf::from(format!("crates/{file}/src/lib.rs"));
            all.add(
                &path,
                "pub(crate) struct Key<'a> {}\npub enum DnsCache {}\n// struct No\n",
            );
        }
        assert_eq!((all.type_count, all.plain), (8, 4));
        assert_eq!(all.shared_names(), ["DnsCache (4)", "Key (4)"]);
        let mut tests = Figures::default();
        tests.add(Path::new("crates/a/tests/it/x.rs"), "struct Key;");
        tests.add(Path::new("tests/it/x.rs"), "struct Key;");
        assert_eq!(tests.type_count, 0);
    }

    #[test]
    fn a_tuple_of_parameters_is_found_and_a_tuple_type_is_not() {
        let read = figures("fn a((x, y): (u8, u8)) {}\nfn b(of: (u8, u8)) {}\nfn c(x: fn(u8)) {}");
        let names: Vec<&str> = read.tuples.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["a"]);
    }
}

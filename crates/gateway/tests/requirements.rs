//! The index of requirements: `docs/requirements-index.md` has a sentence for each requirement and
//! each fault, and the tests that prove it. Tests name theirs in a comment, `// Proves R075, A26.`
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use workspace::{keep_page, read, rust_files};

const PAGE: &str = "docs/requirements-index.md";

/// The mark of a row without a test, with its reason.
const UNPROVEN: &str = "no test";

/// The folders of all tests.
const FOLDERS: [&str; 4] = ["crates", "tests/it", "benches", "xtask"];

/// A test of a source: its name, and the ids in the comment above it.
struct NamedTest<'a> {
    name: &'a str,
    ids: Vec<&'a str>,
}

/// Reads the tests of a source: functions with a test's attribute, and the rows of tables of tests,
/// which have ids above them. A helper proves no requirement.
fn tests_of(source: &str) -> Vec<NamedTest<'_>> {
    let mut tests = Vec::new();
    let mut ids = Vec::new();
    let (mut in_list, mut is_marked) = (false, false);
    for line in source.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("//") {
            let comment = comment.trim_start();
            if let Some(list) = comment
                .strip_prefix("Proves ")
                .or(in_list.then_some(comment))
            {
                ids.extend(list.split([',', '.', ' ']).filter(|id| is_id(id)));
                in_list = !list.ends_with('.');
            }
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_marked = true;
        } else if let Some((_, rest)) = line.split_once("fn ") {
            let ids = std::mem::take(&mut ids);
            if std::mem::take(&mut is_marked) {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                tests.push(NamedTest { name, ids });
            }
        } else if let Some(name) = row_name(line).filter(|_| !ids.is_empty() && !is_marked) {
            let ids = std::mem::take(&mut ids);
            tests.push(NamedTest { name, ids });
        }
    }
    tests
}

/// The name at the beginning of a row in a table of tests, such as `name: Server, transport;`.
fn row_name(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once(':')?;
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_name && !name.is_empty() && !rest.starts_with(':')).then_some(name)
}

/// Reports if a word is an id: a capital letter and digits.
fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_uppercase())
        && word.len() > 2
        && letters.all(|rest| rest.is_ascii_digit())
}

/// Adds the tests of a source by the ids that they prove.
fn add_proofs(source: &str, proofs: &mut BTreeMap<String, BTreeSet<String>>) {
    for test in tests_of(source) {
        for id in test.ids {
            let tests = proofs.entry(id.to_owned()).or_default();
            tests.insert(test.name.to_owned());
        }
    }
}

fn all_proofs() -> BTreeMap<String, BTreeSet<String>> {
    let mut proofs = BTreeMap::new();
    for file in FOLDERS.iter().flat_map(|folder| rust_files(folder)) {
        // This file has examples of such comments.
        if !file.ends_with("tests/requirements.rs") {
            add_proofs(&read(&file), &mut proofs);
        }
    }
    proofs
}

/// The page with its last column made anew; all else is written by hand.
fn with_tests(page: &str, proofs: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut made = String::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let id = cells[0].strip_prefix("| ").filter(|id| is_id(id));
        let Some(id) = id else {
            let _ = writeln!(made, "{line}");
            continue;
        };
        let by_hand = cells[..cells.len() - 1].join(" | ");
        let last = cells.last().copied().unwrap_or_default();
        let tests = match proofs.get(id) {
            Some(tests) => {
                let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
                tests.join(", ")
            }
            None => last.trim_end_matches(" |").to_owned(),
        };
        let _ = writeln!(made, "{by_hand} | {tests} |");
    }
    made
}

/// Run with `UPDATE=1` to write the page anew.
#[test]
fn every_requirement_id_has_a_sentence_and_tests() {
    let proofs = all_proofs();
    let page = read(PAGE);
    let known: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | ").map(|(id, _)| id))
        .filter(|id| is_id(id))
        .collect();
    assert!(known.len() > 400, "{}", known.len());
    let unknown: Vec<_> = proofs
        .keys()
        .filter(|id| !known.contains(id.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{PAGE} has no sentence for {unknown:?}");
    let made = with_tests(&page, &proofs);
    keep_page(PAGE, &made);
    let unproven: Vec<&str> = known
        .into_iter()
        .filter(|id| !proofs.contains_key(*id))
        .filter(|id| !reason_of(&page, id).starts_with(UNPROVEN))
        .collect();
    assert!(unproven.is_empty(), "no test proves {unproven:?}");
}

/// The last cell of an id's row.
fn reason_of<'a>(page: &'a str, id: &str) -> &'a str {
    let row = page
        .lines()
        .find(|line| line.starts_with(&format!("| {id} | ")));
    let cells = row.unwrap_or_default().trim_end_matches(" |");
    cells.rsplit(" | ").next().unwrap_or_default()
}

#[test]
fn the_tests_that_the_security_page_names_are_there() {
    let mut all = BTreeSet::new();
    for file in ["crates", "tests/it"]
        .iter()
        .flat_map(|folder| rust_files(folder))
    {
        let source = read(&file);
        all.extend(
            tests_of(&source)
                .into_iter()
                .map(|test| test.name.to_owned()),
        );
    }
    let page = read("docs/security.md");
    let named: Vec<&str> = page
        .split('`')
        .filter(|word| {
            word.len() > 20
                && word.contains('_')
                && word
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect();
    assert!(named.len() > 40, "{}", named.len());
    let gone: Vec<_> = named
        .into_iter()
        .filter(|name| !all.contains(*name))
        .collect();
    assert!(
        gone.is_empty(),
        "docs/security.md names tests that are not there: {gone:?}"
    );
}

#[test]
fn proofs_are_read_from_comments_above_functions_and_rows() {
    let source = "
        /// Docs.
        // Proves R001, A04,
        // R003.
        #[tokio::test(flavor = \"multi_thread\")]
        async fn first() {}
        // Proves R004.
        fn helper() {}
        #[test]
        // fn commented() {}
        fn generic<T>() {}
        // Proves R001.
        row_of_a_table: Server::One, child;
        // It says R002.
        fn third() {}
    ";
    let mut proofs = BTreeMap::new();
    add_proofs(source, &mut proofs);
    let of = |id: &str| proofs.get(id).cloned().unwrap_or_default();
    assert_eq!(
        of("R001"),
        ["first", "row_of_a_table"].map(str::to_owned).into()
    );
    assert_eq!(of("A04"), ["first".to_owned()].into());
    assert_eq!(of("R003"), ["first".to_owned()].into());
    assert!(of("R002").is_empty() && of("R004").is_empty());
    let names: Vec<&str> = tests_of(source).iter().map(|test| test.name).collect();
    assert_eq!(names, ["first", "generic", "row_of_a_table"]);
}

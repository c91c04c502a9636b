//! The index of requirements: every requirement and fault that weir answers for is in the name of a
//! test, so that the list of passed tests shows them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The requirements by number.
const REQUIREMENTS: [RangeInclusive<u16>; 3] = [1..=253, 271..=283, 286..=286];

/// The rows of the fault matrix by letter and number.
const FAULTS: [(char, RangeInclusive<u16>); 14] = [
    ('a', 1..=9),
    ('a', 17..=26),
    ('b', 1..=25),
    ('c', 1..=28),
    ('d', 1..=16),
    ('e', 1..=11),
    ('e', 15..=16),
    ('e', 20..=20),
    ('e', 22..=22),
    ('f', 1..=2),
    ('f', 9..=18),
    ('g', 1..=6),
    ('g', 10..=11),
    ('g', 14..=15),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path
                .file_name()
                .is_some_and(|name| name == "target" || name == "node_modules")
            {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the names of the functions that a source marks as tests.
fn tests_of(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        }
        let name = line.split_once("fn ").map(|(_, rest)| rest);
        if marked
            && !line.starts_with("//")
            && let Some(name) = name
        {
            names.push(name.split(['(', '<']).next().unwrap_or_default());
            marked = false;
        }
    }
    names
}

/// Reports if a word of a test's name is a letter with digits.
fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_lowercase())
        && word.len() > 2
        && letters.all(|rest| rest.is_ascii_digit())
}

fn promised() -> BTreeSet<String> {
    let mut ids: BTreeSet<String> = REQUIREMENTS
        .into_iter()
        .flatten()
        .map(|number| format!("r{number:03}"))
        .collect();
    ids.extend(
        FAULTS
            .into_iter()
            .flat_map(|(row, numbers)| numbers.map(move |number| format!("{row}{number:02}"))),
    );
    ids
}

#[test]
fn every_requirement_has_a_test() {
    let mut files = Vec::new();
    for folder in ["crates", "tests/it", "benches", "xtask"] {
        sources(&root().join(folder), &mut files);
    }
    let mut proven = BTreeSet::new();
    for file in &files {
        let source = std::fs::read_to_string(file).unwrap();
        let words = tests_of(&source)
            .into_iter()
            .flat_map(|name| name.split('_'));
        proven.extend(words.filter(|word| is_id(word)).map(str::to_owned));
    }
    assert!(
        proven.len() > 200,
        "the sources are where this test looks for them: {}",
        files.len()
    );
    let missing: Vec<_> = promised().difference(&proven).cloned().collect();
    assert!(missing.is_empty(), "no test is named after {missing:?}");
}

#[test]
fn the_tests_that_the_security_page_names_are_there() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    sources(&root().join("tests/it"), &mut files);
    let sources: Vec<String> = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let all: BTreeSet<&str> = sources.iter().flat_map(|source| tests_of(source)).collect();
    let page = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let named: Vec<&str> = page
        .split('`')
        .filter(|word| {
            word.split_once('_')
                .is_some_and(|(id, rest)| is_id(id) && rest.len() > 20)
        })
        .collect();
    assert!(named.len() > 40, "{}", named.len());
    let gone: Vec<_> = named
        .into_iter()
        .filter(|name| !all.contains(name))
        .collect();
    assert!(
        gone.is_empty(),
        "docs/security.md names tests that are not there: {gone:?}"
    );
}

#[test]
fn only_test_functions_count() {
    let source = "
        #[test]
        fn r001_plain() {}
        fn r002_helper() {}
        #[tokio::test(flavor = \"multi_thread\")]
        #[ignore = \"measures time\"]
        async fn r003_a04_marked_twice() {}
        pub async fn r005_scenario(world: &World) {}
        #[test]
        // fn r006_commented() {}
        fn r007_generic<T>() {}
    ";
    assert_eq!(
        tests_of(source),
        ["r001_plain", "r003_a04_marked_twice", "r007_generic"]
    );
    let words = ["r001", "a04", "plain", "h2", "r", "1st", "rfc9110", "R001"];
    assert_eq!(
        words.map(is_id),
        [true, true, false, false, false, false, false, false]
    );
}

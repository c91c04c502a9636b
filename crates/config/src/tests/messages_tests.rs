//! The exact message for each mistake, as a document under review: `messages.txt` has configs and,
//! after `>>>`, their reports.

use super::*;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/messages.txt");

/// Run with `UPDATE=1` to rewrite the answers, then review the difference.
// Proves G05.
#[test]
fn every_mistake_is_named_with_line_path_and_hint() {
    let document = std::fs::read_to_string(FILE).unwrap();
    let mut anew = String::new();
    for case in document.split("<<<\n").skip(1) {
        let (text, _) = case.split_once("\n>>>\n").unwrap();
        anew.push_str(&format!("<<<\n{text}\n>>>\n{}\n\n", load(text).report));
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, &anew).unwrap();
    }
    assert_eq!(anew, std::fs::read_to_string(FILE).unwrap());
    assert!(
        !anew.contains("canary"),
        "a secret of the environment was repeated"
    );
}

#[test]
fn every_error_of_a_value_has_its_line() {
    let document = std::fs::read_to_string(FILE).unwrap();
    for case in document.split("<<<\n").skip(1) {
        let (text, _) = case.split_once("\n>>>\n").unwrap();
        for problem in load(text).report.problems() {
            assert!(
                problem.line.is_some() || problem.path.is_root(),
                "{problem}"
            );
            assert_eq!(problem.file, "weir.yaml");
        }
    }
}

// Proves G01.
#[test]
fn giant_and_exploding_files_are_refused_at_once() {
    let giant = format!("# {}", "x".repeat(5 << 20));
    assert!(load(&giant).report.to_string().contains("more than the"));
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let inner = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{inner}]\n"));
    }
    let outcome = load(&bomb);
    assert!(outcome.config.is_none());
    assert!(
        outcome
            .report
            .to_string()
            .contains("exceeds the limits of a config: its aliases repeat too many values"),
        "{}",
        outcome.report
    );
    let deep = "[".repeat(100_000);
    assert!(load(&deep).config.is_none());
    let deep = format!("a: {}{}", "{a: ".repeat(1000), "}".repeat(1000));
    assert!(load(&deep).config.is_none());
}

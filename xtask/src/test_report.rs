//! The results of a run: the report of the test runner in the format of JUnit, with the tests that
//! failed, and one error of several checks.

use std::{fmt::Write as _, fs, path::PathBuf, process::Command};

use anyhow::bail;

use crate::run::{checked, root};

/// The lines of a failure that are repeated at the end of a run.
const SHOWN_LINES: usize = 12;

/// The failures that are repeated at the end of a run. The rest are counted.
const SHOWN_FAILURES: usize = 10;

/// The runner's profile for all tests, whose report the compatibility tables are made of.
pub(crate) const ALL_TESTS_PROFILE: &str = "all";

/// One test of a report.
pub(crate) struct TestCase<'a> {
    /// The path of the test in its program.
    pub(crate) name: &'a str,
    /// The elements inside the test's own one: its failures and its output.
    pub(crate) elements: &'a str,
}

impl TestCase<'_> {
    /// Reports if the test failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.elements.contains("<failure") || self.elements.contains("<error")
    }

    /// The first lines of the first failure.
    fn first_failure(&self) -> String {
        let text = ["<failure", "<error"]
            .iter()
            .find_map(|kind| self.elements.split_once(kind))
            .and_then(|(_, rest)| rest.split_once('>'))
            .map_or("", |(_, text)| text.split('<').next().unwrap_or(text));
        let mut shown = String::new();
        for line in without_entities(text).lines().take(SHOWN_LINES) {
            // Writing to a String cannot fail.
            let _ = writeln!(shown, "    {line}");
        }
        shown
    }
}

/// Returns the tests of a report. An attribute before the name of a test is passed over.
pub(crate) fn test_cases(report: &str) -> impl Iterator<Item = TestCase<'_>> {
    report.split("<testcase ").skip(1).filter_map(|case| {
        let (_, rest) = case.split_once("name=\"")?;
        let (name, rest) = rest.split_once('"')?;
        let elements = rest.split_once("</testcase>").map_or("", |(own, _)| own);
        Some(TestCase { name, elements })
    })
}

/// The path of the report that the runner writes for `profile`. It is below the tree, for any
/// folder of build output.
pub(crate) fn report_file(profile: &str) -> anyhow::Result<PathBuf> {
    Ok(root()?
        .join("target/nextest")
        .join(profile)
        .join("junit.xml"))
}

/// Runs `runner`, the test runner with `profile`.
///
/// # Errors
///
/// Names the tests that failed and the beginning of each failure: whoever reads the end of a long
/// run sees what to look at.
pub(crate) fn checked_tests(runner: &mut Command, profile: &str) -> anyhow::Result<()> {
    let file = report_file(profile)?;
    // A report of an earlier run must not speak for one that wrote none.
    if file.exists() {
        fs::remove_file(&file)?;
    }
    checked(runner).or_else(|error| {
        let report = fs::read_to_string(&file).unwrap_or_default();
        bail!("{error}\n{}", failures(&report))
    })
}

/// Succeeds if all of `results` do.
///
/// # Errors
///
/// One error with the text of each that is among them, in their order.
pub(crate) fn all_of<const COUNT: usize>(
    results: [anyhow::Result<()>; COUNT],
) -> anyhow::Result<()> {
    let errors: Vec<_> = results
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        bail!("{}", errors.join("\nerror: "))
    }
}

/// Renders the failed tests of a report.
fn failures(report: &str) -> String {
    let mut text = String::new();
    let failed: Vec<_> = test_cases(report).filter(TestCase::has_failed).collect();
    for case in failed.iter().take(SHOWN_FAILURES) {
        // Writing to a String cannot fail.
        let _ = write!(text, "  {} failed:\n{}", case.name, case.first_failure());
    }
    let left = failed.len().saturating_sub(SHOWN_FAILURES);
    if left > 0 {
        let _ = writeln!(text, "  and {left} more");
    }
    text
}

/// Writes the predefined entities of XML as their characters.
fn without_entities(text: &str) -> String {
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (entity, character)| {
        text.replace(entity, character)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const REPORT: &str = r#"<testsuites><testsuite name="weir-tests::it">
        <testcase name="replicas::steady" classname="weir-tests::it" time="1"/>
        <testcase name="replicas::broken" classname="weir-tests::it" time="1">
            <failure message="no" type="test failure with exit code 101">thread panicked: 1 &lt; 2 &amp;&amp; it failed</failure>
            <system-out>1
</system-out>
        </testcase>
        </testsuite></testsuites>"#;

    #[test]
    fn failed_tests_are_shown_with_the_beginning_of_the_failure() {
        assert_eq!(
            failures(REPORT),
            "  replicas::broken failed:\n    thread panicked: 1 < 2 && it failed\n"
        );
        assert_eq!(failures("<testsuites/>"), "");
    }

    #[test]
    fn failures_beyond_the_shown_ones_are_counted() {
        let case = r#"<testcase name="a"><failure>no</failure></testcase>"#;
        let text = failures(&case.repeat(SHOWN_FAILURES + 2));
        assert!(text.ends_with("    no\n  and 2 more\n"), "{text}");
    }

    #[test]
    fn every_failed_check_is_in_the_error() {
        all_of([Ok(()), Ok(())]).unwrap();
        let error = all_of([
            Err(anyhow::anyhow!("one")),
            Ok(()),
            Err(anyhow::anyhow!("two")),
        ]);
        assert_eq!(error.unwrap_err().to_string(), "one\nerror: two");
    }

    #[test]
    fn a_test_without_elements_takes_none_of_the_next_one() {
        let cases: Vec<_> = test_cases(REPORT).map(|case| case.has_failed()).collect();
        assert_eq!(cases, [false, true]);
    }
}

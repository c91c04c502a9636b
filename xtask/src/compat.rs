//! `cargo xtask compat`: which client revision reaches what of which server revision, from the results of the pairing
//! matrix. Nobody writes a cell by hand: the tables in README.md and docs/compatibility.md are what the tests found.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use anyhow::{Context, bail};
use clap::Args;

use crate::{run::root, test};

/// The revisions of the protocol, oldest first.
const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
const TRANSPORTS: [(&str, &str); 2] = [("http", "HTTP"), ("stdio", "stdio")];

/// What the files of scenarios are called in the tables. One that is not here goes by its own name.
const FEATURES: [(&str, &str); 10] = [
    ("greeting", "greetings, discovery, pings"),
    ("lists", "lists, with pages and changes"),
    ("calls", "tool calls, their results and errors"),
    ("library", "prompts, resources, templates, completion"),
    ("updates", "subscriptions to resources"),
    ("asks_and_sampling_with_tools", "sampling (with tools), elicitation, roots"),
    ("tasks", "tasks, where both revisions have them"),
    ("notes", "progress and logs"),
    ("endings", "cancellation, deadlines, lost connections"),
    ("resuming", "resumption"),
];

const DOCUMENT: &str = "docs/compatibility.md";
const README: &str = "README.md";
const BEGIN: &str = "<!-- begin: cargo xtask compat -->\n";
const END: &str = "<!-- end: cargo xtask compat -->\n";

/// What to do.
#[derive(Args)]
pub(crate) struct Options {
    /// Take the results of the last run of the tests instead of running the matrix
    #[arg(long)]
    last: bool,
}

/// Runs the matrix and writes the tables.
///
/// # Errors
/// When a scenario of the matrix fails; the tables then say so all the same.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let outcome = if options.last { Ok(()) } else { test::run(&test::Options::only("matrix::")) };
    let results = Results::read()?;
    fs::write(root()?.join(DOCUMENT), results.document())?;
    let readme = root()?.join(README);
    fs::write(&readme, spliced(&fs::read_to_string(&readme)?, &results.summary())?)?;
    outcome
}

/// Fails where the tables are not what the last run of the tests found.
///
/// # Errors
/// The tables differ, or there are no results.
pub(crate) fn check() -> anyhow::Result<()> {
    let results = Results::read()?;
    let readme = fs::read_to_string(root()?.join(README))?;
    let document = fs::read_to_string(root()?.join(DOCUMENT)).unwrap_or_default();
    if document != results.document() || readme != spliced(&readme, &results.summary())? {
        bail!("the compatibility tables are not what the tests found: run `cargo xtask compat --last` and commit");
    }
    Ok(())
}

/// `readme` with another text between the marks.
fn spliced(readme: &str, text: &str) -> anyhow::Result<String> {
    let (before, rest) = readme.split_once(BEGIN).with_context(|| format!("{README} has no `{}`", BEGIN.trim()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{README} has no `{}`", END.trim()))?;
    Ok(format!("{before}{BEGIN}{text}{END}{after}"))
}

/// One scenario file in one pairing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    feature: String,
    client: String,
    server: String,
    transport: String,
}

/// What the matrix found: whether each cell that was run holds.
#[derive(Debug, PartialEq, Eq)]
struct Results(BTreeMap<Cell, bool>);

impl Results {
    fn read() -> anyhow::Result<Self> {
        // Its own folder stands below the tree, wherever build output goes.
        let file = root()?.join("target/nextest/default/junit.xml");
        let text = fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}: the tables need a run of cargo-nextest", file.display()))?;
        Self::parse(&text)
    }

    /// Reads the test runner's report: it writes one `testcase` a test, with a `failure` or `error` in it where it failed.
    fn parse(report: &str) -> anyhow::Result<Self> {
        let cases = report.split("<testcase ").skip(1).filter_map(|case| {
            let name = case.split_once("name=\"")?.1.split_once('"')?.0;
            let own = case.split_once("</testcase>").map_or(case, |(own, _)| own);
            Some((cell(name)?, !own.contains("<failure") && !own.contains("<error")))
        });
        let found: BTreeMap<_, _> = cases.collect();
        if found.is_empty() { bail!("the last run of the tests had no pairing in it") } else { Ok(Self(found)) }
    }

    fn features(&self) -> Vec<&str> {
        let found: BTreeSet<&str> = self.0.keys().map(|cell| cell.feature.as_str()).collect();
        let known = FEATURES.iter().map(|(name, _)| *name).filter(|name| found.contains(name));
        let other = found.iter().copied().filter(|name| FEATURES.iter().all(|(known, _)| known != name));
        known.chain(other).collect()
    }

    fn get(&self, feature: &str, client: &str, server: &str, transport: &str) -> Option<bool> {
        let [feature, client, server, transport] = [feature, client, server, transport].map(str::to_owned);
        self.0.get(&Cell { feature, client, server, transport }).copied()
    }

    /// All features of one pairing in a few words.
    fn pairing(&self, client: &str, server: &str, transport: &str) -> String {
        let features = self.features();
        let found: Vec<_> = features.iter().map(|name| self.get(name, client, server, transport)).collect();
        let hold = found.iter().filter(|cell| **cell == Some(true)).count();
        if found.iter().all(Option::is_none) {
            "not run".to_owned()
        } else if hold == features.len() {
            "all".to_owned()
        } else {
            format!("{hold} of {}", features.len())
        }
    }

    /// README's table: every pairing over HTTP.
    fn summary(&self) -> String {
        let names: Vec<_> = self.features().into_iter().map(title).collect();
        let mut text = format!(
            "All of: {}. Each cell is a run of the tests with a real weir between; `docs/compatibility.md` has every feature and stdio.\n\n",
            names.join("; ")
        );
        text += &grid("client \\ server", |client, server| self.pairing(client, server, "http"));
        text
    }

    fn document(&self) -> String {
        let mut text = "# Compatibility\n\n\
            Which clients reach what of which servers through weir, by protocol revision. `cargo xtask compat` writes this from the results\n\
            of the pairing matrix (`tests/it/matrix`); no cell is written by hand. *yes*: its scenarios pass, with every message of weir held\n\
            against its revision. *NO*: one fails. *not run*: no test says anything. A scenario is also right where the pairing lacks the\n\
            feature and weir says so in the words of the client's revision.\n"
            .to_owned();
        for (transport, shown) in TRANSPORTS {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n## Servers over {shown}\n");
            for feature in self.features() {
                let _ = write!(text, "\n### {}\n\n", capital(title(feature)));
                text += &grid("client \\ server", |client, server| {
                    match self.get(feature, client, server, transport) {
                        Some(true) => "yes",
                        Some(false) => "NO",
                        None => "not run",
                    }
                    .to_owned()
                });
            }
        }
        text
    }
}

/// Clients down, servers across.
fn grid(corner: &str, cell: impl Fn(&str, &str) -> String) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head = std::iter::once(corner.to_owned()).chain(REVISIONS.map(str::to_owned)).collect();
    let rule = vec!["---".to_owned(); REVISIONS.len() + 1];
    let rows = REVISIONS.map(|client| {
        let cells = REVISIONS.map(|server| cell(client, server));
        line(std::iter::once(client.to_owned()).chain(cells).collect())
    });
    line(head) + &line(rule) + &rows.concat()
}

fn title(feature: &str) -> &str {
    FEATURES.iter().find(|(name, _)| *name == feature).map_or(feature, |(_, title)| title)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The cell of `matrix::upstream_2024_11_05_http::client_2025_06_18::r119_r148_lists`.
fn cell(test: &str) -> Option<Cell> {
    let mut parts = test.strip_prefix("matrix::upstream_")?.split("::");
    let (server, transport) = parts.next()?.rsplit_once('_')?;
    let client = parts.next()?.strip_prefix("client_")?;
    let scenario = parts.next()?;
    let is_id = |word: &&str| {
        let (letter, digits) = word.split_at(word.len().min(1));
        letter.chars().all(|c| c.is_ascii_lowercase())
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_ascii_digit())
    };
    let words: Vec<&str> = scenario.split('_').skip_while(is_id).collect();
    let revision = |text: &str| text.replace('_', "-");
    Some(Cell {
        feature: words.join("_"),
        client: revision(client),
        server: revision(server),
        transport: transport.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const REPORT: &str = r#"<testsuites><testsuite name="weir-tests::it">
        <testcase name="matrix::upstream_2024_11_05_http::client_2026_07_28::r119_r148_lists" classname="weir-tests::it" time="1">
        </testcase>
        <testcase name="matrix::upstream_2024_11_05_http::client_2026_07_28::r207_notes" classname="weir-tests::it" time="1">
            <failure type="test failure">no</failure>
        </testcase>
        <testcase name="pain::other" classname="weir-tests::it" time="1"/>
        <testcase name="matrix::upstream_2025_11_25_stdio::client_2025_03_26::r119_lists" classname="weir-tests::it" time="1"/>
        </testsuite></testsuites>"#;

    #[test]
    fn a_report_is_read_by_pairing_and_feature() {
        let results = Results::parse(REPORT).unwrap();
        assert_eq!(results.features(), ["lists", "notes"]);
        assert_eq!(results.get("lists", "2026-07-28", "2024-11-05", "http"), Some(true));
        assert_eq!(results.get("notes", "2026-07-28", "2024-11-05", "http"), Some(false));
        assert_eq!(results.get("lists", "2025-03-26", "2025-11-25", "stdio"), Some(true));
        assert_eq!(results.get("lists", "2025-03-26", "2025-11-25", "http"), None);
        assert!(Results::parse("<testsuites/>").is_err());
    }

    #[test]
    fn a_cell_says_what_holds_what_fails_and_what_was_not_run() {
        let results = Results::parse(REPORT).unwrap();
        assert_eq!(results.pairing("2026-07-28", "2024-11-05", "http"), "1 of 2");
        assert_eq!(results.pairing("2026-07-28", "2025-11-25", "http"), "not run");
        let document = results.document();
        assert!(document.contains("| 2026-07-28 | NO | not run |"), "{document}");
        assert!(document.contains("| 2026-07-28 | yes | not run |"), "{document}");
    }

    #[test]
    fn the_table_stands_between_its_marks() {
        let readme = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(spliced(&readme, "new\n").unwrap(), format!("a\n{BEGIN}new\n{END}b\n"));
        assert!(spliced("a\n", "new\n").is_err());
    }
}

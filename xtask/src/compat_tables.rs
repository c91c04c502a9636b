//! The features that work between each client revision and each server revision, from the results
//! of the pairing matrix. No cell is written by hand: the tables in
//! README.md and docs/compatibility.md are the results of the tests.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use anyhow::{Context, bail};

use crate::{
    run::root,
    test_report::{ALL_TESTS_PROFILE, report_file, test_cases},
};

/// The revisions of the protocol, oldest first.
const REVISIONS: [&str; 5] = [
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
];

/// The revision of a server, in the order of the columns; or both eras beside each other.
const SERVERS: [&str; 6] = [
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
    "both eras",
];

/// A transport between weir and its servers.
struct MatrixTransport {
    /// Its name in the tests.
    key: &'static str,
    title: &'static str,
    servers: &'static [&'static str],
    about: &'static str,
}

const TRANSPORTS: [MatrixTransport; 3] = [
    MatrixTransport {
        key: "http",
        title: "Streamable HTTP",
        servers: &SERVERS,
        about: "A server of both eras serves both on one URL. weir uses the era of the client.",
    },
    MatrixTransport {
        key: "stdio",
        title: "stdio",
        servers: &SERVERS,
        about: "A server of both eras speaks one era in each of its processes.",
    },
    MatrixTransport {
        key: "sse",
        title: "HTTP+SSE",
        servers: SERVERS.split_at(4).0,
        about: "The transport of 2024-11-05. Servers negotiate later revisions over it, too, but 2026-07-28 does not define it.",
    },
];

/// A row of the tables: the test that reports it, its name there, and its title.
struct MatrixFeature(&'static str, &'static str, &'static str);

const FEATURES: [MatrixFeature; 20] = [
    MatrixFeature("greeting", "greeting", "initialization, discovery"),
    MatrixFeature("greeting", "pings", "pings"),
    MatrixFeature("lists", "lists", "lists, pagination, change notifications"),
    MatrixFeature("calls", "calls", "tool calls, with results and errors"),
    MatrixFeature("calls", "batches", "JSON-RPC batches"),
    MatrixFeature(
        "library",
        "library",
        "prompts, resources, templates, completion",
    ),
    MatrixFeature("updates", "updates", "resource subscriptions"),
    MatrixFeature("asks", "sampling", "sampling"),
    MatrixFeature("asks", "sampling_with_tools", "sampling with tools"),
    MatrixFeature("asks", "elicitation", "elicitation in form mode"),
    MatrixFeature("asks", "elicitation_url", "elicitation in URL mode"),
    MatrixFeature("asks", "roots", "roots"),
    MatrixFeature(
        "asks",
        "asked_beside",
        "server requests during a call, outside the call's stream",
    ),
    MatrixFeature("asks", "asked_outside", "server requests outside of calls"),
    MatrixFeature("tasks", "tasks", "tasks"),
    MatrixFeature(
        "tasks",
        "tasks_alone",
        "tools that require a task, called without one",
    ),
    MatrixFeature("notes", "progress", "progress"),
    MatrixFeature("notes", "logs", "log messages"),
    MatrixFeature(
        "endings",
        "endings",
        "cancellation, deadlines, lost connections",
    ),
    MatrixFeature("resuming", "resuming", "stream resumption"),
];

/// The end of the document: tests beside the pairings of revisions.
const SDKS: &str = "
## The official SDKs on both ends

Clients of the TypeScript SDK (1.x, 2.x), the Python SDK (1.x, 2.x) and the Rust SDK run through weir to servers of the TypeScript SDK, FastMCP
and the Rust SDK that speak both eras. The tests cover prompts, resources, templates, completion, `instructions`, elicitation, sampling, sampling
with tools (`tests/it/third_party/dual_era_servers.rs`), and tasks (`tests/it/third_party/sdk_tasks.rs`). The packages lack these features, so
no test covers them:

- The Python SDK 2.x and FastMCP 4 have no tasks. The Rust SDK has the tasks of the extension, but not those of 2025-11-25.
- The TypeScript SDK 2.x has tasks through npm's `ext-tasks`. That package requests the result of a task of 2025-11-25 only after the end of the
  task, so such a task cannot send requests to its client.
- A Python client 2.x that is pinned to 2026-07-28 sends no `server/discover`, and shows no `instructions`.
";

const DOCUMENT: &str = "docs/compatibility.md";
const README: &str = "README.md";
const BEGIN: &str = "<!-- begin: cargo xtask compat -->\n";
const END: &str = "<!-- end: cargo xtask compat -->\n";

/// Writes the tables of the last run of the tests.
///
/// # Errors
/// There are no results, or a file cannot be written.
pub(crate) fn write() -> anyhow::Result<()> {
    let results = MatrixResults::read()?;
    fs::write(root()?.join(DOCUMENT), results.document())?;
    let readme = root()?.join(README);
    fs::write(
        &readme,
        spliced(&fs::read_to_string(&readme)?, &results.summary())?,
    )?;
    Ok(())
}

/// Fails if the tables differ from the results of the last run of the tests.
///
/// # Errors
/// The tables differ, or there are no results.
pub(crate) fn check() -> anyhow::Result<()> {
    let results = MatrixResults::read()?;
    let readme = fs::read_to_string(root()?.join(README))?;
    let document = fs::read_to_string(root()?.join(DOCUMENT)).unwrap_or_default();
    if document != results.document() || readme != spliced(&readme, &results.summary())? {
        bail!(
            "the compatibility tables differ from the test results: run `cargo xtask compat --last` and commit"
        );
    }
    Ok(())
}

/// `readme` with another text between the marks.
fn spliced(readme: &str, text: &str) -> anyhow::Result<String> {
    let (before, rest) = readme
        .split_once(BEGIN)
        .with_context(|| format!("{README} has no `{}`", BEGIN.trim()))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("{README} has no `{}`", END.trim()))?;
    Ok(format!("{before}{BEGIN}{text}{END}{after}"))
}

/// One pairing over one transport.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RevisionPairing {
    client: String,
    server: String,
    transport: String,
}

/// The state of one feature in one pairing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeatureState {
    Carried,
    Refused,
    NotInRevision,
    /// A test of it fails.
    Fails,
}

impl FeatureState {
    /// Parses the state as the tests write it.
    fn parse(word: &str) -> Option<Self> {
        match word {
            "Carried" => Some(Self::Carried),
            "Refused" => Some(Self::Refused),
            "NotInRevision" => Some(Self::NotInRevision),
            _ => None,
        }
    }

    fn shown(found: Option<Self>) -> &'static str {
        match found {
            Some(Self::Carried) => "yes",
            Some(Self::Refused) => "refused",
            Some(Self::NotInRevision) => "not in this revision",
            Some(Self::Fails) => "NO",
            None => "not run",
        }
    }
}

/// The results of the matrix: each feature in each pairing that was run.
#[derive(Debug, PartialEq, Eq)]
struct MatrixResults(BTreeMap<(RevisionPairing, &'static str), FeatureState>);

impl MatrixResults {
    fn read() -> anyhow::Result<Self> {
        let file = report_file(ALL_TESTS_PROFILE)?;
        let text = fs::read_to_string(&file).with_context(|| {
            format!(
                "cannot read {}: the tables need a run of `cargo xtask test` with cargo-nextest",
                file.display()
            )
        })?;
        Self::parse(&text)
    }

    /// Reads the test runner's report. A test that passed has its output there.
    fn parse(report: &str) -> anyhow::Result<Self> {
        let mut found = BTreeMap::new();
        for case in test_cases(report) {
            let name = case.name;
            let Some((test, pairing)) = pairing(name) else {
                continue;
            };
            let fails = case.has_failed();
            let told = if fails {
                BTreeMap::new()
            } else {
                printed_features(case.elements, &test)?
            };
            for MatrixFeature(_, feature, _) in
                FEATURES.iter().filter(|MatrixFeature(of, ..)| *of == test)
            {
                let state = match told.get(feature) {
                    _ if fails => FeatureState::Fails,
                    Some(state) => *state,
                    None => bail!("{name} passed without a report on `{feature}`"),
                };
                found.insert((pairing.clone(), *feature), state);
            }
        }
        if found.is_empty() {
            bail!("the last test run has no results of pairings")
        } else {
            Ok(Self(found))
        }
    }

    fn get(
        &self,
        feature: &'static str,
        client: &str,
        server: &str,
        transport: &str,
    ) -> Option<FeatureState> {
        let [client, server, transport] = [client, server, transport].map(str::to_owned);
        self.0
            .get(&(
                RevisionPairing {
                    client,
                    server,
                    transport,
                },
                feature,
            ))
            .copied()
    }

    /// Renders the count of working features out of those that both sides of a pairing have.
    fn pairing(&self, client: &str, server: &str, transport: &str) -> String {
        let found = FEATURES
            .iter()
            .map(|MatrixFeature(_, feature, _)| self.get(feature, client, server, transport));
        let found: Vec<_> = found.flatten().collect();
        if found.is_empty() {
            return "not run".to_owned();
        }
        let count = |wanted: FeatureState| found.iter().filter(|state| **state == wanted).count();
        let works = count(FeatureState::Carried);
        format!("{works} of {}", works + count(FeatureState::Fails))
    }

    /// README's table: every pairing over Streamable HTTP.
    fn summary(&self) -> String {
        let titles: Vec<_> = FEATURES
            .iter()
            .map(|MatrixFeature(_, _, title)| *title)
            .collect();
        let mut text = format!(
            "Each cell is the number of working features out of those that both sides have. A feature that one side lacks is refused as \
             the revision defines. The features: {}. Every cell is a test run with a real weir between client and server; \
             `docs/compatibility.md` shows each feature, also over stdio and HTTP+SSE.\n\n",
            titles.join("; ")
        );
        text += &grid(&SERVERS, |client, server| {
            self.pairing(client, server, "http")
        });
        text
    }

    fn document(&self) -> String {
        let mut text = "# Compatibility\n\n\
            The features that work between clients and servers through weir, by protocol revision. `cargo xtask compat` writes this page from the\n\
            results of the pairing matrix (`tests/it/matrix`); no cell is written by hand. Every message of weir is checked against its revision.\n\n\
            - *yes*: the feature works from one side to the other.\n\
            - *refused*: only one side has the feature; weir refuses it as the revision defines, and a test checks that.\n\
            - *not in this revision*: the client's or the server's revision lacks the feature, so it cannot be tested.\n\
            - *NO*: a test fails. *not run*: no test covers it.\n\n\
            Calls in a JSON-RPC batch (2025-03-26) declare no client capabilities to servers, so no server asks the client in them, and relay no\n\
            progress: the response to a batch is one JSON array.\n"
            .to_owned();
        for transport in &TRANSPORTS {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "\n## Servers over {}\n\n{}\n",
                transport.title, transport.about
            );
            for MatrixFeature(_, feature, title) in &FEATURES {
                let _ = write!(text, "\n### {}\n\n", capital(title));
                text += &grid(transport.servers, |client, server| {
                    FeatureState::shown(self.get(feature, client, server, transport.key)).to_owned()
                });
            }
        }
        text + SDKS
    }
}

/// Renders a table with clients down and servers across.
fn grid(servers: &[&str], cell: impl Fn(&str, &str) -> String) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head = std::iter::once("client \\ server")
        .chain(servers.iter().copied())
        .map(str::to_owned)
        .collect();
    let rule = vec!["---".to_owned(); servers.len() + 1];
    let rows = REVISIONS.map(|client| {
        let cells = servers.iter().map(|server| cell(client, server));
        line(std::iter::once(client.to_owned()).chain(cells).collect())
    });
    line(head) + &line(rule) + &rows.concat()
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Parses the test and the pairing of a name such as
/// `matrix::upstream_2024_11_05_http::client_2025_06_18::lists`.
fn pairing(test: &str) -> Option<(String, RevisionPairing)> {
    let mut parts = test.strip_prefix("matrix::upstream_")?.split("::");
    let (server, transport) = parts.next()?.rsplit_once('_')?;
    let client = parts.next()?.strip_prefix("client_")?;
    let scenario = parts.next()?;
    let revision = |text: &str| text.replace('_', "-");
    let server = if server == "both_eras" {
        "both eras".to_owned()
    } else {
        revision(server)
    };
    Some((
        scenario.to_owned(),
        RevisionPairing {
            client: revision(client),
            server,
            transport: transport.to_owned(),
        },
    ))
}

/// Parses the features in a test's output: `compat FEATURE STATE`, at any position of a line.
fn printed_features<'a>(
    output: &'a str,
    test: &str,
) -> anyhow::Result<BTreeMap<&'a str, FeatureState>> {
    let lines = output.split("compat ").skip(1).map(|rest| {
        let mut words = rest.split_whitespace();
        let (feature, state) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let is_known = FEATURES
            .iter()
            .any(|MatrixFeature(of, name, _)| (*of, *name) == (test, feature));
        let state = FeatureState::parse(state).filter(|_| is_known);
        Ok((
            feature,
            state.with_context(|| {
                format!("`{test}` reports an unknown feature or state: `{feature}`")
            })?,
        ))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const REPORT: &str = r#"<testsuites><testsuite name="weir-tests::it">
        <testcase name="matrix::upstream_2024_11_05_http::client_2026_07_28::lists" classname="weir-tests::it" time="1">
            <system-out>running 1 test
test matrix::upstream_2024_11_05_http ... compat lists Carried
            </system-out>
        </testcase>
        <testcase name="matrix::upstream_2024_11_05_http::client_2026_07_28::notes" classname="weir-tests::it" time="1">
            <failure type="test failure">no</failure>
        </testcase>
        <testcase name="pain::other" classname="weir-tests::it" time="1"/>
        <testcase name="matrix::upstream_both_eras_stdio::client_2025_03_26::greeting" classname="weir-tests::it" time="1">
            <system-out>
compat greeting Refused
compat pings NotInRevision
            </system-out>
        </testcase>
        </testsuite></testsuites>"#;

    #[test]
    fn a_report_is_read_by_pairing_and_feature() {
        let results = MatrixResults::parse(REPORT).unwrap();
        assert_eq!(
            results.get("lists", "2026-07-28", "2024-11-05", "http"),
            Some(FeatureState::Carried)
        );
        assert_eq!(
            results.get("logs", "2026-07-28", "2024-11-05", "http"),
            Some(FeatureState::Fails)
        );
        assert_eq!(
            results.get("greeting", "2025-03-26", "both eras", "stdio"),
            Some(FeatureState::Refused)
        );
        assert_eq!(
            results.get("pings", "2025-03-26", "both eras", "stdio"),
            Some(FeatureState::NotInRevision)
        );
        assert_eq!(
            results.get("lists", "2025-03-26", "2025-11-25", "http"),
            None
        );
        assert!(MatrixResults::parse("<testsuites/>").is_err());
    }

    #[test]
    fn missing_or_unknown_feature_reports_are_errors() {
        let (own, of_another) = ("compat lists Carried", "compat roots Carried");
        for (said, wrong) in [
            (own, "passed without a report on `lists`"),
            (
                "compat lists Perhaps",
                "reports an unknown feature or state",
            ),
            (of_another, "reports an unknown feature or state"),
        ] {
            let said = if said == own {
                REPORT.replace(own, "")
            } else {
                REPORT.replace(own, said)
            };
            let error = MatrixResults::parse(&said).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn cells_show_carried_failed_and_not_run() {
        let results = MatrixResults::parse(REPORT).unwrap();
        assert_eq!(
            results.pairing("2026-07-28", "2024-11-05", "http"),
            "1 of 3"
        );
        assert_eq!(
            results.pairing("2025-03-26", "both eras", "stdio"),
            "0 of 0"
        );
        assert_eq!(
            results.pairing("2026-07-28", "2025-11-25", "http"),
            "not run"
        );
        let document = results.document();
        for row in [
            "| 2026-07-28 | NO | not run |",
            "| 2026-07-28 | yes | not run |",
            "| not run | refused |",
            "| not run | not in this revision |",
        ] {
            assert!(document.contains(row), "{row}: {document}");
        }
    }

    #[test]
    fn compat_table_is_spliced_between_its_markers() {
        let readme = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(
            spliced(&readme, "new\n").unwrap(),
            format!("a\n{BEGIN}new\n{END}b\n")
        );
        assert!(spliced("a\n", "new\n").is_err());
    }
}

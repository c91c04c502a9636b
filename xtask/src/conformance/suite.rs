//! The runner of the suite, and the reader of the results it writes. In its server scenarios the
//! suite is the client, in its client scenarios (`client`) the server.

mod client;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use serde::Deserialize;

use crate::{
    conformance::{servers::BoundedChild, suite_leg::SuiteLeg},
    peers::ForeignPeers,
};

/// The most time for one requirement set; normally it takes seconds.
const SUITE_TIMEOUT: Duration = Duration::from_secs(300);

/// The suite, ready to run.
pub(super) struct ConformanceSuite<'a> {
    peers: &'a ForeignPeers,
    package: PathBuf,
    output: &'a Path,
}

/// The scenarios of one requirement set and one side, in the suite's order.
#[derive(Debug)]
pub(super) struct RequirementSet {
    /// The name of the set: the revision, and the server's era if that is another.
    pub(super) revision: &'static str,
    pub(super) scored: Vec<String>,
    pub(super) not_scored: Vec<String>,
}

/// The checks of each scenario in one run. A scenario that broke off has no checks.
pub(super) struct SuiteRun(BTreeMap<String, Vec<ScenarioCheck>>);

/// One check of a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScenarioCheck {
    pub(super) id: String,
    pub(super) status: CheckStatus,
    #[serde(default)]
    pub(super) error_message: Option<String>,
}

/// The outcome of a check, in the suite's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum CheckStatus {
    Success,
    Failure,
    Warning,
    Skipped,
    Info,
}

impl SuiteRun {
    /// The checks by scenario.
    pub(super) fn view(&self) -> &BTreeMap<String, Vec<ScenarioCheck>> {
        &self.0
    }
}

impl<'a> ConformanceSuite<'a> {
    /// The installed suite; logs and results go below `output`.
    pub(super) fn new(peers: &'a ForeignPeers, output: &'a Path) -> Self {
        let package = peers
            .dir
            .join("node/node_modules/@modelcontextprotocol/conformance");
        Self {
            peers,
            package,
            output,
        }
    }

    /// Reads the frozen list of a revision's server scenarios from the suite.
    pub(super) fn requirements(&self, leg: SuiteLeg) -> anyhow::Result<RequirementSet> {
        let raw = self.raw_requirements(leg.revision)?;
        Ok(RequirementSet {
            revision: leg.name,
            scored: raw.server,
            not_scored: unscored(raw.not_scored, "server"),
        })
    }

    /// Reads the client scenarios, except for those about authorization: weir's credentials come
    /// from its config, and there is no user to log in.
    pub(super) fn client_requirements(&self, leg: SuiteLeg) -> anyhow::Result<RequirementSet> {
        let raw = self.raw_requirements(leg.revision)?;
        let plain = |scenarios: Vec<String>| {
            scenarios
                .into_iter()
                .filter(|name| !name.starts_with("auth/"))
                .collect()
        };
        let not_scored = plain(unscored(raw.not_scored, "client"));
        Ok(RequirementSet {
            revision: leg.name,
            scored: plain(raw.client),
            not_scored,
        })
    }

    fn raw_requirements(&self, revision: &str) -> anyhow::Result<RawRequirements> {
        let file = self.package.join(format!("requirements/{revision}.yaml"));
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("cannot parse {}", file.display()))
    }

    /// Runs a revision's set against `url`. `leg` names the run's log and its folder of results.
    /// With an `issuer` every request carries a token of it, because the suite itself cannot send
    /// any.
    ///
    /// # Errors
    /// The suite cannot start or leaves unreadable results.
    pub(super) fn run(
        &self,
        url: &str,
        revision: &str,
        leg: &str,
        issuer: Option<&str>,
    ) -> anyhow::Result<SuiteRun> {
        let name = format!("{revision}-{leg}");
        let results = self.output.join(&name);
        let log = self.output.join(format!("{name}.log"));
        eprintln!("conformance: {revision}, {leg}, {url}");
        let written =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(&self.peers.node);
        if let Some(issuer) = issuer {
            command
                .arg("--import")
                .arg(self.peers.dir.join("node/bearer.mjs"));
            command
                .env("BEARER_ISSUER", issuer)
                .env("BEARER_RESOURCE", url);
        }
        let child = command
            .arg(self.package.join("dist/index.js"))
            .args([
                "server",
                "--url",
                url,
                "--requirements",
                revision,
                "--output-dir",
            ])
            .arg(&results)
            .stdin(Stdio::null())
            .stdout(written.try_clone()?)
            .stderr(written)
            .spawn()
            .context("cannot start the conformance suite")?;
        if BoundedChild::new(child).wait(SUITE_TIMEOUT)?.is_none() {
            // The remaining scenarios count as not run.
            eprintln!(
                "the conformance suite was not done after {SUITE_TIMEOUT:?}, see {}",
                log.display()
            );
        }
        let run = read(&results, "server-");
        Ok(SuiteRun(run.with_context(|| {
            format!("the suite left no results, see {}", log.display())
        })?))
    }
}

/// The scenarios of one side that are run without being scored.
fn unscored(entries: Vec<NotScored>, leg: &str) -> Vec<String> {
    entries
        .into_iter()
        .filter(|entry| entry.leg == leg)
        .map(|entry| entry.scenario)
        .collect()
}

#[derive(Deserialize)]
struct RawRequirements {
    server: Vec<String>,
    client: Vec<String>,
    #[serde(default)]
    not_scored: Vec<NotScored>,
}

#[derive(Deserialize)]
struct NotScored {
    scenario: String,
    leg: String,
}

/// Reads `<prefix><scenario>-<time>/checks.json` of every scenario.
fn read(results: &Path, prefix: &str) -> anyhow::Result<BTreeMap<String, Vec<ScenarioCheck>>> {
    let mut scenarios = BTreeMap::new();
    for entry in fs::read_dir(results)? {
        let folder = entry?.path();
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Some(scenario) = scenario_of(&name, prefix) else {
            continue;
        };
        let checks = match fs::read(folder.join("checks.json")) {
            Ok(json) => serde_json::from_slice(&json)
                .with_context(|| format!("{name}: unreadable checks"))?,
            // The scenario threw before it could write any.
            Err(_) => Vec::new(),
        };
        scenarios.insert(scenario.to_owned(), checks);
    }
    Ok(scenarios)
}

/// Returns the scenario in a folder name such as `server-tools-list-2026-11-21T03-56-23-272Z`.
fn scenario_of<'a>(folder: &'a str, prefix: &str) -> Option<&'a str> {
    const TIME: usize = "-2026-11-21T03-56-23-272Z".len();
    let rest = folder.strip_prefix(prefix)?;
    rest.get(..rest.len().checked_sub(TIME)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_is_what_stands_between_prefix_and_time() {
        assert_eq!(
            scenario_of("server-tools-list-2026-11-21T03-56-23-272Z", "server-"),
            Some("tools-list")
        );
        assert_eq!(
            scenario_of(
                "server-server-stateless-2026-11-21T03-56-23-272Z",
                "server-"
            ),
            Some("server-stateless")
        );
        assert_eq!(scenario_of("something-else", "server-"), None);
        assert_eq!(scenario_of("server-x", "server-"), None);
        assert_eq!(
            scenario_of("initialize-2026-11-21T03-56-23-272Z", ""),
            Some("initialize")
        );
    }

    #[test]
    fn checks_of_the_suite_are_read() {
        let json = r#"[{"id":"ping","name":"Ping","status":"FAILURE","errorMessage":"no","timestamp":"t"}]"#;
        let checks: Vec<ScenarioCheck> = serde_json::from_str(json).expect("the suite's form");
        assert_eq!(checks[0].status, CheckStatus::Failure);
        assert_eq!(checks[0].error_message.as_deref(), Some("no"));
    }
}

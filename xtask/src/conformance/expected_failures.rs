//! The expected failures through weir, each with the later work that will cover it.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, bail};
use serde::Deserialize;

/// The expected failures by revision, and by the server's era if that is another. Each is a
/// scenario, or `scenario/check-id` for one check of it, with the work it waits for.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct ExpectedFailures(BTreeMap<String, BTreeMap<String, LaterWork>>);

/// The work that a failure waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum LaterWork {
    #[serde(rename = "auth and limits")]
    AuthAndLimits,
    #[serde(rename = "whole protocol bridge")]
    WholeProtocolBridge,
    #[serde(rename = "operations")]
    Operations,
    /// No work: the one era asks for a feature that the other lacks. The line's comment has the
    /// reason.
    #[serde(rename = "impossible")]
    Impossible,
}

impl LaterWork {
    /// The name in the file.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AuthAndLimits => "auth and limits",
            Self::WholeProtocolBridge => "whole protocol bridge",
            Self::Operations => "operations",
            Self::Impossible => "nothing: it is impossible",
        }
    }
}

impl ExpectedFailures {
    /// Reads the file; an unknown name of later work is an error.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("cannot parse {}", file.display()))
    }

    /// Refuses revisions that are not run, because their lines would never be checked.
    pub(super) fn name_only(&self, revisions: &[&str]) -> anyhow::Result<()> {
        match self
            .0
            .keys()
            .find(|revision| !revisions.contains(&revision.as_str()))
        {
            Some(other) => bail!("expected failures name revision {other}, which is not run"),
            None => Ok(()),
        }
    }

    /// The lines of one revision.
    pub(super) fn of(&self, revision: &str) -> ExpectedLines {
        ExpectedLines(self.0.get(revision).cloned().unwrap_or_default())
    }
}

/// The lines of one revision.
#[derive(Debug, Default)]
pub(super) struct ExpectedLines(BTreeMap<String, LaterWork>);

impl ExpectedLines {
    /// The work a whole scenario waits for.
    pub(super) fn scenario(&self, scenario: &str) -> Option<LaterWork> {
        self.0.get(scenario).copied()
    }

    /// Returns every line: the scenario, and the check if the line names one.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.keys().map(|line| match line.split_once('/') {
            Some((scenario, check)) => (scenario, Some(check)),
            None => (line.as_str(), None),
        })
    }

    #[cfg(test)]
    pub(super) fn from_yaml(text: &str) -> Self {
        Self(serde_saphyr::from_str(text).expect("lines as the file has them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_failure_must_name_known_later_work() {
        let known: Result<ExpectedFailures, _> =
            serde_saphyr::from_str("\"2025-11-25\":\n  ping: operations\n");
        assert_eq!(
            known.expect("known work").of("2025-11-25").scenario("ping"),
            Some(LaterWork::Operations)
        );
        let unknown: Result<ExpectedFailures, _> =
            serde_saphyr::from_str("\"2025-11-25\":\n  ping: some day\n");
        assert!(
            unknown.is_err(),
            "a failure that waits for nothing is no expected failure"
        );
    }

    #[test]
    fn a_revision_that_is_not_run_is_refused() {
        let expected: ExpectedFailures =
            serde_saphyr::from_str("\"2024-11-05\":\n  ping: operations\n").expect("well formed");
        assert!(expected.name_only(&["2025-11-25"]).is_err());
        assert!(expected.name_only(&["2024-11-05"]).is_ok());
    }
}

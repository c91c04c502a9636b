//! The judgement of runs: the scenarios that passed, those that lost a check on the path through
//! weir, and the outdated lines in the file of expected failures. Pure: the runs are arguments.

use std::{collections::BTreeMap, fmt};

use crate::conformance::{
    expected_failures::{ExpectedLines, LaterWork},
    suite::{CheckStatus, RequirementSet, ScenarioCheck, SuiteRun},
};

/// The check that the suite adds to every scenario; alone it does not test the scenario's subject.
const ADDED_TO_ALL: &str = "wire-schema-valid";

type ScenarioChecks = BTreeMap<String, Vec<ScenarioCheck>>;

/// The judgement of one requirement set.
pub(super) struct SetJudgement {
    pub(super) revision: &'static str,
    pub(super) rows: Vec<ScenarioRow>,
    pub(super) with_direct: bool,
    pub(super) with_weir: bool,
    stale: Vec<ConformanceProblem>,
}

/// The demands of a run on its server and on weir.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunDemand {
    /// Every scored scenario of both: the fixture is written to pass them.
    Scored,
    /// Of weir every scenario that the server passes; a direct failure is the server's own.
    AsDirectly,
}

/// One scenario in all its runs.
pub(super) struct ScenarioRow {
    pub(super) scenario: String,
    pub(super) scored: bool,
    /// Absent without a direct run: the scenario is about weir itself.
    pub(super) direct: Option<ScenarioOutcome>,
    pub(super) weir: Option<ScenarioOutcome>,
    pub(super) waits_for: Option<LaterWork>,
    /// True if it must pass through weir.
    pub(super) required: bool,
    /// True if it must pass directly.
    required_directly: bool,
}

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScenarioOutcome {
    /// All checks hold; `checks` counts the successes.
    Passed { checks: usize },
    /// A check does not hold; `why` is the first one.
    Failed { passed: usize, why: String },
    /// No check of its own was made.
    Skipped,
    /// It wrote no results or was not started.
    DidNotRun,
}

/// A problem that makes the command fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConformanceProblem {
    /// A required scenario does not pass against the fixture itself.
    Fixture {
        revision: &'static str,
        scenario: String,
        why: String,
    },
    /// A scenario that passes directly does not pass through weir, and is not expected to fail.
    Weir {
        revision: &'static str,
        scenario: String,
        why: String,
    },
    /// An expected failure passes.
    Passes {
        revision: &'static str,
        line: String,
    },
    /// An expected failure was not run.
    NotRun {
        revision: &'static str,
        line: String,
    },
}

/// Judges the run through weir, if there was one, by the direct run and the expected failures.
pub(super) fn judge(
    requirements: RequirementSet,
    direct: &SuiteRun,
    weir: Option<&ScenarioChecks>,
    lines: &ExpectedLines,
) -> SetJudgement {
    judge_checks(
        requirements,
        Some(direct.view()),
        weir,
        lines,
        RunDemand::Scored,
    )
}

/// Judges the run through weir by the direct run alone: the server is foreign, and its failures are
/// shown.
pub(super) fn judge_by_direct(
    requirements: RequirementSet,
    direct: &SuiteRun,
    weir: &SuiteRun,
) -> SetJudgement {
    judge_checks(
        requirements,
        Some(direct.view()),
        Some(weir.view()),
        &ExpectedLines::default(),
        RunDemand::AsDirectly,
    )
}

/// Judges a run of the suite against weir itself: all of it is required.
pub(super) fn judge_alone(
    requirements: RequirementSet,
    weir: &SuiteRun,
    lines: &ExpectedLines,
) -> SetJudgement {
    judge_checks(
        requirements,
        None,
        Some(weir.view()),
        lines,
        RunDemand::Scored,
    )
}

fn judge_checks(
    requirements: RequirementSet,
    direct: Option<&ScenarioChecks>,
    weir: Option<&ScenarioChecks>,
    lines: &ExpectedLines,
    demand: RunDemand,
) -> SetJudgement {
    let revision = requirements.revision;
    let scored = requirements
        .scored
        .into_iter()
        .map(|scenario| (scenario, true));
    let not_scored = requirements
        .not_scored
        .into_iter()
        .map(|scenario| (scenario, false));
    let rows: Vec<ScenarioRow> = scored
        .chain(not_scored)
        .map(|(scenario, scored)| {
            let found = direct.map(|direct| outcome(direct.get(&scenario), &[]));
            let required_directly = scored && demand == RunDemand::Scored;
            ScenarioRow {
                required: required_directly
                    || found.as_ref().is_none_or(|found| found.problem().is_none()),
                required_directly,
                direct: found,
                weir: weir.map(|weir| through(&scenario, direct, weir, lines)),
                waits_for: lines.scenario(&scenario),
                scored,
                scenario,
            }
        })
        .collect();
    let stale = weir.map_or_else(Vec::new, |weir| {
        outdated_lines(revision, &rows, weir, lines)
    });
    SetJudgement {
        revision,
        rows,
        with_direct: direct.is_some(),
        with_weir: weir.is_some(),
        stale,
    }
}

/// Returns the outcome through weir. Beside the suite's own result, a check that succeeded directly
/// must not vanish or be skipped, unless a line excuses it.
fn through(
    scenario: &str,
    direct: Option<&ScenarioChecks>,
    weir: &ScenarioChecks,
    lines: &ExpectedLines,
) -> ScenarioOutcome {
    let excused: Vec<&str> = lines
        .all()
        .filter(|(of, _)| *of == scenario)
        .filter_map(|(_, check)| check)
        .collect();
    let found = outcome(weir.get(scenario), &excused);
    let before = direct.and_then(|direct| direct.get(scenario));
    let (ScenarioOutcome::Passed { checks }, Some(before)) = (&found, before) else {
        return found;
    };
    let after = weir.get(scenario).map_or(&[][..], Vec::as_slice);
    let lost = before
        .iter()
        .filter(|check| {
            check.status == CheckStatus::Success && !excused.contains(&check.id.as_str())
        })
        .find(|check| successes(after, &check.id) < successes(before, &check.id));
    match lost {
        Some(check) => ScenarioOutcome::Failed {
            passed: *checks,
            why: format!("{} was not checked any more", check.id),
        },
        None => found,
    }
}

/// Counts the successes of a check. "Info" is the suite's mark for the other of two allowed forms,
/// such as JSON from a fixture that answered by an event stream.
fn successes(checks: &[ScenarioCheck], id: &str) -> usize {
    checks
        .iter()
        .filter(|check| {
            check.id == id && matches!(check.status, CheckStatus::Success | CheckStatus::Info)
        })
        .count()
}

/// Returns the outcome of one scenario by itself. A warning counts as a failure: the fixture gets
/// none.
fn outcome(checks: Option<&Vec<ScenarioCheck>>, excused: &[&str]) -> ScenarioOutcome {
    let Some(checks) = checks.filter(|checks| !checks.is_empty()) else {
        return ScenarioOutcome::DidNotRun;
    };
    let passed = checks
        .iter()
        .filter(|check| check.status == CheckStatus::Success)
        .count();
    let bad = checks
        .iter()
        .filter(|check| matches!(check.status, CheckStatus::Failure | CheckStatus::Warning))
        .find(|check| !excused.contains(&check.id.as_str()));
    if let Some(check) = bad {
        let message = check.error_message.as_deref().unwrap_or("no message");
        return ScenarioOutcome::Failed {
            passed,
            why: format!("{}: {message}", check.id),
        };
    }
    if checks
        .iter()
        .any(|check| check.status == CheckStatus::Success && check.id != ADDED_TO_ALL)
    {
        ScenarioOutcome::Passed { checks: passed }
    } else {
        ScenarioOutcome::Skipped
    }
}

/// Returns the lines that are no longer true.
fn outdated_lines(
    revision: &'static str,
    rows: &[ScenarioRow],
    weir: &ScenarioChecks,
    lines: &ExpectedLines,
) -> Vec<ConformanceProblem> {
    let judged = |(scenario, check): (&str, Option<&str>)| {
        let line = check.map_or_else(
            || scenario.to_owned(),
            |check| format!("{scenario}/{check}"),
        );
        let row = rows.iter().find(|row| row.scenario == scenario);
        let Some(outcome) = row
            .and_then(|row| row.weir.as_ref())
            .filter(|found| **found != ScenarioOutcome::DidNotRun)
        else {
            return Some(ConformanceProblem::NotRun { revision, line });
        };
        let passes = match check {
            None => matches!(outcome, ScenarioOutcome::Passed { .. }),
            Some(id) => {
                let checks: Vec<_> = weir
                    .get(scenario)
                    .into_iter()
                    .flatten()
                    .filter(|check| check.id == id)
                    .collect();
                if checks.is_empty() {
                    return Some(ConformanceProblem::NotRun { revision, line });
                }
                checks
                    .iter()
                    .all(|check| check.status == CheckStatus::Success)
            }
        };
        passes.then_some(ConformanceProblem::Passes { revision, line })
    };
    lines.all().filter_map(judged).collect()
}

impl SetJudgement {
    /// Returns all problems that make the command fail.
    pub(super) fn problems(&self) -> Vec<ConformanceProblem> {
        let rows = self
            .rows
            .iter()
            .flat_map(|row| [self.fixture(row), self.weir(row)]);
        rows.flatten().chain(self.stale.iter().cloned()).collect()
    }

    fn fixture(&self, row: &ScenarioRow) -> Option<ConformanceProblem> {
        let why = row
            .direct
            .as_ref()
            .filter(|_| row.required_directly)?
            .problem()?;
        Some(ConformanceProblem::Fixture {
            revision: self.revision,
            scenario: row.scenario.clone(),
            why,
        })
    }

    fn weir(&self, row: &ScenarioRow) -> Option<ConformanceProblem> {
        let why = row
            .weir
            .as_ref()
            .filter(|_| row.required && row.waits_for.is_none())?
            .problem()?;
        Some(ConformanceProblem::Weir {
            revision: self.revision,
            scenario: row.scenario.clone(),
            why,
        })
    }
}

impl ScenarioOutcome {
    /// The reason that this is not a pass.
    fn problem(&self) -> Option<String> {
        match self {
            Self::Passed { .. } => None,
            Self::Failed { why, .. } => Some(why.clone()),
            Self::Skipped => Some("all of its checks were skipped".to_owned()),
            Self::DidNotRun => Some("it did not run to its end".to_owned()),
        }
    }
}

impl fmt::Display for ConformanceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixture {
                revision,
                scenario,
                why,
            } => write!(f, "{revision} {scenario}, directly: {why}"),
            Self::Weir {
                revision,
                scenario,
                why,
            } => write!(f, "{revision} {scenario}, through weir: {why}"),
            Self::Passes { revision, line } => {
                write!(f, "{revision} {line} passes: take its line away")
            }
            Self::NotRun { revision, line } => write!(
                f,
                "{revision} {line} is an expected failure but did not run"
            ),
        }
    }
}

#[cfg(test)]
mod tests;

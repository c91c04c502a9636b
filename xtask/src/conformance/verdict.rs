//! The judgement of runs: the scenarios that passed, those that lost a check on the path through
//! weir, and the outdated lines in the file of expected failures. Pure: the runs are arguments.

use std::{collections::BTreeMap, fmt};

use crate::conformance::{
    expected::{Lines, Work},
    suite::{Check, Requirements, Run, Status},
};

/// The check that the suite adds to every scenario; alone it does not test the scenario's subject.
const ADDED_TO_ALL: &str = "wire-schema-valid";

type Checks = BTreeMap<String, Vec<Check>>;

/// The judgement of one requirement set.
pub(super) struct Judgement {
    pub(super) revision: &'static str,
    pub(super) rows: Vec<Row>,
    pub(super) with_direct: bool,
    pub(super) with_weir: bool,
    stale: Vec<Wrong>,
}

/// The demands of a run on its server and on weir.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// Every scored scenario of both: the fixture is written to pass them.
    Scored,
    /// Of weir every scenario that the server passes; a direct failure is the server's own.
    AsDirectly,
}

/// One scenario in all its runs.
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) scored: bool,
    /// Absent without a direct run: the scenario is about weir itself.
    pub(super) direct: Option<Outcome>,
    pub(super) weir: Option<Outcome>,
    pub(super) waits_for: Option<Work>,
    /// True if it must pass through weir.
    pub(super) required: bool,
    /// True if it must pass directly.
    required_directly: bool,
}

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
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
pub(super) enum Wrong {
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
    requirements: Requirements,
    direct: &Run,
    weir: Option<&Checks>,
    lines: Lines,
) -> Judgement {
    judge_checks(
        requirements,
        Some(direct.view()),
        weir,
        &lines,
        Demand::Scored,
    )
}

/// Judges the run through weir by the direct run alone: the server is foreign, and its failures are
/// shown.
pub(super) fn judge_by_direct(requirements: Requirements, direct: &Run, weir: &Run) -> Judgement {
    judge_checks(
        requirements,
        Some(direct.view()),
        Some(weir.view()),
        &Lines::default(),
        Demand::AsDirectly,
    )
}

/// Judges a run of the suite against weir itself: all of it is required.
pub(super) fn judge_alone(requirements: Requirements, weir: &Run, lines: &Lines) -> Judgement {
    judge_checks(requirements, None, Some(weir.view()), lines, Demand::Scored)
}

fn judge_checks(
    requirements: Requirements,
    direct: Option<&Checks>,
    weir: Option<&Checks>,
    lines: &Lines,
    demand: Demand,
) -> Judgement {
    let revision = requirements.revision;
    let scored = requirements
        .scored
        .into_iter()
        .map(|scenario| (scenario, true));
    let not_scored = requirements
        .not_scored
        .into_iter()
        .map(|scenario| (scenario, false));
    let rows: Vec<Row> = scored
        .chain(not_scored)
        .map(|(scenario, scored)| {
            let found = direct.map(|direct| outcome(direct.get(&scenario), &[]));
            let required_directly = scored && demand == Demand::Scored;
            Row {
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
    let stale = weir.map_or_else(Vec::new, |weir| stale(revision, &rows, weir, lines));
    Judgement {
        revision,
        rows,
        with_direct: direct.is_some(),
        with_weir: weir.is_some(),
        stale,
    }
}

/// Returns the outcome through weir. Beside the suite's own result, a check that succeeded directly
/// must not vanish or be skipped, unless a line excuses it.
fn through(scenario: &str, direct: Option<&Checks>, weir: &Checks, lines: &Lines) -> Outcome {
    let excused: Vec<&str> = lines
        .all()
        .filter(|(of, _)| *of == scenario)
        .filter_map(|(_, check)| check)
        .collect();
    let found = outcome(weir.get(scenario), &excused);
    let before = direct.and_then(|direct| direct.get(scenario));
    let (Outcome::Passed { checks }, Some(before)) = (&found, before) else {
        return found;
    };
    let after = weir.get(scenario).map_or(&[][..], Vec::as_slice);
    let lost = before
        .iter()
        .filter(|check| check.status == Status::Success && !excused.contains(&check.id.as_str()))
        .find(|check| successes(after, &check.id) < successes(before, &check.id));
    match lost {
        Some(check) => Outcome::Failed {
            passed: *checks,
            why: format!("{} was not checked any more", check.id),
        },
        None => found,
    }
}

/// Counts the successes of a check. "Info" is the suite's mark for the other of two allowed forms,
/// such as JSON from a fixture that answered by an event stream.
fn successes(checks: &[Check], id: &str) -> usize {
    checks
        .iter()
        .filter(|check| check.id == id && matches!(check.status, Status::Success | Status::Info))
        .count()
}

/// Returns the outcome of one scenario by itself. A warning counts as a failure: the fixture gets
/// none.
fn outcome(checks: Option<&Vec<Check>>, excused: &[&str]) -> Outcome {
    let Some(checks) = checks.filter(|checks| !checks.is_empty()) else {
        return Outcome::DidNotRun;
    };
    let passed = checks
        .iter()
        .filter(|check| check.status == Status::Success)
        .count();
    let bad = checks
        .iter()
        .filter(|check| matches!(check.status, Status::Failure | Status::Warning))
        .find(|check| !excused.contains(&check.id.as_str()));
    if let Some(check) = bad {
        let message = check.error_message.as_deref().unwrap_or("no message");
        return Outcome::Failed {
            passed,
            why: format!("{}: {message}", check.id),
        };
    }
    if checks
        .iter()
        .any(|check| check.status == Status::Success && check.id != ADDED_TO_ALL)
    {
        Outcome::Passed { checks: passed }
    } else {
        Outcome::Skipped
    }
}

/// Returns the lines that are no longer true.
fn stale(revision: &'static str, rows: &[Row], weir: &Checks, lines: &Lines) -> Vec<Wrong> {
    let judged = |(scenario, check): (&str, Option<&str>)| {
        let line = check.map_or_else(
            || scenario.to_owned(),
            |check| format!("{scenario}/{check}"),
        );
        let row = rows.iter().find(|row| row.scenario == scenario);
        let Some(outcome) = row
            .and_then(|row| row.weir.as_ref())
            .filter(|found| **found != Outcome::DidNotRun)
        else {
            return Some(Wrong::NotRun { revision, line });
        };
        let passes = match check {
            None => matches!(outcome, Outcome::Passed { .. }),
            Some(id) => {
                let checks: Vec<_> = weir
                    .get(scenario)
                    .into_iter()
                    .flatten()
                    .filter(|check| check.id == id)
                    .collect();
                if checks.is_empty() {
                    return Some(Wrong::NotRun { revision, line });
                }
                checks.iter().all(|check| check.status == Status::Success)
            }
        };
        passes.then_some(Wrong::Passes { revision, line })
    };
    lines.all().filter_map(judged).collect()
}

impl Judgement {
    /// Returns all problems that make the command fail.
    pub(super) fn wrong(&self) -> Vec<Wrong> {
        let rows = self
            .rows
            .iter()
            .flat_map(|row| [self.fixture(row), self.weir(row)]);
        rows.flatten().chain(self.stale.iter().cloned()).collect()
    }

    fn fixture(&self, row: &Row) -> Option<Wrong> {
        let why = row
            .direct
            .as_ref()
            .filter(|_| row.required_directly)?
            .problem()?;
        Some(Wrong::Fixture {
            revision: self.revision,
            scenario: row.scenario.clone(),
            why,
        })
    }

    fn weir(&self, row: &Row) -> Option<Wrong> {
        let why = row
            .weir
            .as_ref()
            .filter(|_| row.required && row.waits_for.is_none())?
            .problem()?;
        Some(Wrong::Weir {
            revision: self.revision,
            scenario: row.scenario.clone(),
            why,
        })
    }
}

impl Outcome {
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

impl fmt::Display for Wrong {
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

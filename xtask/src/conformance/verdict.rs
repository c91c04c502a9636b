//! What the checks of runs mean: which scenarios passed, which lost something on the way through
//! weir, and where the file of expected failures is wrong. Pure: the runs are arguments.

use std::{collections::BTreeMap, fmt};

use crate::conformance::{
    expected::{Lines, Work},
    suite::{Check, Requirements, Run, Status},
};

/// The suite adds this check to every scenario; alone it says nothing about what the scenario is
/// for.
const ADDED_TO_ALL: &str = "wire-schema-valid";

type Checks = BTreeMap<String, Vec<Check>>;

/// One requirement set, judged.
pub(super) struct Judgement {
    pub(super) revision: &'static str,
    pub(super) rows: Vec<Row>,
    pub(super) with_direct: bool,
    pub(super) with_weir: bool,
    stale: Vec<Wrong>,
}

/// What a run asks of its server and of weir.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// Every scored scenario of both: the fixture is written to pass them.
    Scored,
    /// Of weir what the server passes; what it fails by itself is its own.
    AsDirectly,
}

/// One scenario in all its runs.
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) scored: bool,
    /// `None` where there is nothing to compare with: the scenario is about weir itself.
    pub(super) direct: Option<Outcome>,
    pub(super) weir: Option<Outcome>,
    pub(super) waits_for: Option<Work>,
    /// Whether it must pass through weir.
    pub(super) required: bool,
    /// Whether it must pass directly.
    required_directly: bool,
}

/// How a scenario ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All that was checked holds; `checks` counts the successes.
    Passed { checks: usize },
    /// Something does not hold; `why` tells the first.
    Failed { passed: usize, why: String },
    /// Nothing of its own was checked.
    Skipped,
    /// It wrote no results or was not started.
    DidNotRun,
}

/// Something that makes the command fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// A required scenario does not pass against the fixture itself.
    Fixture {
        revision: &'static str,
        scenario: String,
        why: String,
    },
    /// A scenario that passes directly does not pass through weir, and nothing says that it may.
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

/// Judges the run through weir, where there was one, by the direct run and the expected failures.
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

/// Judges the run through weir by the direct run alone: the server is somebody else's, and what it
/// fails is shown.
pub(super) fn judge_by_direct(requirements: Requirements, direct: &Run, weir: &Run) -> Judgement {
    judge_checks(
        requirements,
        Some(direct.view()),
        Some(weir.view()),
        &Lines::default(),
        Demand::AsDirectly,
    )
}

/// Judges a run in which weir itself is what the suite tests: all of it is required.
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

/// The outcome through weir: besides what the suite says, a check that succeeded directly must not
/// vanish or be skipped, but for checks that a line excuses.
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

/// How often a check was made without finding anything wrong. "Info" is how the suite notes the
/// other of two allowed forms, such as JSON where the fixture answered by an event stream.
fn successes(checks: &[Check], id: &str) -> usize {
    checks
        .iter()
        .filter(|check| check.id == id && matches!(check.status, Status::Success | Status::Info))
        .count()
}

/// The outcome of one scenario by itself. A warning counts as a failure: the fixture gets none.
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

/// The lines that are no longer true.
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
    /// Everything that makes the command fail.
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
    /// Why this is not a pass.
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

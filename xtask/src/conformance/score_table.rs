//! The tables of counts for people.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::conformance::verdict::{ScenarioOutcome, ScenarioRow, SetJudgement};

/// Renders one requirement set as a table, with the counts below it.
pub(super) fn render(judgement: &SetJudgement) -> String {
    let width = judgement
        .rows
        .iter()
        .map(|row| row.scenario.len())
        .max()
        .unwrap_or(0);
    let mut text = format!(
        "\n{:width$}  {:12}  {}\n",
        judgement.revision, "directly", "through weir"
    );
    for row in &judgement.rows {
        let weir = row
            .weir
            .as_ref()
            .map_or_else(|| "-".to_owned(), |weir| through(row, weir));
        let scored = if row.scored { "" } else { "  (not scored)" };
        let direct = row.direct.as_ref().map_or_else(|| "-".to_owned(), cell);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {direct:12}  {weir}{scored}", row.scenario);
    }
    for (scored, name) in [(true, "required"), (false, "not scored")] {
        let rows: Vec<&ScenarioRow> = judgement
            .rows
            .iter()
            .filter(|row| row.scored == scored)
            .collect();
        let mut counts = Vec::new();
        if judgement.with_direct {
            let directly = rows
                .iter()
                .filter(|row| passed(row.direct.as_ref()))
                .count();
            counts.push(format!("{directly}/{} directly", rows.len()));
        }
        if judgement.with_weir {
            let through = rows.iter().filter(|row| passed(row.weir.as_ref())).count();
            let later = rows.iter().filter(|row| row.waits_for.is_some()).count();
            counts.push(format!(
                "{through}/{} through weir, {later} wait for later work",
                rows.len()
            ));
        }
        let _ = writeln!(text, "{} {name}: {}", judgement.revision, counts.join(", "));
    }
    text
}

/// Renders the scores of servers, one requirement set a line: the passed scenarios of all scored
/// ones.
pub(super) fn scores(judgements: &[SetJudgement]) -> String {
    let width = judgements
        .iter()
        .map(|judgement| judgement.revision.len())
        .max()
        .unwrap_or(0);
    let mut text = format!(
        "\n{:width$}  {:>8}  {:>12}\n",
        "", "directly", "through weir"
    );
    for judgement in judgements {
        let rows: Vec<&ScenarioRow> = judgement.rows.iter().filter(|row| row.scored).collect();
        let score = |outcome: fn(&ScenarioRow) -> &Option<ScenarioOutcome>| {
            let good = rows
                .iter()
                .filter(|row| passed(outcome(row).as_ref()))
                .count();
            format!("{good}/{}", rows.len())
        };
        let (directly, through) = (score(|row| &row.direct), score(|row| &row.weir));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:width$}  {directly:>8}  {through:>12}",
            judgement.revision
        );
    }
    text
}

/// Renders the last line: the scenarios of all runs that passed, the failures, and the skipped
/// ones.
pub(super) fn closing(judgements: &[SetJudgement], wrong: usize) -> String {
    let rows = || judgements.iter().flat_map(|judgement| &judgement.rows);
    // A set that went through weir in two ways was run directly once.
    let directly: BTreeSet<_> = judgements
        .iter()
        .flat_map(|judgement| judgement.rows.iter().map(|row| (judgement.revision, row)))
        .filter(|(_, row)| passed(row.direct.as_ref()))
        .map(|(revision, row)| (revision, &row.scenario))
        .collect();
    let good = directly.len() + rows().filter(|row| passed(row.weir.as_ref())).count();
    let later = rows()
        .filter(|row| row.weir.is_some() && excused(row) && !passed(row.weir.as_ref()))
        .count();
    let not_provided = rows().filter(|row| not_provided(row)).count();
    format!(
        "conformance: {good} passed, {wrong} failed, {} skipped",
        later + not_provided
    )
}

/// Reports if the server itself lacks a feature that is not required.
fn not_provided(row: &ScenarioRow) -> bool {
    !row.required && row.direct.is_some() && !passed(row.direct.as_ref())
}

/// Reports if a failure through weir is accounted for.
fn excused(row: &ScenarioRow) -> bool {
    row.waits_for.is_some() || not_provided(row)
}

fn passed(outcome: Option<&ScenarioOutcome>) -> bool {
    matches!(outcome, Some(ScenarioOutcome::Passed { .. }))
}

fn through(row: &ScenarioRow, weir: &ScenarioOutcome) -> String {
    match row.waits_for {
        Some(work) => format!("{}, waits for: {}", cell(weir), work.name()),
        None => cell(weir),
    }
}

fn cell(outcome: &ScenarioOutcome) -> String {
    match outcome {
        ScenarioOutcome::Passed { checks } => format!("ok {checks}"),
        ScenarioOutcome::Failed { passed, .. } => format!("FAILED, ok {passed}"),
        ScenarioOutcome::Skipped => "SKIPPED".to_owned(),
        ScenarioOutcome::DidNotRun => "DID NOT RUN".to_owned(),
    }
}

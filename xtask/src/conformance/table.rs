//! The counts as a person reads them.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::conformance::verdict::{Judgement, Outcome, Row};

/// One requirement set as a table, with the counts below it.
pub(super) fn render(judgement: &Judgement) -> String {
    let width = judgement.rows.iter().map(|row| row.scenario.len()).max().unwrap_or(0);
    let mut text = format!("\n{:width$}  {:12}  {}\n", judgement.revision, "directly", "through weir");
    for row in &judgement.rows {
        let weir = row.weir.as_ref().map_or_else(|| "-".to_owned(), |weir| through(row, weir));
        let scored = if row.scored { "" } else { "  (not scored)" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {:12}  {weir}{scored}", row.scenario, cell(&row.direct));
    }
    for (scored, name) in [(true, "required"), (false, "not scored")] {
        let rows: Vec<&Row> = judgement.rows.iter().filter(|row| row.scored == scored).collect();
        let directly = rows.iter().filter(|row| passed(&row.direct)).count();
        let _ = write!(text, "{} {name}: {directly}/{} directly", judgement.revision, rows.len());
        if judgement.with_weir {
            let through = rows.iter().filter(|row| row.weir.as_ref().is_some_and(passed)).count();
            let later = rows.iter().filter(|row| row.waits_for.is_some()).count();
            let _ = write!(text, ", {through}/{} through weir, {later} wait for later work", rows.len());
        }
        text.push('\n');
    }
    text
}

/// The last line: how many scenarios of all runs passed, what is wrong, and how many nobody expects to pass.
pub(super) fn closing(judgements: &[Judgement], wrong: usize) -> String {
    let rows = || judgements.iter().flat_map(|judgement| &judgement.rows);
    // A set that went through weir in two ways was run directly once.
    let directly: BTreeSet<_> = judgements
        .iter()
        .flat_map(|judgement| judgement.rows.iter().map(|row| (judgement.revision, row)))
        .filter(|(_, row)| passed(&row.direct))
        .map(|(revision, row)| (revision, &row.scenario))
        .collect();
    let good = directly.len() + rows().filter(|row| row.weir.as_ref().is_some_and(passed)).count();
    let later = rows().filter(|row| row.weir.as_ref().is_some_and(|weir| excused(row) && !passed(weir))).count();
    let not_provided = rows().filter(|row| !row.scored && !passed(&row.direct)).count();
    format!("conformance: {good} passed, {wrong} failed, {} skipped", later + not_provided)
}

/// Whether a failure through weir is accounted for.
fn excused(row: &Row) -> bool {
    row.waits_for.is_some() || (!row.scored && !passed(&row.direct))
}

fn passed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Passed { .. })
}

fn through(row: &Row, weir: &Outcome) -> String {
    match row.waits_for {
        Some(work) => format!("{}, waits for: {}", cell(weir), work.name()),
        None => cell(weir),
    }
}

fn cell(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed { checks } => format!("ok {checks}"),
        Outcome::Failed { passed, .. } => format!("FAILED, ok {passed}"),
        Outcome::Skipped => "SKIPPED".to_owned(),
        Outcome::DidNotRun => "DID NOT RUN".to_owned(),
    }
}

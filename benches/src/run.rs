//! The order of a run, and the handling of a part that cannot run.

use crate::report::{Report, Table};
use crate::scenario::{
    body, calls, dual, fanout, gates, hang, lists, overload, sessions, telemetry,
};
use crate::settings::{Part, Settings};
use anyhow::Result;
use serde_json::json;

/// Runs the parts that `settings` names, one after the other, prints their tables and writes the
/// result file. Returns true if every answer was right and every part ran.
///
/// # Errors
/// The result file cannot be written.
pub(crate) async fn run(settings: Settings) -> Result<bool> {
    let mut report = Report::new(settings.clone());
    let machine = report.machine.clone();
    println!(
        "weir-bench: {} cores ({}), {} open files, build {}, commit {}",
        machine.cores, machine.cpu, machine.open_files, machine.build, machine.commit
    );
    if machine.debug_build {
        println!("  a debug build of the load generator: these numbers mean nothing");
    }
    if machine.load_before > 0.5 {
        println!(
            "  the machine was busy before this began (load {}): expect noise",
            machine.load_before
        );
    }
    for part in &settings.parts {
        let table = match part {
            Part::Calls => calls::run(&settings).await,
            Part::Lists => lists::run(&settings).await,
            Part::Fanout => fanout::run(&settings, &machine).await,
            Part::Sessions => sessions::run(&settings).await,
            Part::Dual => Box::pin(dual::run(&settings)).await,
            Part::Gates => Box::pin(gates::run(&settings)).await,
            Part::Telemetry => Box::pin(telemetry::run(&settings)).await,
            Part::Hang => hang::run(&settings).await,
            Part::Body => body::run(&settings).await,
            Part::Overload => overload::run(&settings).await,
        };
        report.add(table.or_else(|error| could_not_run(*part, &error))?);
    }
    report.write(&settings.out)?;
    println!(
        "\n{} errors; result in {}",
        report.errors,
        settings.out.display()
    );
    Ok(report.errors == 0)
}

fn could_not_run(part: Part, error: &anyhow::Error) -> Result<Table> {
    let mut table = Table::new(
        "failed",
        format!("{part:?}: could not run"),
        &[("errors", "errors")],
    );
    table.row(&json!({"part": part, "errors": 1, "error": format!("{error:#}")}))?;
    Ok(table)
}

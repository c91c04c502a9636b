//! The order of a run, and the handling of a part that cannot run.

use crate::report::{BenchReport, ReportTable};
use crate::scenario::{
    body, calls, dual, fanout, gates, hang, lists, overload, sessions, store, telemetry, transports,
};
use crate::settings::{RunPart, RunSettings};
use anyhow::Result;
use serde_json::json;

/// Runs the parts that `settings` names, one after the other, prints their tables and writes the
/// result file. Returns true if every answer was right and every part ran.
///
/// # Errors
/// The result file cannot be written.
pub(crate) async fn run(settings: RunSettings) -> Result<bool> {
    let mut report = BenchReport::new(settings.clone());
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
            RunPart::Calls => calls::run(&settings).await,
            RunPart::Lists => lists::run(&settings).await,
            RunPart::Fanout => fanout::run(&settings, &machine).await,
            RunPart::Sessions => sessions::run(&settings).await,
            RunPart::Dual => Box::pin(dual::run(&settings)).await,
            RunPart::Gates => Box::pin(gates::run(&settings)).await,
            RunPart::Telemetry => Box::pin(telemetry::run(&settings)).await,
            RunPart::Store => Box::pin(store::run(&settings)).await,
            RunPart::Transports => Box::pin(transports::run(&settings)).await,
            RunPart::Hang => hang::run(&settings).await,
            RunPart::Body => body::run(&settings).await,
            RunPart::Overload => overload::run(&settings).await,
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

fn could_not_run(part: RunPart, error: &anyhow::Error) -> Result<ReportTable> {
    let mut table = ReportTable::new(
        "failed",
        format!("{part:?}: could not run"),
        &[("errors", "errors")],
    );
    table.row(&json!({"part": part, "errors": 1, "error": format!("{error:#}")}))?;
    Ok(table)
}

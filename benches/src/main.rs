//! weir's load generator, the upstream it calls, and the raw pipe that weir is measured against.
//!
//! One run measures weir, the pipe and the upstream itself in turns on the same machine, checks the
//! content of every answer, and writes a table and a JSON file. It shares no code with weir. It
//! tests no behaviour, which is the work of the tests; it measures speed and memory.

#![allow(clippy::print_stdout, reason = "a command that prints its results")]

mod bare_client;
mod call_driver;
mod client;
mod cpu_pinning;
mod listener;
mod listener_fleet;
mod load_clients;
mod machine;
mod nginx;
mod process;
mod protocol;
mod raw_pipe;
mod report;
mod run;
mod scenario;
mod settings;
mod sse;
mod stats;
mod test_bed;
pub(crate) mod upstream;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use http::uri::Authority;
use settings::{RunFlags, RunSettings};
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

// The pipe has weir's allocator too, because it measures the cost of the stack without weir.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(
    name = "weir-bench",
    version,
    about = "Measures weir against a raw pipe and against the upstream itself."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure; takes some minutes.
    Run(RunFlags),
    /// All parts with tiny numbers, to see that all of it works.
    Smoke(RunFlags),
    /// The upstream (started by a run).
    Upstream(upstream::UpstreamShape),
    /// The raw pipe (started by a run).
    Pipe {
        /// Address to forward to.
        #[arg(long)]
        to: Authority,
    },
    /// Thousands of listening clients (started by a run).
    Fleet(listener_fleet::FleetTarget),
    /// One client that calls on command (started by `cargo xtask path`).
    Caller(call_driver::CallTarget),
}

fn main() -> ExitCode {
    match command(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs a command; true without counted errors.
fn command(command: Command) -> Result<bool> {
    match command {
        Command::Run(flags) => measure(flags, false),
        Command::Smoke(flags) => measure(flags, true),
        Command::Upstream(shape) => one_thread()?
            .block_on(upstream::serve(shape))
            .map(|()| true),
        // As many threads as weir has: the pipe is the same stack, only without weir.
        Command::Pipe { to } => Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(raw_pipe::serve(to))
            .map(|()| true),
        Command::Fleet(target) => one_thread()?
            .block_on(listener_fleet::serve(target))
            .map(|()| true),
        Command::Caller(target) => one_thread()?
            .block_on(call_driver::serve(target))
            .map(|()| true),
    }
}

fn measure(flags: RunFlags, smoke: bool) -> Result<bool> {
    let settings = RunSettings::settle(flags, smoke)?;
    let runtime = one_thread()?;
    let finished = runtime.block_on(async {
        tokio::select! {
            finished = run::run(settings) => finished,
            stopped = tokio::signal::ctrl_c() => {
                stopped?;
                // Dropping the run kills its children.
                Err(anyhow::anyhow!("stopped"))
            }
        }
    });
    finished.context("the run ended early")
}

/// Builds a runtime of one thread. The generator and the upstream are lean, and leave the other
/// processors to the measured process.
fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

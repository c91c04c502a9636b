//! weir's developer commands. CI runs a list of these, so a developer and CI always do the same.
//!
//! Each command is a file; `run` starts programs, `peers` installs foreign programs. Checks of
//! weir's behaviour are tests and have no place here.

#![allow(clippy::print_stdout, reason = "commands that print their results")]

mod bench;
mod compat;
mod compat_tables;
pub(crate) mod conformance;
mod curves;
mod cycles;
mod dashboards;
mod dist;
pub(crate) mod draw;
mod hostile;
mod lint;
mod path;
mod peers;
mod prove;
mod run;
mod test;
mod test_report;
mod words;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// weir's developer commands.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all checks that take minutes: tests and the conformance suite
    Test(test::TestOptions),
    /// Run the official conformance suite against the fixture, directly and through weir
    Conformance(conformance::ConformanceOptions),
    /// Write the compatibility tables from the results of the pairing matrix
    Compat(compat::CompatOptions),
    /// Draw the dashboards in docs/dashboards anew, from a real scrape of a real weir
    Dashboards,
    /// Print the files that import each other
    Cycles(cycles::CyclesOptions),
    /// Check format, lints, licences and crate boundaries
    Lint,
    /// Measure weir; arguments go to the load generator
    Bench(bench::BenchOptions),
    /// Count the functions, instructions and allocations of one `tools/call` inside weir
    ///
    /// Builds weir without optimization, so that no function of its own is inlined, runs it under
    /// valgrind with one worker thread, and counts some hundred calls of each pairing of a client's
    /// era and a server's. Counts depend neither on the machine nor on its load.
    Path(path::PathOptions),
    /// Build weir as it is deployed, guided by the counts of a load
    ///
    /// Builds weir twice, with a load in between: the second build knows which branches calls take,
    /// and a call takes about a third less CPU time. A second load then decides the place of each
    /// function and block in the program, and a call takes a further quarter less. Needs
    /// `llvm-profdata` and `llvm-bolt`, of packages such as `llvm-19` and `bolt-19`.
    Dist(dist::DistOptions),
    /// Run the hostile suite against an optimized build: clients, upstreams and files written to do
    /// harm
    ///
    /// The tests of `tests/it/hostile`, the long ones included, which `cargo xtask test` leaves
    /// out.
    Hostile(hostile::HostileOptions),
    /// Run the long proofs: timings, capacity, chaos, benchmarks
    ///
    /// Builds an optimized weir and runs the tests that are ignored otherwise, one at a time: slow
    /// heads (A01, A02), sessions that come and go (D08), a flapping upstream (E14), lists beside a
    /// hanging one (T5b), the cost of hostile schemas (T11). Each prints its figures and compares
    /// two measurements within its own run; no absolute time is asserted. The benchmarks follow,
    /// unless the test runner is given filters.
    Prove(prove::ProveOptions),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Compat(options) => compat::run(&options),
        Command::Dashboards => dashboards::run(),
        Command::Cycles(options) => cycles::run(&options),
        Command::Lint => lint::run(),
        Command::Bench(options) => bench::run(&options),
        Command::Path(options) => path::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Hostile(options) => hostile::run(&options),
        Command::Prove(options) => prove::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The position in xtask does not help a user: only the chain of reasons is shown.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! The `weir` binary: an allocator, a runtime, and the command line.

use std::env::{self, VarError};
use std::io::Write as _;
use std::num::NonZero;
use std::process::ExitCode;

use weir_commands::exit_code::EXIT_USAGE;

/// The variable by which tokio chooses its number of threads. It panics at other values than a
/// number.
const WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// For many small, short-lived buffers from many threads it makes calls cheaper, and returns memory
/// after churn.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = weir_program::keeper::run_if_asked() {
        return code;
    }
    let threads = env::var(WORKER_THREADS);
    let is_number = threads
        .as_ref()
        .is_ok_and(|text| text.parse::<NonZero<usize>>().is_ok());
    if !is_number && threads != Err(VarError::NotPresent) {
        let why =
            format_args!("{WORKER_THREADS} is not a number of threads from 1 on: set or unset it");
        return exit_with_error(EXIT_USAGE, why);
    }
    // Before there are threads, because it reads and changes the environment.
    let inherited = weir_handover::InheritedSockets::take();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return exit_with_error(1, format_args!("threads cannot be started: {error}"));
        }
    };
    let code = runtime.block_on(weir_gateway::cli::run(inherited));
    drop(runtime);
    weir_telemetry::finish_log();
    code
}

/// Prints the error directly, because the log has no thread yet, and returns the exit code.
fn exit_with_error(code: u8, why: std::fmt::Arguments<'_>) -> ExitCode {
    // If standard error fails, the exit code still reports the failure.
    let _unsaid = writeln!(std::io::stderr(), "weir: {why}");
    ExitCode::from(code)
}

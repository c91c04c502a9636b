//! The `weir` binary: an allocator, a runtime, and the command line.

use std::io::Write as _;
use std::process::ExitCode;

/// For many small, short-lived buffers from many threads it makes calls cheaper, and returns memory
/// after churn.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = weir_program::keeper::run_if_asked() {
        return code;
    }
    // Before there are threads, because it reads and changes the environment.
    let inherited = weir_handover::InheritedSockets::take();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            // If standard error fails, the exit code still reports the failure.
            let _unsaid = writeln!(
                std::io::stderr(),
                "weir: threads cannot be started: {error}"
            );
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(weir_gateway::cli::run(inherited));
    drop(runtime);
    weir_telemetry::finish_log();
    code
}

//! The `weir` binary: an allocator, a runtime, and the command line.

use std::io::Write as _;
use std::process::ExitCode;

/// Many small, short-lived buffers from many threads: a call costs less with it, and churn gives
/// memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = weir_gateway::keeper::run_if_asked() {
        return code;
    }
    // Before there are threads: it reads and changes the environment.
    let inherited = weir_gateway::Inherited::take();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            // Where it cannot be said, the exit code says it.
            let _unsaid = writeln!(
                std::io::stderr(),
                "weir: threads cannot be started: {error}"
            );
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(weir_gateway::cli::run(inherited));
    drop(runtime);
    weir_gateway::telemetry::finish_log();
    code
}

//! The `weir` binary: an allocator, a runtime, and the command line.

use std::process::ExitCode;

/// Many small, short-lived buffers from many threads: a call costs less with it, and churn gives memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    weir_gateway::cli::run().await
}

//! Replicas of two versions of weir that serve the same clients: an upgrade, which is then taken back.

use std::path::PathBuf;

use super::call_load::{self, CallKind, CallLoad};
use super::stopped_replicas::replace;
use super::{COUNT, config};
use crate::harness::Replicas;

/// The variable with the program of an earlier weir.
const BEFORE_VARIABLE: &str = "WEIR_BEFORE";

/// Returns the program of an earlier weir, if there is one.
pub(super) fn earlier_program() -> Option<PathBuf> {
    std::env::var_os(BEFORE_VARIABLE).map(PathBuf::from)
}

/// Calls that are answered at least by each mixture of versions.
const CALLS_PER_REPLACEMENT: usize = 500;

/// `cargo xtask prove --before BINARY` names the earlier weir.
// Proves G12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an earlier weir"]
async fn no_request_fails_while_replicas_are_upgraded_and_downgraded() {
    let Some(before) = earlier_program() else {
        eprintln!("left out: {BEFORE_VARIABLE} names no earlier weir");
        return;
    };
    let upstream = call_load::upstream().await;
    let mut replicas = Replicas::with_program(COUNT, config(&upstream), &before).await;
    let load = CallLoad::start(&replicas.url("/mcp"), &CallKind::ALL).await;
    load.wait_for_answers(CALLS_PER_REPLACEMENT).await;
    let programs = [None, Some(&*before)];
    let each = programs.into_iter().flat_map(|program| [program; COUNT]);
    for (number, program) in each.enumerate() {
        replicas.use_program(program);
        replace(&mut replicas, number).await;
        load.wait_for_answers(CALLS_PER_REPLACEMENT).await;
    }
    let totals = load.stop(&upstream).await;
    println!("{} replacements: {totals:?}", 2 * COUNT);
    assert_eq!(totals.refused, 0, "{totals:?}");
}

//! Runs of the suite at the same time.

use std::thread::ScopedJoinHandle;

use anyhow::bail;

use crate::conformance::verdict::SetJudgement;

/// Waits for the runs of each thread, and returns all their judgements.
pub(super) fn joined(
    running: Vec<ScopedJoinHandle<'_, anyhow::Result<Vec<SetJudgement>>>>,
) -> anyhow::Result<Vec<SetJudgement>> {
    let mut judgements = Vec::new();
    for run in running {
        let Ok(found) = run.join() else {
            bail!("a run panicked");
        };
        judgements.extend(found?);
    }
    Ok(judgements)
}

//! The load that a counting weir serves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;

use crate::run::{build_alone, checked};

/// The parts of the load: every part of the benchmarks, then calls, lists and all transports with
/// queues.
const PARTS: [&[&str]; 2] = [
    &["smoke"],
    &[
        "run",
        "--only=calls,lists,gates,telemetry,transports",
        "--target=weir",
        "--rounds=1",
        "--concurrency=1,32",
        "--upstreams=20",
    ],
];

/// The load, by its generator.
pub(super) struct TrainingLoad(PathBuf);

impl TrainingLoad {
    /// Builds the load generator.
    pub(super) fn build() -> anyhow::Result<Self> {
        Ok(Self(build_alone("weir-benches", "weir-bench", &[])?))
    }

    /// Has a counting weir serve the load. Each of its processes writes a file of counts to the
    /// folder when it ends.
    ///
    /// # Errors
    /// A part of the load fails, or there are no counts.
    pub(super) fn serve(&self, weir: &Path, counts: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let report = counts.join("load.json");
        for part in PARTS {
            checked(
                Command::new(&self.0)
                    .args(part)
                    .arg("--graceful")
                    .arg("--weir")
                    .arg(weir)
                    .arg("--out")
                    .arg(&report),
            )?;
        }
        fs::remove_file(report)?;
        let written = fs::read_dir(counts)?
            .map(|entry| Ok(entry?.path()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        if written.is_empty() {
            bail!("weir wrote no counts to {}", counts.display());
        }
        Ok(written)
    }
}

//! The client scenarios: the suite is the server, and it tests weir with a client in front of it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;

use super::{CheckStatus, ConformanceSuite, RequirementSet, ScenarioCheck, SuiteRun, read};
use crate::conformance::servers::BoundedChild;
use crate::conformance::suite_leg::FixtureEra;

/// The most time for one scenario. The suite gives the client half a minute of it.
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(60);

/// The command of the client. The suite starts it in a shell and appends its URL; paths are in
/// variables, so that the shell does not split them.
const CLIENT: &str = r#""$SCENARIO_NODE" "$SCENARIO_CLIENT""#;

impl ConformanceSuite<'_> {
    /// Runs the scenarios of one set against the binary `weir`, with a client of the era `front`
    /// before it. The set's name is the folder of logs and results.
    ///
    /// # Errors
    /// The suite cannot start or leaves unreadable results.
    pub(in crate::conformance) fn client(
        &self,
        weir: &Path,
        front: FixtureEra,
        revision: &str,
        set: &RequirementSet,
    ) -> anyhow::Result<SuiteRun> {
        let folder = self.output.join(set.revision.replace(' ', "-"));
        fs::create_dir_all(&folder)?;
        eprintln!("conformance: {}", set.revision);
        let mut run = BTreeMap::new();
        // One after the other: a scenario that measures weir's waiting must not wait for all the
        // others' processes.
        for scenario in set.scored.iter().chain(&set.not_scored) {
            let mut command = self.client_command(weir, front);
            command.args(["--scenario", scenario, "--spec-version", revision]);
            let checks = scenario_checks(command, scenario, &folder)?;
            run.insert(scenario.clone(), checks);
        }
        Ok(SuiteRun(run))
    }

    fn client_command(&self, weir: &Path, front: FixtureEra) -> Command {
        let mut command = Command::new(&self.peers.node);
        command
            .env("SCENARIO_NODE", &self.peers.node)
            .env("SCENARIO_CLIENT", self.peers.dir.join("node/scenario.mjs"))
            .env("WEIR_BIN", weir)
            .env("WEIR_CLIENT", front.flag())
            .arg(self.package.join("dist/index.js"))
            .args(["client", "--command", CLIENT]);
        command
    }
}

/// Runs one scenario and reads its checks.
fn scenario_checks(
    mut command: Command,
    scenario: &str,
    folder: &Path,
) -> anyhow::Result<Vec<ScenarioCheck>> {
    let results = folder.join(scenario);
    let log = folder.join(format!("{scenario}.log"));
    let written = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let child = command
        .arg("--output-dir")
        .arg(&results)
        .stdin(Stdio::null())
        .stdout(written.try_clone()?)
        .stderr(written)
        .spawn()
        .context("cannot start the conformance suite")?;
    let status = BoundedChild::new(child).wait(SCENARIO_TIMEOUT)?;
    let found = read(&results, "")
        .with_context(|| format!("the suite left no results, see {}", log.display()))?;
    let mut checks = found.into_values().next().unwrap_or_default();
    // A client that gave up in the middle may have left only good checks behind.
    let done = status.is_some_and(|status| status.success());
    if !done
        && !checks
            .iter()
            .any(|check| matches!(check.status, CheckStatus::Failure | CheckStatus::Warning))
    {
        let error_message = Some(format!(
            "the client did not do all of it, see {}",
            log.display()
        ));
        checks.push(ScenarioCheck {
            id: "client-done".to_owned(),
            status: CheckStatus::Failure,
            error_message,
        });
    }
    Ok(checks)
}

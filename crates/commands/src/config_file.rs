//! The config file of a command: its options, and how a command loads it.

use std::path::{Path, PathBuf};

use clap::Args;
use weir_config::{Config, ConfigLoader, ConfigSource, IncludeErrors};
use weir_config_file::config_report::ConfigReport;
use weir_config_file::foreign::inputs::InputSource;

/// A config file, given as an argument, by `--config` or in the environment.
#[derive(Debug, Args)]
pub struct ConfigFileOptions {
    /// The config file, YAML or JSON
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The config file, as an option
    #[arg(long, short, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFileOptions {
    /// Returns the path. clap requires one of the two.
    pub fn path(self) -> PathBuf {
        self.file
            .or(self.config)
            .unwrap_or_else(|| PathBuf::from("weir.yaml"))
    }
}

/// A config that a weir would serve.
pub(super) struct UsableConfig {
    /// The config, without the teams' files that are left out.
    pub(super) config: Config,
    /// True if a team's file has errors, and the others are served.
    pub(super) has_errors: bool,
}

/// Loads the config of a file without errors. Prints all problems.
pub fn load(file: &Path, inputs: InputSource<'_>) -> Option<Config> {
    let loaded = load_with_report(file, inputs, |report| weir_terminal::line(report))?;
    (!loaded.has_errors).then_some(loaded.config)
}

/// Loads a config as a start does, which leaves out a team's file with errors. Passes the problems
/// to `say`.
pub(super) fn load_with_report(
    file: &Path,
    inputs: InputSource<'_>,
    say: impl FnOnce(&ConfigReport),
) -> Option<UsableConfig> {
    let environment = |name: &str| std::env::var(name).ok();
    let outcome = ConfigLoader::new(ConfigSource::File(file.to_owned()), &environment)
        .with_inputs(inputs)
        .load();
    if !outcome.report.problems().is_empty() {
        say(&outcome.report);
    }
    let has_errors = outcome.report.has_errors();
    let config = outcome.config?;
    let is_refused = has_errors && config.include_errors == IncludeErrors::RefuseStart;
    (!is_refused).then_some(UsableConfig { config, has_errors })
}

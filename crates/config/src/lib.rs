//! The checks of a config: from the declared types of `weir-config-file` to the settings of each
//! crate, with all problems at once, each with its path, line and hint. It loads the main file and
//! the teams' files, and compares two configs for lost protections.

mod admin_plan;
mod check;
mod checked_config;
mod config_loader;
mod config_part;
mod default_endpoint_path;
pub mod fuzzing;
mod main_config;
mod team_files;
mod team_grants;
mod unserved_paths;
mod waivers;
mod weakenings;

pub use admin_plan::{AdminPlan, LIVENESS_PATH, READINESS_PATH};
pub use check::{DEFAULT_ADMIN_LISTEN, OWN_ADDRESS};
pub use checked_config::{Config, IncludeErrors, SealingKey, StorePlan, UpstreamPlan};
pub use config_loader::{ConfigLoader, ConfigSource, LoadOutcome};
pub use default_endpoint_path::DEFAULT_ENDPOINT;
pub use team_files::{TeamFile, TeamFileVersion};
pub use waivers::Waivers;
pub use weakenings::{Protection, Weakening, weakenings};

#[cfg(test)]
mod tests;

//! `weir check FILE [--against OLD]`.

use std::path::Path;
use std::process::ExitCode;

use super::NO;
use crate::config::{Config, Loader, Source, weakenings};
use crate::serve::BAD_CONFIG;
use crate::terminal::{self, count};

pub(super) fn check(file: &Path, against: Option<&Path>) -> ExitCode {
    let checked = match against {
        None => load(file).map(|config| (config, Vec::new())),
        // All that is wrong with either is printed.
        Some(old) => {
            let (old, new) = (load(old), load(file));
            old.zip(new).map(|(old, new)| {
                let lost = weakenings(&old, &new);
                (new, lost)
            })
        }
    };
    let Some((config, lost)) = checked else { return ExitCode::from(BAD_CONFIG) };
    for lost in &lost {
        terminal::line(format_args!("{}: weaker: {lost}", file.display()));
    }
    if !lost.is_empty() {
        return ExitCode::from(NO);
    }
    let upstreams = count(config.upstreams.len(), "upstream");
    let endpoints = count(config.endpoints.len(), "endpoint");
    terminal::line(format_args!("{}: good, {upstreams} and {endpoints}", file.display()));
    ExitCode::SUCCESS
}

/// The config of a file without errors. Prints all that is to say about it.
fn load(file: &Path) -> Option<Config> {
    let environment = |name: &str| std::env::var(name).ok();
    let outcome = Loader::new(Source::File(file.to_owned()), &environment).load();
    if !outcome.report.problems().is_empty() {
        terminal::line(&outcome.report);
    }
    outcome.config.filter(|_| !outcome.report.has_errors())
}

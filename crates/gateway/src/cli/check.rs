//! `weir check FILE`.

use std::path::Path;
use std::process::ExitCode;

use crate::config::{Loader, Source};
use crate::serve::BAD_CONFIG;
use crate::terminal;

pub(super) fn check(file: &Path) -> ExitCode {
    let environment = |name: &str| std::env::var(name).ok();
    let outcome = Loader::new(Source::File(file.to_owned()), &environment).load();
    if !outcome.report.problems().is_empty() {
        terminal::line(&outcome.report);
    }
    match outcome.config {
        Some(config) if !outcome.report.has_errors() => {
            terminal::line(format_args!(
                "{}: good, {} upstreams and {} endpoints",
                file.display(),
                config.upstreams.len(),
                config.endpoints.len()
            ));
            ExitCode::SUCCESS
        }
        _ => ExitCode::from(BAD_CONFIG),
    }
}

//! `weir check FILE [--against OLD] [--connect] [--strict]`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weir_audit::{AuditError, AuditPlan};
use weir_config::{Config, weakenings};
use weir_config_file::config_files::read;
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport, Severity};
use weir_config_file::document::parse_nonempty;
use weir_config_file::foreign::inputs::InputSource;
use weir_text::count;

use crate::config_file::{ConfigFileOptions, load, load_with_report};
use crate::doctor::{FindingGrade, examine_upstreams, shared_store};
use crate::doctor_command::{show_finding, show_upstream};
use crate::exit_code::{EXIT_BAD_CONFIG, EXIT_NO};

/// The options of `weir check`.
#[derive(Debug, Args)]
pub struct CheckOptions {
    #[command(flatten)]
    config: ConfigFileOptions,
    /// Exit with 1 if a weir that runs with this config would refuse FILE as weaker
    #[arg(long, value_name = "OLD")]
    against: Option<PathBuf>,
    /// Also start or connect to each upstream, and to the shared store; exits with 1 if one does not
    /// work
    #[arg(long)]
    connect: bool,
    /// Exit with 1 if there is a warning
    #[arg(long)]
    strict: bool,
}

/// The worst result of a check without errors of the config.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CheckResult {
    Good,
    Warned,
    Failed,
}

/// Checks a config and prints its problems: also against an old one, or by connecting to each upstream
/// and to the shared store.
pub async fn check(options: CheckOptions) -> ExitCode {
    let CheckOptions {
        config,
        against,
        connect,
        strict,
    } = options;
    let file = config.path();
    // An upstream that is started needs the real values.
    let inputs = if connect {
        InputSource::Prompt(&crate::input_prompt::prompt_input)
    } else {
        InputSource::StandIn
    };
    // The problems of both files are printed.
    let old = against.map(|old| load(&old, InputSource::StandIn));
    let mut has_warnings = false;
    let loaded = load_with_report(&file, inputs, |report| {
        has_warnings = has_warning(report);
        weir_terminal::line(report);
    });
    let (Some(loaded), Some(old)) = (loaded, old.map_or(Some(None), |old| old.map(Some))) else {
        return ExitCode::from(EXIT_BAD_CONFIG);
    };
    let config = loaded.config;
    if loaded.has_errors {
        // A start leaves out the teams' files with errors, and serves the others.
        if connect {
            connect_all(&config).await;
        }
        return ExitCode::from(EXIT_BAD_CONFIG);
    }
    if old.is_some_and(|old| shows_weakenings(&file, &old, &config)) {
        return ExitCode::from(EXIT_NO);
    }
    let audit = check_audit_files(&file, &config);
    if audit == CheckResult::Failed {
        return ExitCode::from(EXIT_NO);
    }
    let upstreams = count(config.upstreams.len(), "upstream");
    let endpoints = count(config.endpoints.len(), "endpoint");
    weir_terminal::line(format_args!(
        "{}: good, {upstreams} and {endpoints}",
        file.display()
    ));
    let mut result = if has_warnings {
        CheckResult::Warned
    } else {
        audit
    };
    if connect {
        result = result.max(connect_all(&config).await);
    }
    let accepted = if strict {
        CheckResult::Good
    } else {
        CheckResult::Warned
    };
    if result <= accepted {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_NO)
    }
}

fn has_warning(report: &ConfigReport) -> bool {
    let mut problems = report.problems().iter();
    problems.any(|problem| problem.severity == Severity::Warning)
}

/// Prints why a start could not continue the records in the audit files that are there, or create
/// the file. A file that this user may not write is a warning: weir may run as another user.
fn check_audit_files(file: &Path, config: &Config) -> CheckResult {
    let Some(plan) = &config.audit else {
        return CheckResult::Good;
    };
    let error = match weir_audit::check_files(plan).and_then(|()| check_audit_folder(plan)) {
        Ok(()) => return CheckResult::Good,
        Err(error) => error,
    };
    let is_denied = matches!(
        &error,
        AuditError::File { why, .. } if why.kind() == io::ErrorKind::PermissionDenied
    );
    let (severity, result) = if is_denied {
        (Severity::Warning, CheckResult::Warned)
    } else {
        (Severity::Error, CheckResult::Failed)
    };
    let path = ConfigPath::at("audit.file.path");
    weir_terminal::line(ConfigProblem {
        severity,
        file: file.display().to_string(),
        line: line_of(file, &path),
        ..ConfigProblem::error(path, error.to_string())
    });
    result
}

/// Checks that this user may create the audit file, if it does not exist.
fn check_audit_folder(plan: &AuditPlan) -> Result<(), AuditError> {
    let absent = plan.file.as_ref().filter(|file| !file.path.exists());
    let Some((file, folder)) = absent.and_then(|file| Some((file, file.path.parent()?))) else {
        return Ok(());
    };
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).map_err(|why| AuditError::File {
        path: file.path.clone(),
        why: why.into(),
    })
}

/// Returns the line of a value in a config file.
fn line_of(file: &Path, path: &ConfigPath) -> Option<u32> {
    let text = read(file).ok()?;
    let (tree, _) = parse_nonempty(&file.display().to_string(), &text).ok()?;
    Some(tree.line_of(path))
}

/// Prints the protections that the new config gives up. Returns true if there are any.
fn shows_weakenings(file: &Path, old: &Config, new: &Config) -> bool {
    let lost = weakenings(old, new);
    for lost in &lost {
        weir_terminal::line(format_args!("{}: weaker: {lost}", file.display()));
    }
    !lost.is_empty()
}

/// Starts or connects to each upstream and to the shared store, and prints the findings.
async fn connect_all(config: &Config) -> CheckResult {
    let (upstreams, store) = tokio::join!(examine_upstreams(config), shared_store::examine(config));
    let width = upstreams.iter().map(|upstream| upstream.id.len()).max();
    for upstream in &upstreams {
        show_upstream(upstream, width.unwrap_or_default());
    }
    store.iter().for_each(show_finding);
    let of_upstreams = upstreams.iter().map(|upstream| match upstream.cause {
        None => CheckResult::Good,
        Some(_) => CheckResult::Failed,
    });
    let of_store = store.iter().map(|found| match found.grade {
        FindingGrade::Good => CheckResult::Good,
        FindingGrade::Warning => CheckResult::Warned,
        FindingGrade::Error => CheckResult::Failed,
    });
    let results = of_upstreams.chain(of_store);
    results.max().unwrap_or(CheckResult::Good)
}

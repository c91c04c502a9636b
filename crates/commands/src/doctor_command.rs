//! `weir doctor`, and the output of `weir check --connect`: tries the config out.

use std::process::ExitCode;

use clap::Args;
use weir_config_file::config_report::ConfigReport;
use weir_config_file::foreign::inputs::InputSource;

use crate::config_file::{ConfigFileOptions, load_with_report};
use crate::doctor::machine_finding::{FindingGrade, MachineFinding};
use crate::doctor::{DoctorFindings, UpstreamFinding, examine};
use crate::exit_code::{EXIT_BAD_CONFIG, EXIT_NO};

/// The options of `weir doctor`.
#[derive(Debug, Args)]
pub struct DoctorOptions {
    #[command(flatten)]
    config: ConfigFileOptions,
    /// Print all findings as one JSON object
    #[arg(long)]
    json: bool,
}

/// Loads the config, starts or connects to each upstream, and inspects the machine.
pub async fn doctor(options: DoctorOptions) -> ExitCode {
    // With `--json`, standard output has the one object only.
    let say = |report: &ConfigReport| {
        if options.json {
            weir_telemetry::print_error(report)
        } else {
            weir_terminal::line(report)
        }
    };
    let inputs = InputSource::Prompt(&crate::input_prompt::prompt_input);
    let Some(loaded) = load_with_report(&options.config.path(), inputs, say) else {
        return ExitCode::from(EXIT_BAD_CONFIG);
    };
    let findings = examine(&loaded.config).await;
    if options.json {
        weir_terminal::line(weir_text::json(
            &serde_json::to_value(&findings).unwrap_or_default(),
        ));
    } else {
        show(&findings);
    }
    if loaded.has_errors {
        ExitCode::from(EXIT_BAD_CONFIG)
    } else if findings.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_NO)
    }
}

fn show(findings: &DoctorFindings) {
    let width = findings
        .upstreams
        .iter()
        .map(|upstream| upstream.id.len())
        .max()
        .unwrap_or_default();
    for upstream in &findings.upstreams {
        show_upstream(upstream, width);
    }
    findings.machine.iter().for_each(show_finding);
}

/// Prints a line about a finding.
pub(super) fn show_finding(found: &MachineFinding) {
    let MachineFinding { grade, text } = found;
    weir_terminal::line(format_args!(
        "{}  {}",
        word(*grade),
        weir_text::one_line(text)
    ));
}

/// Prints a line about an upstream, and below it the last output of a process that did not start.
pub(super) fn show_upstream(upstream: &UpstreamFinding, width: usize) {
    let UpstreamFinding { id, took_ms, .. } = upstream;
    let took = format!("{:.1} s", *took_ms as f64 / 1e3);
    match &upstream.cause {
        None => {
            let second = upstream
                .second_protocol
                .map(|second| format!(" and {second}"))
                .unwrap_or_default();
            let protocol = upstream.protocol.unwrap_or("an unknown revision");
            let parts = [
                (upstream.tools, "tool"),
                (upstream.prompts, "prompt"),
                (upstream.resources, "resource"),
            ];
            let parts = parts
                .map(|(number, one)| weir_text::count(number, one))
                .join(", ");
            weir_terminal::line(format_args!(
                "{}  {id:<width$}  {parts}, protocol {protocol}{second}, {took}",
                word(FindingGrade::Good)
            ));
        }
        Some(cause) => {
            weir_terminal::line(format_args!(
                "{}  {id:<width$}  {}, {took}",
                word(FindingGrade::Error),
                weir_text::one_line(cause)
            ));
            for line in &upstream.last_lines {
                weir_terminal::line(format_args!(
                    "       {:<width$}  | {}",
                    "",
                    weir_text::one_line(line)
                ));
            }
        }
    }
}

fn word(grade: FindingGrade) -> &'static str {
    match grade {
        FindingGrade::Good => "ok   ",
        FindingGrade::Warning => "warn ",
        FindingGrade::Error => "FAIL ",
    }
}

//! `weir check FILE [--against OLD] [--connect]`.

use std::path::Path;
use std::process::ExitCode;

use weir_config::weakenings;
use weir_config_file::foreign::inputs::InputSource;
use weir_text::count;

use super::config_file::load;
use super::doctor_command::show_upstream;
use super::exit_code::{EXIT_BAD_CONFIG, EXIT_NO};

/// Checks a config and prints its problems: also against an old one, or by connecting to each upstream.
pub async fn check(file: &Path, against: Option<&Path>, connect: bool) -> ExitCode {
    // An upstream that is started needs the real values.
    let inputs = if connect {
        InputSource::Prompt(&crate::input_prompt::prompt_input)
    } else {
        InputSource::StandIn
    };
    let checked = match against {
        None => load(file, inputs).map(|config| (config, Vec::new())),
        // The problems of both files are printed.
        Some(old) => {
            let (old, new) = (load(old, InputSource::StandIn), load(file, inputs));
            old.zip(new).map(|(old, new)| {
                let lost = weakenings(&old, &new);
                (new, lost)
            })
        }
    };
    let Some((config, lost)) = checked else {
        return ExitCode::from(EXIT_BAD_CONFIG);
    };
    for lost in &lost {
        weir_terminal::line(format_args!("{}: weaker: {lost}", file.display()));
    }
    if !lost.is_empty() {
        return ExitCode::from(EXIT_NO);
    }
    let upstreams = count(config.upstreams.len(), "upstream");
    let endpoints = count(config.endpoints.len(), "endpoint");
    weir_terminal::line(format_args!(
        "{}: good, {upstreams} and {endpoints}",
        file.display()
    ));
    if !connect {
        return ExitCode::SUCCESS;
    }
    let found = crate::doctor::examine_upstreams(&config.upstreams).await;
    let width = found
        .iter()
        .map(|upstream| upstream.id.len())
        .max()
        .unwrap_or_default();
    found
        .iter()
        .for_each(|upstream| show_upstream(upstream, width));
    let is_good = found.iter().all(|upstream| upstream.cause.is_none());
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_NO)
    }
}

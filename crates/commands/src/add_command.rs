//! `weir add NAME URL` and `weir add NAME -- COMMAND ARGUMENT...`: adds an upstream to a config.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use parking_lot::Mutex;
use weir_client_configs::import::upstream_entry::{UpstreamEntry, flow, scalar};
use weir_config::{ConfigLoader, ConfigSource};
use weir_config_file::config_report::Severity;
use weir_config_file::edit::{NewUpstream, with_upstream};
use weir_config_file::env::Environment;
use weir_config_file::upstream_slug::upstream_slug;
use weir_core::names::UpstreamId;
use weir_system::atomic_file;

use crate::exit_code::{EXIT_USAGE, exit_with_error};
use crate::variable_stand_ins::stand_in;

/// The options of `weir add`.
#[derive(Debug, Args)]
pub struct AddOptions {
    /// The name of the upstream: its tools are NAME__TOOL
    name: String,
    /// The URL of a server over HTTP
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    url: Option<String>,
    /// The command that starts a server, and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// The config; it is created if it does not exist
    #[arg(
        long,
        short,
        env = "WEIR_CONFIG",
        default_value = "weir.yaml",
        value_name = "FILE"
    )]
    config: PathBuf,
    /// A variable for the command; "KEY=${NAME}" keeps a secret out of the file
    #[arg(long, short, value_name = "KEY=VALUE", requires = "command")]
    env: Vec<String>,
    /// A header for the URL; "Authorization: Bearer ${NAME}" keeps a secret out of the file
    #[arg(long, short = 'H', value_name = "KEY: VALUE", requires = "url")]
    header: Vec<String>,
}

/// Adds the upstream to the file, unless that causes new errors.
pub fn add(options: &AddOptions) -> ExitCode {
    let AddOptions {
        name, config: file, ..
    } = options;
    if let Err(error) = UpstreamId::new(name) {
        return exit_with_error(
            EXIT_USAGE,
            format_args!(
                "`{name}` is not the name of an upstream: {error}; such as `{}`",
                upstream_slug(name)
            ),
        );
    }
    let entry = match entry(options) {
        Ok(entry) => entry,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let (old, is_new) = match read_config(file) {
        Ok(read) => read,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let block = |indent: &str, step: &str| entry.block(indent, step);
    let flow = flow(&entry);
    let value = serde_json::from_str(&flow).unwrap_or_default();
    let edited = with_upstream(
        &file.display().to_string(),
        &old,
        &NewUpstream {
            id: name,
            key: scalar(name),
            block: &block,
            flow,
            value,
        },
    );
    let text = match edited {
        Ok(text) => text,
        Err(why) => return exit_with_error(EXIT_USAGE, format_args!("{} {why}", file.display())),
    };
    let unset = Mutex::new(BTreeSet::new());
    // The variables of the entry are for the environment of weir, which need not be this one.
    let environment = |name: &str| {
        let value = std::env::var(name).ok();
        value.or_else(|| {
            if !names_variable(&entry, name) {
                return None;
            }
            let mut unset = unset.lock();
            unset.insert(name.to_owned());
            Some(stand_in(name, entry.url.as_deref()).to_owned())
        })
    };
    let messages = new_messages(file, &old, &text, &environment);
    messages
        .iter()
        .filter(|(_, text)| !text.is_empty())
        .for_each(|(_, text)| weir_terminal::note(text));
    if messages
        .iter()
        .any(|(severity, _)| *severity == Severity::Error)
    {
        return exit_with_error(
            EXIT_USAGE,
            format_args!("{} was not changed", file.display()),
        );
    }
    let written = if is_new {
        atomic_file::create(file, &text)
    } else {
        atomic_file::replace(file, &text)
    };
    if let Err(error) = written {
        return exit_with_error(
            EXIT_USAGE,
            format_args!("{} cannot be written: {error}", file.display()),
        );
    }
    let unset: Vec<String> = unset.into_inner().into_iter().collect();
    for name in &unset {
        weir_terminal::note(format_args!(
            "weir: environment variable {name} is not set here: set it where weir starts"
        ));
    }
    if entry.has_credential() {
        weir_terminal::note(
            "weir: there seems to be a credential in the file now; \"${NAME}\" would take it from the environment",
        );
    }
    let effect = if unset.is_empty() {
        "applies it".to_owned()
    } else {
        format!("refuses it without {}", unset.join(", "))
    };
    weir_terminal::line(format_args!(
        "{}: `{name}` was added; a weir that runs with this file {effect}",
        file.display()
    ));
    ExitCode::SUCCESS
}

/// Returns the text of the config, and true if the file is still to be created.
fn read_config(file: &Path) -> Result<(String, bool), String> {
    // A read from a pipe would block.
    atomic_file::check_replaceable(file)
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    match std::fs::read_to_string(file) {
        Ok(text) => Ok((text, false)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(("listen: 127.0.0.1:8080\n".to_owned(), true))
        }
        Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
    }
}

/// Returns the entry from the options.
fn entry(options: &AddOptions) -> Result<UpstreamEntry, String> {
    let mut command = options.command.iter().cloned();
    let pairs = |given: &[String], separator: char, form: &str| {
        let pair = |text: &String| {
            let (key, value) = text
                .split_once(separator)
                .ok_or_else(|| format!("`{text}` is not of the form {form}"))?;
            Ok::<_, String>((key.trim().to_owned(), value.trim().to_owned()))
        };
        given.iter().map(pair).collect::<Result<Vec<_>, _>>()
    };
    Ok(UpstreamEntry {
        url: options.url.clone(),
        command: command.next(),
        args: command.collect(),
        env: pairs(&options.env, '=', "KEY=VALUE")?,
        headers: pairs(&options.header, ':', "\"KEY: VALUE\"")?,
        ..UpstreamEntry::default()
    })
}

/// Reports if an entry has `${NAME}`, without a default.
fn names_variable(entry: &UpstreamEntry, name: &str) -> bool {
    let reference = format!("${{{name}}}");
    let values = [&entry.env, &entry.headers].into_iter().flatten();
    let mut texts = values
        .map(|(_, value)| value)
        .chain(&entry.url)
        .chain(&entry.command)
        .chain(&entry.args);
    texts.any(|text| text.contains(&reference))
}

/// Returns the messages about the new text that the old one does not have.
fn new_messages(
    file: &Path,
    old: &str,
    new: &str,
    environment: Environment<'_>,
) -> Vec<(Severity, String)> {
    let load = |text: &str| {
        let source = ConfigSource::Proposed {
            file: file.to_owned(),
            text: text.to_owned(),
        };
        ConfigLoader::new(source, environment).load().report
    };
    let about = |problem: &weir_config_file::config_report::ConfigProblem| {
        (problem.path.clone(), problem.message.clone())
    };
    let before: HashSet<_> = load(old).problems().iter().map(about).collect();
    let after = load(new);
    let unknown = after
        .problems()
        .iter()
        .filter(|problem| !before.contains(&about(problem)));
    unknown
        .map(|problem| (problem.severity, problem.to_string()))
        .collect()
}

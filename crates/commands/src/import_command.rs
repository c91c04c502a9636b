//! `weir import [CLIENT|FILE ...] [--write FILE]`: converts the servers of MCP clients to a config
//! of weir.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weir_client_configs::import::server_converter::{ConvertedServer, ServerConverter};
use weir_client_configs::import::upstream_entry::scalar;
use weir_client_configs::import::{ClientFile, read};
use weir_client_configs::mcp_clients::{ClientFolders, McpClient};
use weir_config::{
    ConfigLoader, ConfigSource, DEFAULT_ADMIN_LISTEN, DEFAULT_ENDPOINT, OWN_ADDRESS,
};
use weir_config_file::config_report::Severity;
use weir_system::atomic_file;
use weir_text::one_line;

use crate::exit_code::{EXIT_NO, EXIT_USAGE, exit_with_error};
use crate::variable_stand_ins::{names_unset, stand_in};

/// The port of the listener of the written config, unless a server has it.
const PORT: u16 = 8080;
/// The port of the operators' listener in most configs.
const ADMIN_PORT: u16 = DEFAULT_ADMIN_LISTEN.port();

/// The options of `weir import`.
#[derive(Debug, Args)]
pub struct ImportOptions {
    /// A client (claude-desktop, claude-code, cursor, vscode, gemini, windsurf, codex, zed) or a
    /// file; default: all clients
    #[arg(value_name = "CLIENT|FILE")]
    from: Vec<String>,
    /// Write the config to this file, readable by its owner only, instead of printing it
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Replace the file of --write if it exists
    #[arg(long, requires = "write")]
    force: bool,
    /// The home folder to search for clients' files, instead of your own
    #[arg(long, value_name = "FOLDER")]
    home: Option<PathBuf>,
}

/// Reads the clients' files, shows their servers, and prints or writes the config. Starts no
/// server.
pub fn import(options: &ImportOptions) -> ExitCode {
    let Some(folders) = ClientFolders::of_user(options.home.as_deref()) else {
        return exit_with_error(
            EXIT_USAGE,
            "the variable HOME is not set: name the folder, such as --home /home/me",
        );
    };
    let files = match files(&options.from, &folders) {
        Ok(files) => files,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    if let Some(file) = options.write.as_deref() {
        if let Err(error) = atomic_file::check_replaceable(file) {
            return exit_with_error(
                EXIT_USAGE,
                format_args!("{} cannot be written: {error}", file.display()),
            );
        }
        if !options.force && file.exists() {
            return exit_with_error(
                EXIT_USAGE,
                format_args!(
                    "{} exists already: choose another name, or add --force",
                    file.display()
                ),
            );
        }
    }
    let (mut sources, mut is_broken) = (Vec::new(), false);
    for read in read(files, &folders.home) {
        match read {
            Ok(source) => sources.push(source),
            Err(problem) => {
                is_broken = true;
                weir_terminal::note(problem);
            }
        }
    }
    let mut converter = ServerConverter::default();
    converter.reserve(&sources);
    for source in &sources {
        if !source.found.report.problems().is_empty() {
            weir_terminal::note(&source.found.report);
        }
        is_broken |= source.found.report.has_errors();
        converter.convert(source);
    }
    leave_out_broken(&mut converter);
    show(&converter, &sources);
    if converter.converted.is_empty() {
        return if is_broken {
            ExitCode::from(EXIT_USAGE)
        } else {
            print_nothing_found(options, &sources)
        };
    }
    let port = free_port(&converter.converted);
    let text = config(&converter, port);
    match &options.write {
        None => weir_terminal::write(&text),
        Some(file) => {
            let written = if options.force {
                atomic_file::replace(file, &text)
            } else {
                atomic_file::create(file, &text)
            };
            if let Err(error) = written {
                return exit_with_error(
                    EXIT_USAGE,
                    format_args!("{} cannot be written: {error}", file.display()),
                );
            }
        }
    }
    print_next_steps(&converter, port, options.write.as_deref());
    if is_broken {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Returns the requested files, each with its client.
fn files(
    from: &[String],
    folders: &ClientFolders,
) -> Result<Vec<(Option<McpClient>, PathBuf)>, String> {
    let of = |client: McpClient| {
        client
            .found(folders)
            .into_iter()
            .map(move |file| (Some(client), file))
    };
    if from.is_empty() {
        return Ok(McpClient::ALL.into_iter().flat_map(of).collect());
    }
    let mut all = Vec::new();
    for name in from {
        match McpClient::named(name) {
            Some(client) => all.extend(of(client)),
            None if Path::new(name).is_file() => {
                all.push((McpClient::of(Path::new(name), folders), PathBuf::from(name)))
            }
            None => {
                let known: Vec<&str> = McpClient::ALL.into_iter().map(McpClient::name).collect();
                return Err(format!(
                    "`{name}` is neither a file nor a client; clients are {}",
                    known.join(", ")
                ));
            }
        }
    }
    Ok(all)
}

/// Leaves out servers that weir would refuse. The others are useful without them.
fn leave_out_broken(converter: &mut ServerConverter) {
    for one in std::mem::take(&mut converter.converted) {
        match reason_against(&one) {
            None => converter.converted.push(one),
            Some(why) => converter.leave_out(one, why),
        }
    }
    let written: String = converter
        .converted
        .iter()
        .map(|one| one.entry.block("", ""))
        .collect();
    converter
        .variables
        .retain(|variable| written.contains(&format!("${{{}}}", variable.name)));
}

/// Returns the reason to leave a server out: the first error that `weir check` would find in its
/// upstream, or that it is an endpoint of the written config. A client's file may have the entry of
/// `weir connect`.
fn reason_against(one: &ConvertedServer) -> Option<String> {
    let problems = problems(one, PORT);
    let error = problems.iter().find(|problem| problem.is_error);
    let own = || {
        let of_weir = problems.iter().find(|problem| problem.is_own_address)?;
        leads_to_endpoint(one, &of_weir.key).then_some(of_weir)
    };
    let found = error.or_else(own)?;
    Some(format!("{} {}", found.key, found.message).trim().to_owned())
}

/// A problem that `weir check` finds in an upstream.
struct UpstreamProblem {
    /// The key of the upstream, such as `url` or `args.1`.
    key: String,
    message: String,
    is_error: bool,
    /// True if the upstream is at the address of the config's own listener.
    is_own_address: bool,
}

/// Returns the problems that `weir check` would find in a server of a config with this port.
fn problems(one: &ConvertedServer, port: u16) -> Vec<UpstreamProblem> {
    let mut entry = one.entry.clone();
    let is_set = |name: &str| std::env::var_os(name).is_some();
    if entry
        .cwd
        .as_deref()
        .is_some_and(|cwd| names_unset(cwd, is_set))
    {
        // The folder is known where weir starts.
        entry.cwd = None;
    }
    let text = format!(
        "{}upstreams:\n  {}:\n{}",
        listen(port),
        scalar(&one.id),
        entry.block("    ", "  ")
    );
    let environment = |name: &str| {
        let is_named =
            text.contains(&format!("${{{name}}}")) || text.contains(&format!("${{{name}:-"));
        let value = std::env::var(name).ok();
        value.or_else(|| is_named.then(|| stand_in(name, entry.url.as_deref()).to_owned()))
    };
    let source = ConfigSource::Text {
        name: String::new(),
        text: text.clone(),
    };
    let outcome = ConfigLoader::new(source, &environment).load();
    let found = outcome.report.problems().iter().map(|problem| {
        let path = problem.path.to_string();
        UpstreamProblem {
            key: path.split('.').skip(2).collect::<Vec<_>>().join("."),
            message: problem.message.clone(),
            is_error: problem.severity == Severity::Error,
            is_own_address: problem.message.starts_with(OWN_ADDRESS),
        }
    });
    found.collect()
}

/// Reports if the URL at a key of a server has the path of an endpoint of the written config. Other
/// paths are those of another server, which has the port before weir does.
fn leads_to_endpoint(one: &ConvertedServer, key: &str) -> bool {
    let argument = key
        .strip_prefix("args.")
        .and_then(|at| one.entry.args.get(at.parse::<usize>().ok()?));
    let Some((_, rest)) = argument
        .or(one.entry.url.as_ref())
        .and_then(|url| url.split_once("://"))
    else {
        return false;
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let path = rest[..end].find('/').map_or("", |at| &rest[at..end]);
    path.strip_prefix(DEFAULT_ENDPOINT)
        .is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// Returns a port for the listener that no server has.
fn free_port(servers: &[ConvertedServer]) -> u16 {
    let is_taken = |port: u16| {
        let mut problems = servers.iter().flat_map(|one| problems(one, port));
        problems.any(|problem| problem.is_own_address)
    };
    let mut ports = (PORT..=u16::MAX).filter(|port| *port != ADMIN_PORT);
    ports.find(|port| !is_taken(*port)).unwrap_or(PORT)
}

fn listen(port: u16) -> String {
    format!("listen: 127.0.0.1:{port}\n")
}

/// Prints every file with its servers.
fn show(converter: &ServerConverter, sources: &[ClientFile]) {
    for source in sources {
        let client = source
            .client
            .map(|client| format!(" ({})", client.title()))
            .unwrap_or_default();
        let own = |origin: &str| origin.starts_with(&format!("{}:", source.file.display()));
        let mut text = format!("{}{client}", one_line(&source.file.display().to_string()));
        for one in converter.converted.iter().filter(|one| own(&one.origin)) {
            let line = one.origin.rsplit(':').next().unwrap_or_default();
            let renamed = if one.id == one.name {
                String::new()
            } else {
                format!(", as `{}`", one.id)
            };
            let _ = write!(
                text,
                "\n  line {line}: {}{renamed}\n    {}",
                one_line(&one.name),
                one_line(&one.summary)
            );
            for kept in &one.kept {
                let _ = write!(
                    text,
                    "\n    argument {} seems to hold a credential, `{}`, which stays in the config",
                    kept.argument,
                    one_line(&kept.name)
                );
            }
        }
        for left in converter.skipped.iter().filter(|left| own(&left.origin)) {
            let line = left.origin.rsplit(':').next().unwrap_or_default();
            let _ = write!(
                text,
                "\n  line {line}: {}\n    left out: {}",
                one_line(&left.name),
                one_line(&left.why)
            );
        }
        if source.found.servers.is_empty() {
            text.push_str("\n  no servers");
        }
        weir_terminal::note(text);
    }
}

/// Prints that there is no server to import.
fn print_nothing_found(options: &ImportOptions, sources: &[ClientFile]) -> ExitCode {
    if sources.is_empty() && options.from.is_empty() {
        let known: Vec<&str> = McpClient::ALL.into_iter().map(McpClient::title).collect();
        let why = format!(
            "there is no file of {} here; name a file, such as: weir import mcp.json",
            known.join(", ")
        );
        return exit_with_error(EXIT_NO, why);
    }
    exit_with_error(
        EXIT_NO,
        "there is no server to import; `weir init` writes a config without any",
    )
}

/// Returns the text of the config.
fn config(converter: &ServerConverter, port: u16) -> String {
    let mut text = String::from(
        "# Written by `weir import`. docs/configuration.md explains every key; `weir check FILE` finds mistakes.\n",
    );
    if !converter.variables.is_empty() {
        text.push_str("# ${NAME} is an environment variable; set these where weir starts:\n");
        for variable in &converter.variables {
            let _ = writeln!(text, "#   {}: {}", variable.name, one_line(&variable.about));
        }
    }
    text.push_str(&listen(port));
    text.push_str("upstreams:\n");
    for one in &converter.converted {
        let client = one
            .client
            .map(|client| format!(" ({client})"))
            .unwrap_or_default();
        let _ = write!(
            text,
            "  # {}{client}\n  {}:\n{}",
            one_line(&one.origin),
            scalar(&one.id),
            one.entry.block("    ", "  ")
        );
    }
    text
}

/// Prints the next steps.
fn print_next_steps(converter: &ServerConverter, port: u16, written: Option<&Path>) {
    let mut text = match converter.converted.len() {
        1 => "1 server became an upstream".to_owned(),
        n => format!("{n} servers became upstreams"),
    };
    text.push_str("; nothing was started.");
    if port != PORT {
        let _ = write!(
            text,
            "\nThe config listens on port {port}, because a server has port {PORT}."
        );
    }
    let is_kept = converter.converted.iter().any(|one| !one.kept.is_empty());
    if is_kept {
        text.push_str(
            "\nSome arguments, named above, seem to hold credentials that no variable can replace: \
             they are in the config. Move them to `env`.",
        );
    }
    if !converter.variables.is_empty() {
        text.push_str(if is_kept {
            "\nThe other credentials that were found are not in the config."
        } else {
            "\nThe credentials that were found are not in the config."
        });
        text.push_str(" Set these variables where weir starts:");
        for variable in &converter.variables {
            let _ = write!(text, "\n  {}  {}", variable.name, one_line(&variable.about));
        }
    }
    if let Some(file) = written {
        let file = file.display();
        let _ = write!(
            text,
            "\nNext: weir check {file}, then weir serve --config {file}"
        );
    }
    weir_terminal::note(text);
}

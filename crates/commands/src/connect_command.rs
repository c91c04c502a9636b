//! `weir connect [CLIENT] [URL]`: prints the entry that connects an MCP client to weir, or writes
//! it into the client's file.

mod connect_output;
mod credential_choice;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::exit_code::{EXIT_UNWRITTEN, EXIT_USAGE, exit_with_error};
use crate::table::columns;
use credential_choice::CredentialOptions;
use weir_client_configs::mcp_clients::client_entry::{EndpointConnection, EntryCredential};
use weir_client_configs::mcp_clients::file_merge::MergedFile;
use weir_client_configs::mcp_clients::{ClientFolders, McpClient};
use weir_config::{Config, ConfigLoader, ConfigSource};
use weir_mcp_client::login::{self, LoginError};
use weir_system::atomic_file;
use weir_text::one_line;
use weir_text::suggestion::nearest;

/// The endpoint of a weir with its defaults.
const DEFAULT_URL: &str = "http://127.0.0.1:8080/mcp";

/// The options of `weir connect`.
#[derive(Debug, Args)]
pub struct ConnectOptions {
    /// The client: claude-desktop, claude-code, cursor, vscode, gemini, windsurf, codex or zed;
    /// without one, all clients are listed
    #[arg(value_name = "CLIENT")]
    client: Option<String>,
    /// The endpoint's URL; default: that of the config, or http://127.0.0.1:8080/mcp
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// The config of weir: it provides the URL if you give none, and decides if clients log in or
    /// send a key
    #[arg(long, short, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The path of the endpoint, if the config has several; default: the first one
    #[arg(long, value_name = "PATH", requires = "config")]
    endpoint: Option<String>,
    /// The name of the entry in the client's file
    #[arg(long, value_name = "NAME", default_value = "weir", value_parser = entry_name)]
    name: String,
    #[command(flatten)]
    credential: CredentialOptions,
    /// Write the entry into the client's own file, keep the rest of the file, and show the change
    #[arg(long, short, requires = "client")]
    write: bool,
    /// The file to write to, instead of the client's usual one
    #[arg(long, value_name = "FILE", requires = "write")]
    file: Option<PathBuf>,
    /// Write to the file of the project in the current folder
    #[arg(long, requires = "write", conflicts_with = "file")]
    project: bool,
    /// Replace another entry of this name
    #[arg(long, requires = "write")]
    force: bool,
    /// The home folder to use for the client's files, instead of your own
    #[arg(long, value_name = "FOLDER")]
    home: Option<PathBuf>,
}

/// Lists the clients, prints an entry, or writes it.
pub async fn connect(options: &ConnectOptions) -> ExitCode {
    let folders = ClientFolders::of_user(options.home.as_deref());
    let Some(name) = &options.client else {
        return list_clients(folders.as_ref());
    };
    let client = match find_client(name) {
        Ok(client) => client,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let (url, config) = match endpoint(options) {
        Ok(found) => found,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let credential = match options
        .credential
        .choose(client, &url, config.as_ref())
        .await
    {
        Ok(credential) => credential,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let is_key_missing = credential == EntryCredential::None
        && options.credential.key_variable(config.as_ref()).is_some();
    let program = std::env::current_exe()
        .ok()
        .and_then(|program| program.to_str().map(str::to_owned));
    let program = program.as_deref().unwrap_or("weir");
    let connection = EndpointConnection {
        name: &options.name,
        url: &url,
        program,
        credential,
    };
    if options.write {
        return write(
            options,
            client,
            &connection,
            is_key_missing,
            folders.as_ref(),
        );
    }
    weir_terminal::write(client.snippet(&connection));
    connect_output::print_advice(client, &connection, is_key_missing, folders.as_ref());
    ExitCode::SUCCESS
}

/// Prints the clients and their files.
fn list_clients(folders: Option<&ClientFolders>) -> ExitCode {
    let row = |client: McpClient| {
        let file =
            folders.map(|folders| one_line(&client.user_file(folders).display().to_string()));
        vec![
            client.name().to_owned(),
            client.title().to_owned(),
            file.unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = McpClient::ALL.into_iter().map(row).collect();
    weir_terminal::write(columns(&rows, weir_terminal::width()));
    weir_terminal::note(
        "`weir connect CLIENT URL` prints the entry for a client; --write puts it into the client's file",
    );
    ExitCode::SUCCESS
}

fn find_client(name: &str) -> Result<McpClient, String> {
    let names = || McpClient::ALL.into_iter().map(McpClient::name);
    McpClient::named(name).ok_or_else(|| {
        if name.contains("://") {
            return format!("name the client first, such as: weir connect cursor {name}");
        }
        let near = nearest(name, names())
            .map(|near| format!("did you mean {near}? "))
            .unwrap_or_default();
        format!(
            "`{name}` is not a known client; {near}clients are {}",
            names().collect::<Vec<_>>().join(", ")
        )
    })
}

/// Returns the endpoint's URL, and the config that it comes from.
fn endpoint(options: &ConnectOptions) -> Result<(String, Option<Config>), String> {
    if let Some(url) = &options.url {
        let parsed = login::server_url(url).map_err(|error| {
            if matches!(error, LoginError::UserInfo(_)) {
                "the URL has a credential in it: leave it out, and see --key and --with-secret"
                    .to_owned()
            } else {
                format!("{error}; such as {DEFAULT_URL}")
            }
        })?;
        return Ok((parsed.to_string(), None));
    }
    let Some(file) = &options.config else {
        return Ok((DEFAULT_URL.to_owned(), None));
    };
    let environment = |name: &str| std::env::var(name).ok();
    let outcome = ConfigLoader::new(ConfigSource::File(file.clone()), &environment).load();
    let Some(config) = outcome.config else {
        return Err(format!(
            "{}\nfix the config, or name the URL instead of it",
            outcome.report
        ));
    };
    let wanted = options.endpoint.as_deref();
    let mut endpoints = config.endpoints.iter().map(|endpoint| endpoint.id.as_str());
    let paths = || {
        config
            .endpoints
            .iter()
            .map(|endpoint| endpoint.id.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = endpoints.find(|path| wanted.is_none_or(|wanted| wanted == *path));
    let path = found.ok_or_else(|| {
        format!(
            "there is no such endpoint in the config; it has {}",
            paths()
        )
    })?;
    let url = format!("{}{path}", config.public_base(config.front.listen));
    Ok((url, Some(config)))
}

/// Writes the entry to the client's file.
fn write(
    options: &ConnectOptions,
    client: McpClient,
    connection: &EndpointConnection<'_>,
    is_key_missing: bool,
    folders: Option<&ClientFolders>,
) -> ExitCode {
    let file = match target(options, client, folders) {
        Ok(file) => file,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let shown = one_line(&file.display().to_string());
    // A read from a pipe would block.
    if let Err(error) = atomic_file::check_replaceable(&file) {
        return exit_with_error(
            EXIT_UNWRITTEN,
            format_args!("{shown} cannot be written: {error}"),
        );
    }
    let before = match fs::read_to_string(&file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            return exit_with_error(EXIT_USAGE, format_args!("{shown} cannot be read: {error}"));
        }
    };
    let text = before.as_deref().unwrap_or_default();
    let merged = match client.merged(text, connection, options.force) {
        Ok(MergedFile::Changed(merged)) => merged,
        Ok(MergedFile::Unchanged) => {
            weir_terminal::line(format_args!("{shown} has this entry already"));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            weir_terminal::write(client.snippet(connection));
            connect_output::print_own_command(client, connection);
            return exit_with_error(EXIT_USAGE, format_args!("{shown} {error}"));
        }
    };
    if let Err(error) = save(&file, before.is_some(), &merged) {
        return exit_with_error(
            EXIT_UNWRITTEN,
            format_args!("{shown} cannot be written: {error}"),
        );
    }
    weir_terminal::write(connect_output::diff(&shown, text, &merged, connection));
    connect_output::warn_of_readers(&file, connection, options.project);
    connect_output::print_next_step(client, connection, is_key_missing);
    ExitCode::SUCCESS
}

/// Returns the file to write to.
fn target(
    options: &ConnectOptions,
    client: McpClient,
    folders: Option<&ClientFolders>,
) -> Result<PathBuf, String> {
    if let Some(file) = &options.file {
        return Ok(file.clone());
    }
    let folders = folders.ok_or("the variable HOME is not set: name the file with --file")?;
    if !options.project {
        return Ok(client.user_file(folders));
    }
    let none = || {
        format!(
            "{} has no files of projects: leave --project out",
            client.title()
        )
    };
    client.project_file(folders).ok_or_else(none)
}

fn save(file: &Path, is_there: bool, text: &str) -> std::io::Result<()> {
    if is_there {
        return atomic_file::replace(file, text);
    }
    if let Some(folder) = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)?;
    }
    atomic_file::create(file, text)
}

/// Accepts a name that every client supports.
fn entry_name(text: &str) -> Result<String, String> {
    let is_legal = (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_legal {
        Ok(text.to_owned())
    } else {
        Err("use letters, digits, `-` and `_`, 64 at most".to_owned())
    }
}

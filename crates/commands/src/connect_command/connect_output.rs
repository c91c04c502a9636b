//! The messages of `weir connect`: the place of an entry, the diff of a file, and the next step.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use weir_client_configs::import::credentials::{MASK, looks_secret, split_credential};
use weir_client_configs::mcp_clients::client_entry::{EndpointConnection, EntryCredential};
use weir_client_configs::mcp_clients::line_diff::{ChangedLine, changed_lines};
use weir_client_configs::mcp_clients::{ClientFolders, McpClient};
use weir_text::one_line;

use crate::table::truncate;

/// The longest line of a diff in characters. A file without line ends has all of its content in one
/// line.
const MAX_LINE_CHARS: usize = 160;

/// Prints the file that the entry belongs to, and the ways to add it.
pub(super) fn print_advice(
    client: McpClient,
    connection: &EndpointConnection<'_>,
    is_key_missing: bool,
    folders: Option<&ClientFolders>,
) {
    if let Some(folders) = folders {
        let file = one_line(&client.user_file(folders).display().to_string());
        let project = client
            .project_file(folders)
            .map(|file| one_line(&file.display().to_string()));
        let project = project
            .map(|file| format!(", or for one project {file}"))
            .unwrap_or_default();
        weir_terminal::note(format_args!(
            "for {}: {file}{project}; --write puts it there",
            client.title()
        ));
    }
    print_own_command(client, connection);
    print_next_step(client, connection, is_key_missing);
}

/// Prints the client's own command that writes the entry, if it has one.
pub(super) fn print_own_command(client: McpClient, connection: &EndpointConnection<'_>) {
    if let Some(command) = client.command(connection) {
        weir_terminal::note(format_args!("or run: {command}"));
    }
}

/// Prints the next steps. A login does not replace a key that weir requires and the entry lacks.
pub(super) fn print_next_step(
    client: McpClient,
    connection: &EndpointConnection<'_>,
    is_key_missing: bool,
) {
    let title = client.title();
    let url = connection.url;
    match &connection.credential {
        EntryCredential::Variable(_) if client == McpClient::VsCode => {
            weir_terminal::note(format_args!("{title} asks for the key once and keeps it"));
        }
        EntryCredential::Variable(variable) => {
            weir_terminal::note(format_args!(
                "set {variable} where {title} starts; `weir apikey NAME` makes a key"
            ));
        }
        EntryCredential::None if is_key_missing => {}
        EntryCredential::None if client.supports_programs_only() => {
            weir_terminal::note(format_args!(
                "{title} starts weir as a bridge; if a login is required: weir login {url}"
            ));
        }
        EntryCredential::None => weir_terminal::note(format_args!(
            "if a login is required, {title} opens a browser"
        )),
        EntryCredential::Secret(_) => {}
    }
    weir_terminal::note(format_args!("restart {title}, or reload its servers"));
}

/// Warns if other users may read a credential in the file.
pub(super) fn warn_of_readers(
    file: &Path,
    connection: &EndpointConnection<'_>,
    is_of_project: bool,
) {
    if !matches!(connection.credential, EntryCredential::Secret(_)) {
        return;
    }
    let shown = one_line(&file.display().to_string());
    if is_of_project {
        weir_terminal::note(format_args!(
            "weir: {shown} has a credential now: keep it out of version control"
        ));
    }
    if fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
        weir_terminal::note(format_args!(
            "weir: {shown} has a credential now, and other users can read it: chmod 600 it"
        ));
    }
}

/// Returns the changed lines of a file, without credentials.
pub(super) fn diff(
    file: &str,
    before: &str,
    after: &str,
    connection: &EndpointConnection<'_>,
) -> String {
    let mut text = format!("{file}:\n");
    for line in changed_lines(before, after) {
        let (mark, number, line) = match line {
            ChangedLine::Removed(number, line) => ('-', number, line),
            ChangedLine::Added(number, line) => ('+', number, line),
        };
        text.push_str(&format!(
            "{number:>4} {mark} {}\n",
            one_line(&mask_line(line, connection).replace('\t', "  "))
        ));
    }
    text
}

/// Returns a line with its credentials masked, the new one and those of other entries.
fn mask_line(line: &str, connection: &EndpointConnection<'_>) -> String {
    let line = match &connection.credential {
        EntryCredential::Secret(secret) => line.replace(secret.as_str(), MASK),
        EntryCredential::None | EntryCredential::Variable(_) => line.to_owned(),
    };
    // The texts between quotes are a key and the values after it.
    let mut key = String::new();
    let mut shown = String::new();
    for (at, part) in line.split('"').enumerate() {
        let quote = if at > 0 { "\"" } else { "" };
        let is_text = at % 2 == 1;
        let part = match is_text.then(|| split_credential(&key, part)).flatten() {
            Some((start, credential)) if !credential.contains("${") && credential != MASK => {
                format!("{start}{MASK}")
            }
            _ if is_text && looks_secret(part) => MASK.to_owned(),
            _ => part.to_owned(),
        };
        if is_text {
            key.clone_from(&part);
        } else if let Some(bare) = part.trim_end().strip_suffix('=') {
            // TOML has keys without quotes.
            key = bare
                .split_whitespace()
                .last()
                .unwrap_or_default()
                .to_owned();
        }
        shown.push_str(quote);
        shown.push_str(&part);
    }
    truncate(&shown, MAX_LINE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_is_in_a_diff() {
        let credential = EntryCredential::Secret("canary-of-mine".to_owned());
        let connection = EndpointConnection {
            name: "weir",
            url: "http://x/mcp",
            program: "weir",
            credential,
        };
        let before = "{ \"mcpServers\": { \"a\": { \"headers\": { \"Authorization\": \"Bearer canary1\" }, \"env\": { \"A_KEY\": \"canary2\" } } } }";
        let after = format!(
            "{before}\n\"Authorization\": \"Bearer canary-of-mine\"\nurl = \"http://x/mcp\""
        );
        let toml = "api_key = \"canary3\"\nhttp_headers = { X-Api-Key = \"canary4\" }";
        let shown = diff("f", before, &format!("x{after}\n{toml}"), &connection);
        assert!(
            !shown.contains("canary")
                && shown.contains("Bearer ***")
                && shown.contains("http://x/mcp"),
            "{shown}"
        );
    }
}

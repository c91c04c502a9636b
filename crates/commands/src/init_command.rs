//! `weir init [FILE]`: writes a first config with comments.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weir_system::atomic_file;

use crate::exit_code::{EXIT_USAGE, exit_with_error};

/// The options of `weir init`.
#[derive(Debug, Args)]
pub struct InitOptions {
    /// The file to write [default: weir.yaml]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The file, as an option
    #[arg(long, short, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

/// The text of the first config.
pub(crate) const FIRST_CONFIG: &str = "\
# The config of weir. docs/configuration.md explains every key; `weir check FILE` finds mistakes, with their lines.

# Clients connect here: http://127.0.0.1:8080/mcp has the tools of all servers, /mcp/NAME those of one.
# To serve other machines, configure `auth` (docs/authentication.md).
listen: 127.0.0.1:8080

# The listener for operators: a status page, /healthz, /readyz and /metrics.
admin:
  listen: 127.0.0.1:8081

# The servers, each under a name of its own. `weir add NAME URL` and `weir add NAME -- COMMAND ...` add some;
# `weir import` takes those of Claude, Cursor, VS Code, Gemini CLI, Windsurf, Codex and Zed.
upstreams: {}
#  # A server behind a URL. ${TOKEN} is an environment variable, which keeps the secret out of this file.
#  docs:
#    url: https://mcp.example.com/mcp
#    headers:
#      Authorization: \"Bearer ${TOKEN}\"
#  # A program that weir starts. Its environment is PATH, HOME and `env`.
#  files:
#    command: npx
#    args: [-y, \"@modelcontextprotocol/server-filesystem\", /srv/docs]
#    env:
#      LOG_LEVEL: info

# Authentication, with keys from `weir apikey NAME`:
# auth:
#   mode: required
#   api_keys: []

# Authorization of tools (docs/policy.md):
# policy:
#   inline: |
#     permit(principal, action, resource);

# Rate limits (docs/limits.md):
# rates:
#   principal: { rate: 20/s, burst: 100 }
";

/// Writes the file.
pub fn init(options: &InitOptions) -> ExitCode {
    let named = options.file.as_deref().or(options.config.as_deref());
    let file = named.unwrap_or(Path::new("weir.yaml"));
    let written = if options.force {
        atomic_file::replace(file, FIRST_CONFIG)
    } else {
        atomic_file::create(file, FIRST_CONFIG)
    };
    match written {
        Ok(()) => {
            let file = file.display();
            weir_terminal::line(format_args!(
                "{file} is written. Next: weir add NAME URL --config {file}, weir check {file}"
            ));
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => exit_with_error(
            EXIT_USAGE,
            format_args!(
                "{} exists already: choose another name, or add --force",
                file.display()
            ),
        ),
        Err(error) => exit_with_error(
            EXIT_USAGE,
            format_args!("{} cannot be written: {error}", file.display()),
        ),
    }
}

//! `weir admin`: the admin API of a running weir, for people at a terminal.

mod admin_request;
mod response_tables;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin_client::{AdminClient, AdminRequestError};
use super::exit_code::{EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};
use super::operators_options::{ADMIN_URL_HINT, OperatorsOptions};
use admin_request::{AdminCommand, AdminRequest};

/// The options of `weir admin`: the listener, the token, and the output format.
#[derive(Debug, Args)]
pub struct AdminOptions {
    #[command(flatten)]
    operators: OperatorsOptions,
    /// A file with the operator's token; alternatively the variable WEIR_ADMIN_TOKEN
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: AdminCommand,
}

/// Queries or changes a running weir, and prints its answer.
pub async fn admin(options: AdminOptions) -> ExitCode {
    let AdminOptions {
        operators,
        token_file,
        json,
        command,
    } = options;
    let desk = match operators
        .url()
        .and_then(|admin| AdminClient::new(&admin, token_file.as_deref()))
    {
        Ok(desk) => desk,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let answered = match command.request() {
        AdminRequest::Get(path) => desk.get(&path).await,
        AdminRequest::Post(path, wish) => desk.post(&path, &Value::Object(wish)).await,
    };
    match answered {
        Ok(answer) if json => weir_terminal::line(weir_text::json(&answer)),
        Ok(answer) => weir_terminal::write(response_tables::show(&command, &answer)),
        Err(AdminRequestError {
            code: EXIT_UNREACHABLE,
            why,
        }) => return exit_with_error(EXIT_UNREACHABLE, format_args!("{why}; {ADMIN_URL_HINT}")),
        Err(AdminRequestError { code, why }) => return exit_with_error(code, why),
    }
    ExitCode::SUCCESS
}

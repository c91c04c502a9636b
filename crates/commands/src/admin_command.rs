//! `weir admin`: the admin API of a running weir, for people at a terminal.

mod admin_request;
mod response_tables;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::admin_client::{AdminClient, AdminRequestError};
use crate::exit_code::{EXIT_NO, EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};
use crate::operators_options::{ADMIN_URL_HINT, OperatorsOptions};
use admin_request::{AdminCommand, AdminRequest, encode_segment};

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
    #[command(flatten)]
    replicas: ReplicaOptions,
    #[command(subcommand)]
    command: AdminCommand,
}

/// The options for the replicas that a command concerns; by default the one that is asked.
#[derive(Debug, Args)]
struct ReplicaOptions {
    /// Ask all replicas that share the store; exits with 1 if one of them fails
    #[arg(long, global = true, conflicts_with = "replica")]
    all: bool,
    /// Ask the replica of this id, as `weir admin replicas` shows it
    #[arg(long, global = true, value_name = "ID")]
    replica: Option<String>,
}

impl ReplicaOptions {
    /// Returns a path with the replicas in its query.
    fn add_to(&self, path: String) -> String {
        let replicas = match (&self.replica, self.all) {
            (Some(id), _) => encode_segment(id),
            (None, true) => "all".to_owned(),
            (None, false) => return path,
        };
        let separator = if path.contains('?') { '&' } else { '?' };
        format!("{path}{separator}replicas={replicas}")
    }
}

/// Queries or changes a running weir, and prints its answer.
pub async fn admin(options: AdminOptions) -> ExitCode {
    let AdminOptions {
        operators,
        token_file,
        json,
        replicas,
        command,
    } = options;
    let client = match operators
        .url()
        .and_then(|admin| AdminClient::new(&admin, token_file.as_deref()))
    {
        Ok(client) => client,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let answered = match command.request() {
        AdminRequest::Get(path) => client.get(&replicas.add_to(path)).await,
        AdminRequest::Post(path, members) => {
            let path = replicas.add_to(path);
            client.post(&path, &Value::Object(members)).await
        }
    };
    match answered {
        Ok(answer) => {
            if json {
                weir_terminal::line(weir_text::json(&answer));
            } else if replicas.all {
                weir_terminal::write(response_tables::show_all(&command, &answer));
            } else {
                weir_terminal::write(response_tables::show(&command, &answer));
            }
            if replicas.all && answer["failed"] != 0 {
                return ExitCode::from(EXIT_NO);
            }
        }
        Err(AdminRequestError {
            code: EXIT_UNREACHABLE,
            why,
        }) => return exit_with_error(EXIT_UNREACHABLE, format_args!("{why}; {ADMIN_URL_HINT}")),
        Err(AdminRequestError { code, why }) => return exit_with_error(code, why),
    }
    ExitCode::SUCCESS
}

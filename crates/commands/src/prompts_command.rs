//! `weir prompts URL` and `weir prompt URL NAME key=value`.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use serde_json::value::RawValue;
use weir_core::upstream::ListKind;
use weir_mcp_client::{Client, ClientError, ListedItems};
use weir_text::one_line;

use crate::call_arguments::CallArguments;
use crate::call_command::{OutputOptions, print_notification, until_interrupted};
use crate::content;
use crate::exit_code::{EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};
use crate::list_options::{self, ListOptions, about};
use crate::server_target::{ServerTarget, print_client_error};
use crate::table::columns;
use crate::unknown_name::{self, UnknownName};

/// The options of `weir prompts`.
#[derive(Debug, Args)]
pub struct PromptsOptions {
    #[command(flatten)]
    listing: ListOptions,
    /// Print the prompts as a JSON array
    #[arg(long)]
    json: bool,
}

/// The options of `weir prompt`.
#[derive(Debug, Args)]
pub struct PromptOptions {
    #[command(flatten)]
    target: ServerTarget,
    /// The prompt's name, as `weir prompts` shows it
    name: String,
    /// KEY=VALUE, repeated for several; or a JSON object of texts; or a file with one as @FILE, or
    /// - for standard input
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Lists the prompts of a server.
pub async fn prompts(options: &PromptsOptions) -> ExitCode {
    let PromptsOptions { listing, json } = options;
    let (client, [ListedItems { items, missing }]) = match listing.read([ListKind::Prompts]).await {
        Ok(read) => read,
        Err(error) => return print_client_error(&error),
    };
    let all = items.len();
    let prompts = listing.filter_items(items);
    if *json {
        weir_terminal::line(weir_text::json(&Value::from(prompts.clone())));
    } else {
        let rows: Vec<Vec<String>> = prompts.iter().map(row).collect();
        weir_terminal::write(columns(&rows, weir_terminal::width()));
        weir_terminal::note(list_options::summary(
            ListKind::Prompts,
            prompts.len(),
            all,
            &client,
        ));
    }
    listing.print_missing(ListKind::Prompts, &missing);
    client.close().await;
    listing.exit_code(prompts.len(), &missing)
}

/// Returns the columns of a prompt: its name, its arguments (optional ones in brackets) and its
/// description.
fn row(prompt: &Value) -> Vec<String> {
    let arguments = prompt["arguments"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|argument| {
            let name = one_line(argument["name"].as_str().unwrap_or("?"));
            if argument["required"] == true {
                format!("{name}=")
            } else {
                format!("[{name}=]")
            }
        });
    let name = one_line(prompt["name"].as_str().unwrap_or("?"));
    vec![name, arguments.collect::<Vec<_>>().join(" "), about(prompt)]
}

/// Prints a prompt, filled in.
pub async fn prompt(options: &PromptOptions) -> ExitCode {
    let arguments = match CallArguments::read(&options.arguments).and_then(CallArguments::texts) {
        Ok(arguments) => arguments,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let got = async {
        let mut client = options.target.open().await?;
        let got = get(&mut client, &options.name, &arguments).await;
        client.close().await;
        got
    };
    let result = match until_interrupted(got).await {
        Ok(Ok(Ok(result))) => result,
        Ok(Ok(Err(unknown))) => {
            return exit_with_error(EXIT_UNREACHABLE, unknown.explain(&options.target.url));
        }
        Ok(Err(error)) => return print_client_error(&error),
        Err(code) => return code,
    };
    let messages = result["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let lines: Vec<String> = messages.iter().map(message).collect();
    let media = || content::media(messages.iter().map(|message| &message["content"]));
    options.output.finish(&result, &lines, media, &options.name)
}

async fn get(
    client: &mut Client,
    name: &str,
    arguments: &RawValue,
) -> Result<Result<Value, UnknownName>, ClientError> {
    let got = client
        .prompt(name, arguments, &mut |note| print_notification(&note))
        .await;
    match unknown_name::find_unknown(client, ListKind::Prompts, name, &got).await {
        Some(unknown) => Ok(Err(unknown)),
        None => got.map(Ok),
    }
}

fn message(message: &Value) -> String {
    let role = one_line(message["role"].as_str().unwrap_or("?"));
    format!("{role}: {}", content::show(&message["content"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompt_row_shows_required_and_optional_arguments() {
        let prompt = json!({"name": "greet", "arguments": [{"name": "who", "required": true}, {"name": "how"}], "title": "Greet"});
        assert_eq!(row(&prompt), ["greet", "who= [how=]", "Greet"]);
        let said = message(
            &json!({"role": "user", "content": {"type": "text", "text": "Hello\u{1b}[2J"}}),
        );
        assert_eq!(said, "user: Hello[2J");
    }
}

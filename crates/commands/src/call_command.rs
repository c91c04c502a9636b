//! `weir call URL TOOL ARGUMENTS`: prints the result on standard output, progress and log messages
//! on standard error.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use weir_core::upstream::ListKind;
use weir_mcp_client::{Client, ClientError, Note};
use weir_program::ProcessSignals;

use crate::call_arguments::CallArguments;
use crate::content::{self, MediaContent};
use crate::exit_code::{
    EXIT_INTERRUPTED, EXIT_NO, EXIT_UNREACHABLE, EXIT_UNWRITTEN, EXIT_USAGE, exit_with_error,
};
use crate::server_target::{ServerTarget, print_client_error};
use crate::unknown_name::{self, UnknownName};

/// The options of `weir call`.
#[derive(Debug, Args)]
pub struct CallOptions {
    #[command(flatten)]
    target: ServerTarget,
    /// The tool's name, as `weir tools` shows it
    tool: String,
    /// KEY=VALUE with the types of the tool's schema, repeated for a list; or a JSON object; or a
    /// file with one as @FILE, or - for standard input
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// The output options of a result.
#[derive(Debug, Args)]
pub(super) struct OutputOptions {
    /// Print the whole result as JSON
    #[arg(long)]
    json: bool,
    /// Save images, audio and embedded files: into this folder, or a single one as this file
    #[arg(long, value_name = "PATH")]
    pub(super) out: Option<PathBuf>,
}

/// An error of a call.
enum CallError {
    Usage(String),
    Client(ClientError),
    Unknown(UnknownName),
}

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Calls a tool, and prints its result.
pub async fn call(options: &CallOptions) -> ExitCode {
    let arguments = match CallArguments::read(&options.arguments) {
        Ok(arguments) => arguments,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let called = async {
        let mut client = options.target.open().await?;
        let result = call_tool(&mut client, &options.tool, arguments).await;
        client.close().await;
        result
    };
    let result = match until_interrupted(called).await {
        Ok(Ok(result)) => result,
        Ok(Err(CallError::Usage(why))) => return exit_with_error(EXIT_USAGE, why),
        Ok(Err(CallError::Client(error))) => return print_client_error(&error),
        Ok(Err(CallError::Unknown(unknown))) => {
            return exit_with_error(EXIT_UNREACHABLE, unknown.explain(&options.target.url));
        }
        Err(code) => return code,
    };
    let blocks = result["content"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let code = options.output.finish(
        &result,
        &lines(&result),
        || content::media(blocks),
        &options.tool,
    );
    if result["isError"] == true && code == ExitCode::SUCCESS {
        ExitCode::from(EXIT_NO)
    } else {
        code
    }
}

async fn call_tool(
    client: &mut Client,
    tool: &str,
    arguments: CallArguments,
) -> Result<Value, CallError> {
    let definition = if arguments.needs_schema() {
        find_definition(client, tool).await?
    } else {
        None
    };
    let schema = definition
        .as_ref()
        .map(|definition| definition["inputSchema"].clone())
        .unwrap_or_default();
    let arguments = arguments.typed(&schema).map_err(CallError::Usage)?;
    if let Some(definition) = &definition {
        client.repeat_as_headers(definition, &arguments);
    }
    let mut result = client
        .call(tool, &arguments, &mut |note| print_notification(&note))
        .await;
    if is_header_mismatch(&result)
        && definition.is_none()
        && let Some(definition) = find_definition(client, tool).await?
    {
        // The server has not run the tool: it requires arguments as headers, too.
        client.repeat_as_headers(&definition, &arguments);
        result = client
            .call(tool, &arguments, &mut |note| print_notification(&note))
            .await;
    }
    match unknown_name::find_unknown(client, ListKind::Tools, tool, &result).await {
        Some(unknown) => Err(CallError::Unknown(unknown)),
        None => Ok(result?),
    }
}

/// Looks up the definition of a tool. A weir also accepts a tool's own name if only one upstream
/// has it.
async fn find_definition(client: &mut Client, tool: &str) -> Result<Option<Value>, ClientError> {
    let listed = client.list(ListKind::Tools).await?;
    let found = listed.items.iter().find(|item| item["name"] == tool);
    Ok(found
        .or_else(|| unknown_name::find_by_own_name(&listed.items, tool))
        .cloned())
}

fn is_header_mismatch(result: &Result<Value, ClientError>) -> bool {
    matches!(
        result,
        Err(ClientError::Refused {
            code: weir_wire::error_code::HEADER_MISMATCH,
            ..
        })
    )
}

/// Runs a command until it ends or a person interrupts it.
///
/// # Errors
/// The exit code of an interrupted command.
pub(super) async fn until_interrupted<T>(work: impl Future<Output = T>) -> Result<T, ExitCode> {
    let mut signals =
        ProcessSignals::new().map_err(|error| exit_with_error(EXIT_UNREACHABLE, error))?;
    tokio::select! {
        done = work => Ok(done),
        () = signals.stop() => Err(ExitCode::from(EXIT_INTERRUPTED)),
    }
}

impl OutputOptions {
    /// Prints and saves a result: its lines, or all of it as JSON.
    pub(crate) fn finish(
        &self,
        result: &Value,
        lines: &[String],
        media: impl FnOnce() -> Result<Vec<MediaContent>, String>,
        name: &str,
    ) -> ExitCode {
        if self.json {
            weir_terminal::line(weir_text::json(result));
        } else {
            lines.iter().for_each(weir_terminal::line);
        }
        match &self.out {
            Some(out) => save(out, media, name),
            None => {
                if !self.json
                    && media().is_ok_and(|media| media.iter().any(MediaContent::is_binary))
                {
                    weir_terminal::note("weir: --out PATH saves the content in brackets");
                }
                ExitCode::SUCCESS
            }
        }
    }
}

fn save(
    out: &Path,
    media: impl FnOnce() -> Result<Vec<MediaContent>, String>,
    name: &str,
) -> ExitCode {
    let saved = media().and_then(|media| content::save(&media, out, name));
    match saved {
        Err(why) => exit_with_error(EXIT_UNWRITTEN, why),
        Ok(saved) if saved.is_empty() => {
            weir_terminal::note("weir: the result has no image, audio or file: nothing was saved");
            ExitCode::SUCCESS
        }
        Ok(saved) => {
            saved
                .iter()
                .for_each(|path| weir_terminal::note(format_args!("saved {}", path.display())));
            ExitCode::SUCCESS
        }
    }
}

/// Formats texts unchanged, and other content as JSON or by its size.
fn lines(result: &Value) -> Vec<String> {
    let content = result["content"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut lines: Vec<String> = content.iter().map(content::show).collect();
    if lines.is_empty() && !result["structuredContent"].is_null() {
        lines.push(weir_text::json(&result["structuredContent"]));
    }
    lines
}

/// Prints a notification of the server on standard error.
pub(super) fn print_notification(note: &Note) {
    match note {
        Note::Progress {
            progress,
            total,
            message,
        } => {
            let of = total.map(|total| format!("/{total}")).unwrap_or_default();
            weir_terminal::note(format_args!(
                "... {progress}{of} {}",
                message.as_deref().unwrap_or_default()
            ));
        }
        Note::Log { level, text } => weir_terminal::note(format_args!("[{level}] {text}")),
        Note::Changed | Note::Other => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_without_content_shows_its_structure() {
        assert_eq!(
            lines(&json!({"content": [], "structuredContent": {"a": 1}})),
            ["{\"a\":1}"]
        );
        assert_eq!(
            lines(&json!({"content": [{"type": "text", "text": "t"}], "structuredContent": {}})),
            ["t"]
        );
    }
}

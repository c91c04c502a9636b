//! `weir explain`: explains if a sender can use a tool, from a running weir or from a config alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use weir_config::{Config, ConfigLoader, ConfigSource};
use weir_config_file::foreign::inputs::InputSource;
use weir_explain::{AccessQuestion, EXPLAIN_PATH, Explainer, Explanation};
use weir_system::{SystemClock, on_this_machine};

use crate::admin_client::{AdminClient, AdminRequestError};
use crate::exit_code::{EXIT_BAD_CONFIG, EXIT_NO, EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};
use crate::operators_options::{ADMIN_URL_HINT, OperatorsOptions};

/// The options of `weir explain`.
#[derive(Debug, Args)]
pub struct ExplainOptions {
    #[command(flatten)]
    operators: OperatorsOptions,
    /// A file with the operator's token, if the listener requires one; alternatively the variable
    /// WEIR_ADMIN_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The sender: the claims of its token, as JSON, or {"api_key": "ID"}, or {"certificate":
    /// "NAME"}; default: an anonymous sender
    #[arg(
        long = "as",
        value_name = "CLAIMS",
        default_value = "{}",
        hide_default_value = true
    )]
    claims: String,
    /// The path of the endpoint that the sender uses
    #[arg(long, value_name = "PATH", default_value = weir_config::DEFAULT_ENDPOINT)]
    endpoint: String,
    /// The tool, by the name that clients see, or as upstream/tool
    #[arg(long, value_name = "NAME")]
    tool: String,
    /// Arguments of the call, a JSON object, for rules and schemas that depend on them
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// Print the whole answer as JSON
    #[arg(long)]
    json: bool,
}

/// Explains if a sender can use a tool.
pub async fn explain(options: &ExplainOptions) -> ExitCode {
    let ExplainOptions {
        claims,
        endpoint,
        tool,
        arguments,
        ..
    } = options;
    let question = match AccessQuestion::new(claims, endpoint, tool, arguments.as_deref()) {
        Ok(question) => question,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    match answer(options, &question).await {
        Ok(explanation) => finish(&explanation, options.json),
        Err((code, why)) => exit_with_error(code, why),
    }
}

fn finish(explanation: &Explanation, json: bool) -> ExitCode {
    if json {
        weir_terminal::line(weir_text::json(&serde_json::json!(explanation)));
    } else {
        weir_terminal::write(explanation);
    }
    if explanation.callable {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_NO)
    }
}

async fn answer(
    options: &ExplainOptions,
    question: &AccessQuestion,
) -> Result<Explanation, (u8, String)> {
    let ExplainOptions {
        operators,
        token_file,
        ..
    } = options;
    let token = token_file.as_deref();
    let refusal = |failed: AdminRequestError| match failed.code {
        EXIT_USAGE => (EXIT_USAGE, failed.why),
        EXIT_UNREACHABLE => (
            EXIT_UNREACHABLE,
            format!("{}; {ADMIN_URL_HINT}, or explains by it alone", failed.why),
        ),
        _ => (EXIT_UNREACHABLE, failed.why),
    };
    let Some(file) = operators
        .config
        .as_deref()
        .filter(|_| operators.given_url().is_none())
    else {
        let admin = operators.url().map_err(|why| (EXIT_USAGE, why))?;
        return ask_running_weir(&admin, token, question)
            .await
            .map_err(refusal);
    };
    // If its weir cannot be reached, the explanation uses the config alone.
    let config = load(file).map_err(|why| (EXIT_BAD_CONFIG, why))?;
    if let Some(address) = config
        .admin
        .as_ref()
        .map(|plan| plan.listen)
        .filter(|address| address.port() != 0)
    {
        match ask_running_weir(
            &format!("http://{}", on_this_machine(address)),
            token,
            question,
        )
        .await
        {
            Ok(explanation) => return Ok(explanation),
            Err(AdminRequestError {
                code: EXIT_UNREACHABLE,
                why,
            }) => {
                weir_terminal::note(format_args!(
                    "weir: {why}; this explanation is from the config alone"
                ));
            }
            // That weir is running, so an explanation from the config alone would be incomplete.
            Err(AdminRequestError { code: EXIT_NO, why }) => {
                return Err((EXIT_UNREACHABLE, format!("{address}: {why}")));
            }
            Err(AdminRequestError { code, why }) => return Err((code, why)),
        }
    }
    Ok(
        Explainer::from_config(Arc::new(config), Arc::new(SystemClock::new()))
            .answer(question)
            .await,
    )
}

fn load(file: &Path) -> Result<Config, String> {
    let environment = |name: &str| std::env::var(name).ok();
    let outcome = ConfigLoader::new(ConfigSource::File(file.to_owned()), &environment)
        .with_inputs(InputSource::StandIn)
        .load();
    outcome
        .config
        .ok_or_else(|| format!("the config cannot be used:\n{}", outcome.report))
}

/// Sends the question to a running weir.
async fn ask_running_weir(
    admin: &str,
    token: Option<&Path>,
    question: &AccessQuestion,
) -> Result<Explanation, AdminRequestError> {
    let client = AdminClient::new(admin, token).map_err(|why| AdminRequestError {
        code: EXIT_USAGE,
        why,
    })?;
    let answer = client
        .get(&format!("{EXPLAIN_PATH}?{}", question.query()))
        .await?;
    serde_json::from_value(answer).map_err(|error| AdminRequestError {
        code: EXIT_UNREACHABLE,
        why: format!("{admin} gives no explanation, so it is another version of weir ({error})"),
    })
}

//! `weir explain`: explains if a sender can use a tool, from a running weir or from a config alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::admin::ask::{self, Desk, Failed};
use super::operators::{NAME_IT, OperatorsOptions};
use super::{NO, UNREACHABLE, USAGE, fail};
use crate::admin::EXPLAIN_PATH;
use crate::config::{Config, InputSource, Loader, Source};
use crate::explain::{Explainer, Explanation, Question};
use crate::serve::BAD_CONFIG;
use crate::system::{SystemClock, on_this_machine};
use crate::terminal;

#[derive(Debug, Args)]
pub(super) struct Options {
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
    #[arg(long, value_name = "PATH", default_value = crate::explain::ENDPOINT)]
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

pub(super) async fn explain(options: &Options) -> ExitCode {
    let Options {
        claims,
        endpoint,
        tool,
        arguments,
        ..
    } = options;
    let question = match Question::new(claims, endpoint, tool, arguments.as_deref()) {
        Ok(question) => question,
        Err(why) => return fail(USAGE, why),
    };
    match answer(options, &question).await {
        Ok(explanation) => finish(&explanation, options.json),
        Err((code, why)) => fail(code, why),
    }
}

fn finish(explanation: &Explanation, json: bool) -> ExitCode {
    if json {
        terminal::line(terminal::json(&serde_json::json!(explanation)));
    } else {
        terminal::write(explanation);
    }
    if explanation.callable {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NO)
    }
}

async fn answer(options: &Options, question: &Question) -> Result<Explanation, (u8, String)> {
    let Options {
        operators,
        token_file,
        ..
    } = options;
    let token = token_file.as_deref();
    let asked = |failed: Failed| match failed.code {
        USAGE => (USAGE, failed.why),
        UNREACHABLE => (
            UNREACHABLE,
            format!("{}; {NAME_IT}, or explains by it alone", failed.why),
        ),
        _ => (UNREACHABLE, failed.why),
    };
    let Some(file) = operators
        .config
        .as_deref()
        .filter(|_| operators.named().is_none())
    else {
        let admin = operators.url().map_err(|why| (USAGE, why))?;
        return ask(&admin, token, question).await.map_err(asked);
    };
    // If its weir cannot be reached, the explanation uses the config alone.
    let config = load(file).map_err(|why| (BAD_CONFIG, why))?;
    if let Some(address) = config
        .admin
        .as_ref()
        .map(|plan| plan.listen)
        .filter(|address| address.port() != 0)
    {
        match ask(
            &format!("http://{}", on_this_machine(address)),
            token,
            question,
        )
        .await
        {
            Ok(explanation) => return Ok(explanation),
            Err(Failed {
                code: UNREACHABLE,
                why,
            }) => {
                terminal::note(format_args!(
                    "weir: {why}; this is what the config alone says"
                ));
            }
            // That weir is running, so an explanation from the config alone would be incomplete.
            Err(Failed {
                code: ask::REFUSED,
                why,
            }) => return Err((UNREACHABLE, format!("{address}: {why}"))),
            Err(Failed { code, why }) => return Err((code, why)),
        }
    }
    Ok(
        Explainer::supposing(Arc::new(config), Arc::new(SystemClock::new()))
            .answer(question)
            .await,
    )
}

fn load(file: &Path) -> Result<Config, String> {
    let environment = |name: &str| std::env::var(name).ok();
    let outcome = Loader::new(Source::File(file.to_owned()), &environment)
        .inputs_from(InputSource::StandIn)
        .load();
    outcome
        .config
        .ok_or_else(|| format!("the config cannot be used:\n{}", outcome.report))
}

/// Sends the question to a running weir.
async fn ask(
    admin: &str,
    token: Option<&Path>,
    question: &Question,
) -> Result<Explanation, Failed> {
    let desk = Desk::new(admin, token).map_err(|why| Failed { code: USAGE, why })?;
    let answer = desk
        .look(&format!("{EXPLAIN_PATH}?{}", question.query()))
        .await?;
    serde_json::from_value(answer).map_err(|error| Failed {
        code: UNREACHABLE,
        why: format!("{admin} gives no explanation, so it is another version of weir ({error})"),
    })
}

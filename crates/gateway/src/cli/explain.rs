//! `weir explain`: why somebody can use a tool or not, asked of the running weir, or by its config alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};

use super::{UNREACHABLE, USAGE, fail};
use crate::admin::EXPLAIN;
use crate::client::{chain, pool};
use crate::config::{Config, Loader, Source};
use crate::explain::{Explainer, Explanation, Question};
use crate::serve::BAD_CONFIG;
use crate::system::SystemClock;

/// A call would be refused.
const REFUSED: u8 = 1;
/// weir answers at once; another listener may not.
const PATIENCE: Duration = Duration::from_secs(10);
/// An explanation has a few kilobytes.
const LONGEST: usize = 1 << 20;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The config file. Where the weir that runs by it is reached is found there; where it does not run, the config alone is
    /// asked
    #[arg(long, short, env = "WEIR_CONFIG", value_name = "FILE", required_unless_present = "admin")]
    config: Option<PathBuf>,
    /// The operators' listener of a running weir, such as http://127.0.0.1:8081
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The sender: the claims of its token, as JSON, or {"api_key": "ID"}, or {"certificate": "NAME"}; nobody where not given
    #[arg(long = "as", value_name = "CLAIMS", default_value = "{}", hide_default_value = true)]
    claims: String,
    /// The path that the sender uses
    #[arg(long, value_name = "PATH", default_value = crate::explain::ENDPOINT)]
    endpoint: String,
    /// The tool, by the name that clients see, or as upstream/tool
    #[arg(long, value_name = "NAME")]
    tool: String,
    /// Arguments of the call, a JSON object, for rules and schemas that look at them
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// Print the whole answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn explain(options: &Options) -> ExitCode {
    let Options { claims, endpoint, tool, arguments, .. } = options;
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
        println!("{}", serde_json::json!(explanation));
    } else {
        print!("{explanation}");
    }
    if explanation.callable { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) }
}

async fn answer(options: &Options, question: &Question) -> Result<Explanation, (u8, String)> {
    if let Some(admin) = &options.admin {
        return ask(admin, question).await.map_err(|why| (UNREACHABLE, format!("{admin}: {why}")));
    }
    // clap asks for the one or the other.
    let config = load(options.config.as_deref().unwrap_or(Path::new("weir.yaml"))).map_err(|why| (BAD_CONFIG, why))?;
    if let Some(address) = config.admin.as_ref().map(|plan| plan.listen).filter(|address| address.port() != 0) {
        match ask(&format!("http://{address}"), question).await {
            Ok(explanation) => return Ok(explanation),
            Err(why) => eprintln!("weir: no weir answers at {address} ({why})"),
        }
    }
    Ok(Explainer::supposing(Arc::new(config), Arc::new(SystemClock::new())).answer(question).await)
}

fn load(file: &Path) -> Result<Config, String> {
    let environment = |name: &str| std::env::var(name).ok();
    let outcome = Loader::new(Source::File(file.to_owned()), &environment).load();
    outcome.config.ok_or_else(|| format!("the config cannot be used:\n{}", outcome.report))
}

/// Asks a running weir.
async fn ask(admin: &str, question: &Question) -> Result<Explanation, String> {
    let url = format!("{}{EXPLAIN}?{}", admin.trim_end_matches('/'), question.query());
    let request = Request::get(&url).body(Full::new(Bytes::new())).map_err(|error| error.to_string())?;
    let exchange = async {
        let response = pool(url.starts_with("https:"))?.request(request).await.map_err(|error| chain(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST).collect().await.map_err(|error| error.to_string())?;
        let body = body.to_bytes();
        match status {
            StatusCode::OK => serde_json::from_slice(&body).map_err(|error| format!("no explanation came: {error}")),
            _ => Err(format!("{status}: {}", String::from_utf8_lossy(&body).trim())),
        }
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("no answer".to_owned()))
}

//! `weir health`: reports if a running weir is alive and ready for traffic. It serves images
//! without a shell, and scripts. It reports exactly the content of the two health pages.

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use weir_mcp_client::{explain_unreachable, pool};

use super::exit_code::{EXIT_NO, EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};
use super::operators_options::{ADMIN_URL_HINT, OperatorsOptions};
use weir_config::{LIVENESS_PATH, READINESS_PATH};

/// The timeout. A running weir answers at once, and health checks are repeated soon.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest response in bytes. The pages have one line.
const MAX_PAGE_BYTES: usize = 4096;

/// The options of `weir health`.
#[derive(Debug, Args)]
pub struct HealthOptions {
    #[command(flatten)]
    operators: OperatorsOptions,
    /// Ask only if it is alive, not if it is ready for traffic
    #[arg(long)]
    alive: bool,
}

/// Asks a running weir for its health, and prints it.
pub async fn health(options: &HealthOptions) -> ExitCode {
    let admin = match options.operators.url() {
        Ok(admin) => admin,
        Err(why) => return exit_with_error(EXIT_USAGE, why),
    };
    let page = if options.alive {
        LIVENESS_PATH
    } else {
        READINESS_PATH
    };
    match read_page(&format!("{admin}{page}")).await {
        Ok((StatusCode::OK, text)) => {
            weir_terminal::line(text);
            ExitCode::SUCCESS
        }
        Ok((status, text)) => exit_with_error(EXIT_NO, format!("{status}: {text}")),
        Err(why) => exit_with_error(
            EXIT_UNREACHABLE,
            format!("no admin listener of weir answers at {admin}: {why}; {ADMIN_URL_HINT}"),
        ),
    }
}

async fn read_page(url: &str) -> Result<(StatusCode, String), String> {
    let request = Request::get(url)
        .body(Full::new(Bytes::new()))
        .map_err(|error| error.to_string())?;
    let uri = request.uri().clone();
    let exchange = async {
        let response = pool(url.starts_with("https:"))?.request(request).await;
        let response = response.map_err(|error| explain_unreachable(&uri, &error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_PAGE_BYTES)
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        Ok((
            status,
            String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
        ))
    };
    tokio::time::timeout(HEALTH_TIMEOUT, exchange)
        .await
        .unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
}

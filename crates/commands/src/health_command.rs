//! `weir health`: reports if a running weir is alive and ready for traffic. It serves images
//! without a shell, and scripts. It reports exactly the content of the two health pages.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use weir_system::on_this_machine;

use crate::admin_client::exchange;
use crate::exit_code::{EXIT_NO, EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};
use crate::operators_options::{ADMIN_URL_HINT, OperatorsOptions};
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
    /// The file with the addresses that a running `weir serve --address-file FILE` listens at; if
    /// it exists, it comes before the config, which may have changed since weir read it
    #[arg(long, env = "WEIR_ADDRESS_FILE", value_name = "FILE")]
    address_file: Option<PathBuf>,
    /// Ask only if it is alive, not if it is ready for traffic
    #[arg(long)]
    alive: bool,
}

impl HealthOptions {
    /// Returns the URL of the operators' listener. The running weir's own addresses come before
    /// its config: that file may be broken by now, and weir healthy.
    fn url(&self) -> Result<String, String> {
        if self.operators.given_url().is_none()
            && let Some(file) = &self.address_file
            && let Some(url) = recorded_url(file)?
        {
            return Ok(url);
        }
        self.operators.url()
    }
}

/// Returns the URL of the operators' listener in an address file of `weir serve`. `None` if there
/// is no such file yet, or it is a pipe or device, which has no past to read.
fn recorded_url(file: &Path) -> Result<Option<String>, String> {
    if !file.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let not_one = || {
        format!(
            "{} is not a file of `weir serve --address-file`",
            file.display()
        )
    };
    let addresses: Value = serde_json::from_str(&text).map_err(|_| not_one())?;
    match addresses.get("operators") {
        Some(Value::Null) => Err(format!(
            "{} has no address for operators: this weir has no listener for operators",
            file.display()
        )),
        Some(Value::String(address)) => {
            let address: SocketAddr = address.parse().map_err(|_| not_one())?;
            Ok(Some(format!("http://{}", on_this_machine(address))))
        }
        _ => Err(not_one()),
    }
}

/// Asks a running weir for its health, and prints it.
pub async fn health(options: &HealthOptions) -> ExitCode {
    let admin = match options.url() {
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
    let (status, body) = exchange(request, MAX_PAGE_BYTES, HEALTH_TIMEOUT).await?;
    Ok((status, String::from_utf8_lossy(&body).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The config may be broken since weir read it.
    #[test]
    fn addresses_of_the_running_weir_come_before_its_config() {
        let file = std::env::temp_dir().join(format!("weir-addresses-{}.json", std::process::id()));
        let options = || HealthOptions {
            operators: OperatorsOptions::of_config("/nowhere/weir.yaml"),
            address_file: Some(file.clone()),
            alive: false,
        };
        let why = options().url().expect_err("neither file exists");
        assert!(why.contains("/nowhere/weir.yaml"), "{why}");
        for (text, expected) in [
            (
                r#"{"clients":"127.0.0.1:1","operators":"0.0.0.0:9"}"#,
                Ok("http://127.0.0.1:9"),
            ),
            (
                r#"{"clients":"127.0.0.1:1","operators":null}"#,
                Err("no listener for operators"),
            ),
            (r#"{"clients":"127.0.0.1:1"}"#, Err("is not a file of")),
            ("", Err("is not a file of")),
        ] {
            std::fs::write(&file, text).expect("it is written");
            match (options().url(), expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url, expected),
                (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
                (url, _) => panic!("{text}: {url:?}"),
            }
        }
        std::fs::remove_file(&file).expect("it is there");
    }
}

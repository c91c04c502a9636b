//! `weir health`: is a running weir alive, does it want traffic. For images without a shell and for scripts; it knows nothing that
//! the two pages do not say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};

use super::{UNREACHABLE, USAGE, fail};
use crate::admin::{ALIVE, READY};
use crate::client::{chain, pool};
use crate::config::{DEFAULT_OPERATORS, operators};
use crate::terminal;

/// It answers, but says no.
const NOT_READY: u8 = 1;
/// What runs answers at once; what asks is asked again soon.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pages have a line.
const LONGEST: usize = 4096;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The config file of the weir that runs: where its operators' listener is. Nothing else in it matters
    #[arg(long, short, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The operators' listener itself, such as http://127.0.0.1:8081
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    admin: Option<String>,
    /// Ask only whether it is alive, not whether it wants traffic
    #[arg(long)]
    alive: bool,
}

pub(super) async fn health(options: &Options) -> ExitCode {
    let admin = match (&options.admin, &options.config) {
        (Some(admin), _) => admin.trim_end_matches('/').to_owned(),
        (None, None) => format!("http://{DEFAULT_OPERATORS}"),
        (None, Some(file)) => match configured(file) {
            Some(address) => format!("http://{address}"),
            None => return fail(USAGE, "the config says `admin: { listen: off }`: nobody can be asked"),
        },
    };
    let page = if options.alive { ALIVE } else { READY };
    match ask(&format!("{admin}{page}")).await {
        Ok((StatusCode::OK, text)) => {
            terminal::line(text);
            ExitCode::SUCCESS
        }
        Ok((status, text)) => fail(NOT_READY, format!("{status}: {text}")),
        Err(why) => fail(UNREACHABLE, format!("{admin}: {why}")),
    }
}

/// Where a program on the same machine reaches the listener of this config; `None` where there is none.
fn configured(file: &Path) -> Option<SocketAddr> {
    match operators(file, &|name| std::env::var(name).ok()) {
        Ok(address) => address.map(near),
        Err(why) => {
            // It may have been good when weir read it.
            terminal::note(format_args!("weir: {}: {why}; asking {DEFAULT_OPERATORS}", file.display()));
            Some(DEFAULT_OPERATORS)
        }
    }
}

/// The loopback address of a listener on all addresses.
fn near(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback =
            if address.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) };
        address.set_ip(loopback);
    }
    address
}

async fn ask(url: &str) -> Result<(StatusCode, String), String> {
    let request = Request::get(url).body(Full::new(Bytes::new())).map_err(|error| error.to_string())?;
    let exchange = async {
        let response = pool(url.starts_with("https:"))?.request(request).await.map_err(|error| chain(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST).collect().await.map_err(|error| error.to_string())?;
        Ok((status, String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()))
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("no answer".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_asked_on_loopback() {
        for (listener, asked) in [
            ("0.0.0.0:8081", "127.0.0.1:8081"),
            ("[::]:8081", "[::1]:8081"),
            ("10.0.0.7:9", "10.0.0.7:9"),
            ("127.0.0.1:8081", "127.0.0.1:8081"),
        ] {
            let parsed: SocketAddr = listener.parse().expect("an address");
            assert_eq!(near(parsed).to_string(), asked);
        }
    }
}

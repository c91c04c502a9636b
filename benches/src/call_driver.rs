//! Calls on command, in a process of their own, for a measurement that counts instead of timing.
//!
//! It takes commands by lines (`call N`) and answers each with the count of right answers. One
//! client makes one call after another, so that weir's work for a call is the same each time.

use crate::client::{LoadClient, ToolAddress};
use crate::load_clients::message;
use crate::process::commands;
use crate::protocol::Era;
use anyhow::{Context as _, Result, bail, ensure};
use http::Uri;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The most time for one answer: a weir under an instrumenting tool is a hundred times slower.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The most time until the tool is listed.
const LISTED_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of checks of the list.
const LIST_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The tool to call.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CallTarget {
    /// Address to connect to.
    #[arg(long)]
    addr: SocketAddr,
    /// Path of the MCP endpoint.
    #[arg(long, default_value = "/mcp")]
    path: Uri,
    /// Era: modern or legacy.
    #[arg(long)]
    era: String,
    /// Name of an echo tool.
    #[arg(long)]
    tool: String,
    /// Bytes of the message that is echoed.
    #[arg(long, default_value_t = 200)]
    payload: usize,
}

/// Connects one client and serves commands until standard input ends.
///
/// # Errors
/// An unknown command, or a wrong or missing answer.
pub(crate) async fn serve(target: CallTarget) -> Result<()> {
    let era = Era::from_word(&target.era).context("era is modern or legacy")?;
    let connecting = LoadClient::connect(target.addr, &target.path, era);
    let mut client = timeout(ANSWER_TIMEOUT, connecting)
        .await
        .context("no connection")??;
    let address = ToolAddress {
        addr: target.addr,
        path: target.path,
        tool: target.tool,
        credential: None,
    };
    wait_until_listed(&mut client, &address.tool).await?;
    let mut sent = 0;
    let mut commands = commands();
    while let Some(line) = commands.recv().await {
        let Some(("call", count)) = line.split_once(' ') else {
            bail!("unknown command {line}");
        };
        let count: u64 = count.parse()?;
        for _ in 0..count {
            sent += 1;
            let message = message(0, sent, target.payload);
            timeout(ANSWER_TIMEOUT, client.echo(&address, &message))
                .await
                .context("no answer")??;
        }
        println!("{count}");
    }
    client.close().await
}

async fn wait_until_listed(client: &mut LoadClient, tool: &str) -> Result<()> {
    let deadline = Instant::now() + LISTED_TIMEOUT;
    loop {
        let names = timeout(ANSWER_TIMEOUT, client.names())
            .await
            .context("tools/list is not answered")??;
        if names.iter().any(|name| name == tool) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{tool} is not listed: {names:?}");
        sleep(LIST_POLL_INTERVAL).await;
    }
}

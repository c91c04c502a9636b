//! `weir quickstart`: weir in front of two small real servers, one legacy and one modern, without
//! any configuration.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use weir_client_configs::mcp_clients::McpClient;
use weir_client_configs::mcp_clients::client_entry::{EndpointConnection, EntryCredential};
use weir_composition::{StartError, Weir};
use weir_config::{Config, ConfigLoader, ConfigSource};
use weir_config_file::local_host::is_local;
use weir_demo::RunningServer;
use weir_program::{ProcessSignals, catch_file_size_limit};
use weir_telemetry::LogPlan;

use crate::serve::{CANNOT_START, drain};

/// The first port tried; every second port after it follows if it is taken.
const FIRST_PORT: u16 = 8080;
const TRIES: u16 = 20;
/// The time between two changes of the list, so that every watching client soon sees one.
const CHANGE_EVERY: Duration = Duration::from_secs(5);
/// The clients with commands of their own that are printed.
const SHOWN: [McpClient; 3] = [McpClient::ClaudeCode, McpClient::VsCode, McpClient::Codex];

/// Runs until a signal ends it.
pub(crate) async fn quickstart(listen: Option<SocketAddr>, log: Option<&str>) -> ExitCode {
    let quiet = LogPlan {
        filter: Some("warn".to_owned()),
        ..LogPlan::default()
    };
    if let Err(why) = weir_telemetry::start_log(&quiet, log) {
        weir_telemetry::print_error(format_args!("weir: {why}"));
        return ExitCode::from(CANNOT_START);
    }
    weir_telemetry::install_panic_hook();
    if let Err(error) = catch_file_size_limit() {
        weir_telemetry::print_error(format_args!(
            "weir: signal handlers cannot be installed: {error}"
        ));
        return ExitCode::from(CANNOT_START);
    }
    // Boxed: the future of a whole gateway is large.
    match Box::pin(run(listen)).await {
        Ok(code) => code,
        Err(error) => {
            weir_telemetry::print_error(format_args!("weir: cannot start: {error:#}"));
            ExitCode::from(CANNOT_START)
        }
    }
}

async fn run(listen: Option<SocketAddr>) -> anyhow::Result<ExitCode> {
    let mut signals = ProcessSignals::new()?;
    let notes = weir_demo::start_notes(loopback().await?)
        .await
        .context("the demo server `notes`")?;
    let desk = weir_demo::start_desk(loopback().await?)
        .await
        .context("the demo server `desk`")?;
    let weir = start(listen, &notes, &desk).await?;
    weir_terminal::line(welcome(&weir, &notes, &desk));
    let mut changes = tokio::time::interval(CHANGE_EVERY);
    // The first tick comes at once, before any change is due.
    changes.tick().await;
    loop {
        tokio::select! {
            () = signals.stop() => break,
            _ = changes.tick() => {
                // Toggles the tool: hides it, or reveals it if it was hidden.
                if !desk.hide() {
                    desk.reveal();
                }
            }
        }
    }
    let code = Box::pin(drain(weir, &mut signals)).await;
    notes.shutdown().await;
    desk.shutdown().await;
    Ok(code)
}

async fn loopback() -> std::io::Result<TcpListener> {
    TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await
}

/// Starts at the requested address, or at the first free port.
async fn start(
    listen: Option<SocketAddr>,
    notes: &RunningServer,
    desk: &RunningServer,
) -> anyhow::Result<Weir> {
    if let Some(listen) = listen {
        anyhow::ensure!(
            is_local(listen),
            "it asks no client for credentials, so it listens at addresses of this machine only, such as 127.0.0.1:8080; \
             for other machines: weir init, and `auth` in the config"
        );
        let admin = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        return Ok(Weir::start(Arc::new(config(listen, admin, notes, desk)?)).await?);
    }
    let mut last = None;
    for port in (FIRST_PORT..FIRST_PORT + 2 * TRIES).step_by(2) {
        let [listen, admin] =
            [port, port + 1].map(|port| SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, port)));
        match Weir::start(Arc::new(config(listen, admin, notes, desk)?)).await {
            Ok(weir) => return Ok(weir),
            Err(error @ StartError::Listen { .. }) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(last.map_or_else(|| anyhow::anyhow!("no port was tried"), Into::into))
}

/// Returns the config that a person would write for this.
fn config(
    listen: SocketAddr,
    admin: SocketAddr,
    notes: &RunningServer,
    desk: &RunningServer,
) -> anyhow::Result<Config> {
    let text = format!(
        "listen: \"{listen}\"\nadmin: {{ listen: \"{admin}\" }}\ndrain: 2s\nupstreams:\n  notes: {{ url: \"{}\" }}\n  desk: {{ url: \"{}\" }}\n",
        notes.url(),
        desk.url()
    );
    let outcome = ConfigLoader::new(
        ConfigSource::Text {
            name: "quickstart".to_owned(),
            text,
        },
        &|_| None,
    )
    .load();
    outcome
        .config
        .ok_or_else(|| anyhow::anyhow!("{}", outcome.report))
}

fn welcome(weir: &Weir, notes: &RunningServer, desk: &RunningServer) -> String {
    let url = format!("http://{}/mcp", weir.address());
    let admin = weir
        .admin_address()
        .map(|admin| format!("http://{admin}"))
        .unwrap_or_default();
    format!(
        "weir {version} is a gateway for two MCP servers:
  notes   speaks the older revisions, with sessions   {notes}
  desk    speaks 2026-07-28, without sessions         {desk}

Any MCP client, old or new, connects to both at once:
  {url}

Connect a client (`weir connect` lists other clients and shows their files):
{clients}

In another terminal:
  weir tools {url}
  weir call  {url} desk__calculate expression='2^10 - 1'
  weir call  {url} desk__countdown from=5
  weir tools {url} --watch        desk__coin_flip comes and goes every {every} seconds

For operators: {admin}/ is a status page; {admin}/metrics, {admin}/readyz, and
  weir admin --admin {admin} upstreams
Ctrl-C ends it.
",
        version = env!("CARGO_PKG_VERSION"),
        notes = notes.url(),
        desk = desk.url(),
        clients = clients(&url),
        every = CHANGE_EVERY.as_secs(),
    )
}

/// Returns a line for each of the usual clients: its own command, or `weir connect`.
fn clients(url: &str) -> String {
    let own = |client: McpClient| {
        let connection = EndpointConnection {
            name: "weir",
            url,
            program: "weir",
            credential: EntryCredential::None,
        };
        client.command(&connection).map(|command| (client, command))
    };
    let written = |client: McpClient| {
        (
            client,
            format!("weir connect {} {url} --write", client.name()),
        )
    };
    let lines = SHOWN.into_iter().filter_map(own).chain([
        written(McpClient::Cursor),
        written(McpClient::ClaudeDesktop),
    ]);
    lines
        .map(|(client, command)| format!("  {:<15} {command}", client.title()))
        .collect::<Vec<_>>()
        .join("\n")
}

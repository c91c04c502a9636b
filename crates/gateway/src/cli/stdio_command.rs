//! `weir stdio FILE` and `weir stdio URL`: serves one MCP server over standard streams, for MCP
//! clients that only start programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::{HeaderValue, Uri};
use weir_admin::Strictness;
use weir_config::{Config, ConfigLoader, ConfigSource, DEFAULT_ENDPOINT};
use weir_config_file::config_report::ConfigReport;
use weir_config_file::foreign::inputs::InputSource;
use weir_mcp_client::bearer;
use weir_process::keeper::ChildKeeper;
use weir_program::{OwnProgram, ProcessSignals, SignalAction, catch_file_size_limit};
use weir_stdio_server::{RemoteGate, StdioGateway, StdioGatewaySettings, remote_config};
use weir_telemetry::LogPlan;
use weir_terminal::can_ask;
use weir_text::one_line;

use crate::reload::{ConfigFollower, log_report};
use weir_commands::exit_code::{EXIT_INTERRUPTED, EXIT_NO, EXIT_USAGE};
use weir_composition::{StartError, Weir};

/// The longest wait for a client that does not read its last messages. Longer than a drain.
const LAST_READ_TIMEOUT: Duration = Duration::from_secs(6);

/// The options of `weir stdio`.
#[derive(Debug, Args)]
pub(super) struct StdioOptions {
    /// A config file, or the URL of an MCP server such as http://127.0.0.1:8080/mcp
    #[arg(value_name = "FILE|URL", required_unless_present = "config")]
    target: Option<String>,
    /// The config file, as an option
    #[arg(long, short, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The endpoint of the config to serve; default: `/mcp`
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
    /// A bearer token: for the remote server, in place of that of `weir login`; or for a config
    /// with `auth`; better given in the environment, hidden from other users
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
}

/// The server behind the standard streams.
enum StdioTarget {
    File(PathBuf),
    Remote(String),
}

impl StdioOptions {
    fn target(&self) -> StdioTarget {
        match (&self.target, &self.config) {
            (Some(text), _) if is_url(text) => StdioTarget::Remote(text.clone()),
            (Some(text), _) => StdioTarget::File(text.into()),
            (None, Some(file)) => StdioTarget::File(file.clone()),
            // clap requires one of the two.
            (None, None) => StdioTarget::File("weir.yaml".into()),
        }
    }
}

fn is_url(text: &str) -> bool {
    let scheme = text
        .split_once("://")
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// The reason for a failed start: an exit code, and a sentence.
type StdioStartError = (u8, String);

/// Serves until the client closes standard input, or a signal ends it.
pub(super) async fn stdio(options: StdioOptions, log: Option<&str>) -> ExitCode {
    // Boxed: the future holds a whole gateway by value.
    match Box::pin(run(options, log)).await {
        Ok(code) => code,
        Err((code, why)) => {
            weir_telemetry::print_error(format_args!("weir: {why}"));
            ExitCode::from(code)
        }
    }
}

async fn run(options: StdioOptions, log: Option<&str>) -> Result<ExitCode, StdioStartError> {
    catch_file_size_limit().map_err(|error| {
        (
            EXIT_NO,
            format!("signal handlers cannot be installed: {error}"),
        )
    })?;
    let environment = |name: &str| std::env::var(name).ok();
    let (served, loader) = match options.target() {
        StdioTarget::File(file) => {
            // Standard input belongs to the client, so inputs come from the environment only.
            let loader = ConfigLoader::new(ConfigSource::File(file.clone()), &environment)
                .with_inputs(InputSource::Unavailable);
            let mut loader = loader.for_one_host();
            let served = from_file(&mut loader, &file, &options)?;
            (served, Some(loader))
        }
        StdioTarget::Remote(url) => (from_url(url, &options)?, None),
    };
    let plan = LogPlan {
        filter: served.config.log.filter.clone().or(Some("warn".to_owned())),
        ..served.config.log.clone()
    };
    weir_telemetry::start_log(&plan, log).map_err(|why| (EXIT_USAGE, why))?;
    weir_telemetry::install_panic_hook();
    log_report(&served.report);
    let mut signals = ProcessSignals::new().map_err(|error| {
        (
            EXIT_NO,
            format!("signal handlers cannot be installed: {error}"),
        )
    })?;
    let program = OwnProgram::own().map_err(|error| {
        (
            EXIT_NO,
            format!("the path of this program cannot be found: {error}"),
        )
    })?;
    let keeper = ChildKeeper::new(program.keeper());
    let weir = Weir::start_in_memory(&served.config, keeper)
        .await
        .map_err(|error| (EXIT_NO, cannot_start(&error)))?;
    let server = StdioGateway::open(StdioGatewaySettings {
        channel: weir.channel(),
        endpoint: served.endpoint,
        authorization: served.authorization,
        longest: served.config.front.limits.listener.body_bytes,
        remote: served
            .remote
            .map(|url| RemoteGate::new(weir.catalog().clone(), &url)),
    });
    let mut server =
        server.map_err(|error| (EXIT_NO, format!("standard streams cannot be used: {error}")))?;
    if can_ask() {
        weir_telemetry::print_error(
            "weir stdio waits for messages of an MCP host on standard input; Ctrl-D ends it. Put the command into the host's settings.",
        );
    }
    let mut follower =
        loader.map(|loader| ConfigFollower::new(loader, served.config, served.report));
    serve(&mut server, &weir, &mut signals, &mut follower).await;
    Ok(end(server, weir, &mut signals).await)
}

/// A checked config, with the endpoint and credential of the client.
struct StdioSetup {
    config: Arc<Config>,
    report: ConfigReport,
    endpoint: Uri,
    authorization: Option<HeaderValue>,
    /// The URL of the remote server.
    remote: Option<String>,
}

fn from_file(
    loader: &mut ConfigLoader<'_>,
    file: &Path,
    options: &StdioOptions,
) -> Result<StdioSetup, StdioStartError> {
    let outcome = loader.load();
    let Some(config) = outcome.config else {
        let what = "the config has errors, so nothing was started";
        return Err((EXIT_USAGE, format!("{what}\n{}", outcome.report)));
    };
    let file = file.display();
    let authorization = authorization(options)?;
    // Credentials of a client over standard streams come from the environment (every revision,
    // authorization). The user of the operating system is no principal: rules, limits and audit
    // identify principals by credentials only.
    if config.auth.required && authorization.is_none() {
        let what = format!("{file} has `auth`, so the host needs a credential, like every client");
        return Err((
            EXIT_USAGE,
            format!(
                "{what}: give an access token or an API key in WEIR_TOKEN, or serve a config without `auth`"
            ),
        ));
    }
    let endpoint = endpoint(&config, options.endpoint.as_deref())
        .map_err(|why| (EXIT_USAGE, format!("{file}: {why}")))?;
    Ok(StdioSetup {
        config: Arc::new(config),
        report: outcome.report,
        endpoint,
        authorization,
        remote: None,
    })
}

fn from_url(url: String, options: &StdioOptions) -> Result<StdioSetup, StdioStartError> {
    if options.endpoint.is_some() {
        return Err((
            EXIT_USAGE,
            "--endpoint is for a config file: a URL names its endpoint itself".to_owned(),
        ));
    }
    let config = remote_config(&url, authorization(options)?).map_err(|why| (EXIT_USAGE, why))?;
    let endpoint = Uri::from_static(DEFAULT_ENDPOINT);
    let (config, report) = (Arc::new(config), ConfigReport::default());
    Ok(StdioSetup {
        config,
        report,
        endpoint,
        authorization: None,
        remote: Some(url),
    })
}

fn authorization(options: &StdioOptions) -> Result<Option<HeaderValue>, StdioStartError> {
    let wrong = || {
        (
            EXIT_USAGE,
            "the token has characters that are not allowed in a header: give it as it was issued"
                .to_owned(),
        )
    };
    options
        .token
        .as_deref()
        .map(|token| bearer(token).ok_or_else(wrong))
        .transpose()
}

/// Returns the requested endpoint, or the usual one, or the only one.
fn endpoint(config: &Config, wanted: Option<&str>) -> Result<Uri, String> {
    let all = || config.endpoints.iter().map(|endpoint| endpoint.id.as_str());
    let only = || {
        Some(())
            .filter(|()| all().count() == 1)
            .and_then(|()| all().next())
    };
    let found = match wanted {
        Some(wanted) => all().find(|path| *path == wanted),
        None => all().find(|path| *path == DEFAULT_ENDPOINT).or_else(only),
    };
    let found = found.ok_or_else(|| {
        let all: Vec<String> = all().map(one_line).collect();
        let all = all.join(", ");
        match wanted {
            Some(wanted) => format!("there is no endpoint `{}`: --endpoint takes one of {all}", one_line(wanted)),
            None => format!(
                "there are several endpoints and none is {DEFAULT_ENDPOINT}: choose one with --endpoint, of {all}"
            ),
        }
    })?;
    found
        .parse()
        .map_err(|_| format!("the path `{}` cannot be served", one_line(found)))
}

fn cannot_start(error: &StartError) -> String {
    format!("cannot start: {error}")
}

/// Serves, and follows changes of the config, until the client closes a stream or a signal arrives.
async fn serve(
    server: &mut StdioGateway,
    weir: &Weir,
    signals: &mut ProcessSignals,
    follower: &mut Option<ConfigFollower<'_>>,
) {
    if let Some(follower) = follower {
        // The files may have changed between the load and the start of the watch.
        follower.reload_if_changed(weir);
    }
    let mut serving = std::pin::pin!(server.serve());
    loop {
        let changed = async {
            match &mut *follower {
                Some(follower) => follower.changed().await,
                None => std::future::pending().await,
            }
        };
        let signal = tokio::select! {
            () = &mut serving => return,
            signal = signals.next() => Some(signal),
            () = changed => None,
        };
        match (signal, &mut *follower) {
            (Some(SignalAction::Stop), _) => return,
            (Some(SignalAction::Reload), Some(follower)) => {
                follower.reload(weir, Strictness::NoWeaker)
            }
            (None, Some(follower)) => follower.reload_if_changed(weir),
            // The client owns the process that it started, so there is no hand-over.
            (Some(SignalAction::HandOver | SignalAction::Reload) | None, _) => {}
        }
    }
}

/// Drains running requests. A signal cuts the drain short.
async fn end(server: StdioGateway, weir: Weir, signals: &mut ProcessSignals) -> ExitCode {
    server.close();
    let mut stopping = std::pin::pin!(weir.shutdown());
    let drained = async {
        if tokio::time::timeout(LAST_READ_TIMEOUT, &mut stopping)
            .await
            .is_err()
        {
            server.abandon();
            stopping.await;
        }
    };
    tokio::select! {
        () = drained => {}
        () = signals.stop() => return ExitCode::from(EXIT_INTERRUPTED),
    }
    server.finish().await;
    ExitCode::SUCCESS
}

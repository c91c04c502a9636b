//! `weir serve`: start, follow the config, and stop at a signal.

mod address_file;
mod banner;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use weir_process::keeper::ChildKeeper;

use crate::reload::{ConfigFollower, log_report};
use address_file::{lacks_reader, write_addresses};
use banner::{BoundAddresses, StartBanner};
use weir_admin::{ControlHandles, ReloadRequest, Strictness};
use weir_audit::{AuditService, ChainHeads};
use weir_commands::exit_code::EXIT_BAD_CONFIG;
use weir_composition::{StartError, Weir};
use weir_config::{Config, ConfigLoader, ConfigSource};
use weir_config_file::config_report::ConfigReport;
use weir_config_file::foreign::inputs::InputSource;
use weir_handover::{
    DrainingPredecessor, HandoverResources, InheritedSockets, Predecessor, RunningGateway,
    start_successor,
};
use weir_program::{OwnProgram, ProcessSignals, SignalAction, catch_file_size_limit};
use weir_telemetry::LogControl;

/// weir could not start.
pub(crate) const CANNOT_START: u8 = 1;
/// The most reload requests that wait.
const MAX_RELOADS: usize = 8;
/// The time that a new process still gets to serve after a signal to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// A second signal ended the draining.
const CUT_SHORT: u8 = 130;

/// The command line of `weir serve`, and the sockets that the process was started with.
pub(crate) struct ServeStart<'a> {
    pub(crate) source: ConfigSource,
    /// The address of `--listen`, in the place of the config's.
    pub(crate) listen: Option<SocketAddr>,
    /// The filter of `--log`.
    pub(crate) log: Option<&'a str>,
    /// The file of `--address-file`.
    pub(crate) address_file: Option<PathBuf>,
    pub(crate) inherited: Result<InheritedSockets, String>,
}

/// Serves until a signal ends it.
pub(crate) async fn serve(start: ServeStart<'_>) -> ExitCode {
    let ended = load_and_run(start).await;
    ended.unwrap_or_else(|refused| refused)
}

/// Loads the config, and serves it. The error is the exit code of a start that was refused, and is
/// reported.
async fn load_and_run(
    ServeStart {
        source,
        listen,
        log,
        address_file,
        inherited,
    }: ServeStart<'_>,
) -> Result<ExitCode, ExitCode> {
    catch_file_size_limit().map_err(|error| no_signals(&error))?;
    let environment = |name: &str| std::env::var(name).ok();
    let loader = ConfigLoader::new(source, &environment).with_inputs(InputSource::Prompt(
        &weir_commands::input_prompt::prompt_input,
    ));
    let mut loader = loader.with_listen(listen);
    let outcome = loader.load();
    let Some(config) = outcome.config else {
        weir_telemetry::print_error(format_args!(
            "{}\nweir: the config has errors, so nothing was started",
            outcome.report
        ));
        return Err(ExitCode::from(EXIT_BAD_CONFIG));
    };
    let log = weir_telemetry::start_log(&config.log, log).map_err(|why| {
        weir_telemetry::print_error(format_args!("weir: {why}"));
        ExitCode::from(EXIT_BAD_CONFIG)
    })?;
    weir_telemetry::install_panic_hook();
    log_report(&outcome.report);
    let program = OwnProgram::own().map_err(|error| {
        cannot_start(&format!(
            "the path of this program cannot be found: {error}"
        ))
    })?;
    let (resources, predecessor) = inherited
        .and_then(InheritedSockets::open)
        .map_err(|why| cannot_start(&why))?;
    let begun = LoadedConfig {
        loader,
        config: Arc::new(config),
        report: outcome.report,
        log,
        address_file,
    };
    // Boxed: the future of a whole gateway is large.
    Box::pin(run(begun, resources, predecessor, &program)).await
}

/// A loaded config, with the state to reload it.
struct LoadedConfig<'a> {
    loader: ConfigLoader<'a>,
    config: Arc<Config>,
    report: ConfigReport,
    log: LogControl,
    address_file: Option<PathBuf>,
}

async fn run(
    begun: LoadedConfig<'_>,
    mut resources: HandoverResources,
    mut predecessor: Option<Predecessor>,
    program: &OwnProgram,
) -> Result<ExitCode, ExitCode> {
    if let Some(predecessor) = &mut predecessor {
        let state = predecessor.wait_for_permission().map_err(|error| {
            cannot_start(&format!(
                "the previous process refused the graceful restart: {error}"
            ))
        })?;
        resources.state = Some(state);
    }
    let signals = ProcessSignals::new().map_err(|error| no_signals(&error))?;
    let mut weir = start(begun.config.clone(), resources, program).await?;
    let banner = announce(&weir, &begun, predecessor.is_some())?;
    let previous = PreviousProcess::begin(predecessor, &mut weir);
    notify_systemd(&[NotifyState::Ready]);
    let LoadedConfig {
        loader,
        config,
        report,
        log,
        ..
    } = begun;
    let (reload, reloads) = mpsc::channel(MAX_RELOADS);
    weir.set_controls(ControlHandles { log, reload });
    let mut serving = ServingGateway {
        weir,
        signals,
        follower: ConfigFollower::new(loader, config, report),
        reloads,
        banner,
        previous,
        stops: StopsSoFar::None,
    };
    serving.follow(program).await;
    Ok(serving.drain().await)
}

/// Starts the gateway, with the keeper of the previous process if it can be used.
async fn start(
    config: Arc<Config>,
    mut resources: HandoverResources,
    program: &OwnProgram,
) -> Result<Weir, ExitCode> {
    let keeper = ChildKeeper::new(program.keeper());
    if let Some(Err(error)) = resources.keeper.take().map(|pipe| keeper.take_over(pipe)) {
        tracing::warn!(%error, "graceful restart: inherited keeper not usable, starting a new one");
    }
    Weir::start_with(config, resources, keeper)
        .await
        .map_err(|error| {
            let is_config = matches!(error, StartError::Exposed(_) | StartError::TeamFiles(_));
            let code = if is_config {
                EXIT_BAD_CONFIG
            } else {
                CANNOT_START
            };
            refuse_start(code, &error.to_string())
        })
}

/// Announces the addresses: at the terminal or in the log, and in the file of `--address-file`.
/// Returns the banner of the terminal. A process that takes over serves at the addresses that the
/// file has already.
fn announce(
    weir: &Weir,
    begun: &LoadedConfig<'_>,
    takes_over: bool,
) -> Result<Option<StartBanner>, ExitCode> {
    let config = &begun.config;
    let bound = BoundAddresses {
        clients: weir.address(),
        operators: weir.admin_address(),
    };
    let banner = begun
        .log
        .terminal()
        .map(|terminal| StartBanner::show(config, bound, terminal.colors));
    if banner.is_none() {
        tracing::info!(
            clients = %bound.clients,
            operators = bound.operators.map(tracing::field::display),
            upstreams = config.upstreams.len(),
            endpoints = config.endpoints.len(),
            "weir {} serves", env!("CARGO_PKG_VERSION")
        );
    }
    if config.front.listen.port() != 0 && config.front.listen != bound.clients {
        tracing::warn!(config = %config.front.listen, "listen address ignored: serving at the inherited socket");
    }
    if let Some(file) = &begun.address_file {
        let addresses =
            serde_json::json!({ "clients": bound.clients, "operators": bound.operators });
        match write_addresses(file, &addresses) {
            Err(error) if takes_over || lacks_reader(&error) => {
                tracing::warn!(file = %file.display(), %error, "addresses not written to the address file");
            }
            written => written.map_err(|error| {
                cannot_start(&format!("--address-file {}: {error}", file.display()))
            })?,
        }
    }
    Ok(banner)
}

/// A gateway that serves, and the sources of the events that it follows.
struct ServingGateway<'a> {
    weir: Weir,
    signals: ProcessSignals,
    follower: ConfigFollower<'a>,
    /// The reload requests of operators.
    reloads: mpsc::Receiver<ReloadRequest>,
    banner: Option<StartBanner>,
    previous: PreviousProcess,
    stops: StopsSoFar,
}

/// The signals to stop that came while a new process started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopsSoFar {
    None,
    One,
    /// No call is waited for any longer.
    More,
}

impl ServingGateway<'_> {
    /// Follows the events until a signal ends the process, or a successor serves.
    async fn follow(&mut self, program: &OwnProgram) {
        let Self {
            weir,
            signals,
            follower,
            reloads,
            banner,
            previous,
            stops,
        } = self;
        // A change between the first read and the begin of the watch.
        follower.reload_if_changed(weir);
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    SignalAction::Stop => return,
                    SignalAction::Reload => {
                        tracing::info!("SIGHUP received: reloading the config");
                        follower.reload(weir, Strictness::NoWeaker);
                    }
                    SignalAction::HandOver => {
                        tracing::info!(program = %program, "SIGUSR2 received: graceful restart begins");
                        follower.reload_if_changed(weir);
                        if let Some(why) = follower.handover_blocker() {
                            refuse_handover(weir, why);
                        } else {
                            let serves = hand_over(weir, program, signals, stops).await;
                            if serves || *stops != StopsSoFar::None {
                                return;
                            }
                        }
                    }
                },
                () = previous.wait_for_end() => {}
                () = StartBanner::follow(banner, weir.catalog()) => {}
                () = follower.changed() => follower.reload_if_changed(weir),
                Some(ReloadRequest { strictness, done }) = reloads.recv() => {
                    follower.reload(weir, strictness);
                    // The requester may be gone.
                    let _gone = done.send(());
                }
            }
        }
    }

    /// Drains. The previous process may end while this one drains already.
    async fn drain(mut self) -> ExitCode {
        let finished = Box::pin(drain_after(self.stops, self.weir, &mut self.signals));
        tokio::select! {
            code = finished => code,
            never = self.previous.wait_forever() => match never {},
        }
    }
}

/// The previous process, until it has ended.
struct PreviousProcess {
    draining: Option<DrainingPredecessor>,
    auditing: Arc<AuditService>,
    ended: CancellationToken,
}

impl PreviousProcess {
    /// Reports to the previous process, if there is one, that this one serves, and takes its
    /// sessions.
    fn begin(predecessor: Option<Predecessor>, weir: &mut Weir) -> Self {
        let (auditing, ended) = (weir.auditing().clone(), CancellationToken::new());
        let draining = match predecessor
            .map(|predecessor| predecessor.report_serving(weir.session_state()))
            .transpose()
        {
            Ok(draining) => draining,
            Err(error) => {
                tracing::warn!(%error, "graceful restart: previous process gone");
                weir.stop_awaiting_predecessor();
                auditing.record_predecessor_end(ChainHeads::default());
                None
            }
        };
        if draining.is_some() {
            weir.set_predecessor(ended.clone());
        }
        Self {
            draining,
            auditing,
            ended,
        }
    }

    /// Waits for the previous process's end and audits it. Cancel safe.
    async fn wait_for_end(&mut self) {
        let Some(draining) = &mut self.draining else {
            return std::future::pending().await;
        };
        let last = draining.wait_for_end().await;
        self.draining = None;
        self.auditing.record_predecessor_end(last);
        self.ended.cancel();
    }

    /// Waits for the previous process's end for ever, beside another future.
    async fn wait_forever(&mut self) -> Infallible {
        loop {
            self.wait_for_end().await;
        }
    }
}

/// Refuses a hand-over: a new process would accept the config that this one refused.
fn refuse_handover(weir: &mut Weir, why: String) {
    if let Err(why) = weir.record_handover(Err(why)) {
        tracing::error!("graceful restart failed: {why}");
    }
}

/// Starts a successor. Returns true once it serves. A signal to stop asks for the drain that begins
/// then; if the successor hangs, the drain begins without it.
async fn hand_over(
    weir: &mut Weir,
    program: &OwnProgram,
    signals: &mut ProcessSignals,
    stops: &mut StopsSoFar,
) -> bool {
    let stop = async {
        signals.stop().await;
        *stops = StopsSoFar::One;
        tracing::info!("shutdown waits for the new process to serve, a second signal ends that");
        tokio::select! {
            () = signals.stop() => *stops = StopsSoFar::More,
            () = sleep(STOP_PATIENCE) => {}
        }
    };
    let outcome = start_successor(program, weir, stop).await;
    match weir.record_handover(outcome) {
        Ok(id) => {
            tracing::info!(process = id, "graceful restart: new process serves");
            notify_systemd(&[NotifyState::MainPid(id)]);
            true
        }
        Err(why) => {
            tracing::error!("graceful restart failed: {why}");
            false
        }
    }
}

/// Notifies systemd, if it listens.
fn notify_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd notification failed");
    }
}

/// Drains; a second SIGTERM or SIGINT ends that. The sessions and events that a successor waits for
/// are sent all the same, unless a further signal ends that, too.
pub(crate) async fn drain(weir: Weir, signals: &mut ProcessSignals) -> ExitCode {
    drain_after(StopsSoFar::None, weir, signals).await
}

/// Drains, as [`drain`] does, after signals that came while a successor started.
async fn drain_after(stops: StopsSoFar, weir: Weir, signals: &mut ProcessSignals) -> ExitCode {
    tracing::info!("shutdown: draining running calls, a second signal ends them");
    let succeeded = weir.has_successor();
    if !succeeded {
        notify_systemd(&[NotifyState::Stopping]);
    }
    let cut = async {
        // A signal during a hand-over, or right after it, asks for the drain that is under way
        // already.
        if succeeded {
            if stops == StopsSoFar::None {
                signals.stop().await;
            }
            tracing::info!("shutdown already in progress: a new process serves");
        }
        if stops != StopsSoFar::More {
            signals.stop().await;
        }
    };
    let flush = weir.flush_to_successor();
    tokio::select! {
        biased;
        () = cut => {}
        () = weir.shutdown() => return ExitCode::SUCCESS,
    }
    tokio::select! {
        () = flush => {}
        () = signals.stop() => {}
    }
    ExitCode::from(CUT_SHORT)
}

fn no_signals(error: &std::io::Error) -> ExitCode {
    cannot_start(&format!("signal handlers cannot be installed: {error}"))
}

fn cannot_start(why: &str) -> ExitCode {
    refuse_start(CANNOT_START, why)
}

fn refuse_start(code: u8, why: &str) -> ExitCode {
    // One line, in the log's own form. If the log is off, it goes to standard error as text.
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("start failed: {why}");
    } else {
        weir_telemetry::print_error(format_args!("weir: cannot start: {why}"));
    }
    ExitCode::from(code)
}

//! `weir serve`: start, follow the config, and stop as the signals say.

use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{Config, Loader, Report, Source};
use crate::reload::{Follower, say};
use crate::telemetry;
use crate::weir::Weir;

/// The config was not usable.
pub(crate) const BAD_CONFIG: u8 = 2;
/// weir could not start.
pub(crate) const CANNOT_START: u8 = 1;
/// A second signal ended the draining.
const CUT_SHORT: u8 = 130;

/// Serves until a signal ends it. `log` is the filter of `--log`.
pub(crate) async fn serve(source: Source, log: Option<&str>) -> ExitCode {
    let environment = |name: &str| std::env::var(name).ok();
    let mut loader = Loader::new(source, &environment);
    let outcome = loader.load();
    let Some(config) = outcome.config else {
        eprintln!("{}\nweir: the config has errors, so nothing was started", outcome.report);
        return ExitCode::from(BAD_CONFIG);
    };
    if let Err(why) = telemetry::start_log(&config.log, log) {
        eprintln!("weir: {why}");
        return ExitCode::from(BAD_CONFIG);
    }
    telemetry::hook_panics();
    say(&outcome.report);
    // Boxed: a whole config goes through it by value.
    Box::pin(run(loader, config, outcome.report)).await
}

async fn run(loader: Loader<'_>, config: Config, report: Report) -> ExitCode {
    let signals = Signals::new();
    let (mut signals, weir) = match (signals, Weir::start(config.clone()).await) {
        (Ok(signals), Ok(weir)) => (signals, weir),
        (Err(error), _) => return cannot_start(&format!("signals cannot be heard: {error}")),
        (_, Err(error)) => return cannot_start(&error.to_string()),
    };
    tracing::info!(
        clients = %weir.address(),
        operators = weir.admin_address().map(tracing::field::display),
        upstreams = config.upstreams.len(),
        endpoints = config.endpoints.len(),
        "weir {} serves", env!("CARGO_PKG_VERSION")
    );
    let mut follower = Follower::new(loader, config, report);
    // What changed after it was read and before anybody watched.
    follower.follow(&weir);
    loop {
        tokio::select! {
            wish = signals.next() => match wish {
                Wish::Stop => break,
                Wish::Reload => {
                    tracing::info!("SIGHUP: the config is read again");
                    follower.reload(&weir);
                }
            },
            () = follower.changed() => follower.follow(&weir),
        }
    }
    finish(weir, &mut signals).await
}

/// Drains; a second signal ends that.
pub(crate) async fn finish(weir: Weir, signals: &mut Signals) -> ExitCode {
    tracing::info!("weir stops: running calls may end, a second signal cuts them off");
    tokio::select! {
        () = weir.shutdown() => ExitCode::SUCCESS,
        () = signals.stop() => ExitCode::from(CUT_SHORT),
    }
}

fn cannot_start(why: &str) -> ExitCode {
    // One line, in the log's own form; where the log is switched off, a person still hears it.
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("weir cannot start: {why}");
    } else {
        eprintln!("weir: cannot start: {why}");
    }
    ExitCode::from(CANNOT_START)
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals weir acts on.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens to them from now on.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }

    /// Waits for SIGTERM or SIGINT. Cancel safe.
    pub(crate) async fn stop(&mut self) {
        while self.next().await != Wish::Stop {}
    }
}

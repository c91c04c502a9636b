//! The signals of the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
    /// SIGUSR2.
    HandOver,
}

/// The signals weir acts on.
#[derive(Debug)]
pub struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user: Signal,
}

impl ProcessSignals {
    /// Installs the handlers.
    ///
    /// # Errors
    ///
    /// A handler cannot be installed.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => SignalAction::Reload,
            _ = self.user.recv() => SignalAction::HandOver,
        }
    }

    /// Waits for SIGTERM or SIGINT; other signals stay for [`Self::next`]. Cancel safe.
    pub async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Turns a write beyond the system's limit of file size (`ulimit -f`) into an error, instead of the
/// end of the process. The signal is caught, not ignored, because child processes would inherit an
/// ignored signal. The handler stays until the end.
///
/// # Errors
///
/// The handler cannot be installed.
pub fn catch_file_size_limit() -> std::io::Result<()> {
    let number = nix::sys::signal::Signal::SIGXFSZ as i32;
    signal(SignalKind::from_raw(number)).map(drop)
}

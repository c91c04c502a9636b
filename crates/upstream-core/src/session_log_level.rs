//! The log level that weir set in a legacy session at a server, for all clients with calls in it.

use std::future::Future;

use parking_lot::Mutex;
use weir_core::call::LogMessages;
use weir_wire::LogLevel;

use crate::failed_attempt::FailedAttempt;

/// The log level of one session. It only becomes less severe; each call filters by its own.
///
/// Once a level is set for one client, the server has no choice of its own left for the others:
/// weir then chooses in its stead.
#[derive(Debug, Default)]
pub struct SessionLogLevel {
    /// The least severe level that the server was asked for.
    current: Mutex<Option<LogLevel>>,
    /// Held by the call that asks for a level.
    raising: tokio::sync::Mutex<()>,
}

impl SessionLogLevel {
    /// Makes the state of a session in which this level was set.
    pub fn new(current: Option<LogLevel>) -> Self {
        Self {
            current: Mutex::new(current),
            raising: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the least severe level that the server was asked for.
    pub fn get(&self) -> Option<LogLevel> {
        *self.current.lock()
    }

    /// Returns the log messages of a call in this session, for a client that wants `wanted`.
    pub fn granted(&self, wanted: LogMessages) -> LogMessages {
        match wanted {
            LogMessages::ServerChoice if self.get().is_some() => {
                LogMessages::From(LogMessages::CHOSEN_LEVEL)
            }
            LogMessages::None | LogMessages::ServerChoice | LogMessages::From(_) => wanted,
        }
    }

    /// Returns the level that the server has to be asked for before a call with these log messages.
    pub fn missing(&self, granted: LogMessages) -> Option<LogLevel> {
        match granted {
            LogMessages::From(level) => Some(level).filter(|level| !self.includes(*level)),
            LogMessages::None | LogMessages::ServerChoice => None,
        }
    }

    /// Asks the server for messages from `level` up by `ask`, if that is still necessary.
    ///
    /// # Errors
    /// Those of `ask`: then the level stays as it was.
    pub async fn raise<A>(
        &self,
        level: LogLevel,
        ask: impl FnOnce() -> A,
    ) -> Result<(), FailedAttempt>
    where
        A: Future<Output = Result<(), FailedAttempt>>,
    {
        let _raising = self.raising.lock().await;
        if self.includes(level) {
            return Ok(());
        }
        ask().await?;
        *self.current.lock() = Some(level);
        Ok(())
    }

    fn includes(&self, level: LogLevel) -> bool {
        self.get().is_some_and(|current| current <= level)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const INFO: LogMessages = LogMessages::From(LogLevel::Info);

    #[test]
    fn server_chooses_until_a_level_is_set_for_any_client() {
        let level = SessionLogLevel::default();
        assert_eq!(
            level.granted(LogMessages::ServerChoice),
            LogMessages::ServerChoice
        );
        assert_eq!(level.missing(LogMessages::ServerChoice), None);
        for (set, missing) in [
            (LogLevel::Debug, None),
            (LogLevel::Info, None),
            (LogLevel::Error, Some(LogLevel::Info)),
        ] {
            let level = SessionLogLevel::new(Some(set));
            assert_eq!(level.granted(LogMessages::ServerChoice), INFO);
            assert_eq!(level.missing(INFO), missing, "{set}");
            assert_eq!(level.granted(LogMessages::None), LogMessages::None);
        }
    }

    #[tokio::test]
    async fn level_is_asked_for_once_and_only_becomes_less_severe() {
        let level = SessionLogLevel::default();
        let mut requested = Vec::new();
        for wanted in [LogLevel::Error, LogLevel::Info, LogLevel::Warning] {
            let ask = || {
                requested.push(wanted);
                std::future::ready(Ok(()))
            };
            level.raise(wanted, ask).await.unwrap();
        }
        assert_eq!(requested, [LogLevel::Error, LogLevel::Info]);
        assert_eq!(level.get(), Some(LogLevel::Info));
    }
}

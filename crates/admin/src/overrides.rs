//! The operators' changes in force.
//!
//! They are not config: they outlive reloads, go to the process that takes over, and end with the
//! last process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_catalog::ClosingMode;
use weir_core::instant::{rfc3339, unix_millis};
use weir_core::names::UpstreamId;
use weir_core::principal::Subject;
use weir_explain::OverrideWords;

use crate::admin_error::AdminError;

/// The most changes in force. An operator cannot survey more, and every request is checked against
/// the blocked principals.
const MAX_OVERRIDES: usize = 10_000;

/// The names of lasting changes, in responses, in audit records, and in the hand-over between
/// processes.
pub(super) mod words {
    pub(crate) const DISABLE: &str = "disable";
    pub(crate) const DRAIN: &str = "drain";
    pub(crate) const BLOCK: &str = "block";
    pub(crate) const LOG: &str = "log";
    pub(crate) const ALL: [&str; 4] = [DISABLE, DRAIN, BLOCK, LOG];
}

/// The target of a change. A target has one change in force at most; the next replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OverrideTarget {
    /// A disabled or drained upstream.
    Upstream(UpstreamId),
    /// A blocked principal.
    Principal {
        /// The principal's issuer.
        issuer: String,
        /// The principal's subject.
        subject: String,
    },
    /// The log level or filter.
    Log(String),
}

impl OverrideTarget {
    /// Returns the target's kind and name.
    pub(super) fn kind_and_name(&self) -> (&'static str, String) {
        match self {
            Self::Upstream(id) => ("upstream", id.to_string()),
            Self::Principal { issuer, subject } => ("principal", format!("{subject} of {issuer}")),
            Self::Log(level) => ("log", level.clone()),
        }
    }
}

/// A change by an operator.
#[derive(Clone, Debug)]
pub(super) struct OperatorOverride {
    /// The name of the action.
    pub(crate) action: &'static str,
    pub(crate) operator: Arc<str>,
    pub(crate) reason: Option<String>,
    pub(super) since: SystemTime,
    /// The end of the change, as wall-clock time for display and as monotonic time for the timer.
    pub(super) expires: Option<(SystemTime, Instant)>,
}

impl OperatorOverride {
    /// Returns the mode in which the change closes its upstream.
    pub(super) fn closing_mode(&self) -> ClosingMode {
        if self.action == words::DISABLE {
            ClosingMode::Disabled
        } else {
            ClosingMode::Draining
        }
    }

    /// Returns the operator, the begin, the end and the reason, in words.
    fn words(&self) -> String {
        let until = self
            .expires
            .map_or("an operator reverts it".to_owned(), |(ends, _)| {
                rfc3339(ends)
            });
        let reason = self.reason.iter().map(|reason| format!(": {reason}"));
        let author = format!(
            "{} since {}, until {until}",
            self.operator,
            rfc3339(self.since)
        );
        std::iter::once(author).chain(reason).collect()
    }
}

/// The changes in force.
#[derive(Debug, Default)]
pub struct OperatorOverrides {
    changes: Mutex<BTreeMap<OverrideTarget, OperatorOverride>>,
    changed: Notify,
}

impl OperatorOverrides {
    /// Makes a change and records it as in force. The lock is held meanwhile, so this table always
    /// agrees with the state that it describes.
    ///
    /// # Errors
    ///
    /// The most changes are in force, or `make` fails. Then the state is unchanged.
    pub(crate) fn apply<T>(
        &self,
        target: OverrideTarget,
        change: OperatorOverride,
        make: impl FnOnce() -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let mut changes = self.changes.lock();
        if changes.len() >= MAX_OVERRIDES && !changes.contains_key(&target) {
            let text = "the maximum number of changes is in force: revert one first, or write it into the config";
            return Err(AdminError::new(StatusCode::CONFLICT, text));
        }
        let made = make()?;
        if matches!(target, OverrideTarget::Log(_)) {
            changes.retain(|other, _| !matches!(other, OverrideTarget::Log(_)));
        }
        changes.insert(target, change);
        drop(changes);
        self.changed.notify_one();
        Ok(made)
    }

    /// Returns the log level that an operator set.
    pub(crate) fn log(&self) -> Option<String> {
        self.changes.lock().keys().find_map(|target| match target {
            OverrideTarget::Log(level) => Some(level.clone()),
            OverrideTarget::Upstream(_) | OverrideTarget::Principal { .. } => None,
        })
    }

    /// Removes the change of the log level and undoes it.
    pub(super) fn remove_log_level<T>(&self, undo: impl FnOnce() -> T) -> T {
        let mut changes = self.changes.lock();
        changes.retain(|target, _| !matches!(target, OverrideTarget::Log(_)));
        undo()
    }

    /// Returns issuer and subject of each blocked principal.
    pub(crate) fn blocked(&self) -> Vec<(String, String)> {
        let changes = self.changes.lock();
        let those = changes.keys().filter_map(|target| match target {
            OverrideTarget::Principal { issuer, subject } => {
                Some((issuer.clone(), subject.clone()))
            }
            OverrideTarget::Upstream(_) | OverrideTarget::Log(_) => None,
        });
        those.collect()
    }

    /// Removes a change and undoes it under the same lock.
    pub(super) fn remove<T>(&self, target: &OverrideTarget, undo: impl FnOnce() -> T) -> T {
        let mut changes = self.changes.lock();
        changes.remove(target);
        undo()
    }

    /// Returns all changes in force.
    pub(crate) fn all(&self) -> Vec<(OverrideTarget, OperatorOverride)> {
        self.changes
            .lock()
            .iter()
            .map(|(target, change)| (target.clone(), change.clone()))
            .collect()
    }

    pub(super) fn find(&self, target: &OverrideTarget) -> Option<OperatorOverride> {
        self.changes.lock().get(target).cloned()
    }

    /// Reports if this change of the target is in force, by the same operator and with the same end.
    pub(super) fn has_equal(&self, target: &OverrideTarget, change: &OperatorOverride) -> bool {
        let end = |change: &OperatorOverride| change.expires.map(|(ends, _)| unix_millis(ends));
        self.find(target).is_some_and(|found| {
            found.action == change.action
                && found.operator == change.operator
                && found.reason == change.reason
                && unix_millis(found.since) == unix_millis(change.since)
                && end(&found) == end(change)
        })
    }

    /// Removes expired changes and undoes them.
    pub(super) fn take_expired(
        &self,
        now: Instant,
        undo: impl Fn(&OverrideTarget),
    ) -> Vec<(OverrideTarget, OperatorOverride)> {
        let mut over = Vec::new();
        self.changes.lock().retain(|target, change| {
            let is_over = change.expires.is_some_and(|(_, ends)| ends <= now);
            if is_over {
                undo(target);
                over.push((target.clone(), change.clone()));
            }
            !is_over
        });
        over
    }

    /// Waits for the next change to be made.
    pub(super) async fn wait_for_change(&self) {
        self.changed.notified().await;
    }

    /// Returns the time at which the next change expires.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.changes
            .lock()
            .values()
            .filter_map(|change| change.expires)
            .map(|(_, ends)| ends)
            .min()
    }
}

impl OverrideWords for OperatorOverrides {
    fn of_upstream(&self, id: &UpstreamId) -> Option<String> {
        let change = self.find(&OverrideTarget::Upstream(id.clone()))?;
        let done = if change.action == words::DISABLE {
            "disabled"
        } else {
            "drained"
        };
        Some(format!("`{id}` is {done} by {}", change.words()))
    }

    fn of_principal(&self, subject: &Subject) -> Option<String> {
        let (issuer, subject) = (subject.issuer().to_owned(), subject.subject().to_owned());
        let change = self.find(&OverrideTarget::Principal { issuer, subject })?;
        Some(format!("it is blocked by {}", change.words()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use super::*;

    fn change(ends: Option<Duration>) -> OperatorOverride {
        let since = SystemTime::UNIX_EPOCH;
        let ends = ends.map(|ends| (since + ends, Instant::now() + ends));
        OperatorOverride {
            action: "disable",
            operator: "ann".into(),
            reason: None,
            since,
            expires: ends,
        }
    }

    fn target(id: &str) -> OverrideTarget {
        OverrideTarget::Upstream(UpstreamId::new(id).unwrap())
    }

    // Proves R286.
    #[tokio::test(start_paused = true)]
    async fn overrides_are_made_and_undone_under_one_lock() {
        let overrides = OperatorOverrides::default();
        let is_alone = || overrides.changes.try_lock().is_none();
        let second = Duration::from_secs(1);
        assert!(
            overrides
                .apply(target("a"), change(Some(second)), || Ok(is_alone()))
                .unwrap()
        );
        assert!(
            overrides
                .take_expired(Instant::now(), |_| panic!("it is not over"))
                .is_empty()
        );
        tokio::time::advance(second).await;
        // A request to disable it now waits for the lock, and so it stays disabled.
        let over = overrides.take_expired(Instant::now(), |undone| {
            assert!(is_alone() && *undone == target("a"))
        });
        assert_eq!((over.len(), overrides.all().len()), (1, 0));
        assert!(overrides.remove(&target("a"), is_alone));
        assert!(overrides.remove_log_level(is_alone));
    }

    #[test]
    fn failed_override_keeps_the_former_one() {
        let overrides = OperatorOverrides::default();
        let level = |name: &str| OverrideTarget::Log(name.to_owned());
        overrides
            .apply(level("debug"), change(None), || Ok(()))
            .unwrap();
        overrides
            .apply(level("nonsense"), change(None), || {
                Err::<(), _>(AdminError::bad_request("no level"))
            })
            .unwrap_err();
        assert!(overrides.find(&level("debug")).is_some() && overrides.all().len() == 1);
        overrides
            .apply(level("trace"), change(None), || Ok(()))
            .unwrap();
        assert!(
            overrides.find(&level("trace")).is_some() && overrides.all().len() == 1,
            "one is in force at most"
        );
    }
}

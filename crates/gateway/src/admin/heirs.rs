//! The hand-over of operators' changes to the process that takes over.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weir_core::Catalog;
use weir_core::catalog::ClosingMode;
use weir_core::instant::{rfc3339, unix_millis};
use weir_core::names::UpstreamId;
use weir_core::port::{AuditLog, OperatorAction};
use weir_core::principal::Subject;
use weir_policy::BlocklistAuthorizer;

use super::acts::words;
use super::book::{Book, Change, Target};

/// A change as it is handed over. Times are milliseconds of the Unix epoch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Noted {
    of: Of,
    what: String,
    who: String,
    reason: Option<String>,
    since: u64,
    ends: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Of {
    Upstream(String),
    Principal { issuer: String, subject: String },
    Log(String),
}

/// Returns the changes in force, to hand over.
pub(super) fn notes(book: &Book) -> Vec<Noted> {
    let note = |(target, change): (Target, Change)| Noted {
        of: match target {
            Target::Upstream(id) => Of::Upstream(id.to_string()),
            Target::Principal { issuer, subject } => Of::Principal { issuer, subject },
            Target::Log(level) => Of::Log(level),
        },
        what: change.what.to_owned(),
        who: change.who.to_string(),
        reason: change.reason,
        since: unix_millis(change.since),
        ends: change.ends.map(|(ends, _)| unix_millis(ends)),
    };
    book.all().into_iter().map(note).collect()
}

/// Applies the changes that were in force in the previous process, with their operators and ends,
/// and audits that. A log level waits until the log control is set. A change that is unknown here
/// is skipped with a log line.
pub(crate) fn take_up(
    noted: Vec<Noted>,
    (catalog, blocked): (&Catalog, &BlocklistAuthorizer),
    (audit, now): (&dyn AuditLog, SystemTime),
) -> Arc<Book> {
    let book = Arc::<Book>::default();
    for one in noted {
        let taken = one
            .read(now)
            .filter(|(target, change)| put_in_force(target, change, (catalog, blocked)));
        let Some((target, change)) = taken else {
            tracing::warn!(
                "a change of an operator that the process before left means nothing here"
            );
            continue;
        };
        let (kind, name) = target.named();
        let detail = format!(
            "{kind} {name}: {} by {} at {}",
            change.what,
            change.who,
            rfc3339(change.since)
        );
        // The previous process was below the same limit.
        if book.enter(target, change, || Ok(())).is_ok() {
            audit.record_operator_action(&OperatorAction {
                actor: "weir",
                action: "take over",
                detail: &detail,
                took_effect: true,
            });
        }
    }
    book
}

fn put_in_force(
    target: &Target,
    change: &Change,
    (catalog, blocked): (&Catalog, &BlocklistAuthorizer),
) -> bool {
    match target {
        Target::Upstream(id) => catalog.close(
            id,
            if change.what == words::DISABLE {
                ClosingMode::Disabled
            } else {
                ClosingMode::Draining
            },
        ),
        Target::Principal { issuer, subject } => {
            blocked.block(Subject::new(issuer.as_str(), subject.as_str()));
            true
        }
        Target::Log(_) => true,
    }
}

impl Noted {
    /// Returns `None` for a change of another weir version.
    fn read(self, now: SystemTime) -> Option<(Target, Change)> {
        let what = words::ALL.into_iter().find(|word| *word == self.what)?;
        let target = match self.of {
            Of::Upstream(id) => Target::Upstream(UpstreamId::new(id.as_str()).ok()?),
            Of::Principal { issuer, subject } => Target::Principal { issuer, subject },
            Of::Log(level) => Target::Log(level),
        };
        // A change that expired meanwhile is undone at once, and that is audited too.
        let ends = self.ends.map(moment);
        let ends = ends.map(|ends| {
            (
                ends,
                Instant::now() + ends.duration_since(now).unwrap_or_default(),
            )
        });
        let who = Arc::from(self.who);
        Some((
            target,
            Change {
                what,
                who,
                reason: self.reason,
                since: moment(self.since),
                ends,
            },
        ))
    }
}

fn moment(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(millis))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

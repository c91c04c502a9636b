//! The hand-over of operators' changes to the process that takes over.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use weir_catalog::Catalog;
use weir_core::instant::{rfc3339, unix_millis};
use weir_core::names::UpstreamId;
use weir_core::port::{AuditLog, OperatorAction};
use weir_core::principal::Subject;
use weir_handover::{MovedOverride, MovedOverrideTarget};
use weir_policy::BlocklistAuthorizer;

use crate::overrides::{OperatorOverride, OperatorOverrides, OverrideTarget, words};

/// Returns the changes in force, to hand over.
pub(super) fn moved_overrides(overrides: &OperatorOverrides) -> Vec<MovedOverride> {
    let note =
        |(target, change): &(OverrideTarget, OperatorOverride)| moved_override(target, change);
    overrides.all().iter().map(note).collect()
}

/// Returns a change in the form in which it leaves this process.
pub(super) fn moved_override(target: &OverrideTarget, change: &OperatorOverride) -> MovedOverride {
    MovedOverride {
        of: moved_target(target),
        what: change.action.to_owned(),
        who: change.operator.to_string(),
        reason: change.reason.clone(),
        since: unix_millis(change.since),
        ends: change.expires.map(|(ends, _)| unix_millis(ends)),
    }
}

/// Returns a target in the form in which it leaves this process.
pub(super) fn moved_target(target: &OverrideTarget) -> MovedOverrideTarget {
    match target {
        OverrideTarget::Upstream(id) => MovedOverrideTarget::Upstream(id.to_string()),
        OverrideTarget::Principal { issuer, subject } => MovedOverrideTarget::Principal {
            issuer: issuer.clone(),
            subject: subject.clone(),
        },
        OverrideTarget::Log(level) => MovedOverrideTarget::Log(level.clone()),
    }
}

/// Applies the changes that were in force in the previous process, with their operators and ends,
/// and audits that. A log level waits until the log control is set. A change that is unknown here
/// is skipped with a log line.
pub fn apply_inherited(
    noted: Vec<MovedOverride>,
    catalog: &Catalog,
    blocked: &BlocklistAuthorizer,
    audit: &dyn AuditLog,
    now: SystemTime,
) -> Arc<OperatorOverrides> {
    let overrides = Arc::<OperatorOverrides>::default();
    for one in noted {
        let taken = read_moved(one, now)
            .filter(|(target, change)| apply_override(target, change, catalog, blocked));
        let Some((target, change)) = taken else {
            tracing::warn!("inherited operator change not applied");
            continue;
        };
        let (kind, name) = target.kind_and_name();
        let detail = format!(
            "{kind} {name}: {} by {} at {}",
            change.action,
            change.operator,
            rfc3339(change.since)
        );
        // The previous process was below the same limit.
        if overrides.apply(target, change, || Ok(())).is_ok() {
            audit.record_operator_action(&OperatorAction {
                actor: "weir",
                action: "take over",
                detail: &detail,
                took_effect: true,
            });
        }
    }
    overrides
}

/// Closes the upstream or blocks the principal of a change. Returns false for an unknown upstream.
pub(super) fn apply_override(
    target: &OverrideTarget,
    change: &OperatorOverride,
    catalog: &Catalog,
    blocked: &BlocklistAuthorizer,
) -> bool {
    match target {
        OverrideTarget::Upstream(id) => catalog.close(id, change.closing_mode()),
        OverrideTarget::Principal { issuer, subject } => {
            blocked.block(Subject::new(issuer.as_str(), subject.as_str()));
            true
        }
        OverrideTarget::Log(_) => true,
    }
}

/// Reads a change; returns `None` for a change of another weir version.
pub(super) fn read_moved(
    moved: MovedOverride,
    now: SystemTime,
) -> Option<(OverrideTarget, OperatorOverride)> {
    let what = words::ALL.into_iter().find(|word| *word == moved.what)?;
    let target = read_target(&moved.of)?;
    // A change that expired meanwhile is undone at once, and that is audited too.
    let ends = moved.ends.map(moment);
    let ends = ends.map(|ends| {
        (
            ends,
            Instant::now() + ends.duration_since(now).unwrap_or_default(),
        )
    });
    let who = Arc::from(moved.who);
    Some((
        target,
        OperatorOverride {
            action: what,
            operator: who,
            reason: moved.reason,
            since: moment(moved.since),
            expires: ends,
        },
    ))
}

/// Reads a target; returns `None` for the id of no upstream.
pub(super) fn read_target(moved: &MovedOverrideTarget) -> Option<OverrideTarget> {
    Some(match moved {
        MovedOverrideTarget::Upstream(id) => {
            OverrideTarget::Upstream(UpstreamId::new(id.as_str()).ok()?)
        }
        MovedOverrideTarget::Principal { issuer, subject } => OverrideTarget::Principal {
            issuer: issuer.clone(),
            subject: subject.clone(),
        },
        MovedOverrideTarget::Log(level) => OverrideTarget::Log(level.clone()),
    })
}

fn moment(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(millis))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

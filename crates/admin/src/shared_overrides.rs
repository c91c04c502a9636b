//! Operators' changes that replicas share: those made here go to the others, and theirs are made
//! here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use weir_catalog::Catalog;
use weir_core::instant::{rfc3339, unix_millis};
use weir_core::port::{
    AuditLog, ChangeDraft, ChangeMap, ChangeTarget, ChangeVersion, OperatorAction, SharedChange,
    SharedChanges,
};
use weir_core::supervision::run_supervised;
use weir_handover::{MovedOverride, MovedOverrideTarget};
use weir_policy::BlocklistAuthorizer;

use crate::actions::request::audit_text;
use crate::inherited::{apply_override, moved_override, moved_target, read_moved, read_target};
use crate::operator_auth::THROUGH_REPLICA;
use crate::overrides::{OperatorOverride, OperatorOverrides, OverrideTarget};
use crate::state::AdminState;

/// The format of shared changes.
const FORMAT: u32 = 1;
/// The time between attempts to make a change that does not fit the config yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The content of a shared change.
#[derive(Serialize, Deserialize)]
struct SharedBody {
    format: u32,
    change: MovedOverride,
}

/// The format of a content, which every version reads.
#[derive(Deserialize)]
struct BodyFormat {
    format: u32,
}

/// The removal of a change by an operator.
#[derive(Debug)]
pub(super) struct OverrideRemoval<'a> {
    /// The name of the action.
    pub(super) action: &'static str,
    pub(super) operator: &'a Arc<str>,
    pub(super) reason: Option<&'a str>,
}

/// The state of a change at the other replicas, for the response.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReplicaNotice {
    /// The shared store has it: it is in force everywhere within seconds.
    Notified,
    /// The shared store does not answer: the other replicas follow once it does.
    Pending,
}

/// The outcome of an attempt to take a change of another replica.
enum TakenChange {
    /// It is in force, or needs no action.
    Done,
    /// Its upstream is not in the config yet.
    NotYet,
}

impl AdminState {
    /// Makes a change known to the other replicas. `None` if the store is not shared.
    pub(super) async fn share_override(
        &self,
        target: &OverrideTarget,
        change: &OperatorOverride,
    ) -> Option<ReplicaNotice> {
        self.share(override_draft(target, change)?).await
    }

    /// Makes the removal of a change known to the other replicas.
    pub(super) async fn share_removal(
        &self,
        target: &OverrideTarget,
        removal: OverrideRemoval<'_>,
    ) -> Option<ReplicaNotice> {
        let change = MovedOverride {
            of: moved_target(target),
            what: removal.action.to_owned(),
            who: removal.operator.to_string(),
            reason: removal.reason.map(str::to_owned),
            since: unix_millis(self.now()),
            ends: None,
        };
        self.share(draft(target, change, true)?).await
    }

    async fn share(&self, draft: ChangeDraft) -> Option<ReplicaNotice> {
        let shared = self.shared.as_ref()?;
        Some(match shared.publish(draft).await {
            Ok(()) => ReplicaNotice::Notified,
            Err(_) => ReplicaNotice::Pending,
        })
    }

    /// Makes the changes of other replicas here. Returns false if one does not fit the config yet.
    fn take_shared(
        &self,
        changes: &ChangeMap,
        taken: &mut HashMap<ChangeTarget, ChangeVersion>,
        refused: &mut HashMap<ChangeTarget, ChangeVersion>,
    ) -> bool {
        taken.retain(|target, _| changes.contains_key(target));
        refused.retain(|target, _| changes.contains_key(target));
        let mut is_complete = true;
        for (target, change) in changes {
            if taken.get(target) == Some(&change.version) {
                continue;
            }
            match self.take_one(change) {
                TakenChange::Done => {
                    taken.insert(*target, change.version);
                }
                TakenChange::NotYet => {
                    is_complete = false;
                    if refused.insert(*target, change.version) != Some(change.version) {
                        tracing::warn!("operator change of another replica not applied");
                    }
                }
            }
        }
        is_complete
    }

    fn take_one(&self, change: &SharedChange) -> TakenChange {
        let Some(moved) = read_body(change) else {
            return TakenChange::Done;
        };
        if change.is_removal {
            self.take_removal(&moved);
            return TakenChange::Done;
        }
        let now = self.now();
        if is_over(change, now) {
            return TakenChange::Done;
        }
        let Some((target, change)) = read_moved(moved, now) else {
            tracing::warn!("operator change of another replica unknown to this version");
            return TakenChange::Done;
        };
        if self.overrides.has_equal(&target, &change) {
            return TakenChange::Done;
        }
        let (operator, action) = (change.operator.clone(), change.action);
        let detail = shared_detail(&target, &change);
        match self.make_override(&target, change) {
            Ok(_) => self.record_action(&operator, action, &detail, true),
            Err(_) => return TakenChange::NotYet,
        }
        TakenChange::Done
    }

    fn take_removal(&self, moved: &MovedOverride) {
        let Some(target) = read_target(&moved.of) else {
            return;
        };
        if self.overrides.find(&target).is_none() {
            return;
        }
        self.revert_override(&target);
        let (kind, name) = target.kind_and_name();
        let name = audit_text(&name);
        let reason = moved.reason.iter().map(|reason| format!("; {reason}"));
        let detail: String = std::iter::once(format!("{kind} {name}"))
            .chain(reason)
            .chain([THROUGH_REPLICA.to_owned()])
            .collect();
        self.record_action(&moved.who, &moved.what, &detail, true);
    }
}

/// Makes the changes of other replicas here, as soon as they are known. Returns if the store is not
/// shared, and otherwise never; drop the future to end it.
pub async fn follow_shared_changes(state: Arc<AdminState>) {
    run_supervised("changes of other replicas", || take_changes(state.clone())).await;
}

async fn take_changes(state: Arc<AdminState>) {
    let Some(shared) = state.shared.clone() else {
        return;
    };
    let mut changes = shared.watch();
    let (mut taken, mut refused) = (HashMap::new(), HashMap::new());
    loop {
        let now = changes.borrow_and_update().clone();
        let is_complete = state.take_shared(&now, &mut taken, &mut refused);
        let retry = async {
            if is_complete {
                std::future::pending::<()>().await;
            }
            sleep(RETRY_INTERVAL).await;
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = retry => {}
        }
    }
}

/// The parts that changes take effect on before there are requests.
#[derive(Clone, Copy, Debug)]
pub struct OverrideSinks<'a> {
    /// The changes in force.
    pub overrides: &'a OperatorOverrides,
    /// The catalog, with the upstreams.
    pub catalog: &'a Catalog,
    /// The blocked principals.
    pub blocked: &'a BlocklistAuthorizer,
    /// The audit of operators' actions.
    pub audit: &'a dyn AuditLog,
}

/// Makes the changes of other replicas before the first request is served, and makes those of the
/// previous process known to the others. A store that does not answer delays this for a limited time.
pub async fn apply_shared(shared: &dyn SharedChanges, sinks: OverrideSinks<'_>, now: SystemTime) {
    let OverrideSinks {
        overrides,
        catalog,
        blocked,
        audit,
    } = sinks;
    // The store logs a failure, and fetches the changes as soon as it answers.
    let _is_later = shared.fetch().await.is_err();
    for (target, change) in overrides.all() {
        if let Some(draft) = override_draft(&target, &change) {
            shared.restore(draft);
        }
    }
    let changes = shared.watch().borrow().clone();
    for shared in changes.values() {
        let is_in_force = !shared.is_removal && !is_over(shared, now);
        let read = || read_moved(read_body(shared)?, now);
        let Some((target, change)) = is_in_force.then(read).flatten() else {
            continue;
        };
        // A change that does not fit is reported later, with the next attempt.
        if overrides.has_equal(&target, &change)
            || !apply_override(&target, &change, catalog, blocked)
        {
            continue;
        }
        let (operator, action) = (change.operator.clone(), change.action);
        let detail = shared_detail(&target, &change);
        if overrides.apply(target, change, || Ok(())).is_ok() {
            audit.record_operator_action(&OperatorAction {
                actor: &operator,
                action,
                detail: &detail,
                took_effect: true,
            });
        }
    }
}

/// Returns the audit detail of a change that another replica was asked for.
fn shared_detail(target: &OverrideTarget, change: &OperatorOverride) -> String {
    let (kind, name) = target.kind_and_name();
    let name = audit_text(&name);
    let until = change.expires.map(|(ends, _)| rfc3339(ends));
    let until = until.iter().map(|ends| format!("; until {ends}"));
    let reason = change.reason.iter().map(|reason| format!("; {reason}"));
    std::iter::once(format!("{kind} {name}"))
        .chain(until)
        .chain(reason)
        .chain([THROUGH_REPLICA.to_owned()])
        .collect()
}

fn is_over(change: &SharedChange, now: SystemTime) -> bool {
    change.ends.is_some_and(|ends| ends <= unix_millis(now))
}

/// Reads a shared change. One of an unknown format is logged.
fn read_body(change: &SharedChange) -> Option<MovedOverride> {
    let format = serde_json::from_slice::<BodyFormat>(&change.body).ok();
    let is_known = format.is_some_and(|body| body.format == FORMAT);
    let body = is_known.then(|| serde_json::from_slice::<SharedBody>(&change.body).ok());
    let body = body.flatten().map(|body| body.change);
    if body.is_none() {
        tracing::warn!("operator change of another replica unknown to this version");
    }
    body
}

fn override_draft(target: &OverrideTarget, change: &OperatorOverride) -> Option<ChangeDraft> {
    draft(target, moved_override(target, change), false)
}

/// Returns a change in its shared form. `None` for a change of one process alone: the log level.
fn draft(target: &OverrideTarget, change: MovedOverride, is_removal: bool) -> Option<ChangeDraft> {
    if matches!(target, OverrideTarget::Log(_)) {
        return None;
    }
    let (at, ends) = (change.since, change.ends);
    let digest = target_digest(&change.of)?;
    let format = FORMAT;
    let body = serde_json::to_vec(&SharedBody { format, change }).ok()?;
    Some(ChangeDraft {
        target: digest,
        at,
        is_removal,
        ends,
        body: Bytes::from(body),
    })
}

fn target_digest(target: &MovedOverrideTarget) -> Option<ChangeTarget> {
    let text = serde_json::to_vec(target).ok()?;
    Some(ChangeTarget(Sha256::digest(text).into()))
}

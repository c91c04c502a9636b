//! The hand-over of a running weir to another process.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use weir_policy::audit::ChainHead;

use super::Weir;
use super::inside::Kept;
use crate::admin::Admin;
use crate::audit::Auditing;
use crate::handover::{Estate, SessionState, Successor, Will};

impl Weir {
    /// Returns the resources that another process needs to take over, without those that it can
    /// read from the config.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor left, or weir is stopping.
    pub(crate) fn estate(&self) -> std::io::Result<Estate> {
        let operators = self.open.admin.as_ref().map(Admin::socket).transpose()?;
        Ok(Estate {
            clients: Some(self.open.front.socket()?.into()),
            operators: operators.map(Into::into),
            sealing: Some(self.inside.base.sealing.clone()),
            will: Will::default(),
            keeper: self.inside.base.keeper.clone_pipe()?.map(Into::into),
        })
    }

    /// Leaves the audit's chain and path, and the operators' changes, to the successor. It may
    /// begin after that. Operators' changes are refused here from now on.
    pub(crate) async fn make_room(&self) -> Will {
        let changes = self.open.desk.leave();
        let audit = self.inside.deciders.auditing.step_aside().await;
        let text = |head: Option<ChainHead>| head.map(|head| head.to_string());
        Will {
            audit: text(audit.calls),
            refusals: text(audit.refusals),
            changes,
            sessions_move: true,
        }
    }

    /// The session state, for the previous or the next process.
    pub(crate) fn session_state(&self) -> SessionState {
        let Kept {
            records,
            replays,
            bus,
            ..
        } = &self.inside.kept;
        SessionState {
            records: records.clone(),
            replays: replays.clone(),
            bus: bus.clone(),
            front: self.open.front.moving_sessions(),
            upstreams: self
                .applied()
                .upstreams
                .iter()
                .map(|(_, upstream)| upstream.clone())
                .collect(),
        }
    }

    /// Notes that this process took over from one that has ended once the token is cancelled. This
    /// process ends after it.
    pub(crate) fn follows(&mut self, predecessor_ended: CancellationToken) {
        self.predecessor_ended = Some(predecessor_ended);
    }

    /// Stops waiting for sessions, because the previous process is gone.
    pub(crate) fn no_sessions_arrive(&self) {
        self.inside.kept.records.complete();
    }

    /// Records the outcome of a hand-over: the successor's process id, or the reason. After a
    /// successful one [`Self::shutdown`] closes the operators' listener first.
    ///
    /// # Errors
    ///
    /// The reason of a failed hand-over.
    pub(crate) fn handed_over(
        &mut self,
        outcome: Result<Successor, String>,
    ) -> Result<u32, String> {
        let outcome = outcome.map(|successor| self.successor.insert(successor).id);
        if outcome.is_err() {
            self.open.desk.stay();
        }
        let detail = match &outcome {
            Ok(successor) => format!("process {successor} serves"),
            Err(why) => why.clone(),
        };
        self.operated("signal", "hand over", &detail, outcome.is_ok());
        outcome
    }

    /// The audit.
    pub(crate) fn auditing(&self) -> &Arc<Auditing> {
        &self.inside.deciders.auditing
    }

    /// Reports if another process has taken over.
    pub(crate) fn has_successor(&self) -> bool {
        self.successor.is_some()
    }
}

//! What a running weir does when another process takes its place.

use super::Weir;
use crate::admin::Admin;
use crate::handover::Estate;

impl Weir {
    /// What another process needs to go on in this one's place, and nothing that it could read in the config.
    ///
    /// # Errors
    /// The system has no file left, or weir is stopping.
    pub(crate) fn estate(&self) -> std::io::Result<Estate> {
        let operators = self.open.admin.as_ref().map(Admin::socket).transpose()?;
        Ok(Estate {
            clients: Some(self.open.front.socket()?.into()),
            operators: operators.map(Into::into),
            sealing: Some(self.inside.base.sealing.clone()),
        })
    }

    /// Leaves the audit file's path to the successor, which may then begin.
    pub(crate) async fn make_room(&self) {
        self.inside.deciders.auditing.step_aside().await;
    }

    /// Records how a hand-over went. After a good one [`Self::shutdown`] gives up the operators' listener first.
    pub(crate) fn handed_over(&mut self, outcome: &Result<u32, String>) {
        self.has_successor = outcome.is_ok();
        let detail = match outcome {
            Ok(successor) => format!("process {successor} serves"),
            Err(why) => why.clone(),
        };
        self.operated("signal", "hand over", &detail, outcome.is_ok());
    }

    /// Whether another process serves in this one's place.
    pub(crate) fn has_successor(&self) -> bool {
        self.has_successor
    }
}

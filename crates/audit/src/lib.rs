//! The audit: records of all actions and their actors, the hash chain that shows if one of them was
//! changed, and the files, outputs and collectors that keep the records.

mod audit_plan;
mod audit_service;
mod record;
mod sync;

pub use audit_plan::{AuditFilePlan, AuditPlan};
pub use audit_service::{AuditError, AuditService, ChainHeads, PreparedAudit, check_files};
pub use record::{
    ArgumentPointer, ArgumentRecording, AuditKey, ChainFault, ChainGap, ChainHead, ChainInspector,
    ChainLink, ChainSummary,
};

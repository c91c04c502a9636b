//! The audit: records of all actions and their actors, and the hash chain that shows if one of them
//! was changed.
//!
//! All code here is pure. [`AuditRecorder`] turns calls of core's audit port into an [`AuditEvent`]
//! and hands that to a [`EventKeeper`]. The keeper renders events with a [`AuditChain`] and stores
//! the bytes. Files, threads and sockets are not here. Without a configured audit, [`LogAudit`]
//! writes to the log.

mod audit_key;
mod canonical;
mod chain;
mod chain_head;
mod event;
mod log_audit;
mod record_object;
mod recorded_admissions;
mod recorded_arguments;
mod recorded_principal;
mod recorder;
mod refusal_count;
mod refusal_counter;
mod verify;

pub use audit_key::AuditKey;
pub(crate) use chain::{AuditChain, SealedRecord};
pub use chain_head::ChainHead;
pub(crate) use event::{AuditEvent, AuditLifecycle};
pub(crate) use log_audit::LogAudit;
pub use recorded_arguments::{ArgumentPointer, ArgumentRecording};
pub(crate) use recorder::{AuditRecorder, EventKeeper, RecordNotKept};
pub(crate) use refusal_counter::RefusalCounter;
pub use verify::{ChainFault, ChainGap, ChainInspector, ChainLink, ChainSummary};

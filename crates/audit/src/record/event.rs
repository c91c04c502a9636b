//! Audit events on their path from a request to their record.
//!
//! An event holds values of core by reference counts and small copies, so that a request pays
//! little for it; the keeper turns it into text.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use weir_core::instant::rfc3339;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{CallPermission, ContentChanges};
use weir_core::{CallOutcome, Principal};

use crate::record::chain_head::ChainHead;
use crate::record::record_object::RecordObject;
use crate::record::recorded_arguments::{ArgumentRecording, RecordedArguments};
use crate::record::recorded_principal::write_principal;
use crate::record::refusal_count::RefusalCount;

/// The name of the action of an operator that logs in.
pub(super) const LOGIN: &str = "login";

/// An event that gets a record.
#[derive(Debug)]
pub(crate) struct AuditEvent {
    pub(super) time: SystemTime,
    pub(super) content: EventContent,
}

#[derive(Debug)]
pub(super) enum EventContent {
    /// The authentication and admission of a request.
    Entry(Box<AdmissionEvent>),
    /// A call, refused or ended.
    Call(Box<CallEvent>),
    /// Refusals that are only counted.
    Refusals(Box<RefusalCount>),
    /// An operator's action.
    Admin {
        who: String,
        what: String,
        detail: String,
        done: bool,
    },
    /// An event of the audit record itself.
    Life(AuditLifecycle),
}

#[derive(Debug)]
pub(super) struct AdmissionEvent {
    pub(super) endpoint: EndpointId,
    pub(super) peer: IpAddr,
    pub(super) request: Arc<str>,
    /// The principal, if it is known.
    pub(super) principal: Option<Principal>,
    /// The reason for a refusal.
    pub(super) refused: Option<&'static str>,
}

/// A call.
#[derive(Debug)]
pub(super) struct CallEvent {
    pub(super) principal: Principal,
    pub(super) endpoint: EndpointId,
    pub(super) method: Cow<'static, str>,
    /// The tool under the name it has for the client, resolved or as requested.
    pub(super) tool: Option<Arc<str>>,
    /// The upstream of the tool, and the tool's own name there.
    pub(super) native: Option<(UpstreamId, Arc<str>)>,
    pub(super) arguments: RecordedArguments,
    pub(super) shape: Arc<ArgumentRecording>,
    /// The client's own description of itself.
    pub(super) client_info: Option<Bytes>,
    pub(super) request: weir_core::call::RequestName,
    pub(super) trace: Option<Arc<str>>,
    pub(super) end: AuditedEnding,
}

#[derive(Debug)]
pub(super) enum AuditedEnding {
    Refused {
        reason: &'static str,
        because: String,
        /// The rule that forbids it.
        rule: Option<Arc<str>>,
    },
    Ended {
        outcome: CallOutcome,
        took: Duration,
        bytes: u64,
        changes: ContentChanges,
        revision: Option<&'static str>,
        verdict: CallPermission,
    },
}

/// Events of the audit record itself, written by the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuditLifecycle {
    /// weir starts to write here. `unclean`: the record before is not a
    /// [`AuditLifecycle::Stopped`].
    Started {
        /// weir's version.
        version: &'static str,
        /// True if the last process ended without a [`AuditLifecycle::Stopped`].
        unclean: bool,
    },
    /// weir ends in order; no record is missing before this.
    Stopped,
    /// Another process continues the chain after this record, in a new file. Later records in this
    /// file are a branch: the last records of a process that drains.
    Left,
    /// The process before, the owner of this chain until now, has ended.
    Predecessor {
        /// The last record of its branch. `None`: it ended without reporting it.
        last: Option<ChainHead>,
    },
    /// The config moved the record, or changed its storage.
    Changed,
    /// Events were lost before this record, for lack of room.
    Lost {
        /// The number of events.
        events: u64,
    },
    /// The bytes between the record before and this one are the rest of unfinished records after a
    /// sudden end.
    Recovered {
        /// The number of bytes.
        bytes: u64,
        /// SHA-256 of them, in hexadecimal.
        sha256: String,
    },
}

impl AuditEvent {
    /// An event of the audit record itself.
    #[must_use]
    pub(crate) fn life(time: SystemTime, life: AuditLifecycle) -> Self {
        Self {
            time,
            content: EventContent::Life(life),
        }
    }

    /// The time of the event.
    #[must_use]
    pub(crate) fn time(&self) -> SystemTime {
        self.time
    }

    /// The kind of the event: one of a small, fixed set of words.
    #[must_use]
    pub(crate) fn kind(&self) -> &'static str {
        match &self.content {
            EventContent::Entry(_) => "entry",
            EventContent::Refusals(_) => "refusals",
            EventContent::Call(_) => "call",
            EventContent::Admin { .. } => "admin",
            EventContent::Life(AuditLifecycle::Started { .. }) => "started",
            EventContent::Life(AuditLifecycle::Stopped) => "stopped",
            EventContent::Life(AuditLifecycle::Left) => "left",
            EventContent::Life(AuditLifecycle::Predecessor { .. }) => "predecessor",
            EventContent::Life(AuditLifecycle::Changed) => "changed",
            EventContent::Life(AuditLifecycle::Lost { .. }) => "lost",
            EventContent::Life(AuditLifecycle::Recovered { .. }) => "recovered",
        }
    }

    /// True for a refusal or a failure.
    #[must_use]
    pub(crate) fn is_trouble(&self) -> bool {
        match &self.content {
            EventContent::Entry(entry) => entry.refused.is_some(),
            EventContent::Refusals(_) => true,
            EventContent::Call(call) => match &call.end {
                AuditedEnding::Refused { .. } => true,
                AuditedEnding::Ended { outcome, .. } => outcome.is_failed(),
            },
            EventContent::Admin { done, .. } => !done,
            EventContent::Life(life) => !matches!(
                life,
                AuditLifecycle::Started { unclean: false, .. }
                    | AuditLifecycle::Stopped
                    | AuditLifecycle::Left
                    | AuditLifecycle::Predecessor { last: Some(_) }
                    | AuditLifecycle::Changed
            ),
        }
    }

    /// Returns `true` for a refused call, request or login of an operator: outsiders can cause any
    /// number of these.
    #[must_use]
    pub(crate) fn is_denial(&self) -> bool {
        match &self.content {
            EventContent::Entry(entry) => entry.refused.is_some(),
            EventContent::Call(call) => matches!(call.end, AuditedEnding::Refused { .. }),
            EventContent::Admin { what, done, .. } => !done && what == LOGIN,
            EventContent::Refusals(_) | EventContent::Life(_) => false,
        }
    }

    /// The trace it belongs to: 32 hexadecimal characters.
    #[must_use]
    pub(crate) fn trace(&self) -> Option<&str> {
        match &self.content {
            // `00-<trace>-<parent>-<flags>`, checked on arrival.
            EventContent::Call(call) => call.trace.as_deref().and_then(|parent| parent.get(3..35)),
            EventContent::Entry(_)
            | EventContent::Refusals(_)
            | EventContent::Admin { .. }
            | EventContent::Life(_) => None,
        }
    }

    /// Writes its members, time and kind first.
    pub(super) fn write(&self, record: &mut RecordObject<'_>) {
        record
            .text("time", &rfc3339(self.time))
            .text("kind", self.kind());
        match &self.content {
            EventContent::Entry(entry) => entry.write(record),
            EventContent::Refusals(count) => count.write(record),
            EventContent::Call(call) => {
                call.write(record);
                record.optional_text("trace", self.trace());
            }
            EventContent::Admin {
                who,
                what,
                detail,
                done,
            } => {
                record
                    .text("who", who)
                    .text("what", what)
                    .text("detail", detail)
                    .boolean("done", *done);
            }
            EventContent::Life(life) => life.write(record),
        }
    }
}

impl AdmissionEvent {
    fn write(&self, record: &mut RecordObject<'_>) {
        if let Some(who) = &self.principal {
            write_principal(who, record);
        }
        match self.refused {
            None => record.text("decision", "allowed"),
            Some(reason) => record.text("decision", "refused").text("reason", reason),
        };
        record
            .text("endpoint", self.endpoint.as_str())
            .text("peer", &self.peer.to_string())
            .text("request", &self.request);
    }
}

impl CallEvent {
    fn write(&self, record: &mut RecordObject<'_>) {
        write_principal(&self.principal, record);
        self.client_software(record);
        record
            .text("endpoint", self.endpoint.as_str())
            .text("method", &self.method);
        record.optional_text("tool", self.tool.as_deref());
        if let Some((upstream, native)) = &self.native {
            record
                .text("upstream", upstream.as_str())
                .text("native", native);
        }
        self.arguments.write(&self.shape, record);
        match &self.end {
            AuditedEnding::Refused {
                reason,
                because,
                rule,
            } => {
                record
                    .text("decision", "refused")
                    .text("reason", reason)
                    .text("because", because);
                record.optional_text("rule", rule.as_deref());
            }
            AuditedEnding::Ended {
                outcome,
                took,
                bytes,
                changes,
                revision,
                verdict,
            } => {
                record
                    .text("decision", "allowed")
                    .list("policies", verdict.rules.iter().map(|rule| &**rule))
                    .text("outcome", outcome.as_str())
                    .raw("took_ms", &format!("{:.3}", took.as_secs_f64() * 1e3))
                    .number("bytes", *bytes)
                    .optional_text("protocol", *revision);
                let ContentChanges {
                    cleaned,
                    secrets,
                    cut,
                } = *changes;
                for (name, number) in [("cleaned", cleaned), ("secrets", secrets), ("cut", cut)] {
                    if number > 0 {
                        record.number(name, number);
                    }
                }
            }
        }
        record.text("request", self.request.as_str());
    }

    /// The client's own description of itself, not verified.
    fn client_software(&self, record: &mut RecordObject<'_>) {
        #[derive(serde::Deserialize)]
        struct ClientSoftware<'a> {
            #[serde(borrow)]
            name: std::borrow::Cow<'a, str>,
            #[serde(borrow, default)]
            version: std::borrow::Cow<'a, str>,
        }
        let info: Option<ClientSoftware<'_>> = self
            .client_info
            .as_deref()
            .and_then(|raw| serde_json::from_slice(raw).ok());
        if let Some(info) = info {
            record.object("software", |software| {
                software
                    .text("name", &info.name)
                    .text("version", &info.version);
            });
        }
    }
}

impl AuditLifecycle {
    /// The event for bytes that are not a record.
    #[must_use]
    pub(crate) fn recovered(torn: &[u8]) -> Self {
        let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(torn));
        Self::Recovered {
            bytes: torn.len() as u64,
            sha256,
        }
    }

    fn write(&self, record: &mut RecordObject<'_>) {
        match self {
            Self::Started { version, unclean } => {
                record.text("version", version).boolean("unclean", *unclean);
            }
            Self::Stopped | Self::Left | Self::Changed => {}
            Self::Predecessor { last } => {
                record.optional_text("last", last.as_ref().map(ToString::to_string).as_deref());
            }
            Self::Lost { events } => {
                record.number("events", *events);
            }
            Self::Recovered { bytes, sha256 } => {
                record.number("bytes", *bytes).text("sha256", sha256);
            }
        }
    }
}

//! What happened, as it travels from the request that it happened to towards its record.
//!
//! An event holds what core said by reference counts and small copies, so that a request pays
//! little for it; it becomes text where it is kept.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use weir_core::Principal;
use weir_core::instant::rfc3339;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Changes, Verdict};

use super::arguments::{Arguments, Shape};
use super::chain::Head;
use super::json::Object;
use super::refusal_counter::RefusalCount;

/// What an operator does that logs in.
pub(super) const LOGIN: &str = "login";

/// Something that is to have a record.
#[derive(Debug)]
pub struct Event {
    pub(super) time: SystemTime,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// A sender at the door.
    Entry(Box<Entry>),
    /// A call, refused or ended.
    Call(Box<Made>),
    /// Refusals that are only counted.
    Refusals(Box<RefusalCount>),
    /// An operator's action.
    Admin {
        who: String,
        what: String,
        detail: String,
        done: bool,
    },
    /// Something in the life of the record itself.
    Life(Life),
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) endpoint: EndpointId,
    pub(super) peer: IpAddr,
    pub(super) request: Arc<str>,
    /// The principal, where it is known.
    pub(super) principal: Option<Principal>,
    /// Why it was refused.
    pub(super) refused: Option<&'static str>,
}

/// A call.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) principal: Principal,
    pub(super) endpoint: EndpointId,
    pub(super) method: Cow<'static, str>,
    /// The tool by the name it has for the client, as found or as asked for.
    pub(super) tool: Option<Arc<str>>,
    /// The tool by its own name, and whose it is.
    pub(super) native: Option<(UpstreamId, Arc<str>)>,
    pub(super) arguments: Arguments,
    pub(super) shape: Arc<Shape>,
    /// The client's own words about itself.
    pub(super) client_info: Option<Bytes>,
    pub(super) request: weir_core::call::RequestName,
    pub(super) trace: Option<Arc<str>>,
    pub(super) end: Ending,
}

#[derive(Debug)]
pub(super) enum Ending {
    Refused {
        reason: &'static str,
        because: String,
        /// The rule that forbids it.
        rule: Option<Arc<str>>,
    },
    Ended {
        outcome: &'static str,
        took: Duration,
        bytes: u64,
        changes: Changes,
        revision: Option<&'static str>,
        verdict: Verdict,
    },
}

/// What happens to the record itself; written by whoever keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// weir starts to write here. `unclean`: the record before is not a [`Life::Stopped`].
    Started {
        /// weir's version.
        version: &'static str,
        /// Whether weir ended without saying so before.
        unclean: bool,
    },
    /// weir ends in order; nothing is missing before this.
    Stopped,
    /// Another process goes on with the chain after this record, in a new file. What follows here
    /// is a branch: the last records of a process that drains.
    Left,
    /// The process before, from which this chain was taken over, has ended.
    Predecessor {
        /// The last record of its branch. `None`: it ended without saying so.
        last: Option<Head>,
    },
    /// The config moved the record, or changed how it is kept.
    Changed,
    /// Events were lost before this record, for lack of room.
    Lost {
        /// How many.
        events: u64,
    },
    /// The bytes between the record before this one and this one are what a sudden end left of
    /// records under way.
    Recovered {
        /// How many bytes.
        bytes: u64,
        /// SHA-256 of them, in hexadecimal.
        sha256: String,
    },
}

impl Event {
    /// An event of the record's own life.
    #[must_use]
    pub fn life(time: SystemTime, life: Life) -> Self {
        Self {
            time,
            what: What::Life(life),
        }
    }

    /// When it happened.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// What kind of event it is: one of a small, fixed set of words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.what {
            What::Entry(_) => "entry",
            What::Refusals(_) => "refusals",
            What::Call(_) => "call",
            What::Admin { .. } => "admin",
            What::Life(Life::Started { .. }) => "started",
            What::Life(Life::Stopped) => "stopped",
            What::Life(Life::Left) => "left",
            What::Life(Life::Predecessor { .. }) => "predecessor",
            What::Life(Life::Changed) => "changed",
            What::Life(Life::Lost { .. }) => "lost",
            What::Life(Life::Recovered { .. }) => "recovered",
        }
    }

    /// Whether something was refused, or did not go well.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        match &self.what {
            What::Entry(entry) => entry.refused.is_some(),
            What::Refusals(_) => true,
            What::Call(call) => !matches!(
                call.end,
                Ending::Ended {
                    outcome: "complete" | "input_required" | "task",
                    ..
                }
            ),
            What::Admin { done, .. } => !done,
            What::Life(life) => !matches!(
                life,
                Life::Started { unclean: false, .. }
                    | Life::Stopped
                    | Life::Left
                    | Life::Predecessor { last: Some(_) }
                    | Life::Changed
            ),
        }
    }

    /// Returns `true` for a call, a sender or an operator's login that was refused: others can
    /// cause as many of these as they like.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        match &self.what {
            What::Entry(entry) => entry.refused.is_some(),
            What::Call(call) => matches!(call.end, Ending::Refused { .. }),
            What::Admin { what, done, .. } => !done && what == LOGIN,
            What::Refusals(_) | What::Life(_) => false,
        }
    }

    /// The trace it belongs to: 32 hexadecimal characters.
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        match &self.what {
            // `00-<trace>-<parent>-<flags>`, checked when it was read.
            What::Call(call) => call.trace.as_deref().and_then(|parent| parent.get(3..35)),
            _ => None,
        }
    }

    /// Writes its members, time and kind first.
    pub(super) fn write(&self, record: &mut Object<'_>) {
        record
            .text("time", &rfc3339(self.time))
            .text("kind", self.kind());
        match &self.what {
            What::Entry(entry) => entry.write(record),
            What::Refusals(count) => count.write(record),
            What::Call(call) => {
                call.write(record);
                record.maybe("trace", self.trace());
            }
            What::Admin {
                who,
                what,
                detail,
                done,
            } => {
                record
                    .text("who", who)
                    .text("what", what)
                    .text("detail", detail)
                    .yes("done", *done);
            }
            What::Life(life) => life.write(record),
        }
    }
}

impl Entry {
    fn write(&self, record: &mut Object<'_>) {
        if let Some(who) = &self.principal {
            principal(who, record);
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

impl Made {
    fn write(&self, record: &mut Object<'_>) {
        principal(&self.principal, record);
        self.client_software(record);
        record
            .text("endpoint", self.endpoint.as_str())
            .text("method", &self.method);
        record.maybe("tool", self.tool.as_deref());
        if let Some((upstream, native)) = &self.native {
            record
                .text("upstream", upstream.as_str())
                .text("native", native);
        }
        self.arguments.write(&self.shape, record);
        match &self.end {
            Ending::Refused {
                reason,
                because,
                rule,
            } => {
                record
                    .text("decision", "refused")
                    .text("reason", reason)
                    .text("because", because);
                record.maybe("rule", rule.as_deref());
            }
            Ending::Ended {
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
                    .text("outcome", outcome)
                    .raw("took_ms", &format!("{:.3}", took.as_secs_f64() * 1e3))
                    .number("bytes", *bytes)
                    .maybe("protocol", *revision);
                let Changes {
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

    /// What the client says it is, which nobody has checked.
    fn client_software(&self, record: &mut Object<'_>) {
        #[derive(serde::Deserialize)]
        struct Info<'a> {
            #[serde(borrow)]
            name: std::borrow::Cow<'a, str>,
            #[serde(borrow, default)]
            version: std::borrow::Cow<'a, str>,
        }
        let info: Option<Info<'_>> = self
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

impl Life {
    /// What is to be said of bytes that are no record.
    #[must_use]
    pub fn recovered(torn: &[u8]) -> Self {
        let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(torn));
        Self::Recovered {
            bytes: torn.len() as u64,
            sha256,
        }
    }

    fn write(&self, record: &mut Object<'_>) {
        match self {
            Self::Started { version, unclean } => {
                record.text("version", version).yes("unclean", *unclean);
            }
            Self::Stopped | Self::Left | Self::Changed => {}
            Self::Predecessor { last } => {
                record.maybe("last", last.as_ref().map(ToString::to_string).as_deref());
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

/// Who it is, for whom it acts, and through which client. Nothing stands there for the anonymous
/// principal.
pub(super) fn principal(principal: &Principal, record: &mut Object<'_>) {
    let Some(subject) = principal.subject() else {
        return;
    };
    record.object("principal", |who| {
        who.text("issuer", subject.issuer())
            .text("subject", subject.subject());
    });
    record
        .maybe("actor", subject.actor.as_deref())
        .maybe("client", subject.client.as_deref());
}

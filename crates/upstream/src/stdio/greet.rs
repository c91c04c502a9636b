//! The handshake with a child: it finds out the era, and initializes a legacy server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::upstream::{ListKind, ServerDescription};
use weir_core::{CapabilityClass, Failure, FailureKind, SessionKey};
use weir_era::upstream_messages::{self, ProbeOutcome, RevisionDialect, judge_probe};
use weir_era::{capability_forwarding, lower};
use weir_wire::Revision;
use weir_wire::method::Method;

use super::pipe::{Pipe, Purpose, Ticket};
use crate::settings::Protocol;

/// The wait for an answer to the probe before `initialize` is sent as well. Legacy servers may not
/// answer an unknown method, and slow starters answer late.
const SILENCE: Duration = Duration::from_secs(2);

/// The dialect and description of a child that is ready.
#[derive(Clone, Debug)]
pub(crate) struct Greeted {
    pub(crate) tongue: RevisionDialect,
    pub(crate) about: ServerDescription,
}

/// The clients that a child serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    /// The capabilities to declare. A child that all clients share gets none of them.
    pub(crate) class: CapabilityClass,
    /// The session of the one client that owns the child: its changes of roots are forwarded.
    pub(crate) session: Option<SessionKey>,
}

/// The failure of a handshake.
#[derive(Debug)]
pub(crate) enum Rude {
    /// The process ended on the probe: some legacy servers do, on any message but `initialize`.
    EndedOnProbe,
    /// The server refused this handshake.
    Refused(Failure),
    /// Any other failure.
    Failed(Failure),
}

impl From<Failure> for Rude {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Runs the handshake with a child.
///
/// # Errors
/// The child ended, or speaks no protocol that weir does.
pub(crate) async fn greet(
    pipe: &Arc<Pipe>,
    protocol: Protocol,
    clients: &Clients,
) -> Result<Greeted, Rude> {
    match protocol {
        Protocol::Legacy | Protocol::Sse => {
            Ok(initialize(pipe, Revision::NEWEST_LEGACY, clients).await?)
        }
        Protocol::Modern => match answer(pipe, discover(pipe).await?).await? {
            Ok(result) => match judge_probe(Some(&Ok(result))) {
                ProbeOutcome::Modern(found) => Ok(modern(found.revision, found.about)),
                _ => Ok(modern(Revision::MODERN, None)),
            },
            Err(_) => Ok(modern(Revision::MODERN, None)),
        },
        Protocol::Auto => probe(pipe, clients).await,
    }
}

async fn probe(pipe: &Arc<Pipe>, clients: &Clients) -> Result<Greeted, Rude> {
    let mut asked = discover(pipe).await?;
    let found = match tokio::time::timeout(SILENCE, asked.answer()).await {
        Ok(Some(outcome)) => judge_probe(Some(&outcome)),
        Ok(None) => return Err(Rude::EndedOnProbe),
        Err(_) => return both(pipe, asked, clients).await,
    };
    settle(pipe, found, clients).await
}

/// Waits for the probe and `initialize` together: the one with a good answer decides the era.
async fn both(pipe: &Arc<Pipe>, mut asked: Ticket, clients: &Clients) -> Result<Greeted, Rude> {
    let initialized = initialize(pipe, Revision::NEWEST_LEGACY, clients);
    tokio::pin!(initialized);
    tokio::select! {
        outcome = asked.answer() => match outcome {
            None => Err(Rude::EndedOnProbe),
            Some(outcome) => match judge_probe(Some(&outcome)) {
                // The probe was refused, so `initialize` decides.
                ProbeOutcome::Legacy(_) => Ok(initialized.await?),
                found => settle(pipe, found, clients).await,
            },
        },
        greeted = &mut initialized => match greeted {
            Ok(greeted) => Ok(greeted),
            // `initialize` was refused: this is a modern server that is slow with the probe.
            Err(_) => {
                let outcome = answer(pipe, asked).await?;
                match judge_probe(Some(&outcome)) {
                    ProbeOutcome::Legacy(_) => Err(foreign(pipe, "nothing that weir speaks").into()),
                    found => settle(pipe, found, clients).await,
                }
            }
        },
    }
}

async fn settle(pipe: &Arc<Pipe>, found: ProbeOutcome, clients: &Clients) -> Result<Greeted, Rude> {
    match found {
        ProbeOutcome::Modern(found) => Ok(modern(found.revision, found.about)),
        ProbeOutcome::Legacy(offered) => Ok(initialize(pipe, offered, clients).await?),
        ProbeOutcome::NoCommonRevision(versions) => {
            let list: String = versions.join(", ").chars().take(200).collect();
            Err(foreign(pipe, &list).into())
        }
    }
}

fn foreign(pipe: &Pipe, list: &str) -> Failure {
    let text = format!("The upstream speaks protocol versions that weir does not have: {list}");
    pipe.site.fail(FailureKind::Unavailable, text)
}

fn modern(revision: Revision, about: Option<ServerDescription>) -> Greeted {
    // A server that refused the probe describes nothing: its lists and changes are tried.
    let about = about.unwrap_or(ServerDescription {
        // A server that does not say is asked.
        offers: ListKind::ALL.into_iter().collect(),
        notifies_of: ListKind::ALL.into_iter().collect(),
        ..ServerDescription::default()
    });
    Greeted {
        tongue: RevisionDialect::new(revision),
        about,
    }
}

async fn discover(pipe: &Arc<Pipe>) -> Result<Ticket, Failure> {
    let id = pipe.site.next_id();
    let who = (CapabilityClass::BASE, &pipe.site.client_info[..]);
    pipe.request(
        id,
        RevisionDialect::new(Revision::MODERN).request(id, Method::Discover, &[], who),
        Purpose::Handshake,
    )
    .await
}

async fn initialize(
    pipe: &Arc<Pipe>,
    offered: Revision,
    clients: &Clients,
) -> Result<Greeted, Rude> {
    let id = pipe.site.next_id();
    let capabilities = capability_forwarding::to_legacy(clients.class, clients.session.is_some());
    let body = lower::initialize(id, offered, &capabilities, &pipe.site.client_info);
    let asked = pipe.request(id, body, Purpose::Handshake).await?;
    let result = match answer(pipe, asked).await? {
        Ok(result) => result,
        Err(error) => {
            let refused = upstream_messages::failure(&error);
            let text = "The upstream refused to be initialized";
            return Err(Rude::Refused(
                pipe.site
                    .fail(FailureKind::Unavailable, text)
                    .because(refused),
            ));
        }
    };
    let (revision, about) = upstream_messages::read_initialize_result(&result);
    let Some(revision) = revision else {
        return Err(Rude::Refused(foreign(pipe, "another than the one offered")));
    };
    pipe.tell(weir_wire::write::notification(
        Method::Initialized.as_str(),
        None,
    ));
    Ok(Greeted {
        tongue: RevisionDialect::new(revision),
        about,
    })
}

async fn answer(pipe: &Pipe, mut asked: Ticket) -> Result<Result<Bytes, Bytes>, Failure> {
    let ended = || {
        pipe.site.fail(
            FailureKind::Unavailable,
            "The upstream ended before it was ready",
        )
    };
    asked.answer().await.ok_or_else(ended)
}

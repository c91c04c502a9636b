//! The handshake with a child: it finds out the era, and initializes a legacy server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::call::LogMessages;
use weir_core::upstream::{ListKind, ServerDescription};
use weir_core::{CapabilityClass, Failure, FailureKind, SessionKey};
use weir_era::upstream_messages::{
    self, ClientDeclaration, ProbeOutcome, RevisionDialect, judge_probe,
};
use weir_era::{capability_forwarding, lower};
use weir_upstream_core::settings::UpstreamProtocol;
use weir_wire::method::Method;
use weir_wire::{ErrorObject, Revision};

use crate::child_channel::child_request::ChildRequest;
use crate::child_channel::{ChildChannel, RequestPurpose};

/// The wait for an answer to the probe before `initialize` is sent as well. Legacy servers may not
/// answer an unknown method, and slow starters answer late.
const PROBE_SILENCE: Duration = Duration::from_secs(2);

/// The dialect and description of a child that is ready.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeOutcome {
    pub(crate) dialect: RevisionDialect,
    pub(crate) about: ServerDescription,
}

/// The clients that a child serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildClients {
    /// The capabilities to declare. A child that all clients share gets none of them.
    pub(crate) class: CapabilityClass,
    /// The session of the client that the child is started for: its changes of roots are forwarded.
    pub(crate) session: Option<SessionKey>,
    /// True if no other session has calls in the child.
    pub(crate) is_owned: bool,
}

/// The failure of a handshake.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The process ended on the probe: some legacy servers do, on any message but `initialize`.
    EndedOnProbe,
    /// The server refused this handshake.
    Refused(Failure),
    /// Any other failure.
    Failed(Failure),
}

impl From<Failure> for HandshakeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Runs the handshake with a child.
///
/// # Errors
/// The child ended, or speaks no protocol that weir does.
pub(crate) async fn run_handshake(
    channel: &Arc<ChildChannel>,
    protocol: UpstreamProtocol,
    clients: &ChildClients,
) -> Result<HandshakeOutcome, HandshakeError> {
    match protocol {
        UpstreamProtocol::Legacy | UpstreamProtocol::Sse => {
            Ok(initialize(channel, Revision::NEWEST_LEGACY, clients).await?)
        }
        UpstreamProtocol::Modern => match wait_for_answer(channel, discover(channel).await?).await?
        {
            Ok(result) => match judge_probe(Some(&Ok(result))) {
                ProbeOutcome::Modern(found) => Ok(modern(found.revision, found.about)),
                ProbeOutcome::Legacy(_) | ProbeOutcome::NoCommonRevision(_) => {
                    Ok(modern(Revision::MODERN, None))
                }
            },
            Err(_) => Ok(modern(Revision::MODERN, None)),
        },
        UpstreamProtocol::Auto => probe(channel, clients).await,
    }
}

async fn probe(
    channel: &Arc<ChildChannel>,
    clients: &ChildClients,
) -> Result<HandshakeOutcome, HandshakeError> {
    let mut request = discover(channel).await?;
    let found = match tokio::time::timeout(PROBE_SILENCE, request.wait_for_answer()).await {
        Ok(Some(outcome)) => judge_probe(Some(&outcome)),
        // It is no sign of an era that the answer cannot be read.
        Ok(None) if request.take_refusal().is_some() => judge_probe(None),
        Ok(None) => return Err(HandshakeError::EndedOnProbe),
        Err(_) => return probe_and_initialize(channel, request, clients).await,
    };
    finish_handshake(channel, found, clients).await
}

/// Waits for the probe and `initialize` together: the one with a good answer decides the era.
async fn probe_and_initialize(
    channel: &Arc<ChildChannel>,
    mut request: ChildRequest,
    clients: &ChildClients,
) -> Result<HandshakeOutcome, HandshakeError> {
    let initialized = initialize(channel, Revision::NEWEST_LEGACY, clients);
    tokio::pin!(initialized);
    tokio::select! {
        // The end of a server that dies on the probe ends both requests.
        biased;
        outcome = request.wait_for_answer() => match outcome {
            None if request.take_refusal().is_some() => Ok(initialized.await?),
            None => Err(HandshakeError::EndedOnProbe),
            Some(outcome) => match judge_probe(Some(&outcome)) {
                // The probe was refused, so `initialize` decides.
                ProbeOutcome::Legacy(_) => Ok(initialized.await?),
                found @ (ProbeOutcome::Modern(_) | ProbeOutcome::NoCommonRevision(_)) => {
                    finish_handshake(channel, found, clients).await
                }
            },
        },
        outcome = &mut initialized => match outcome {
            Ok(outcome) => Ok(outcome),
            // `initialize` was refused: this is a modern server that is slow with the probe.
            Err(_) => {
                let outcome = match request.wait_for_answer().await {
                    Some(outcome) => outcome,
                    None => match request.take_refusal() {
                        Some(refusal) => return Err(refused_handshake(channel, refusal.failure).into()),
                        None => return Err(HandshakeError::EndedOnProbe),
                    },
                };
                match judge_probe(Some(&outcome)) {
                    ProbeOutcome::Legacy(_) => Err(foreign_version_failure(channel, "nothing that weir speaks").into()),
                    found @ (ProbeOutcome::Modern(_) | ProbeOutcome::NoCommonRevision(_)) => {
                        finish_handshake(channel, found, clients).await
                    }
                }
            }
        },
    }
}

async fn finish_handshake(
    channel: &Arc<ChildChannel>,
    found: ProbeOutcome,
    clients: &ChildClients,
) -> Result<HandshakeOutcome, HandshakeError> {
    match found {
        ProbeOutcome::Modern(found) => Ok(modern(found.revision, found.about)),
        ProbeOutcome::Legacy(offered) => Ok(initialize(channel, offered, clients).await?),
        ProbeOutcome::NoCommonRevision(versions) => {
            let list = upstream_messages::listed_versions(&versions);
            Err(foreign_version_failure(channel, &list).into())
        }
    }
}

fn foreign_version_failure(channel: &ChildChannel, list: &str) -> Failure {
    let text = format!("The upstream speaks protocol versions that weir does not have: {list}");
    channel.context.label.fail(FailureKind::Unavailable, text)
}

fn modern(revision: Revision, about: Option<ServerDescription>) -> HandshakeOutcome {
    // A server that refused the probe describes nothing: its lists and changes are tried.
    let about = about.unwrap_or(ServerDescription {
        // A server that does not say is asked.
        offers: ListKind::ALL.into_iter().collect(),
        notifies_of: ListKind::ALL.into_iter().collect(),
        ..ServerDescription::default()
    });
    HandshakeOutcome {
        dialect: RevisionDialect::new(revision),
        about,
    }
}

async fn discover(channel: &Arc<ChildChannel>) -> Result<ChildRequest, Failure> {
    let id = channel.context.request_ids.next_id();
    let who = ClientDeclaration {
        class: CapabilityClass::BASE,
        client_info: &channel.context.client_info,
        extensions: &[],
        log_messages: LogMessages::None,
    };
    channel
        .request(
            id,
            RevisionDialect::new(Revision::MODERN).request(id, Method::Discover, &[], who),
            RequestPurpose::Handshake,
        )
        .await
}

/// Initializes a legacy server. One that refuses the offered revision and lists others is offered
/// the newest of those, once.
async fn initialize(
    channel: &Arc<ChildChannel>,
    offered: Revision,
    clients: &ChildClients,
) -> Result<HandshakeOutcome, HandshakeError> {
    let mut outcome = request_initialize(channel, offered, clients).await?;
    if let Err(error) = &outcome
        && let Ok(error) = ErrorObject::parse(error)
        && let Some(other) = error
            .data
            .and_then(|data| upstream_messages::revision_to_offer_instead(&data, offered))
    {
        outcome = request_initialize(channel, other, clients).await?;
    }
    let result = match outcome {
        Ok(result) => result,
        Err(error) => {
            let refused = upstream_messages::failure(&error);
            let text = "The upstream refused to be initialized";
            return Err(HandshakeError::Refused(
                channel
                    .context
                    .label
                    .fail(FailureKind::Unavailable, text)
                    .because(refused),
            ));
        }
    };
    let (revision, about) = upstream_messages::read_initialize_result(&result);
    let Some(revision) = revision else {
        return Err(HandshakeError::Refused(foreign_version_failure(
            channel,
            &upstream_messages::version_text(&result),
        )));
    };
    channel.send(weir_wire::write::notification(
        Method::Initialized.as_str(),
        None,
    ));
    Ok(HandshakeOutcome {
        dialect: RevisionDialect::new(revision),
        about,
    })
}

/// Sends `initialize`, and returns the result or error object of the answer.
async fn request_initialize(
    channel: &Arc<ChildChannel>,
    offered: Revision,
    clients: &ChildClients,
) -> Result<Result<Bytes, Bytes>, HandshakeError> {
    let id = channel.context.request_ids.next_id();
    let capabilities = capability_forwarding::to_legacy(clients.class, clients.session.is_some());
    let body = lower::initialize(id, offered, &capabilities, &channel.context.client_info);
    let request = channel.request(id, body, RequestPurpose::Handshake).await?;
    Ok(wait_for_answer(channel, request).await?)
}

async fn wait_for_answer(
    channel: &ChildChannel,
    mut request: ChildRequest,
) -> Result<Result<Bytes, Bytes>, Failure> {
    let ended = || {
        channel.context.label.fail(
            FailureKind::Unavailable,
            "The upstream ended before it was ready",
        )
    };
    let answer = request.wait_for_answer().await;
    answer.ok_or_else(|| match request.take_refusal() {
        Some(refusal) => refused_handshake(channel, refusal.failure),
        None => ended(),
    })
}

/// Makes the failure of a handshake whose message was refused: another start may succeed.
fn refused_handshake(channel: &ChildChannel, failure: Failure) -> Failure {
    let may_pass = [
        FailureKind::Unavailable,
        FailureKind::Limit,
        FailureKind::Busy,
        FailureKind::Overloaded,
    ];
    if may_pass.contains(failure.kind()) {
        return failure;
    }
    let text = "The upstream refused to be initialized";
    let refused = channel.context.label.fail(FailureKind::Unavailable, text);
    refused.because(failure)
}

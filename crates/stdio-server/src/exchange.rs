//! A request of the host and its response.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use weir_front::{InMemoryBody, UpcomingRequest};
use weir_wire::message::Request as HostRequest;
use weir_wire::params::Params;
use weir_wire::write::{self, ObjectWriter};
use weir_wire::{ErrorObject, JsonLimits, Message, Method, Revision, error_code};

use crate::gateway_state::StdioGatewayState;
use crate::http_request::{HostSession, RequestEra};
use crate::in_flight::InFlightRequest;
use crate::response_messages::{BrokenResponse, ResponseMessages};

/// One request, from its line to its answer's.
pub(super) struct HostExchange {
    pub(super) shared: Arc<StdioGatewayState>,
    pub(super) request: HostRequest,
    pub(super) era: RequestEra,
    pub(super) in_flight: InFlightRequest,
    /// Keeps the gateway running until the answer is written.
    pub(super) _upcoming: UpcomingRequest,
}

/// The messages that were written for a request.
#[derive(Default)]
struct WrittenMessages {
    /// True after a notification or a request.
    others: bool,
    /// The answer, if it was written; true for a result.
    answer: Option<bool>,
}

impl HostExchange {
    /// Answers the request, unless the host cancels it.
    pub(crate) async fn run(self) {
        let abandoned = self.shared.abandoned.clone();
        let answered = async {
            match &self.era {
                // Dropping the response cancels the request. No message may follow.
                RequestEra::Modern(params) => {
                    let answering = self.answer_modern(params);
                    self.in_flight.run_until_withdrawn(answering).await;
                }
                // The client side gets the host's `notifications/cancelled` and ends the response.
                RequestEra::Legacy => self.answer_legacy().await,
            }
        };
        let _abandoned = abandoned.run_until_cancelled(answered).await;
    }

    /// Begins a session by `initialize`, and replaces the former one.
    pub(super) async fn initialize(self) {
        let begun = self
            .shared
            .abandoned
            .run_until_cancelled(self.begin_session())
            .await;
        if let Some(Err(text)) = begun {
            self.refuse(error_code::INTERNAL_ERROR, text).await;
        }
    }

    async fn begin_session(&self) -> Result<(), String> {
        self.shared.begin_session(None).await;
        self.reach_remote().await?;
        let post = self.shared.requests.post(None, self.request.raw.clone());
        let response = self.send(post).await?;
        let id = response.headers().get("mcp-session-id").cloned();
        let mut messages = ResponseMessages::new(response, &self.shared.room);
        let Some(answer) = messages.next().await.map_err(|error| error.to_string())? else {
            return Err(refusal(messages.status(), &messages.text().await));
        };
        if let (Some(id), Some(revision)) = (id, revision(&answer)) {
            self.shared
                .begin_session(Some(HostSession { id, revision }))
                .await;
        }
        let mut written = WrittenMessages::default();
        self.pass_on(answer, &mut written).await;
        Ok(())
    }

    async fn answer_modern(&self, params: &Params) {
        if let Err(text) = self.reach_remote().await {
            return self.refuse(error_code::INTERNAL_ERROR, text).await;
        }
        let mut written = WrittenMessages::default();
        let outcome = self
            .pass_all(
                self.shared.requests.post_modern(&self.request, params),
                &mut written,
            )
            .await;
        if let Err(text) = outcome {
            self.refuse(error_code::INTERNAL_ERROR, text).await;
        }
        let is_listen = self.request.method.known() == Some(Method::SubscriptionsListen);
        // Specification 2026-07-28, cancellation: a server that ends a subscription sends this.
        // Over HTTP the end of the stream stands for it.
        if is_listen && (written.others || written.answer == Some(true)) {
            self.shared
                .stdout
                .write(torn_down(self.request.id.as_json()))
                .await;
        }
    }

    async fn answer_legacy(&self) {
        let session = self.shared.session();
        // After an `initialize` that failed, the reason is that of the failure.
        let reached = match &session {
            Some(_) => Ok(()),
            None => self.reach_remote().await,
        };
        let outcome = match reached {
            Ok(()) => {
                let raw = self.request.raw.clone();
                let post = self.shared.requests.post(session.as_ref(), raw);
                self.pass_all(post, &mut WrittenMessages::default()).await
            }
            unreached => unreached,
        };
        if let Err(text) = outcome
            && !self.in_flight.withdrawn.is_cancelled()
        {
            self.refuse(error_code::INTERNAL_ERROR, text).await;
        }
    }

    /// Waits until the remote server was reached for the first time.
    async fn reach_remote(&self) -> Result<(), String> {
        match &self.shared.remote {
            Some(remote) => remote.reached().await,
            None => Ok(()),
        }
    }

    async fn send(
        &self,
        post: http::Request<Bytes>,
    ) -> Result<http::Response<InMemoryBody>, String> {
        let sent = self.shared.channel.send(post).await;
        sent.map_err(|stopped| stopped.to_string())
    }

    /// Writes all messages of the response.
    ///
    /// # Errors
    ///
    /// In words: the response had no answer.
    async fn pass_all(
        &self,
        post: http::Request<Bytes>,
        written: &mut WrittenMessages,
    ) -> Result<(), String> {
        let response = self.send(post).await?;
        let mut messages = ResponseMessages::new(response, &self.shared.room);
        loop {
            match messages.next().await {
                Ok(Some(message)) => self.pass_on(message, written).await,
                Ok(None) => break,
                Err(_) if written.answer.is_some() => break,
                Err(error @ (BrokenResponse::TooLarge | BrokenResponse::Lost(_))) => {
                    return Err(error.to_string());
                }
            }
        }
        match written.answer {
            Some(_) => Ok(()),
            None => Err(refusal(messages.status(), &messages.text().await)),
        }
    }

    async fn pass_on(&self, message: Bytes, written: &mut WrittenMessages) {
        let is_modern = matches!(self.era, RequestEra::Modern(_));
        match Message::parse(message.clone(), &JsonLimits::upstream()) {
            Ok(Message::Response(answer)) => {
                written.answer = Some(answer.outcome.is_ok());
                let remote = self.shared.remote.as_ref();
                if let Some(explained) = remote.and_then(|remote| remote.explain(&message)) {
                    return self.shared.stdout.write(explained).await;
                }
                // Only an error to an unreadable request has no id, and the id of this one is
                // known.
                if let (None, Some(Ok(error))) = (&answer.id, answer.error()) {
                    let answer = write::error_response(Some(&self.request.id), false, &error);
                    return self.shared.stdout.write(answer).await;
                }
            }
            // Specification 2026-07-28, stdio: a server writes no requests.
            Ok(Message::Request(asked)) if is_modern => {
                tracing::error!(
                    method = asked.method.as_str(),
                    "internal error: a request to a modern host was dropped"
                );
                return;
            }
            Ok(_) => written.others = true,
            Err(error) => {
                tracing::error!(%error, "internal error: invalid message in a response");
                return;
            }
        }
        self.shared.stdout.write(message).await;
    }

    async fn refuse(&self, code: i64, text: String) {
        let error = ErrorObject::new(code, text);
        self.shared
            .stdout
            .write(write::error_response(Some(&self.request.id), false, &error))
            .await;
    }
}

/// Describes a response without an answer.
fn refusal(status: StatusCode, text: &str) -> String {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!(
            "weir does not take the credential ({text}): start `weir stdio` with another in --token or WEIR_TOKEN, as `auth` of its config wants it"
        ),
        _ if text.is_empty() => format!("weir gave no answer (HTTP {})", status.as_u16()),
        _ => format!("{text} (HTTP {})", status.as_u16()),
    }
}

/// Returns the revision in the result of `initialize`.
fn revision(answer: &Bytes) -> Option<Revision> {
    let Ok(Message::Response(response)) = Message::parse(answer.clone(), &JsonLimits::upstream())
    else {
        return None;
    };
    let result = Params::parse(Some(&response.outcome.ok()?)).ok()?;
    Revision::parse(&result.protocol_version().ok().flatten()?)
}

/// Returns the notification that a subscription has ended.
fn torn_down(id: &[u8]) -> Bytes {
    let mut params = bytes::BytesMut::new();
    ObjectWriter::new(&mut params)
        .raw("requestId", id)
        .string("reason", "The server ended the subscription")
        .end();
    write::notification(Method::Cancelled.as_str(), Some(&params))
}

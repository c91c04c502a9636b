//! The opening of a session: `initialize` in a revision that the server has.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tokio::time::timeout;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument as _;
use weir_core::call::LogMessages;
use weir_core::{CapabilityClass, FailureKind};
use weir_era::upstream_messages::{self, RevisionDialect};
use weir_era::{capability_forwarding, lower};
use weir_http_client::HttpResponseBody;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::own_requests;
use weir_upstream_core::result_expectation::ResultExpectation;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_core::upstream_label::UpstreamLabel;
use weir_wire::Revision;
use weir_wire::method::Method;

use crate::http_call;
use crate::http_post::{self, ClassifiedResponse};
use crate::pending_request::PendingRequest;
use crate::refused_response::RefusedResponse;
use crate::unopened_session::UnopenedSession;
use crate::upstream_session::{UpstreamSession, UpstreamSessionClient};

/// The time that a server has for the head of a late answer to `initialize`, after the opening of
/// the session was given up.
const LATE_ANSWER_TIME: Duration = Duration::from_secs(30);

impl UpstreamSession {
    /// Opens a session: `initialize` and `notifications/initialized`. A server that refuses the
    /// offered revision and lists others is offered the newest of those, once.
    ///
    /// # Errors
    /// As for a request. A server that answers with neither a session nor an error is no MCP
    /// server.
    pub(crate) async fn open(
        context: &Arc<UpstreamContext>,
        http: &AuthorizedHttpClient,
        offered: Revision,
        behind: UpstreamSessionClient,
    ) -> Result<OpenedUpstreamSession, FailedAttempt> {
        own_requests::within(
            &context.own_requests,
            context.own_requests.deadlines.probe,
            async {
                let mut initialized = request_initialize(context, http, offered, behind).await;
                if let Err(InitializeError {
                    instead: Some(other),
                    ..
                }) = initialized
                {
                    initialized = request_initialize(context, http, other, behind).await;
                }
                let (given, result) = initialized.map_err(|error| error.refusal)?;
                let session = OpenedUpstreamSession::new(Self::new(
                    context,
                    behind,
                    |revision| given.into_channel(revision),
                    &result,
                )?);
                let message = weir_wire::write::notification(Method::Initialized.as_str(), None);
                http_post::post_notification(context, http, session.channel.headers(), message)
                    .await
                    .map_err(|refusal| not_opened(&context.label, refusal))?;
                Ok(session)
            },
        )
        .await
    }
}

/// A session outside of the slots of its pool. It ends at the server when it is dropped, unless it is
/// kept: its caller may leave before the session is in its slot.
#[derive(Debug)]
pub(crate) struct OpenedUpstreamSession {
    session: Arc<UpstreamSession>,
    is_kept: bool,
    /// The end of the upstream waits for that of the session.
    _hold: TaskTrackerToken,
}

impl OpenedUpstreamSession {
    pub(crate) fn new(session: UpstreamSession) -> Self {
        Self {
            _hold: session.context.tasks.hold(),
            session: Arc::new(session),
            is_kept: false,
        }
    }

    /// Returns the session, which its user ends from now on.
    pub(crate) fn keep(mut self) -> Arc<UpstreamSession> {
        self.is_kept = true;
        self.session.clone()
    }
}

impl Deref for OpenedUpstreamSession {
    type Target = Arc<UpstreamSession>;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl Drop for OpenedUpstreamSession {
    fn drop(&mut self) {
        if !self.is_kept {
            self.session.clone().close_later();
        }
    }
}

/// The failure of an `initialize`.
struct InitializeError {
    refusal: FailedAttempt,
    /// The revision to offer instead, if the server lists others than the one offered.
    instead: Option<Revision>,
}

impl From<FailedAttempt> for InitializeError {
    fn from(refusal: FailedAttempt) -> Self {
        Self {
            refusal,
            instead: None,
        }
    }
}

impl InitializeError {
    /// Makes the error of a server that opened no session for this revision.
    fn not_opened(label: &UpstreamLabel, refusal: FailedAttempt, offered: Revision) -> Self {
        let data = if let FailureKind::Upstream(error) = refusal.failure.kind() {
            error.data.as_ref()
        } else {
            None
        };
        Self {
            instead: data
                .and_then(|data| upstream_messages::revision_to_offer_instead(data, offered)),
            refusal: not_opened(label, refusal),
        }
    }
}

/// Sends `initialize`, and returns the session that the server opened, with its result.
async fn request_initialize(
    context: &Arc<UpstreamContext>,
    http: &AuthorizedHttpClient,
    offered: Revision,
    behind: UpstreamSessionClient,
) -> Result<(UnopenedSession, Bytes), InitializeError> {
    let id = context.request_ids.next_id();
    let capabilities = capability_forwarding::to_legacy(behind.class, behind.client.is_some());
    let body = lower::initialize(id, offered, &capabilities, &context.client_info);
    // A modern server is probed for sessions by this request, too, and wants the method of every
    // request as a header.
    let own = vec![(
        http_post::METHOD,
        HeaderValue::from_static(Method::Initialize.as_str()),
    )];
    let (given, response) = post_initialize(context, http, own, body, offered).await?;
    let mut answer = match http_post::classify(context, response, id).await? {
        ClassifiedResponse::Answer(answer) => answer,
        ClassifiedResponse::Accepted => {
            let text = "The upstream gave no answer to initialize";
            let failure = context.label.fail(FailureKind::BadAnswer, text);
            return Err(FailedAttempt::new(failure).into());
        }
        ClassifiedResponse::Refused(refused) if refused.is_no_endpoint() => {
            return Err(no_endpoint_failure(&context.label, &refused).into());
        }
        ClassifiedResponse::Refused(refused) => {
            let refusal = refused.into_refusal(context);
            return Err(InitializeError::not_opened(
                &context.label,
                refusal,
                offered,
            ));
        }
    };
    http_post::check_is_answer(context, &mut answer).await?;
    let dialect = RevisionDialect::new(offered);
    let filter = dialect.message_filter(id, false, LogMessages::None);
    let expectation = ResultExpectation::for_own_request(dialect, filter, CapabilityClass::BASE);
    let pending = PendingRequest::new(Some(given.side_channel()), id);
    let reply = http_call::reply(context.clone(), answer, expectation, pending).await;
    match own_requests::read_result(&context.own_requests, reply).await {
        Ok(result) => Ok((given, result)),
        Err(failure) => Err(InitializeError::not_opened(
            &context.label,
            failure.into(),
            offered,
        )),
    }
}

/// Posts `initialize`, and returns the session that the head of the response names. A task of its
/// own waits for the head, for longer than its caller: a session that the server opens late is
/// ended there.
async fn post_initialize(
    context: &Arc<UpstreamContext>,
    http: &AuthorizedHttpClient,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    offered: Revision,
) -> Result<(UnopenedSession, Response<HttpResponseBody>), FailedAttempt> {
    let (own_context, http) = (context.clone(), http.clone());
    let posting = async move {
        let response = http_post::send(&own_context, &http, headers, body).await?;
        let given = UnopenedSession::new(own_context, http, &response, offered);
        Ok((given, response))
    };
    let limit = context.own_requests.deadlines.probe + LATE_ANSWER_TIME;
    let posted = context
        .tasks
        .run(timeout(limit, posting).in_current_span())
        .await;
    // The time limit of the opening passes before that of the task.
    posted
        .and_then(Result::ok)
        .unwrap_or_else(|| Err(FailedAttempt::removed(&context.label)))
}

/// Makes the refusal of a URL that takes neither the modern probe nor `initialize`, as a server of
/// 2024-11-05 alone does.
fn no_endpoint_failure(label: &UpstreamLabel, refused: &RefusedResponse) -> FailedAttempt {
    let text = format!(
        "No MCP server at the upstream's URL (HTTP {}), neither of Streamable HTTP nor of HTTP+SSE (2024-11-05)",
        refused.status.as_u16()
    );
    let advice = match refused.status {
        // A TLS port answers so to a request in clear text.
        StatusCode::BAD_REQUEST => {
            "correct the scheme of `url` (http or https), or its path, which often ends in /mcp"
        }
        _ => "correct the path of `url`, which often ends in /mcp",
    };
    let cause = match refused.quoted_explanation() {
        Some(explanation) => format!("{explanation}; {advice}"),
        None => advice.to_owned(),
    };
    let failure = label.fail(FailureKind::Unavailable, text);
    FailedAttempt::new(failure.because(cause))
        .mark_era_in_doubt()
        .mark_no_endpoint()
}

/// Makes the refusal of a session that was not opened. The server's own error is about the
/// handshake, which the client does not know.
fn not_opened(label: &UpstreamLabel, refusal: FailedAttempt) -> FailedAttempt {
    if !refusal.was_attempted() || refusal.credentials_refused {
        return refusal;
    }
    // For every such answer, no session is open and the call did not run.
    if !matches!(
        refusal.failure.kind(),
        FailureKind::Upstream(_) | FailureKind::BadAnswer
    ) {
        return refusal.mark_era_in_doubt();
    }
    let text = "The upstream refuses to open a session";
    FailedAttempt::new(
        label
            .fail(FailureKind::Unavailable, text)
            .because(refusal.failure),
    )
    .mark_era_in_doubt()
    .mark_no_endpoint()
}

//! The context of one response.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Duration;
use weir_core::budget::BudgetOwner;
use weir_core::call::{RequestName, TaskMode};
use weir_core::port::RecordKey;
use weir_core::{Authenticated, Call, CapabilityClass, EndpointId, Failure, Principal, SessionKey};
use weir_era::request_state::{RequestStateBinding, VisitedUrl};
use weir_layers::http::answer::RenderedMessage;
use weir_layers::request::endpoint_route::EndpointRoute;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::settings::FrontLimits;
use weir_listen::Http2Flow;
use weir_session::LoadedSession;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::{RequestId, Revision};

use crate::reply::encode::result_stream::ResultStream;
use crate::session::session_use::CallSessionUse;

/// Longer than most calls take, and short enough that a client does not stay long without an event
/// id.
const RESUMABLE_STREAM_AFTER: Duration = Duration::from_millis(50);

/// The context of one response: the parts of its request that it needs.
pub(crate) struct ResponseContext {
    pub(crate) id: RequestId,
    pub(crate) revision: Revision,
    pub(super) method: Method,
    /// The client's own progress token, unchanged.
    pub(crate) token: Option<Bytes>,
    pub(crate) name: RequestName,
    /// The endpoint of the request, with the settings that the request began with.
    pub(crate) route: Arc<EndpointRoute>,
    /// Present for a call that may end with questions and be made again with their answers.
    pub(super) bound: Option<BoundCall>,
    /// The log in which the answer is kept, if it becomes a stream.
    pub(super) resumption: Option<RecordedAnswer>,
    /// The record of the session that the call keeps in use.
    pub(super) used_session: Option<RecordKey>,
    /// The form in which the client is asked to visit a URL.
    pub(super) url_elicitation: UrlElicitationForm,
    /// The visits of URLs to which the client's user agreed.
    pub(super) accepted_visits: Vec<VisitedUrl>,
    /// The task of a `tasks/result` request, by the client's own name.
    pub(super) task: Option<String>,
    /// True if the answer is to be a task: then there is no tool result that could carry an error.
    pub(super) is_task: bool,
    /// The response bytes that wait for the client, on a connection with other requests.
    pub(super) connection_flow: Option<Arc<Http2Flow>>,
    /// The owner of the answer's memory.
    pub(super) owner: BudgetOwner,
    /// True if the caller has no credentials.
    pub(super) is_anonymous: bool,
}

/// The resumption of an answer that becomes a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedAnswer {
    pub(crate) session: SessionKey,
    /// True if the stream opens with an event that has an id (2025-11-25).
    pub(crate) from_start: bool,
}

/// The form in which a client is asked to visit a URL (`-32042`).
#[derive(Clone, Copy, Debug)]
pub(crate) enum UrlElicitationForm {
    /// Questions of the call, if this class has URL elicitation. The client makes the call again.
    Questions(CapabilityClass),
    /// The same error, to the client of this session.
    Error(SessionKey),
    /// A text for the person or model.
    Text,
    /// None: the method has no questions.
    Unsupported,
}

/// The call that a state is bound to.
pub(crate) struct BoundCall {
    pub(crate) principal: Principal,
    pub(crate) call: Arc<Call>,
}

impl BoundCall {
    pub(super) fn binding(&self) -> Result<RequestStateBinding<'_>, Failure> {
        let call = &self.call;
        binding(&self.principal, &call.endpoint, call.method, &call.params)
    }
}

/// The binding for states of a modern client's call.
pub(crate) fn binding<'a>(
    principal: &'a Principal,
    endpoint: &'a EndpointId,
    method: Method,
    params: &'a Params,
) -> Result<RequestStateBinding<'a>, Failure> {
    let wrong = |error: weir_wire::params::ParamsError| Failure::invalid_params(error.to_string());
    let name = if method == Method::ResourcesRead {
        params.uri()
    } else {
        params.name()
    };
    Ok(RequestStateBinding {
        principal,
        endpoint,
        method: method.as_str(),
        name: name.map_err(wrong)?.unwrap_or_default(),
        arguments: params.arguments().map_err(wrong)?,
    })
}

/// An end, ready to be written.
pub(crate) enum EncodedEnd {
    /// A whole message.
    Message(RenderedMessage),
    /// A result that still arrives.
    Stream(Box<ResultStream>),
}

impl ResponseContext {
    pub(crate) fn new(
        context: &HttpRequestContext,
        sender: &Authenticated<()>,
        id: RequestId,
        revision: Revision,
        method: Method,
    ) -> Self {
        Self {
            owner: context.owner(sender),
            is_anonymous: sender.principal().is_anonymous(),
            id,
            revision,
            method,
            token: None,
            name: *context.name(),
            route: context.route.clone(),
            bound: None,
            resumption: None,
            used_session: None,
            url_elicitation: UrlElicitationForm::Text,
            accepted_visits: Vec::new(),
            task: None,
            is_task: false,
            connection_flow: context
                .peer()
                .http2
                .as_ref()
                .map(|http2| http2.flow().clone()),
        }
    }

    pub(crate) fn limits(&self) -> &FrontLimits {
        &self.route.settings.limits
    }

    /// Sets the client's progress token.
    pub(crate) fn with_progress_token(self, token: Option<Bytes>) -> Self {
        Self { token, ..self }
    }

    /// Lets the call end with questions: their state is bound to the call.
    pub(crate) fn with_bound_call(self, bound: BoundCall) -> Self {
        Self {
            bound: Some(bound),
            ..self
        }
    }

    /// Keeps this session in use while the client waits for the answer. If the answer becomes a
    /// stream and its revision supports it, the answer is resumable in the session.
    pub(crate) fn in_session(self, session: Option<&LoadedSession>) -> Self {
        let resumable = session.filter(|_| self.revision.has_event_ids());
        Self {
            resumption: resumable.map(|session| RecordedAnswer {
                session: session.key,
                from_start: self.revision.has_stream_polling(),
            }),
            used_session: session.map(|session| session.record_key.clone()),
            ..self
        }
    }

    /// Sets the form in which the client is asked to visit a URL; otherwise it is a text.
    pub(crate) fn with_url_elicitation(self, url_elicitation: UrlElicitationForm) -> Self {
        Self {
            url_elicitation,
            ..self
        }
    }

    /// Sets the visits of URLs to which the client's user agreed: it is not asked for them again.
    pub(crate) fn with_accepted_visits(self, accepted_visits: Vec<VisitedUrl>) -> Self {
        Self {
            accepted_visits,
            ..self
        }
    }

    /// Marks the answer as the result of this task, or as a task itself (2025-11-25).
    pub(crate) fn about_task(self, task: Option<String>, task_mode: TaskMode) -> Self {
        Self {
            task,
            is_task: matches!(task_mode, TaskMode::Wanted { .. }),
            ..self
        }
    }

    /// The wait before the answer becomes a stream. A fully resumable answer becomes one soon,
    /// because until then the client has no event id to resume with.
    pub(super) fn stream_after(&self) -> Duration {
        let usual = self.limits().stream_after;
        if self.resumption.is_some_and(|log| log.from_start) {
            usual.min(RESUMABLE_STREAM_AFTER)
        } else {
            usual
        }
    }

    /// The use of the session by the call, from now on.
    pub(super) fn session_use(&self) -> Option<CallSessionUse> {
        let record = self.used_session.clone()?;
        Some(CallSessionUse::new(
            &self.route.shared,
            &self.route.settings,
            record,
        ))
    }

    /// The use of the session until the answer becomes a stream; `None` if that is soon.
    pub(super) fn session_use_before_stream(&self) -> Option<CallSessionUse> {
        if self.stream_after() < self.limits().session.session_idle / 4 {
            return None;
        }
        self.session_use()
    }
}

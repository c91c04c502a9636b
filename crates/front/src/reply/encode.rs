//! Encodes replies as answers: JSON if the first event is the end; an event stream if a
//! notification comes first, or the wait grows long.

mod call_event_stream;
pub(crate) mod response_context;
mod result_stream;
pub(crate) mod unknown_result;
mod url_elicitation;

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::{Duration, timeout};
use weir_core::{CallResumption, Failure, FailureKind, Payload, ReplyEnd, ReplyEvent};
use weir_era::render;
use weir_era::request_state::{self, SealedResume};
use weir_era::{structured, tasks};
use weir_layers::failure;
use weir_layers::failure::RequestResult;
use weir_layers::failure::failure_data::FailureContext;
use weir_layers::failure::response_table::log_and_render;
use weir_layers::http::answer::{self, RenderedMessage};
use weir_layers::http::batch_budget::{BatchBudget, BatchedAnswer};
use weir_layers::http::body::ResponseBody;
use weir_layers::http::challenge;
use weir_layers::http::held_part::{HeldPart, UNRESERVED_BYTES};
use weir_layers::request::outcome::RequestOutcome;
use weir_wire::method::Method;
use weir_wire::splice::{BlockReplacer, ObjectEdits};

use crate::reply::running_call::{CallStep, OwnedCall};
use crate::session::replay::ReplayRecorder;
use crate::session::session_use::body_in_session;
use call_event_stream::FirstEvent;
pub(crate) use response_context::{EncodedEnd, ResponseContext, binding};
use result_stream::StreamedResultEdits;
use unknown_result::UnknownResult;

/// The largest `input_required` result: it is read whole, to seal its state.
const MAX_INPUT_REQUIRED: usize = 1 << 20;

impl ResponseContext {
    /// Makes an end ready.
    pub(crate) fn encode_end(&self, end: ReplyEnd) -> EncodedEnd {
        let payload = match end {
            ReplyEnd::Failed(failure) => {
                return self
                    .url_elicitation_required(&failure)
                    .unwrap_or_else(|| self.encode_failure(&failure));
            }
            ReplyEnd::Complete(payload) => payload,
            ReplyEnd::InputRequired(payload) => return self.encode_input_required(payload, None),
            ReplyEnd::Task(created) => return self.encode_task(&created),
            ReplyEnd::Parked { id, result } => {
                let origin = SealedResume {
                    owner: Some(self.route.shared.ports.replica.clone()),
                    ..SealedResume::of(CallResumption::Parked(id))
                };
                return self.encode_input_required(Payload::Whole(result), Some(origin));
            }
        };
        let edits = render::complete(
            self.revision,
            self.method,
            self.is_anonymous,
            &self.route.identity,
        );
        let edits = match &self.task {
            Some(task) => Cow::Owned(tasks::add_related_task(edits.clone(), task)),
            None => Cow::Borrowed(edits),
        };
        match payload {
            Payload::Whole(result) => self.encode_whole(result, &edits),
            Payload::Cleaned { result, removed } => {
                self.encode_whole(result, &render::cleaned(&edits, removed))
            }
            Payload::Stream(source) => {
                let structured = structured::as_text(self.revision)
                    .filter(|_| self.is_of_tool())
                    .map(|edit| (edit, HeldPart::new(self.route.shared.clone())));
                let result_edits =
                    StreamedResultEdits::new(self.blocks(), structured, edits.into_owned());
                EncodedEnd::Stream(Box::new(result_stream::ResultStream::new(
                    &self.id,
                    result_edits,
                    source,
                )))
            }
        }
    }

    fn encode_whole(&self, result: Bytes, edits: &ObjectEdits) -> EncodedEnd {
        // The result itself is dropped before its message takes memory.
        let message = self
            .with_structured_as_text(result)
            .and_then(|result| self.edited(&result, edits));
        match message.and_then(|message| self.reserve_memory(message)) {
            Ok(message) => EncodedEnd::Message(message),
            Err(failure) => self.encode_failure(&failure),
        }
    }

    /// The replacement of content blocks that the client's revision does not have.
    fn blocks(&self) -> Option<BlockReplacer> {
        render::block_replacements(self.revision, self.method)
    }

    /// Returns true if the answer is the result of a tool.
    fn is_of_tool(&self) -> bool {
        matches!(self.method, Method::ToolsCall | Method::TasksResult)
    }

    /// Adds a tool's structured content as text for a revision without structured content.
    fn with_structured_as_text(&self, result: Bytes) -> Result<Bytes, Failure> {
        if !self.is_of_tool() {
            return Ok(result);
        }
        let edited = structured::add_text(self.revision, &result)
            .map_err(result_stream::malformed_result)?;
        Ok(edited.unwrap_or(result))
    }

    fn encode_task(&self, created: &Bytes) -> EncodedEnd {
        let message = match tasks::created_for(self.revision, created, &self.route.identity) {
            Some((created, edits)) => self.edited(&created, &edits),
            None => {
                let text = "The server makes a task of a call whose client knows none";
                Err(Failure::new(FailureKind::BadAnswer, text))
            }
        };
        message.map_or_else(|failure| self.encode_failure(&failure), EncodedEnd::Message)
    }

    fn encode_input_required(&self, payload: Payload, origin: Option<SealedResume>) -> EncodedEnd {
        match self.input_required(payload, origin) {
            Ok(message) => EncodedEnd::Message(message),
            Err(failure) => self.encode_failure(&failure),
        }
    }

    /// The challenge header for a refusal for want of scopes.
    fn challenge(&self, end: &ReplyEnd) -> Option<HeaderValue> {
        let ReplyEnd::Failed(failure) = end else {
            return None;
        };
        let FailureKind::InsufficientScope(scopes) = failure.kind() else {
            return None;
        };
        HeaderValue::try_from(challenge::insufficient_at(
            &self.route.settings,
            &self.route.endpoint,
            scopes,
        ))
        .ok()
    }

    /// The answers of the call if its own answer is lost.
    pub(crate) fn unknown_result(&self) -> UnknownResult {
        UnknownResult::of(self)
    }

    fn encode_failure(&self, failure: &Failure) -> EncodedEnd {
        EncodedEnd::Message(
            log_and_render(failure, self.failure_context()).rendered_message(&self.id),
        )
    }

    /// True if the answer is a tool's result.
    fn is_tool_call(&self) -> bool {
        self.method == Method::ToolsCall && !self.is_task
    }

    fn failure_context(&self) -> FailureContext<'_> {
        FailureContext {
            revision: self.revision,
            tool_call: self.is_tool_call(),
            request: &self.name,
        }
    }

    /// The kind of an end in a batch.
    fn batched_answer(&self, end: &ReplyEnd) -> BatchedAnswer {
        match (self.method, end) {
            (Method::ToolsCall, ReplyEnd::Failed(_)) => BatchedAnswer::ToolError,
            (Method::ToolsCall, _) => BatchedAnswer::ToolResult,
            _ => BatchedAnswer::Other,
        }
    }

    fn edited(&self, result: &Bytes, edits: &ObjectEdits) -> Result<RenderedMessage, Failure> {
        let replaced = self.blocks().map(|blocks| blocks.apply(result)).transpose();
        // The upstream's messages are checked when they are read.
        let edited =
            replaced.and_then(|replaced| edits.apply_checked(replaced.as_ref().unwrap_or(result)));
        let (result, seen) = edited.map_err(result_stream::malformed_result)?;
        let message = weir_wire::write::response(&self.id, &result);
        Ok(failure::ok_message(
            message,
            RequestOutcome::of_result(seen.value(render::IS_ERROR)),
        ))
    }

    /// Reserves memory for a large message, until the client has read the last of it.
    fn reserve_memory(&self, rendered: RenderedMessage) -> Result<RenderedMessage, Failure> {
        if rendered.message.len() <= UNRESERVED_BYTES {
            return Ok(rendered);
        }
        let mut memory = self.route.shared.ports.budgets.results.empty_of(self.owner);
        if memory.try_grow(rendered.message.len()) {
            return Ok(RenderedMessage {
                memory: Some(memory),
                ..rendered
            });
        }
        let (kind, text) = if self.method == Method::ToolsCall {
            let text = "There is no memory for the result: other answers wait for clients that read slowly. The tool ran: check \
                        before calling again";
            (FailureKind::ResultUnknown, text)
        } else {
            (
                FailureKind::Busy,
                "There is no memory for the result: other answers wait for clients that read slowly",
            )
        };
        Err(Failure::new(kind, text).retry_after(Duration::from_secs(1)))
    }

    /// Encodes a request for input. Only a call that a state can be bound to gets a further round; its
    /// state is sealed.
    /// The call continues from `origin`; without it, from the server's own state, if it gave one.
    fn input_required(
        &self,
        payload: Payload,
        origin: Option<SealedResume>,
    ) -> Result<RenderedMessage, Failure> {
        let bad = |text: &'static str| Failure::new(FailureKind::BadAnswer, text);
        let Some(bound) = &self.bound else {
            return Err(bad(
                "The server asks for input that this client cannot be asked for",
            ));
        };
        let Payload::Whole(result) = payload else {
            return Err(bad("The server's request for input is too large"));
        };
        if result.len() > MAX_INPUT_REQUIRED {
            return Err(bad("The server's request for input is too large"));
        }
        let origin = match (origin, weir_wire::scan::find(&result, "requestState")) {
            (Some(origin), _) => Some(origin),
            (None, None) => None,
            (None, Some(range)) => {
                let state = weir_wire::scan::string(&result[range]);
                let state =
                    state.ok_or_else(|| bad("The server's `requestState` is not a string"))?;
                let resume = CallResumption::Upstream(state.into_owned());
                Some(SealedResume::of(resume))
            }
        };
        let binding = bound.binding()?;
        let sealed = origin.map(|origin| {
            let ports = &self.route.shared.ports;
            let expires = ports.clock.wall() + self.limits().state_time;
            request_state::seal(
                &self.route.shared.sealer,
                &*ports.random,
                &binding,
                &origin,
                expires,
            )
        });
        self.edited(
            &result,
            &render::input_required(&self.route.identity, sealed.as_deref()),
        )
    }
}

/// Answers a call.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async function has its arguments twice"
)]
pub(crate) fn encode_reply(
    response: ResponseContext,
    mut owned: OwnedCall,
) -> impl Future<Output = RequestResult> + Send + use<> {
    async move {
        // A result is not read while too many bytes wait for the client on the same connection.
        let next = async {
            match &response.connection_flow {
                Some(flow) => flow.while_room(owned.next()).await,
                None => owned.next().await,
            }
        };
        let first = timeout(response.stream_after(), next);
        let first = match response.session_use_before_stream() {
            Some(session) => Box::pin(session.during(first)).await,
            None => first.await,
        };
        let first = match first {
            Ok(CallStep::Event(ReplyEvent::End(end))) => {
                let challenge = response.challenge(&end);
                let mut answer = match response.encode_end(end) {
                    EncodedEnd::Message(message) => message.into_answer(),
                    EncodedEnd::Stream(results) => {
                        let counted = results.pending_outcome();
                        let mut body = body_in_session(*results, response.session_use());
                        body.labels.until = owned.deadline();
                        answer::with_pending_outcome(failure::ok(body), counted)
                    }
                };
                answer
                    .headers_mut()
                    .extend(challenge.map(|challenge| (header::WWW_AUTHENTICATE, challenge)));
                return Ok(answer);
            }
            // The client cancelled the call: it must not get an answer.
            Ok(CallStep::Over) => {
                return Ok(answer::with_outcome(
                    answer::events(ResponseBody::empty()),
                    RequestOutcome::Cancelled,
                ));
            }
            Ok(CallStep::Event(ReplyEvent::Note(note))) => Some(FirstEvent::Note(note)),
            Ok(CallStep::Message(message)) => Some(FirstEvent::Message(message)),
            Ok(CallStep::Event(ReplyEvent::Ask(_))) | Err(_) => None,
        };
        let recorder = response
            .resumption
            .and_then(|log| ReplayRecorder::begin_recording(log, &response));
        let until = owned.deadline();
        let session = response.session_use();
        let events = call_event_stream::CallEventStream::new(response, owned, first);
        let counted = events.pending_outcome();
        let mut body = match recorder {
            Some(recorder) => body_in_session(recorder.record_stream(events), session),
            None => body_in_session(events, session),
        };
        body.labels.until = until;
        Ok(answer::with_pending_outcome(answer::events(body), counted))
    }
}

/// Encodes the answer as one message, for a batch; notifications are left out. `None` if the call
/// was cancelled.
pub(crate) async fn encode_for_batch(
    response: ResponseContext,
    mut owned: OwnedCall,
    budget: &BatchBudget,
) -> Option<RenderedMessage> {
    loop {
        match owned.next().await {
            CallStep::Over => return None,
            CallStep::Event(ReplyEvent::Note(_) | ReplyEvent::Ask(_)) | CallStep::Message(_) => {}
            CallStep::Event(ReplyEvent::End(end)) => {
                // The text of weir's own failure is short, and says if the call ran.
                let is_own = matches!(&end, ReplyEnd::Failed(failure) if !is_of_server(failure));
                let kind = response.batched_answer(&end);
                let held = match response.encode_end(end) {
                    EncodedEnd::Message(message) if is_own => Ok(message),
                    EncodedEnd::Message(message) => budget.hold(message, kind),
                    EncodedEnd::Stream(results) => (*results).collect(budget.share(kind)).await,
                };
                return match held.map_err(|failure| response.encode_failure(&failure)) {
                    Ok(message) | Err(EncodedEnd::Message(message)) => Some(message),
                    Err(EncodedEnd::Stream(_)) => None,
                };
            }
        }
    }
}

/// True for an error that a server sent: its size is the server's choice.
fn is_of_server(failure: &Failure) -> bool {
    matches!(failure.kind(), FailureKind::Upstream(_))
}

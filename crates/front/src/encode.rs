//! Encodes replies as answers: JSON if the first event is the end; an event stream if a
//! notification comes first, or the wait grows long.

mod batch;
mod events;
mod held_part;
mod stream;
mod visit;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use tokio::time::{Duration, timeout};
use weir_core::budget::BudgetOwner;
use weir_core::call::{RequestName, TaskMode};
use weir_core::port::Fut;
use weir_core::{
    Authenticated, CallResumption, CapabilityClass, EndpointId, Failure, FailureKind, Payload,
    Principal, ReplyEnd, ReplyEvent, SessionKey,
};
use weir_era::render::{self, WeirIdentity};
use weir_era::request_state::{self, RequestStateBinding, SealedResume};
use weir_era::{structured, tasks};
use weir_wire::method::{EXTENSION_METHOD, Method};
use weir_wire::params::Params;
use weir_wire::splice::{BlockReplacer, ObjectEdits};
use weir_wire::{RequestId, Revision};

use crate::answer::{self, Said};
use crate::body::Body;
use crate::challenge;
use crate::listen::Flow;
use crate::observe::Answer;
use crate::replay::Keeping;
use crate::rescue::{self, Told, rescue};
use crate::running::{Owned, Step};
use crate::settings::{Limits, Settings};
use crate::stack::{Context, Shared};
use crate::tally::Tally;
pub(crate) use batch::BatchRoom;
use events::First;
use held_part::HeldPart;
use stream::Column;

/// Longer than most calls take, and short enough that a client does not stay long without an event
/// id.
const PRIMED_AFTER: Duration = Duration::from_millis(50);

/// The size up to which a whole answer needs no reservation: each connection has that much.
const SMALL: usize = 8 << 10;

/// The largest `input_required` result: it is read whole, to seal its state.
const LARGEST_INPUT_REQUIRED: usize = 1 << 20;

/// The context of one response: the parts of its request that it needs.
pub(crate) struct Asked {
    pub(crate) id: RequestId,
    pub(crate) revision: Revision,
    method: Method,
    /// The client's own progress token, unchanged.
    pub(crate) token: Option<Bytes>,
    pub(crate) about: Arc<WeirIdentity>,
    pub(crate) name: RequestName,
    endpoint: EndpointId,
    pub(crate) settings: Arc<Settings>,
    pub(crate) shared: Arc<Shared>,
    binding: Option<BoundTo>,
    /// The capabilities of a modern client.
    class: CapabilityClass,
    /// The session in which the answer can be resumed, if it becomes a stream.
    resumable: Option<SessionKey>,
    /// The session of a legacy client that supports URL elicitation.
    visitor: Option<SessionKey>,
    /// The task of a `tasks/result` request, by the client's own name.
    task: Option<String>,
    /// True if the answer is to be a task: then there is no tool result that could carry an error.
    as_task: bool,
    /// The response bytes that wait for the client, on a connection with other requests.
    flow: Option<Arc<Flow>>,
    /// The owner of the answer's memory.
    owner: BudgetOwner,
}

/// The binding of a state that is handed out with this answer.
pub(crate) struct BoundTo {
    principal: Principal,
    endpoint: EndpointId,
    method: Method,
    /// The name or URI that the client called.
    name: String,
    arguments: Option<Bytes>,
}

impl BoundTo {
    pub(crate) fn as_binding(&self) -> RequestStateBinding<'_> {
        RequestStateBinding {
            principal: &self.principal,
            endpoint: &self.endpoint,
            method: self.method.as_str(),
            name: &self.name,
            arguments: self.arguments.as_deref(),
        }
    }
}

/// The binding for states of a modern client's call.
pub(crate) fn binding(
    context: &Context,
    known: &Authenticated<()>,
    method: Method,
    params: &Params,
) -> Result<BoundTo, Failure> {
    let wrong = |error: weir_wire::params::ParamsError| Failure::invalid_params(error.to_string());
    let name = match method {
        Method::ResourcesRead => params.uri(),
        _ => params.name(),
    };
    Ok(BoundTo {
        method,
        principal: known.principal().clone(),
        endpoint: context.endpoint.clone(),
        name: name.map_err(wrong)?.unwrap_or_default().into_owned(),
        arguments: params.arguments().map_err(wrong)?,
    })
}

/// An end, ready to be written.
pub(crate) enum Ready {
    /// A whole message.
    Message(Said),
    /// A result that still arrives.
    Stream(Box<stream::Results>),
}

impl Asked {
    pub(crate) fn new(
        (context, known): (&Context, &Authenticated<()>),
        id: RequestId,
        (revision, method): (Revision, Method),
        token: Option<Bytes>,
    ) -> Self {
        Self {
            owner: context.owner(known),
            id,
            revision,
            method,
            token,
            about: context.about.clone(),
            name: context.name.clone(),
            endpoint: context.endpoint.clone(),
            settings: context.settings.clone(),
            shared: context.shared.clone(),
            binding: None,
            class: CapabilityClass::BASE,
            resumable: None,
            visitor: None,
            task: None,
            as_task: false,
            flow: context
                .peer
                .http2
                .as_ref()
                .map(|http2| http2.flow().clone()),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    pub(crate) fn bound(self, binding: BoundTo, class: CapabilityClass) -> Self {
        Self {
            binding: Some(binding),
            class,
            ..self
        }
    }

    /// Makes the answer resumable in this session, if it becomes a stream and its revision supports
    /// it.
    pub(crate) fn resumable(self, session: SessionKey) -> Self {
        Self {
            resumable: Some(session).filter(|_| self.revision.has_event_ids()),
            ..self
        }
    }

    /// Marks the client of this session as able to open a URL.
    pub(crate) fn visiting(self, session: SessionKey) -> Self {
        Self {
            visitor: Some(session),
            ..self
        }
    }

    /// Marks the answer as the result of this task, or as a task itself (2025-11-25).
    pub(crate) fn about_task(self, task: Option<String>, as_task: TaskMode) -> Self {
        Self {
            task,
            as_task: matches!(as_task, TaskMode::Wanted { .. }),
            ..self
        }
    }

    /// The wait before the answer becomes a stream. A fully resumable answer becomes one soon,
    /// because until then the client has no event id to resume with.
    fn stream_after(&self) -> Duration {
        let usual = self.limits().stream_after;
        let primed = self.resumable.is_some() && self.revision.has_stream_polling();
        if primed {
            usual.min(PRIMED_AFTER)
        } else {
            usual
        }
    }

    /// Makes an end ready.
    pub(crate) fn ready(&self, end: ReplyEnd) -> Ready {
        let payload = match end {
            ReplyEnd::Failed(failure) => {
                return self
                    .visit(&failure)
                    .unwrap_or_else(|| self.failed(&failure));
            }
            ReplyEnd::Complete(payload) => payload,
            ReplyEnd::InputRequired(payload) => return self.asking(payload, None),
            ReplyEnd::Task(created) => return self.task(&created),
            ReplyEnd::Parked { id, result } => {
                return self.asking(Payload::Whole(result), Some(CallResumption::Parked(id)));
            }
        };
        let edits = render::complete(self.revision, self.method, &self.about);
        let edits = match &self.task {
            Some(task) => tasks::add_related_task(edits, task),
            None => edits,
        };
        match payload {
            Payload::Whole(result) => self.whole(result, edits),
            Payload::Cleaned { result, removed } => {
                self.whole(result, render::cleaned(edits, removed))
            }
            Payload::Stream(source) => {
                let structured = structured::as_text(self.revision)
                    .filter(|_| self.is_of_tool())
                    .map(|edit| (edit, HeldPart::new(self.shared.clone())));
                let column = Column::new(self.blocks(), structured, edits);
                Ready::Stream(Box::new(stream::Results::new(&self.id, column, source)))
            }
        }
    }

    fn whole(&self, result: Bytes, edits: ObjectEdits) -> Ready {
        // The result itself is dropped before its message takes memory.
        let said = self
            .with_structured_as_text(result)
            .and_then(|result| self.edited(&result, edits));
        match said.and_then(|said| self.held(said)) {
            Ok(said) => Ready::Message(said),
            Err(failure) => self.failed(&failure),
        }
    }

    /// The replacement of content blocks that the client's revision does not have. Results of
    /// extension methods have no content blocks.
    fn blocks(&self) -> Option<BlockReplacer> {
        render::block_replacements(self.revision).filter(|_| self.method != EXTENSION_METHOD)
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
        let edited = structured::add_text(self.revision, &result).map_err(stream::broken)?;
        Ok(edited.unwrap_or(result))
    }

    fn task(&self, created: &Bytes) -> Ready {
        let said = match (self.revision.is_modern(), self.revision.has_task_param()) {
            (true, _) => self.edited(created, tasks::rendered_created(&self.about)),
            (false, true) => self.edited(&tasks::lowered_created(created), ObjectEdits::new()),
            (false, false) => {
                let text = "The server makes a task of a call whose client knows none";
                return self.failed(&Failure::new(FailureKind::BadAnswer, text));
            }
        };
        said.map_or_else(|failure| self.failed(&failure), Ready::Message)
    }

    fn asking(&self, payload: Payload, resume: Option<CallResumption>) -> Ready {
        match self.input_required(payload, resume) {
            Ok(said) => Ready::Message(said),
            Err(failure) => self.failed(&failure),
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
            &self.settings,
            &self.endpoint,
            scopes,
        ))
        .ok()
    }

    /// The message that is kept in place of a result that is too large to keep.
    pub(crate) fn too_large_to_keep(&self) -> Bytes {
        let text = "The result was too large to keep for a client whose connection was lost: it may have run. Check before \
                    calling again";
        // Made before the call runs, so it does not count as a failure.
        rescue::response(&Failure::new(FailureKind::ResultUnknown, text), self.told())
            .said(&self.id)
            .message
    }

    fn failed(&self, failure: &Failure) -> Ready {
        Ready::Message(rescue(failure, self.told()).said(&self.id))
    }

    fn told(&self) -> Told<'_> {
        let tool_call = self.method == Method::ToolsCall && !self.as_task;
        Told {
            revision: self.revision,
            tool_call,
            request: &self.name,
        }
    }

    fn edited(&self, result: &Bytes, edits: ObjectEdits) -> Result<Said, Failure> {
        let replaced = self.blocks().map(|blocks| blocks.apply(result)).transpose();
        // The upstream's messages are checked when they are read.
        let edited =
            replaced.and_then(|replaced| edits.apply_checked(replaced.as_ref().unwrap_or(result)));
        let (result, seen) = edited.map_err(stream::broken)?;
        let message = weir_wire::write::response(&self.id, &result);
        Ok(Said::new(
            StatusCode::OK,
            message,
            Tally::of_result(seen.value(render::IS_ERROR)),
        ))
    }

    /// Reserves memory for a large message, until the client has read the last of it.
    fn held(&self, said: Said) -> Result<Said, Failure> {
        if said.message.len() <= SMALL {
            return Ok(said);
        }
        let mut memory = self.shared.ports.budgets.results.empty_of(self.owner);
        if memory.try_grow(said.message.len()) {
            return Ok(Said {
                memory: Some(memory),
                ..said
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

    /// Encodes a request for input. Only modern clients get a further round; their state is sealed.
    /// The call continues from `resume`; without it, from the server's own state, if it gave one.
    fn input_required(
        &self,
        payload: Payload,
        resume: Option<CallResumption>,
    ) -> Result<Said, Failure> {
        let bad = |text: &'static str| Failure::new(FailureKind::BadAnswer, text);
        let (Some(bound), true) = (&self.binding, self.revision.is_modern()) else {
            return Err(bad(
                "The server asks for input that this client cannot be asked for",
            ));
        };
        let Payload::Whole(result) = payload else {
            return Err(bad("The server's request for input is too large"));
        };
        if result.len() > LARGEST_INPUT_REQUIRED {
            return Err(bad("The server's request for input is too large"));
        }
        let resume = match (resume, weir_wire::scan::find(&result, "requestState")) {
            (Some(resume), _) => Some(resume),
            (None, None) => None,
            (None, Some(range)) => {
                let state = weir_wire::scan::string(&result[range]);
                let state =
                    state.ok_or_else(|| bad("The server's `requestState` is not a string"))?;
                Some(CallResumption::Upstream(state.into_owned()))
            }
        };
        let sealed = resume.map(|resume| {
            let ports = &self.shared.ports;
            let expires = ports.clock.wall() + self.limits().state_time;
            let owner =
                matches!(resume, CallResumption::Parked(_)).then(|| ports.mailbox.own().clone());
            let origin = SealedResume { resume, owner };
            request_state::seal(
                &self.shared.sealer,
                &*ports.random,
                &bound.as_binding(),
                &origin,
                expires,
            )
        });
        self.edited(
            &result,
            render::input_required(&self.about, sealed.as_deref()),
        )
    }
}

/// Answers a call.
pub(crate) fn answer(asked: Asked, mut owned: Owned) -> Fut<'static, Answer> {
    // No async function: the future of one holds its arguments twice.
    Box::pin(async move {
        // A result is not read while too many bytes wait for the client on the same connection.
        let next = async {
            match &asked.flow {
                Some(flow) => flow.within(owned.next()).await,
                None => owned.next().await,
            }
        };
        let first = timeout(asked.stream_after(), next).await;
        let first = match first {
            Ok(Step::Event(ReplyEvent::End(end))) => {
                let challenge = asked.challenge(&end);
                let mut answer = match asked.ready(end) {
                    Ready::Message(said) => said.answer(),
                    Ready::Stream(results) => {
                        let counted = results.counted();
                        let mut body = Body::new(*results);
                        body.labels.until = owned.until();
                        answer::counted_later(answer::json_body(StatusCode::OK, body), counted)
                    }
                };
                answer
                    .headers_mut()
                    .extend(challenge.map(|challenge| (header::WWW_AUTHENTICATE, challenge)));
                return answer;
            }
            // The client cancelled the call: it must not get an answer.
            Ok(Step::Cancelled) => {
                return answer::counted(answer::events(Body::empty()), Tally::Cancelled);
            }
            Ok(Step::Event(ReplyEvent::Note(note))) => Some(First::Note(note)),
            Ok(Step::Message(message)) => Some(First::Message(message)),
            Ok(Step::Event(ReplyEvent::Ask(_))) | Err(_) => None,
        };
        let keeping = asked
            .resumable
            .and_then(|session| Keeping::begin(session, &asked));
        let until = owned.until();
        let events = events::Events::new(asked, owned, first);
        let counted = events.counted();
        let mut body = match keeping {
            Some(keeping) => Body::new(keeping.keep(events)),
            None => Body::new(events),
        };
        body.labels.until = until;
        answer::counted_later(answer::events(body), counted)
    })
}

/// Encodes the answer as one message, for a batch; notifications are left out. `None` if the call
/// was cancelled.
pub(crate) async fn whole(asked: Asked, mut owned: Owned, room: &BatchRoom) -> Option<Said> {
    loop {
        match owned.next().await {
            Step::Cancelled => return None,
            Step::Event(ReplyEvent::Note(_) | ReplyEvent::Ask(_)) | Step::Message(_) => {}
            Step::Event(ReplyEvent::End(end)) => {
                let held = match asked.ready(end) {
                    Ready::Message(said) => room.hold(said),
                    Ready::Stream(results) => (*results).collect(room).await,
                };
                return match held.map_err(|failure| asked.failed(&failure)) {
                    Ok(said) | Err(Ready::Message(said)) => Some(said),
                    Err(Ready::Stream(_)) => None,
                };
            }
        }
    }
}

/// Joins chunks.
fn join(chunks: &[Bytes]) -> Bytes {
    let mut out = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    chunks.iter().for_each(|chunk| out.extend_from_slice(chunk));
    out.freeze()
}

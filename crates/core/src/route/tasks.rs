//! Tasks: how a call that became one gets its name, and how one is asked after, answered and cancelled.
//!
//! These are no calls of tools: they are not decided and audited anew. They are bound to who made the call, by the name.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir_wire::method::Method;
use weir_wire::splice::{Edits, MetaEdits};
use weir_wire::write::{ObjectWriter, string};
use weir_wire::{code, scan};

use super::way::Way;
use super::{Look, Router};
use crate::admit::Authenticated;
use crate::call::{AsTask, AskedBy, Call};
use crate::catalog::{Item, TaskSupport};
use crate::failure::{Failure, FailureKind};
use crate::names::EndpointId;
use crate::principal::Principal;
use crate::reply::{End, Event, Payload, Reply};
use crate::task::{TaskDesk, TaskHome};
use crate::upstream::{Deadlines, ListKind, Outbound};

/// The largest state of a task, its result included: it is read whole.
const LARGEST: usize = 16 << 20;

/// The capabilities that a client lacks whose call can only become a task.
const NEEDED: &[u8] = br#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// What names the task that a call becomes.
pub(super) struct Naming {
    desk: TaskDesk,
    principal: Principal,
    endpoint: EndpointId,
    /// The upstream's id is not known yet.
    home: TaskHome,
}

impl Naming {
    fn of(desk: &TaskDesk, principal: &Principal, call: &Call, item: &Item) -> Self {
        let home = TaskHome {
            upstream: item.tool.upstream.clone(),
            native: String::new(),
            tool: item.exposed.to_string(),
            class: call.capabilities.class,
            session: call.session,
        };
        Self { desk: desk.clone(), principal: principal.clone(), endpoint: call.endpoint.clone(), home }
    }

    /// A `CreateTaskResult` under the client's name for the task.
    pub(super) fn name(&self, created: &Bytes) -> Result<Bytes, Failure> {
        let bad = || Failure::new(FailureKind::BadAnswer, "The server's task has no id that can be used");
        let native = scan::find(created, "taskId").and_then(|at| scan::string(&created[at])).ok_or_else(bad)?;
        let home = TaskHome { native: native.into_owned(), ..self.home.clone() };
        let name = self.desk.name(&self.principal, &self.endpoint, &home).ok_or_else(bad)?;
        named(created, &name).ok_or_else(bad)
    }
}

impl Router {
    /// Whether a call is to be made as a task; gives what names it then, and the call as its upstream is to hear of it.
    ///
    /// # Errors
    /// The tool can only be called as a task, and its client takes none; or the other way round.
    pub(super) fn as_task(
        &self,
        principal: &Principal,
        call: &Arc<Call>,
        item: &Item,
    ) -> Result<Option<(Naming, Arc<Call>)>, Failure> {
        let refused = |text: &'static str| Err(Failure::new(FailureKind::MethodNotFound, text));
        let Some(desk) = &self.tasks else { return Ok(None) };
        if call.method != Method::ToolsCall {
            return Ok(None);
        }
        let as_task = match (call.as_task, item.tool.tasks) {
            (AsTask::Never | AsTask::Driven, TaskSupport::Forbidden | TaskSupport::Optional) => return Ok(None),
            (AsTask::Taken, TaskSupport::Forbidden) => AsTask::Taken,
            (AsTask::Taken, TaskSupport::Optional | TaskSupport::Required) => AsTask::Wanted { ttl_ms: None },
            (wanted @ AsTask::Wanted { .. }, TaskSupport::Optional | TaskSupport::Required) => wanted,
            (AsTask::Driven, TaskSupport::Required) => AsTask::Wanted { ttl_ms: None },
            (AsTask::Wanted { .. }, TaskSupport::Forbidden) => return refused("This tool cannot be called as a task"),
            (AsTask::Never, TaskSupport::Required) if call.asked == AskedBy::Rounds => {
                let needed = Bytes::from_static(NEEDED);
                let text = "This tool's calls are tasks: declare the extension with the call";
                return Err(Failure::new(FailureKind::MissingCapability(needed), text));
            }
            (AsTask::Never, TaskSupport::Required) => {
                return refused("This tool can be called as a task only: send `task` with the call");
            }
        };
        let naming = Naming::of(desk, principal, call, item);
        let call = if as_task == call.as_task { call.clone() } else { Arc::new(Call { as_task, ..Call::clone(call) }) };
        Ok(Some((naming, call)))
    }

    /// Asks after a task (`tasks/get`), answers what it asks (`tasks/update`), or cancels it (`tasks/cancel`). Gives the result
    /// in the words of the tasks extension, under the client's name for the task. Cancel safe.
    ///
    /// # Errors
    /// `InvalidParams` for a task that is not there or not the sender's; else the upstream's.
    pub async fn task(&self, call: Authenticated<Arc<Call>>) -> Result<Bytes, Failure> {
        let (principal, asked) = (call.principal(), call.inner());
        let given = asked.params.task_id().map_err(|error| Failure::invalid_params(error.to_string()))?;
        let name = given.ok_or_else(|| Failure::invalid_params("`taskId` is missing: say which task"))?;
        let unknown = || Failure::unknown_task(&name);
        let desk = self.tasks.as_ref().ok_or_else(unknown)?;
        let home = desk.find(principal, &asked.endpoint, &name).ok_or_else(unknown)?;
        let mut own = Call { session: home.session, as_task: AsTask::Never, ..Call::clone(asked) };
        own.capabilities.class = home.class;
        let item = self.of_task(principal, &own, &home).ok_or_else(unknown)?;
        let upstream = self.catalog.upstream(&home.upstream).ok_or_else(unknown)?;
        let endpoint = self.catalog.endpoint(&asked.endpoint);
        let way = Way::of(endpoint.as_deref(), &item, &own);
        let outbound = Outbound {
            principal: principal.clone(),
            token: call.token().cloned(),
            call: Arc::new(own),
            native: home.native.into(),
            tool: None,
            deadlines: Deadlines::LIST,
        };
        let state = whole(upstream.call(outbound).await).await.map_err(|failure| match failure.kind() {
            // The upstream names it by its own id, which is nobody's business.
            FailureKind::Upstream(error) if error.code == code::INVALID_PARAMS => unknown(),
            _ => failure,
        })?;
        match asked.method {
            Method::TasksGet => detailed(&state, &name, &way),
            _ => Ok(Bytes::from_static(b"{}")),
        }
    }

    /// The tool of a task; `None` where the principal may not see it, or not any more.
    fn of_task(&self, principal: &Principal, call: &Call, home: &TaskHome) -> Option<Item> {
        let Look { whole, seen } = self.look(principal, call, ListKind::Tools)?;
        let own = |item: &&Item| item.tool.upstream == home.upstream;
        match (seen.find(&home.tool).item().filter(own), whole.find(&home.tool).item().filter(own)) {
            (Some(item), _) => Some(item.clone()),
            (None, Some(_)) => None,
            (None, None) => self.catalog.bygone(&call.endpoint, &home.upstream, &home.tool),
        }
    }
}

/// A state under the client's name, its questions and its result passed on as those of a call are.
fn detailed(state: &Bytes, name: &str, way: &Way) -> Result<Bytes, Failure> {
    let bad = || Failure::new(FailureKind::BadAnswer, "The server's answer about the task is malformed");
    let state = named(&way.questions(state), name).ok_or_else(bad)?;
    let Some(at) = scan::find(&state, "result") else { return Ok(state) };
    let bare = Edits::new().meta(MetaEdits::new().drop_owned()).apply_checked(&state.slice(at));
    let bare = bare.map_err(|error| bad().because(error))?.0;
    let edits = match way.pass(End::Complete(Payload::Whole(bare))) {
        End::Complete(Payload::Whole(result)) => Edits::new().replace("result", result),
        End::Failed(failure) => {
            let failed = failed(&failure);
            Edits::new().remove("result").set("status", &b"\"failed\""[..]).set("error", failed)
        }
        _ => return Err(bad()),
    };
    edits.apply_checked(&state).map(|(state, _)| state).map_err(|error| bad().because(error))
}

/// The error of a task whose result cannot be passed on.
fn failed(failure: &Failure) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    ObjectWriter::new(&mut out).integer("code", code::BAD_ANSWER).string("message", &failure.to_string()).end();
    out.freeze()
}

/// The same object with this `taskId`.
fn named(object: &Bytes, name: &str) -> Option<Bytes> {
    let mut text = BytesMut::with_capacity(name.len() + 2);
    string(&mut text, name);
    Edits::new().set("taskId", text.freeze()).apply_checked(object).ok().map(|(object, _)| object)
}

/// The whole result a reply ends with.
async fn whole(mut reply: Reply) -> Result<Bytes, Failure> {
    let too_large = || Failure::new(FailureKind::BadAnswer, "The task's result is larger than can be passed on");
    loop {
        match reply.next().await {
            Some(Event::Note(_) | Event::Ask(_)) => {}
            Some(Event::End(End::Complete(Payload::Whole(result)))) => return Ok(result),
            Some(Event::End(End::Complete(Payload::Stream(mut source)))) => {
                let mut held = BytesMut::new();
                while let Some(chunk) = poll_fn(|cx| source.poll_chunk(cx)).await {
                    held.extend_from_slice(&chunk?);
                    if held.len() > LARGEST {
                        return Err(too_large());
                    }
                }
                return Ok(held.freeze());
            }
            Some(Event::End(End::Failed(failure))) => return Err(*failure),
            Some(Event::End(End::InputRequired(_) | End::Parked { .. } | End::Task(_))) => {
                return Err(Failure::new(FailureKind::BadAnswer, "The server's answer about the task is none"));
            }
            None => return Err(Failure::internal("a reply ended without an end")),
        }
    }
}

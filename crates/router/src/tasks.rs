//! Tasks: names for calls that became tasks, and the requests that read, answer and cancel one.
//!
//! These requests are no calls of tools: they are not decided and audited anew. The name binds a
//! task to the caller.

pub(crate) mod awaited_task;
pub(crate) mod gathered_result;
pub(crate) mod poll_backoff;
mod shared_polls;
mod task_holders;
pub(crate) mod task_naming;
pub(crate) mod task_result;
mod task_states;
mod wait_failures;
mod waited_task;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use weir_catalog::{Catalog, ClosingMode};
use weir_core::Authenticated;
use weir_core::call::{Call, TaskMode};
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{KeptTask, ReplicaId};
use weir_core::principal::Principal;
use weir_core::upstream::{ListKind, OutboundCall, TaskNotifications, Upstream};
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::scan;
use weir_wire::splice::ObjectEdits;

use crate::item_search::ViewForPrincipal;
use crate::own_request::own_request;
use crate::reply_transform::ReplyTransform;
use crate::task_names::{TaskLocation, TaskNames};
use shared_polls::SharedPolls;
pub use shared_polls::TaskChanges;
pub use task_holders::{TaskHolders, silent_holder};
use task_states::{
    StateForm, failure_for_client, is_over, is_refusal, state_for_client, whole_result, without_id,
};

pub(super) use task_naming::task_of_call;

/// Tasks on a page of a list.
const TASKS_PER_PAGE: usize = 50;
/// Upstreams asked at the same time for the states of a page.
const CONCURRENT_STATE_REQUESTS: usize = 8;

/// The requests about tasks, and the names that tell tasks apart.
#[derive(Clone, Debug)]
pub struct TaskRequests {
    pub(super) catalog: Arc<Catalog>,
    /// Without names no call becomes a task.
    pub(super) names: Option<TaskNames>,
    /// The polls of tasks that are waited for or followed.
    polls: SharedPolls,
    /// The other processes that may have the task of one client's request.
    holders: Option<Arc<dyn TaskHolders>>,
}

impl TaskRequests {
    /// Requests about the tasks of these endpoints' upstreams. Without names no call becomes a task.
    pub(super) fn new(catalog: Arc<Catalog>, names: Option<TaskNames>) -> Self {
        Self {
            catalog,
            names,
            polls: SharedPolls::default(),
            holders: None,
        }
    }

    /// The same requests, which are made at these processes if they have the task.
    #[must_use]
    pub fn with_holders(&self, holders: Option<Arc<dyn TaskHolders>>) -> Self {
        Self {
            holders,
            ..self.clone()
        }
    }

    /// Notes that the client gets the result of this state, if it has one: the task may make room
    /// for others from now on.
    pub fn note_fetched(&self, call: &Authenticated<Arc<Call>>, state: &Bytes) {
        let request = call.inner();
        if let (Some(names), Ok(Some(name)), Some(_)) = (
            &self.names,
            request.params.task_id(),
            scan::find(state, "result"),
        ) {
            names
                .task_book
                .note_fetched(call.principal(), &request.endpoint, &name);
        }
    }

    /// The replica that has a task, if its name says so.
    #[must_use]
    pub fn replica_of_task(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        name: &str,
    ) -> Option<ReplicaId> {
        let names = self.names.as_ref()?;
        names.locate(principal, endpoint, name)?.replica
    }

    /// Reads the state of a task (`tasks/get`), answers its questions (`tasks/update`), or cancels
    /// it (`tasks/cancel`). Returns the result in the form of the tasks extension, under the
    /// client's name for the task. Cancel safe.
    ///
    /// # Errors
    ///
    /// `UnknownTask` for a task that does not exist or is not the sender's; else the upstream's
    /// failure.
    pub async fn request_task(&self, call: Authenticated<Arc<Call>>) -> Result<Bytes, Failure> {
        let (principal, request) = (call.principal().clone(), call.inner().clone());
        let answer = self.request_state(call, StateForm::OfClient).await;
        if let Ok(Some(name)) = request.params.task_id() {
            let task = (principal, request.endpoint.clone(), (*name).into());
            match &answer {
                _ if request.method != Method::TasksGet => self.polls.note_change(&task),
                Ok(state) => self.polls.note_state(&task, state),
                Err(_) => {}
            }
        }
        answer
    }

    /// Reads the state of a task that a client follows. Unlike the state that another request finds,
    /// it is no news for the other clients that follow the task: each polls by itself. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`Self::request_task`].
    pub async fn followed_state(&self, call: Authenticated<Arc<Call>>) -> Result<Bytes, Failure> {
        self.request_state(call, StateForm::OfClient).await
    }

    /// The changes of the task of this name from now on, for a client that follows it.
    #[must_use]
    pub fn task_changes(&self, call: &Authenticated<Arc<Call>>, name: &str) -> TaskChanges {
        let (principal, endpoint) = (call.principal().clone(), call.inner().endpoint.clone());
        TaskChanges::of(self.polls.join((principal, endpoint, name.into())))
    }

    /// Makes a request about a task, and returns a state in this form. A task that is unknown here
    /// may be in the process before this one, which has the sessions and child processes of upstreams
    /// that were replaced there, and calls that become tasks; or in the process after this one, which
    /// makes new calls.
    async fn request_state(
        &self,
        call: Authenticated<Arc<Call>>,
        form: StateForm,
    ) -> Result<Bytes, Failure> {
        // Seen before the search here: a process that ends meanwhile may have left the task here.
        let holders = self.holders.as_ref();
        let Some(holders) = holders.filter(|holders| holders.may_ask_process()) else {
            return self.state_here(call, form).await;
        };
        let request = call.inner().clone();
        let again = call.for_payload(request.clone());
        match self.state_here(call, form).await {
            Err(failure) if *failure.kind() == FailureKind::UnknownTask => {
                match holders.ask_process(&request).await? {
                    Some(state) => Ok(state),
                    None => self.state_here(again, form).await,
                }
            }
            answer => answer,
        }
    }

    /// Makes a request about a task at this process or another replica.
    async fn state_here(
        &self,
        call: Authenticated<Arc<Call>>,
        form: StateForm,
    ) -> Result<Bytes, Failure> {
        let (principal, request) = (call.principal(), call.inner());
        let given = request
            .params
            .task_id()
            .map_err(|error| Failure::invalid_params(error.to_string()))?;
        let name =
            given.ok_or_else(|| Failure::invalid_params("`taskId` is missing: say which task"))?;
        let unknown = || Failure::unknown_task(&name);
        let names = self.names.as_ref().ok_or_else(unknown)?;
        let home = names
            .locate(principal, &request.endpoint, &name)
            .ok_or_else(unknown)?;
        // A result that is kept here is for no sender that may not see its tool any more.
        if self.is_hidden(&call, &home) {
            return Err(unknown());
        }
        match names
            .find_kept(principal, &request.endpoint, &name, &home)
            .await
        {
            // The task is over: an answer or a cancellation has no effect.
            Some(kept) if kept.settled && request.method == Method::TasksGet => {
                return Ok(kept.state);
            }
            Some(kept) if kept.settled => return Ok(Bytes::from_static(b"{}")),
            _ => {}
        }
        let other = home.replica.as_ref();
        let other = other.filter(|replica| names.replica.as_ref() != Some(replica));
        let holder = other.zip(self.holders.as_ref());
        if let Some((replica, holders)) = holder
            && let Some(state) = holders.ask_replica(replica, request).await?
        {
            return Ok(state);
        }
        let not_here = || match holder {
            Some((replica, holders)) if holders.may_run(replica) => silent_holder(),
            Some(_) | None => unknown(),
        };
        if home.is_own {
            return Err(not_here());
        }
        if let Some(refusal) = self.disabled_failure(&home) {
            return Err(refusal);
        }
        let TaskRoute {
            upstream,
            outbound,
            transform,
        } = self.task_route(&call, home.clone()).ok_or_else(unknown)?;
        match whole_result(upstream.call(outbound).await).await {
            Ok(_) if request.method != Method::TasksGet => Ok(Bytes::from_static(b"{}")),
            Ok(state) => match form {
                StateForm::OfClient => state_for_client(&state, &name, &transform),
                StateForm::OfServer => Ok(state),
            },
            Err(failure) if is_refusal(&failure) && !self.is_known(&call, &home).await => {
                Err(not_here())
            }
            Err(failure) => {
                let failure = without_id(failure, &home.native);
                Err(match form {
                    StateForm::OfClient => failure_for_client(failure, &transform),
                    StateForm::OfServer => failure,
                })
            }
        }
    }

    /// True if the server of a task may have it, although it refused a request about it with
    /// `-32602`: that is the code for an unknown task, and for an answer that it does not take.
    async fn is_known(&self, call: &Authenticated<Arc<Call>>, home: &TaskLocation) -> bool {
        if call.inner().method == Method::TasksGet {
            return false;
        }
        let reading = call.for_payload(Arc::new(Call {
            method: Method::TasksGet,
            wants_status_only: true,
            input_responses: None,
            input_refusals: None,
            ..Call::clone(call.inner())
        }));
        let Some(route) = self.task_route(&reading, home.clone()) else {
            return false;
        };
        let state = whole_result(route.upstream.call(route.outbound).await).await;
        !state.is_err_and(|failure| is_refusal(&failure))
    }

    /// Subscribes to the status notifications of a task, for a caller that may read the task. No
    /// value if its server sends none, or none any more: the task has to be polled then. Cancel
    /// safe.
    pub async fn follow_task(&self, call: &Authenticated<Arc<Call>>) -> Option<TaskNotifications> {
        let (principal, request) = (call.principal(), call.inner());
        let name = request.params.task_id().ok().flatten()?;
        let names = self.names.as_ref()?;
        let home = names
            .locate(principal, &request.endpoint, &name)
            .filter(|home| !home.is_own && self.disabled_failure(home).is_none())?;
        if names
            .task_book
            .find(principal, &request.endpoint, &name)
            .is_some_and(|kept| kept.settled)
        {
            return None;
        }
        let TaskRoute {
            upstream, outbound, ..
        } = self.task_route(call, home)?;
        upstream.follow_task(outbound).await
    }

    /// The failure of requests about a task of a disabled upstream. Tasks of a drained upstream may
    /// end.
    fn disabled_failure(&self, home: &TaskLocation) -> Option<Failure> {
        if self.is_disabled(&home.upstream) {
            self.catalog.closed_failure(&home.upstream)
        } else {
            None
        }
    }

    fn is_disabled(&self, upstream: &UpstreamId) -> bool {
        let closed = self.catalog.closed(upstream);
        closed.is_some_and(|closed| closed.mode == ClosingMode::Disabled)
    }

    /// The route to a task's upstream; no value if its sender may not use the task (any more).
    fn task_route(&self, call: &Authenticated<Arc<Call>>, home: TaskLocation) -> Option<TaskRoute> {
        let (principal, request) = (call.principal(), call.inner());
        let own = call_of_task(request, &home);
        let item = match self.find_tool(principal, &own, &home)? {
            TaskTool::Seen(item) => *item,
            TaskTool::Hidden => return None,
            TaskTool::Unlisted => {
                let catalog = &self.catalog;
                catalog.removed_tool(&own.endpoint, &home.upstream, &home.tool)?
            }
        };
        let upstream = self.catalog.upstream_of_task(
            &home.upstream,
            home.incarnation,
            principal,
            &home.native,
        )?;
        let endpoint = self.catalog.endpoint(&request.endpoint);
        let transform = ReplyTransform::of(&self.catalog, endpoint.as_deref(), &item, &own);
        let outbound = OutboundCall {
            whole: transform.wants_whole(),
            ..own_request(call, Arc::new(own), home.native.into())
        };
        Some(TaskRoute {
            upstream,
            outbound,
            transform,
        })
    }

    /// Cancels a task as 2025-11-25 has it: it is cancelled from then on, even if its upstream
    /// ignores that. Returns its state, which is the last known one if its upstream does not tell it.
    ///
    /// # Errors
    ///
    /// As [`Self::request_task`]; `InvalidParams` for a task that is over.
    pub async fn cancel_task(&self, call: Authenticated<Arc<Call>>) -> Result<Bytes, Failure> {
        let about = |method| {
            call.for_payload(Arc::new(Call {
                method,
                ..Call::clone(call.inner())
            }))
        };
        let known = match self.request_task(about(Method::TasksGet)).await {
            Ok(state) if is_over(&state) => {
                return Err(Failure::invalid_params(
                    "The task is over: it cannot be cancelled any more",
                ));
            }
            Ok(state) => Some(state),
            Err(failure) if *failure.kind() == FailureKind::UnknownTask => return Err(failure),
            // The upstream may take the cancellation all the same.
            Err(_) => self.kept_state(&call),
        };
        self.request_task(about(Method::TasksCancel)).await?;
        let state = match self.request_task(about(Method::TasksGet)).await {
            Ok(state) => state,
            Err(failure) => known.ok_or(failure)?,
        };
        let bad = |error| {
            Failure::new(
                FailureKind::BadAnswer,
                "The server's state of the task is malformed",
            )
            .because(error)
        };
        let edits = ["result", "error", "inputRequests"]
            .into_iter()
            .fold(ObjectEdits::new(), ObjectEdits::remove);
        let state = edits
            .set("status", &b"\"cancelled\""[..])
            .apply_checked(&state)
            .map_err(bad)?
            .0;
        if let (Some(names), Ok(Some(name))) = (&self.names, call.inner().params.task_id()) {
            let task = KeptTask {
                name: (&*name).into(),
                state: state.clone(),
                settled: true,
            };
            let polled = (
                call.principal().clone(),
                call.inner().endpoint.clone(),
                task.name.clone(),
            );
            let ttl = scan::find(&state, "ttlMs").and_then(|at| scan::integer(&state[at]));
            let ttl = ttl
                .and_then(|ttl| u64::try_from(ttl).ok())
                .map(Duration::from_millis);
            // The task is cancelled, even if there is no room to keep its last state.
            let _full = names
                .task_book
                .enter(call.principal(), &call.inner().endpoint, task, ttl);
            self.polls.note_state(&polled, &state);
        }
        Ok(state)
    }

    /// The last known state of the task that a request is about.
    fn kept_state(&self, call: &Authenticated<Arc<Call>>) -> Option<Bytes> {
        let (names, request) = (self.names.as_ref()?, call.inner());
        let name = request.params.task_id().ok().flatten()?;
        let book = &names.task_book;
        let kept = book.find(call.principal(), &request.endpoint, &name);
        kept.map(|kept| kept.state)
    }

    /// A page of the sender's tasks of all replicas, each with its present state, and the cursor of
    /// the next page (2025-11-25, `tasks/list`).
    ///
    /// # Errors
    ///
    /// `MethodNotFound` if senders are anonymous; a bad cursor; `Busy` if the next page cannot be
    /// read now.
    pub async fn list_tasks(
        &self,
        call: Authenticated<Arc<Call>>,
    ) -> Result<(Vec<Bytes>, Option<String>), Failure> {
        let (principal, endpoint) = (call.principal(), &call.inner().endpoint);
        let names = self.names.as_ref().filter(|_| !principal.is_anonymous());
        let none = || {
            Failure::new(
                FailureKind::MethodNotFound,
                "Tasks are listed for those who can be told apart",
            )
        };
        let names = names.ok_or_else(none)?;
        let cursor = call
            .inner()
            .params
            .cursor()
            .map_err(|error| Failure::invalid_params(error.to_string()))?;
        let after = match cursor {
            None => 0,
            Some(cursor) => names
                .position(principal, endpoint, &cursor)
                .ok_or_else(Failure::bad_cursor)?,
        };
        let page = names
            .task_book
            .page_of_all(principal, endpoint, after, TASKS_PER_PAGE + 1);
        let mut kept = page.await?;
        let has_more = kept.len() > TASKS_PER_PAGE;
        kept.truncate(TASKS_PER_PAGE);
        let next = kept
            .last()
            .filter(|_| has_more)
            .map(|(nth, _)| names.cursor(principal, endpoint, *nth));
        let states = stream::iter(kept)
            .map(|(_, kept)| self.present_state(&call, kept))
            .buffered(CONCURRENT_STATE_REQUESTS);
        Ok((states.filter_map(std::future::ready).collect().await, next))
    }

    /// The state of a kept task; no value if the sender may not see its tool (any more), or its
    /// upstream does not have it any more.
    async fn present_state(
        &self,
        call: &Authenticated<Arc<Call>>,
        kept: KeptTask,
    ) -> Option<Bytes> {
        // It stays in the list: the owner may have other credentials that see it.
        let endpoint = &call.inner().endpoint;
        let home = self.names.as_ref()?;
        let home = home.locate(call.principal(), endpoint, &kept.name);
        if home.is_some_and(|home| self.is_hidden(call, &home)) {
            return None;
        }
        if kept.settled {
            return Some(kept.state);
        }
        let params = Params::of_task(&kept.name);
        let about = Call {
            method: Method::TasksGet,
            params,
            ..Call::clone(call.inner())
        };
        match self.request_task(call.for_payload(Arc::new(about))).await {
            Ok(state) => Some(state),
            Err(failure)
                if *failure.kind() == FailureKind::UnknownTask && self.is_here(call, &kept) =>
            {
                if let Some(names) = &self.names {
                    names
                        .task_book
                        .forget(call.principal(), &call.inner().endpoint, &kept.name);
                }
                None
            }
            // It may well exist, and cannot be read now.
            Err(_) => Some(kept.state),
        }
    }

    /// True unless another replica began the task. The task may be known in that one's session at
    /// the upstream alone.
    fn is_here(&self, call: &Authenticated<Arc<Call>>, kept: &KeptTask) -> bool {
        let Some(names) = &self.names else {
            return true;
        };
        let endpoint = &call.inner().endpoint;
        let location = names.locate(call.principal(), endpoint, &kept.name);
        location.is_none_or(|home| home.replica == names.replica)
    }

    /// True if the tool of a task is listed, and its sender may not see it (any more).
    fn is_hidden(&self, call: &Authenticated<Arc<Call>>, home: &TaskLocation) -> bool {
        let own = call_of_task(call.inner(), home);
        let tool = self.find_tool(call.principal(), &own, home);
        matches!(tool, Some(TaskTool::Hidden))
    }

    /// The tool of a task; no value if its endpoint is gone.
    fn find_tool(
        &self,
        principal: &Principal,
        call: &Call,
        home: &TaskLocation,
    ) -> Option<TaskTool> {
        let ViewForPrincipal { whole, seen } =
            ViewForPrincipal::of(&self.catalog, principal, call, ListKind::Tools)?;
        let own = |item: &&CatalogItem| item.tool.upstream == home.upstream;
        let is_listed = || whole.find(&home.tool).item().is_some_and(|item| own(&item));
        Some(match seen.find(&home.tool).item().filter(own) {
            Some(item) => TaskTool::Seen(Box::new(item.clone())),
            None if is_listed() => TaskTool::Hidden,
            None => TaskTool::Unlisted,
        })
    }
}

/// The tool of a task in the list of its endpoint.
enum TaskTool {
    /// The sender sees it.
    Seen(Box<CatalogItem>),
    /// It is listed, and hidden from the sender.
    Hidden,
    /// The list does not have it (any more).
    Unlisted,
}

/// A request about a task, as one of the session and class of the call that became the task.
fn call_of_task(request: &Call, home: &TaskLocation) -> Call {
    let mut own = Call {
        session: home.session,
        task_mode: TaskMode::Never,
        ..Call::clone(request)
    };
    own.capabilities.class = home.class;
    own
}

/// The upstream of a task, the request to it, and the changes of its reply.
struct TaskRoute {
    upstream: Arc<dyn Upstream>,
    outbound: OutboundCall,
    transform: ReplyTransform,
}

//! Turns a call into a task: the permission for it, and the name of the task.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_core::call::{Call, InputMode, TaskMode};
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::EndpointId;
use weir_core::port::KeptTask;
use weir_core::principal::Principal;
use weir_core::server_item::TaskSupport;
use weir_wire::method::Method;
use weir_wire::scan;
use weir_wire::splice::ObjectEdits;
use weir_wire::write::{ObjectWriter, string};

use crate::task_names::{TaskLocation, TaskNames};

/// The capabilities to declare for a call that can only become a task.
const REQUIRED_CAPABILITIES: &[u8] = br#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
/// The milliseconds of keeping the result of a call that was over before it became a task, unless
/// its client wants less.
const RESULT_TTL_MS: u64 = 3_600_000;

/// The parts of the name of the task that a call becomes.
pub(crate) struct TaskNaming {
    names: TaskNames,
    principal: Principal,
    endpoint: EndpointId,
    /// The upstream's id is not known yet.
    home: TaskLocation,
    /// The client's wish for a task.
    asked: TaskMode,
}

impl TaskNaming {
    fn of(names: &TaskNames, principal: &Principal, call: &Call, item: &CatalogItem) -> Self {
        let home = TaskLocation {
            upstream: item.tool.upstream.clone(),
            native: String::new(),
            tool: item.exposed.to_string(),
            class: call.capabilities.class,
            session: call.session,
            is_own: false,
            replica: names.replica.clone(),
            incarnation: 0,
        };
        let (names, principal, endpoint) =
            (names.clone(), principal.clone(), call.endpoint.clone());
        Self {
            names,
            principal,
            endpoint,
            home,
            asked: call.task_mode,
        }
    }

    /// The same for a call to the upstream with this number.
    pub(crate) fn at(mut self, incarnation: u32) -> Self {
        self.home.incarnation = incarnation;
        self
    }

    /// A `CreateTaskResult` under the client's name for the task.
    pub(crate) fn name_task(&self, created: &Bytes) -> Result<Bytes, Failure> {
        let bad = || {
            Failure::new(
                FailureKind::BadAnswer,
                "The server's task has no id that can be used",
            )
        };
        let native = scan::find(created, "taskId")
            .and_then(|at| scan::string(&created[at]))
            .ok_or_else(bad)?;
        let home = TaskLocation {
            native: native.into_owned(),
            ..self.home.clone()
        };
        let name = self
            .names
            .name(&self.principal, &self.endpoint, &home)
            .ok_or_else(bad)?;
        let created = named(created, &name).ok_or_else(bad)?;
        let ttl = scan::find(&created, "ttlMs").and_then(|at| scan::integer(&created[at]));
        let ttl = ttl
            .and_then(|ttl| u64::try_from(ttl).ok())
            .map(Duration::from_millis);
        let task = KeptTask {
            name: name.into(),
            state: created.clone(),
            settled: false,
        };
        if let Err(full) = self
            .names
            .task_book
            .enter(&self.principal, &self.endpoint, task, ttl)
        {
            // The call works without it: the task is only not listed.
            tracing::debug!(error = %full, "task not stored for tasks/list");
        }
        self.names.note_kept(&self.endpoint, &home);
        Ok(created)
    }

    /// True if a result that came at once has to be returned as a task.
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self.asked, TaskMode::Wanted { .. })
    }

    /// A `CreateTaskResult` of a call that is over: the task is weir's own.
    ///
    /// # Errors
    /// `ResultUnknown`: it cannot be kept now, and its call was sent.
    pub(crate) fn completed_task(&self, result: &Bytes) -> Result<Bytes, Failure> {
        let home = TaskLocation {
            native: self.names.own_name(),
            is_own: true,
            ..self.home.clone()
        };
        let name = self.names.name(&self.principal, &self.endpoint, &home);
        let name = name.ok_or_else(|| Failure::internal("a task of weir's own has no name"))?;
        let wanted = match self.asked {
            TaskMode::Wanted { ttl_ms } => ttl_ms,
            TaskMode::Never | TaskMode::Allowed | TaskMode::AwaitedByWeir => None,
        };
        let ttl = wanted.unwrap_or(RESULT_TTL_MS).min(RESULT_TTL_MS);
        let state = completed(&name, &self.names.now(), ttl, result);
        let task = KeptTask {
            name: name.into(),
            state: state.clone(),
            settled: true,
        };
        self.names.task_book.enter(
            &self.principal,
            &self.endpoint,
            task,
            Some(Duration::from_millis(ttl)),
        )?;
        Ok(state)
    }
}

/// Decides if a call is made as a task. Returns the naming of the task, and the call for its
/// upstream. `is_served_in_session` is true for a call that goes to the legacy era of an upstream
/// of both: the lists of that era, which say it for each tool, may not be read yet, so the server
/// decides about a tool without task support.
///
/// # Errors
///
/// The tool can only be called as a task, and its client takes none; or the other way round.
pub(crate) fn task_of_call(
    names: Option<&TaskNames>,
    principal: &Principal,
    call: &Arc<Call>,
    item: &CatalogItem,
    is_served_in_session: impl Fn() -> bool,
) -> Result<Option<(TaskNaming, Arc<Call>)>, Failure> {
    let refused = |text: &'static str| Err(Failure::new(FailureKind::MethodNotFound, text));
    let Some(names) = names else {
        return Ok(None);
    };
    if call.method != Method::ToolsCall {
        return Ok(None);
    }
    let as_task = match (call.task_mode, item.tool.tasks) {
        (
            TaskMode::Never | TaskMode::AwaitedByWeir,
            TaskSupport::Forbidden | TaskSupport::Optional,
        ) => {
            return Ok(None);
        }
        (TaskMode::Allowed, TaskSupport::Forbidden) => TaskMode::Allowed,
        (TaskMode::Allowed, TaskSupport::Optional | TaskSupport::Required)
        | (TaskMode::AwaitedByWeir, TaskSupport::Required) => TaskMode::Wanted { ttl_ms: None },
        (wanted @ TaskMode::Wanted { .. }, TaskSupport::Optional | TaskSupport::Required) => wanted,
        (wanted @ TaskMode::Wanted { .. }, TaskSupport::Forbidden) if is_served_in_session() => {
            wanted
        }
        (TaskMode::Wanted { .. }, TaskSupport::Forbidden) => {
            return refused("This tool cannot be called as a task");
        }
        (TaskMode::Never, TaskSupport::Required) if call.input_mode == InputMode::Rounds => {
            let needed = Bytes::from_static(REQUIRED_CAPABILITIES);
            let text = "This tool's calls are tasks: declare the extension with the call";
            return Err(Failure::new(FailureKind::MissingCapability(needed), text));
        }
        (TaskMode::Never, TaskSupport::Required) => {
            return refused("This tool can be called as a task only: send `task` with the call");
        }
    };
    let naming = TaskNaming::of(names, principal, call, item);
    let call = if as_task == call.task_mode {
        call.clone()
    } else {
        Arc::new(Call {
            task_mode: as_task,
            ..Call::clone(call)
        })
    };
    Ok(Some((naming, call)))
}

/// The state of a call that was over when it became a task.
fn completed(name: &str, now: &str, ttl: u64, result: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(result.len() + name.len() + 256);
    ObjectWriter::new(&mut out)
        .string("resultType", "task")
        .string("taskId", name)
        .string("status", "completed")
        .string("createdAt", now)
        .string("lastUpdatedAt", now)
        .integer("ttlMs", i64::try_from(ttl).unwrap_or(i64::MAX))
        .raw("result", result)
        .end();
    out.freeze()
}

/// The same object with this `taskId`.
pub(super) fn named(object: &Bytes, name: &str) -> Option<Bytes> {
    let mut text = BytesMut::with_capacity(name.len() + 2);
    string(&mut text, name);
    ObjectEdits::new()
        .set("taskId", text.freeze())
        .apply_checked(object)
        .ok()
        .map(|(object, _)| object)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_core::call::SessionKey;
    use weir_core::names::UpstreamId;
    use weir_seal::Sealer;
    use weir_store::{MemoryTasks, TaskCaps};
    use weir_testkit::{FakeClock, FakeRandom};

    use super::*;
    use crate::task_names::UpstreamTask;

    // Proves R232.
    #[test]
    fn messages_of_a_task_have_its_name_although_an_earlier_one_had_the_same_id() {
        let clock = Arc::new(FakeClock::new());
        let random = Arc::new(FakeRandom::new(1));
        let book = Arc::new(MemoryTasks::new(clock.clone(), TaskCaps::default()));
        let names = TaskNames::new(Sealer::ephemeral(&*random), random, clock, book);
        let principal = Principal::owner(Some(("idp", "ann")));
        let (upstream, session) = (UpstreamId::new("shop").unwrap(), SessionKey([9; 16]));
        let naming_at = |endpoint: &str| TaskNaming {
            names: names.clone(),
            principal: principal.clone(),
            endpoint: EndpointId::new(endpoint),
            home: TaskLocation::in_session(&upstream, "", session),
            asked: TaskMode::Allowed,
        };
        let begin = |endpoint, native: &str| {
            let created = format!(r#"{{"taskId":"{native}","status":"working"}}"#);
            let named = naming_at(endpoint).name_task(&created.into()).unwrap();
            let at = scan::find(&named, "taskId").unwrap();
            Some(Arc::<str>::from(&*scan::string(&named[at]).unwrap()))
        };
        let find = |endpoint| {
            let (upstream, native) = (&upstream, "1");
            let task = UpstreamTask { upstream, native };
            names.find_name(&principal, &EndpointId::new(endpoint), session, task)
        };
        assert_eq!(find("/mcp"), None);
        for native in ["1", "1"] {
            let name = begin("/mcp", native);
            assert_eq!(find("/mcp"), name, "the newest task");
        }
        assert_eq!(find("/other"), None, "the name opens at its endpoint alone");
        let at_other = begin("/other", "weir-url-0011223344556677:1");
        assert_eq!(find("/other"), at_other, "at one of several URLs");
        assert_ne!(find("/mcp"), at_other);
    }
}

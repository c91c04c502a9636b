//! Tasks translated between 2025-11-25 and the tasks extension, whose form is the canonical one.
//!
//! Sources: 2025-11-25, basic/utilities/tasks; SEP-2663.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir_core::UpstreamQuestion;
use weir_core::question::ELICITATION_IDS;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::splice::{MetaEdits, ObjectEdits};
use weir_wire::splitter::WITHHELD;
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, Revision, meta, scan, write};

pub use crate::extensions::TASKS as EXTENSION;

/// The text for the model while a task runs (2025-11-25, provisional).
const IMMEDIATE: &str = "io.modelcontextprotocol/model-immediate-response";

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// It runs.
    Working,
    /// It waits for its client.
    InputRequired,
    /// It has its result.
    Completed,
    /// It ended with an error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl TaskStatus {
    /// The status of a state of either form; no value if it is absent or unknown.
    #[must_use]
    pub fn of(state: &[u8]) -> Option<Self> {
        Some(
            match &*scan::find(state, "status").and_then(|at| scan::string(&state[at]))? {
                "working" => Self::Working,
                "input_required" => Self::InputRequired,
                "completed" => Self::Completed,
                "failed" => Self::Failed,
                "cancelled" => Self::Cancelled,
                _ => return None,
            },
        )
    }

    /// The status as it is written, in both forms.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// True for a status that does not change any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A legacy server's answer to a call with a `task` parameter, as a `CreateTaskResult` of the
/// extension. No value if it is another result: such a server answered at once.
#[must_use]
pub fn created(result: &Bytes) -> Option<Bytes> {
    let task = scan::find(result, "task")
        .map(|at| result.slice(at))
        .filter(|task| scan::is_object(task))?;
    let _known = TaskStatus::of(&task)?;
    let mut out = BytesMut::with_capacity(task.len() + 64);
    let mut object = ObjectWriter::new(&mut out);
    object.string("resultType", "task");
    lift(&mut object, &task, TaskStatus::of(&task));
    kept(&mut object, result);
    object.end();
    Some(out.freeze())
}

/// A legacy server's task in the form of the extension, without its result and its questions.
#[must_use]
pub fn lifted(task: &Bytes, status: TaskStatus) -> Bytes {
    written(task, status, |_| {})
}

/// The same with the result of the call. It becomes a result of the newest revision, with a
/// `resultType` inside of a task too: the official client of tasks rejects any other.
#[must_use]
pub fn completed(task: &Bytes, result: &Bytes) -> Bytes {
    let complete = ObjectEdits::new()
        .set("resultType", &b"\"complete\""[..])
        .apply_checked(result);
    // A malformed result passes as it is: the checks of results come later.
    let result = complete.map_or_else(|_| result.clone(), |(complete, _)| complete);
    written(task, TaskStatus::Completed, |object| {
        object.raw("result", &result);
    })
}

/// The same with the JSON-RPC error that the call ended with.
#[must_use]
pub fn failed(task: &Bytes, error: &ErrorObject) -> Bytes {
    written(task, TaskStatus::Failed, |object| {
        object.raw("error", &error.to_json());
    })
}

/// A question of a task to its client.
#[derive(Clone, Debug)]
pub struct TaskQuestion {
    /// The key of its answer.
    pub key: String,
    /// The question.
    pub question: UpstreamQuestion,
    /// The server's own id, if it is a URL elicitation with one.
    pub elicitation_id: Option<Arc<str>>,
}

/// The same with the questions to its client, by key.
#[must_use]
pub fn asking(task: &Bytes, questions: &[TaskQuestion]) -> Bytes {
    written(task, TaskStatus::InputRequired, |object| {
        object.with("inputRequests", |out| {
            let mut requests = ObjectWriter::new(out);
            for TaskQuestion { key, question, .. } in questions {
                requests.with(key, |out| {
                    ObjectWriter::new(out)
                        .string("method", question.method.as_str())
                        .raw("params", &question.params)
                        .end();
                });
            }
            requests.end();
        });
        if questions.iter().any(|one| one.elicitation_id.is_some()) {
            object.with(ELICITATION_IDS, |out| {
                let mut ids = ObjectWriter::new(out);
                for one in questions {
                    if let Some(id) = &one.elicitation_id {
                        ids.string(&one.key, id);
                    }
                }
                ids.end();
            });
        }
    })
}

/// A task of the extension, in the form of 2025-11-25: there a tool's own failure counts as the
/// task's.
#[must_use]
pub fn lowered(state: &Bytes) -> Bytes {
    let own_status = TaskStatus::of(state).unwrap_or(TaskStatus::Working);
    let is_error = || {
        let result = scan::find(state, "result")
            .map(|at| &state[at])
            .unwrap_or_default();
        scan::find(result, crate::render::IS_ERROR).is_some_and(|at| &result[at] == b"true")
    };
    let status = if own_status == TaskStatus::Completed && is_error() {
        TaskStatus::Failed
    } else {
        own_status
    };
    let mut out = BytesMut::with_capacity(256);
    let mut object = ObjectWriter::new(&mut out);
    text(&mut object, state, status);
    match duration(state, "ttlMs") {
        Some(ttl) => object.integer("ttl", ttl),
        None => object.raw("ttl", b"null"),
    };
    if let Some(interval) = duration(state, "pollIntervalMs") {
        object.integer("pollInterval", interval);
    }
    object.end();
    out.freeze()
}

/// A `CreateTaskResult` for a client of this revision: the result, and the edits that it needs. No
/// value for a revision without tasks.
#[must_use]
pub fn created_for(
    revision: Revision,
    created: &Bytes,
    about: &crate::render::WeirIdentity,
) -> Option<(Bytes, ObjectEdits)> {
    if revision.is_modern() {
        Some((created.clone(), rendered_created(about)))
    } else if revision.has_task_param() {
        Some((lowered_created(created), ObjectEdits::new()))
    } else {
        None
    }
}

/// A `CreateTaskResult` in the form of 2025-11-25.
fn lowered_created(created: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(created.len() + 16);
    let mut object = ObjectWriter::new(&mut out);
    object.raw("task", &lowered(created));
    kept(&mut object, created);
    object.end();
    out.freeze()
}

/// The edits of a state for a modern client: it has the members of the extension and no others.
#[must_use]
pub fn rendered(about: &crate::render::WeirIdentity) -> ObjectEdits {
    let edits = ObjectEdits::new().set("resultType", &b"\"complete\""[..]);
    bare(edits).meta(about.meta())
}

/// The same for a `CreateTaskResult`, without questions and result.
fn rendered_created(about: &crate::render::WeirIdentity) -> ObjectEdits {
    let edits = ObjectEdits::new().set("resultType", &b"\"task\""[..]);
    bare(edits)
        .remove("result")
        .remove("error")
        .remove("inputRequests")
        .meta(about.meta())
}

/// `notifications/tasks`, on a listen stream with its subscription's id. No value for a malformed
/// state.
#[must_use]
pub fn task_notification(state: &Bytes, subscription: &[u8]) -> Option<Bytes> {
    let id = Bytes::copy_from_slice(subscription);
    let about = MetaEdits::new().drop_owned().add(meta::SUBSCRIPTION_ID, id);
    let (params, _) = bare(ObjectEdits::new().remove("resultType"))
        .meta(about)
        .apply_checked(state)
        .ok()?;
    Some(weir_wire::write::notification(
        Method::Tasks.as_str(),
        Some(&params),
    ))
}

/// The edits of an acknowledgment for a modern client.
#[must_use]
pub fn acknowledged(about: &crate::render::WeirIdentity) -> ObjectEdits {
    ObjectEdits::new()
        .set("resultType", &b"\"complete\""[..])
        .meta(about.meta())
}

/// The same edits for a result that names its task (2025-11-25, "Associating Task-Related
/// Messages").
#[must_use]
pub fn add_related_task(edits: ObjectEdits, name: &str) -> ObjectEdits {
    edits.meta(
        MetaEdits::new()
            .drop_owned()
            .add(meta::RELATED_TASK, write::task_params(name)),
    )
}

/// A page of a list of tasks, in the form of 2025-11-25.
#[must_use]
pub fn listed(states: &[Bytes], next_cursor: Option<&str>) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + states.len() * 256);
    let mut result = ObjectWriter::new(&mut out);
    result.with("tasks", |out| {
        out.extend_from_slice(b"[");
        for (nth, state) in states.iter().enumerate() {
            if nth > 0 {
                out.extend_from_slice(b",");
            }
            out.extend_from_slice(&lowered(state));
        }
        out.extend_from_slice(b"]");
    });
    if let Some(cursor) = next_cursor {
        result.string("nextCursor", cursor);
    }
    result.end();
    out.freeze()
}

/// The lifetime that a client of 2025-11-25 wants for its task, from the `task` of its call's
/// `params`; no value for a call without one.
#[must_use]
pub fn requested_ttl(params: &Params) -> Option<Option<u64>> {
    let task = params.task().ok()??;
    Some(duration(&task, "ttl").and_then(|ttl| u64::try_from(ttl).ok()))
}

/// The poll interval of a state in milliseconds, if it has one.
#[must_use]
pub fn interval(state: &[u8]) -> Option<u64> {
    duration(state, "pollIntervalMs").and_then(|millis| u64::try_from(millis).ok())
}

/// The lifetime of a task from its creation, in milliseconds; no value: without end.
#[must_use]
pub fn ttl(state: &[u8]) -> Option<u64> {
    duration(state, "ttlMs").and_then(|millis| u64::try_from(millis).ok())
}

fn bare(edits: ObjectEdits) -> ObjectEdits {
    let edits = edits.without_variants_of(&WITHHELD);
    edits
        .ensure("ttlMs", &b"null"[..])
        .remove("ttl")
        .remove("pollInterval")
        .remove("requestState")
        .remove(ELICITATION_IDS)
}

/// Copies the members of `_meta` that belong to the peers.
fn kept(object: &mut ObjectWriter<'_>, result: &[u8]) {
    let about = scan::find(result, "_meta")
        .map(|at| &result[at])
        .filter(|about| scan::is_object(about));
    let about = about.unwrap_or(b"{}");
    let is_theirs = |key: &str| key == IMMEDIATE || !meta::is_owned_by_weir(key);
    if scan::members(about).any(|member| is_theirs(&member.key.decode())) {
        object.with("_meta", |out| {
            let mut kept = ObjectWriter::new(out);
            for member in scan::members(about).filter(|member| is_theirs(&member.key.decode())) {
                kept.raw_member(member.key.raw(), &about[member.value]);
            }
            kept.end();
        });
    }
}

fn written(task: &Bytes, status: TaskStatus, more: impl FnOnce(&mut ObjectWriter<'_>)) -> Bytes {
    let mut out = BytesMut::with_capacity(task.len() + 256);
    let mut object = ObjectWriter::new(&mut out);
    lift(&mut object, task, Some(status));
    more(&mut object);
    object.end();
    out.freeze()
}

/// The members of a legacy task under the extension's names.
fn lift(object: &mut ObjectWriter<'_>, task: &[u8], status: Option<TaskStatus>) {
    text(object, task, status.unwrap_or(TaskStatus::Working));
    match duration(task, "ttl") {
        Some(ttl) => object.integer("ttlMs", ttl),
        None => object.raw("ttlMs", b"null"),
    };
    if let Some(interval) = duration(task, "pollInterval") {
        object.integer("pollIntervalMs", interval);
    }
}

/// The members that have the same name in both forms.
fn text(object: &mut ObjectWriter<'_>, task: &[u8], status: TaskStatus) {
    let raw = |name: &str| {
        scan::find(task, name)
            .map(|at| &task[at])
            .filter(|value| value.starts_with(b"\""))
    };
    if let Some(id) = raw("taskId") {
        object.raw("taskId", id);
    }
    object.string("status", status.as_str());
    for name in ["statusMessage", "createdAt", "lastUpdatedAt"] {
        if let Some(value) = raw(name) {
            object.raw(name, value);
        }
    }
}

/// A number of milliseconds, not negative. Servers of 2025-11-25 may write fractions.
fn duration(object: &[u8], name: &str) -> Option<i64> {
    let value = &object[scan::find(object, name)?];
    scan::integer(value)
        .filter(|millis| *millis >= 0)
        .or_else(|| {
            let millis = std::str::from_utf8(value)
                .ok()?
                .trim()
                .parse::<f64>()
                .ok()?
                .ceil();
            // Beyond this a double is no exact number any more, and no time that matters.
            #[expect(clippy::cast_possible_truncation, reason = "it is in range")]
            (0.0..9e15).contains(&millis).then_some(millis as i64)
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use serde_json::{Value, json};

    fn bytes(value: &Value) -> Bytes {
        Bytes::from(value.to_string())
    }

    fn value(bytes: &Bytes) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    fn legacy(status: &str) -> Value {
        json!({
            "taskId": "t \"1\"", "status": status, "statusMessage": "m", "createdAt": "2025-11-25T10:30:00Z",
            "lastUpdatedAt": "2025-11-25T10:40:00Z", "ttl": 60000, "pollInterval": 100.5, "x": 1,
        })
    }

    fn modern(status: &str) -> Value {
        json!({
            "taskId": "t \"1\"", "status": status, "statusMessage": "m", "createdAt": "2025-11-25T10:30:00Z",
            "lastUpdatedAt": "2025-11-25T10:40:00Z", "ttlMs": 60000, "pollIntervalMs": 101,
        })
    }

    // Proves R232.
    #[test]
    fn created_task_is_translated_between_both_forms() {
        let immediate = json!({ "io.modelcontextprotocol/model-immediate-response": "soon" });
        let given = json!({ "task": legacy("working"), "_meta": immediate.clone() });
        let flat = created(&bytes(&given)).unwrap();
        let mut expected = modern("working");
        expected["resultType"] = json!("task");
        expected["_meta"] = immediate.clone();
        assert_eq!(value(&flat), expected);
        let back = value(&lowered_created(&flat));
        let mut task = legacy("working");
        task.as_object_mut().unwrap().remove("x");
        task["pollInterval"] = json!(101);
        assert_eq!((&back["task"], &back["_meta"]), (&task, &immediate));
        for other in [
            json!({}),
            json!({ "task": 5 }),
            json!({ "content": [] }),
            json!({ "task": { "status": "odd" } }),
        ] {
            assert_eq!(created(&bytes(&other)), None, "{other}");
        }
    }

    // Proves R229.
    #[test]
    fn a_tools_own_failure_is_completed_in_one_form_and_failed_in_the_other() {
        let task = bytes(&legacy("failed"));
        let state = completed(
            &task,
            &Bytes::from_static(br#"{"content":[],"isError":true}"#),
        );
        let mut expected = modern("completed");
        expected["result"] = json!({ "content": [], "isError": true, "resultType": "complete" });
        assert_eq!(value(&state), expected);
        assert_eq!(value(&lowered(&state))["status"], "failed");
        let state = failed(&task, &ErrorObject::new(-32603, "broke"));
        expected = modern("failed");
        expected["error"] = json!({ "code": -32603, "message": "broke" });
        assert_eq!(value(&state), expected);
        assert_eq!(value(&lowered(&state))["status"], "failed");
        let fine = completed(&task, &Bytes::from_static(br#"{"content":[]}"#));
        assert_eq!(value(&lowered(&fine))["status"], "completed");
    }

    #[test]
    fn questions_of_a_task_are_listed_by_key() {
        let question = UpstreamQuestion {
            method: Method::RootsList,
            params: Bytes::from_static(b"{}"),
        };
        let mut questions = vec![TaskQuestion {
            key: "k-1".into(),
            question: question.clone(),
            elicitation_id: None,
        }];
        let state = asking(&bytes(&legacy("working")), &questions);
        let mut expected = modern("input_required");
        let asked = json!({ "method": "roots/list", "params": {} });
        expected["inputRequests"] = json!({ "k-1": asked });
        assert_eq!(value(&state), expected);
        questions.push(TaskQuestion {
            key: "k-2".into(),
            question,
            elicitation_id: Some("E1".into()),
        });
        let state = asking(&bytes(&legacy("working")), &questions);
        expected["inputRequests"]["k-2"] = asked;
        expected["elicitationIds"] = json!({ "k-2": "E1" });
        assert_eq!(value(&state), expected);
        let told = value(&task_notification(&state, b"1").unwrap());
        assert_eq!(told["params"].get("elicitationIds"), None);
        assert_eq!(
            TaskStatus::of(&lowered(&state)),
            Some(TaskStatus::InputRequired)
        );
    }

    #[test]
    fn task_notification_has_its_subscription_id() {
        let state = bytes(
            &json!({ "resultType": "complete", "taskId": "t", "status": "working", "ttl": 1 }),
        );
        let told: Value = value(&task_notification(&state, b"\"s\"").unwrap());
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": "s" });
        let params = json!({ "taskId": "t", "status": "working", "ttlMs": null, "_meta": meta });
        assert_eq!(
            (&told["method"], &told["params"]),
            (&json!("notifications/tasks"), &params)
        );
    }

    #[test]
    fn missing_and_malformed_ttl_is_absent() {
        for (ttl, expected) in [
            (json!(null), None),
            (json!("x"), None),
            (json!(-1), None),
            (json!(0.2), Some(1)),
        ] {
            let mut task = legacy("cancelled");
            task["ttl"] = ttl;
            assert_eq!(
                super::ttl(&lifted(&bytes(&task), TaskStatus::Cancelled)),
                expected,
                "{task}"
            );
        }
        assert_eq!(
            interval(&lifted(&bytes(&legacy("working")), TaskStatus::Working)),
            Some(101)
        );
    }
}

//! Notifications on listen streams, and the notes of calls.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::reply::{NoteKind, ReplyNote};
use weir_core::upstream::{ListKind, ListKinds};
use weir_wire::meta;
use weir_wire::method::Method;
use weir_wire::splice::{MetaEdits, ObjectEdits};
use weir_wire::write::{self, ObjectWriter, string};

use crate::tasks;

/// `notifications/subscriptions/acknowledged`: the first message of a listen stream. `resources`
/// and `tasks` are those it will report on.
#[must_use]
pub fn acknowledged(
    subscription: &[u8],
    kinds: ListKinds,
    resources: &[Arc<str>],
    tasks: &[Arc<str>],
) -> Bytes {
    let mut params = BytesMut::with_capacity(128);
    let mut object = ObjectWriter::new(&mut params);
    object.with("notifications", |out| {
        let mut honoured = ObjectWriter::new(out);
        for (kind, name) in SUBSCRIPTION_FILTERS {
            if kinds.has(kind) {
                honoured.boolean(name, true);
            }
        }
        for (member, names) in [(RESOURCE_SUBSCRIPTIONS, resources), ("taskIds", tasks)] {
            if names.is_empty() {
                continue;
            }
            honoured.with(member, |out| {
                for (nth, name) in names.iter().enumerate() {
                    out.put_u8(if nth == 0 { b'[' } else { b',' });
                    string(out, name);
                }
                out.put_u8(b']');
            });
        }
        honoured.end();
    });
    object.with("_meta", |out| {
        ObjectWriter::new(out)
            .raw(meta::SUBSCRIPTION_ID, subscription)
            .end()
    });
    object.end();
    write::notification("notifications/subscriptions/acknowledged", Some(&params))
}

/// The members of a subscription's filter, and the lists they stand for; resources and their
/// templates share one.
pub const SUBSCRIPTION_FILTERS: [(ListKind, &str); 3] = [
    (ListKind::Tools, "toolsListChanged"),
    (ListKind::Prompts, "promptsListChanged"),
    (ListKind::Resources, "resourcesListChanged"),
];

/// The member of a subscription's filter that names single resources.
pub const RESOURCE_SUBSCRIPTIONS: &str = "resourceSubscriptions";

/// `notifications/resources/updated`, on a listen stream with its subscription's id.
#[must_use]
pub fn updated(uri: &str, subscription: Option<&[u8]>) -> Bytes {
    let mut params = BytesMut::with_capacity(uri.len() + 96);
    let mut object = ObjectWriter::new(&mut params);
    object.string("uri", uri);
    if let Some(subscription) = subscription {
        object.with("_meta", |out| {
            ObjectWriter::new(out)
                .raw(meta::SUBSCRIPTION_ID, subscription)
                .end()
        });
    }
    object.end();
    write::notification(Method::ResourcesUpdated.as_str(), Some(&params))
}

/// `notifications/*/list_changed`, on a listen stream with its subscription's id.
#[must_use]
pub fn list_changed(kind: ListKind, subscription: Option<&[u8]>) -> Bytes {
    let method = match kind {
        ListKind::Tools => Method::ToolsListChanged,
        ListKind::Prompts => Method::PromptsListChanged,
        ListKind::Resources | ListKind::Templates => Method::ResourcesListChanged,
    };
    let method = method.as_str();
    let Some(subscription) = subscription else {
        return write::notification(method, None);
    };
    let mut params = BytesMut::with_capacity(96);
    ObjectWriter::new(&mut params)
        .with("_meta", |out| {
            ObjectWriter::new(out)
                .raw(meta::SUBSCRIPTION_ID, subscription)
                .end()
        })
        .end();
    write::notification(method, Some(&params))
}

/// A log message, of the task that its client knows by the name `task`. No value for malformed
/// `params`.
#[must_use]
pub fn log_message(params: &Bytes, task: Option<&str>) -> Option<Bytes> {
    let about = MetaEdits::new().drop_owned();
    let about = match task {
        Some(task) => about.add(meta::RELATED_TASK, write::task_params(task)),
        None => about,
    };
    let (params, _) = ObjectEdits::new().meta(about).apply(params).ok()?;
    Some(write::notification(
        Method::LogMessage.as_str(),
        Some(&params),
    ))
}

/// A note of a call, under the client's own progress token. No value for a note that the client did
/// not ask for.
#[must_use]
pub fn note_notification(note: &ReplyNote, token: Option<&Bytes>) -> Option<Bytes> {
    let (method, params) = match note.kind {
        NoteKind::Progress => {
            let edits = ObjectEdits::new()
                .set("progressToken", token?.clone())
                .meta(MetaEdits::new().drop_owned());
            ("notifications/progress", edits.apply(&note.params).ok()?.0)
        }
        NoteKind::Log(_) => return log_message(&note.params, None),
        // Progress of a task: under the token of the call that became it, not of the request that
        // carries the stream.
        NoteKind::Other(Method::Progress) => ("notifications/progress", note.params.clone()),
        NoteKind::Other(Method::TasksStatus) => {
            (Method::TasksStatus.as_str(), tasks::lowered(&note.params))
        }
        // Other notes do not belong to a call; the catalog sends the list changes of an upstream in
        // its own time.
        NoteKind::Other(_) | NoteKind::StillWorking => return None,
    };
    Some(write::notification(method, Some(&params)))
}

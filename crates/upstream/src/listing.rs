//! One page of a server's list, over whatever it is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::Failure;
use weir_core::upstream::{Kinds, ListKind, ListPage};
use weir_era::hop::Tongue;
use weir_era::lower;
use weir_wire::splice::Edits;
use weir_wire::write::ObjectWriter;
use weir_wire::{scan, write};

use crate::refusal::Refusal;
use crate::site::Site;

/// Reads a page.
///
/// # Errors
/// The request's own, or `BadAnswer`. A server without the method fails with its -32601.
pub(crate) fn page(
    site: &Site,
    tongue: Tongue,
    kind: ListKind,
    outcome: Result<Bytes, Refusal>,
    (drop_bad_mirrors, has_tasks): (bool, bool),
) -> Result<ListPage, Failure> {
    let result = match outcome {
        Ok(result) => result,
        Err(refusal) => {
            // A server that has no such list is in order.
            if !refusal.failure.is_unknown_method() {
                site.note_error(&refusal.failure);
            }
            return Err(refusal.failure);
        }
    };
    let mut page = tongue
        .page(&result, kind.member())
        .map_err(|failure| failure.at(&site.id))?;
    if kind == ListKind::Tools {
        page.items
            .retain_mut(|item| has_good_mirrors(site, drop_bad_mirrors, item));
        page.items
            .iter_mut()
            .for_each(|item| *item = marked(tongue, has_tasks, item));
    }
    Ok(page)
}

/// Whether a tool may be shown as far as its annotations of headers go. Where they break the rules,
/// a tool of a modern server over HTTP must not be offered (`drops`): its headers could not be
/// made. To any other server they mean nothing, and they are taken away: a modern client would drop
/// the tool for them.
fn has_good_mirrors(site: &Site, drops: bool, tool: &mut Bytes) -> bool {
    if !scan::contains(tool, b"x-mcp-header") || lower::mirrors(tool).is_ok() {
        return true;
    }
    site.dropped("bad_mirror_annotation");
    *tool = lower::without_mirrors(tool);
    !drops
}

/// A tool with what its server's calls can become in the words of 2025-11-25, where each tool says
/// so for itself: of a server with the tasks extension any call may, of one without tasks none
/// (`tasks`, "Tool-Level Negotiation").
fn marked(tongue: Tongue, has_tasks: bool, tool: &Bytes) -> Bytes {
    let edits = match (tongue.revision().is_modern(), has_tasks) {
        (true, true) => Edits::new().set("execution", &br#"{"taskSupport":"optional"}"#[..]),
        (false, true) => return tool.clone(),
        (_, false) if memchr::memmem::find(tool, b"\"execution\"").is_none() => {
            return tool.clone();
        }
        (_, false) => Edits::new().remove("execution"),
    };
    // What is no object is left out where the list is read.
    edits
        .apply(tool)
        .map_or_else(|_| tool.clone(), |(tool, _)| tool)
}

/// The member of a subscription's filter that asks for changes of a list. Both lists of resources
/// have one.
const fn filter(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "toolsListChanged",
        ListKind::Prompts => "promptsListChanged",
        ListKind::Resources | ListKind::Templates => "resourcesListChanged",
    }
}

/// The member of a filter that names single resources, and that which names tasks.
const UPDATES: &str = "resourceSubscriptions";
const TASKS: &str = "taskIds";

/// The filter of a subscription to changes of these lists.
pub(crate) fn wanted(kinds: Kinds) -> Bytes {
    let mut out = BytesMut::with_capacity(96);
    let mut object = ObjectWriter::new(&mut out);
    for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
        if kinds.has(kind) {
            object.boolean(filter(kind), true);
        }
    }
    object.end();
    out.freeze()
}

/// The filter of a subscription to updates of these resources.
pub(crate) fn wanted_updates(uris: &[Arc<str>]) -> Bytes {
    naming(UPDATES, uris)
}

/// The filter of a subscription to news of a task (SEP-2663, "Task Status Notifications").
pub(crate) fn wanted_task(task: &Arc<str>) -> Bytes {
    naming(TASKS, std::slice::from_ref(task))
}

fn naming(member: &str, names: &[Arc<str>]) -> Bytes {
    let mut out =
        BytesMut::with_capacity(64 + names.iter().map(|name| name.len() + 3).sum::<usize>());
    let mut object = ObjectWriter::new(&mut out);
    object.with(member, |out| {
        for (nth, name) in names.iter().enumerate() {
            out.put_u8(if nth == 0 { b'[' } else { b',' });
            write::string(out, name);
        }
        out.put_u8(b']');
    });
    object.end();
    out.freeze()
}

/// The resources of which an acknowledgment's `params` say that their updates will be told.
pub(crate) fn honoured_updates(params: &[u8]) -> BTreeSet<String> {
    honoured_names(params, UPDATES)
}

/// Whether an acknowledgment's `params` say that news of a task will be told.
pub(crate) fn honours_task(params: &[u8], task: &str) -> bool {
    honoured_names(params, TASKS).contains(task)
}

fn honoured_names(params: &[u8], member: &str) -> BTreeSet<String> {
    let honoured = scan::find(params, "notifications").map(|range| &params[range]);
    let list =
        honoured.and_then(|honoured| scan::find(honoured, member).map(|range| &honoured[range]));
    let Some(list) = list.filter(|list| list.starts_with(b"[")) else {
        return BTreeSet::new();
    };
    scan::elements(list)
        .filter_map(|range| scan::string(&list[range]).map(Into::into))
        .collect()
}

/// The lists of which an acknowledgment's `params` say that their changes will be told.
pub(crate) fn honoured(params: &[u8]) -> Kinds {
    let Some(range) = scan::find(params, "notifications") else {
        return Kinds::default();
    };
    let honoured = &params[range];
    let is_told = |kind: &ListKind| {
        scan::find(honoured, filter(*kind)).is_some_and(|range| &honoured[range] == b"true")
    };
    ListKind::ALL.into_iter().filter(is_told).collect()
}

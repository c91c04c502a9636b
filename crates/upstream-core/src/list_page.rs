//! One page of a server's list, for every transport.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::Failure;
use weir_core::upstream::{ListKind, ListKinds, ListPage};
use weir_era::lower;
use weir_era::upstream_messages::RevisionDialect;
use weir_wire::scan::WordSearch;
use weir_wire::splice::ObjectEdits;
use weir_wire::write::ObjectWriter;
use weir_wire::{header, scan, write};

use crate::failed_attempt::FailedAttempt;
use crate::upstream_record::UpstreamRecord;

static EXECUTION: WordSearch = WordSearch::new("\"execution\"");

/// The properties of a server that decide over its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolListRules {
    /// True if a tool with bad `x-mcp-header` annotations is left out.
    pub drop_bad_mirrors: bool,
    /// The source of the tools' task support.
    pub tasks: ToolTasks,
}

/// The source of a tool's task support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolTasks {
    /// The server has no tasks.
    None,
    /// The server has tasks, in the form of its revision.
    Server,
    /// The list is of the modern era of a server that serves clients with sessions in its legacy
    /// era: calls of these clients follow the declarations there.
    OtherEra,
}

impl ToolTasks {
    /// Of a server with or without tasks; `is_other_era` if clients with sessions are served in
    /// another era than that of the list.
    #[must_use]
    pub fn of(has_tasks: bool, is_other_era: bool) -> Self {
        match (has_tasks, is_other_era) {
            (false, _) => Self::None,
            (true, false) => Self::Server,
            (true, true) => Self::OtherEra,
        }
    }
}

/// The cursor of a page, for the request for it.
#[derive(Debug)]
pub struct PageCursor(Option<Bytes>);

impl PageCursor {
    /// Makes the cursor of the first page, or of a further one.
    #[must_use]
    pub fn new(cursor: Option<&str>) -> Self {
        Self(cursor.map(lower::json))
    }

    /// Returns the members of the request's parameters.
    pub fn members(&self) -> Vec<(&'static str, &[u8])> {
        let cursor = self.0.iter();
        cursor.map(|cursor| ("cursor", &cursor[..])).collect()
    }
}

/// Parses a page.
///
/// # Errors
/// The request's own, or `BadAnswer`. A server without the method fails with its -32601.
pub fn parse_page(
    record: &UpstreamRecord,
    dialect: RevisionDialect,
    kind: ListKind,
    outcome: Result<Bytes, FailedAttempt>,
    rules: ToolListRules,
) -> Result<ListPage, Failure> {
    let result = match outcome {
        Ok(result) => result,
        Err(refusal) => {
            // A server without such a list is healthy.
            if !refusal.failure.is_unknown_method() {
                record.note_error(&refusal.failure);
            }
            return Err(refusal.failure);
        }
    };
    let mut page = dialect
        .page(&result, kind.member())
        .map_err(|failure| failure.with_upstream(&record.label.id))?;
    if kind == ListKind::Tools {
        page.items
            .retain_mut(|item| check_header_annotations(record, rules.drop_bad_mirrors, item));
        page.items
            .iter_mut()
            .for_each(|item| *item = mark_task_support(dialect, rules.tasks, item));
    }
    Ok(page)
}

/// Checks a tool's `x-mcp-header` annotations; true if the tool may be offered. If they break the
/// rules, a tool of a modern server over HTTP must not be offered (`drops`), because its headers
/// could not be made. To any other server they have no meaning, and they are removed, because a
/// modern client would drop the tool for them.
fn check_header_annotations(record: &UpstreamRecord, drops: bool, tool: &mut Bytes) -> bool {
    if !header::ANNOTATION_SEARCH.is_in(tool) || lower::annotated_headers(tool).is_ok() {
        return true;
    }
    record.label.count_dropped("bad_mirror_annotation");
    *tool = lower::without_annotations(tool);
    !drops
}

/// Marks a tool with its task support in the words of 2025-11-25, in which each tool declares it.
/// Any call to a server with the tasks extension may become a task, and no call to a server without
/// tasks (specification 2025-11-25, Tasks, "Tool-Level Negotiation").
fn mark_task_support(dialect: RevisionDialect, tasks: ToolTasks, tool: &Bytes) -> Bytes {
    let edits = match tasks {
        ToolTasks::OtherEra => return tool.clone(),
        ToolTasks::Server if dialect.tools_declare_tasks() => return tool.clone(),
        ToolTasks::Server => {
            ObjectEdits::new().set("execution", &br#"{"taskSupport":"optional"}"#[..])
        }
        ToolTasks::None if !EXECUTION.is_in(tool) => return tool.clone(),
        ToolTasks::None => ObjectEdits::new().remove("execution"),
    };
    // An item that is no object is left out when the list is read.
    edits
        .apply(tool)
        .map_or_else(|_| tool.clone(), |(tool, _)| tool)
}

/// The member of a subscription's filter that requests changes of a list. Both lists of resources
/// share one.
const fn filter_member(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "toolsListChanged",
        ListKind::Prompts => "promptsListChanged",
        ListKind::Resources | ListKind::Templates => "resourcesListChanged",
    }
}

/// The members of a filter that name single resources, and tasks.
const UPDATES: &str = "resourceSubscriptions";
const TASKS: &str = "taskIds";

/// Builds the filter of a subscription to changes of these lists.
pub fn list_filter(kinds: ListKinds) -> Bytes {
    let mut out = BytesMut::with_capacity(96);
    let mut object = ObjectWriter::new(&mut out);
    for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
        if kinds.has(kind) {
            object.boolean(filter_member(kind), true);
        }
    }
    object.end();
    out.freeze()
}

/// Builds the filter of a subscription to updates of these resources.
pub fn updates_filter(uris: &[Arc<str>]) -> Bytes {
    names_filter(UPDATES, uris)
}

/// Builds the filter of a subscription to the status of a task (SEP-2663, "Task Status
/// Notifications").
pub fn task_filter(task: &Arc<str>) -> Bytes {
    names_filter(TASKS, std::slice::from_ref(task))
}

fn names_filter(member: &str, names: &[Arc<str>]) -> Bytes {
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

/// Returns the resources of `uris` that an acknowledgment's `params` name as subscribed.
pub fn acknowledged_of(uris: &[Arc<str>], params: &[u8]) -> BTreeSet<Arc<str>> {
    let acknowledged = acknowledged_names(params, UPDATES);
    let uris = uris.iter().filter(|uri| acknowledged.contains(&***uri));
    uris.cloned().collect()
}

/// True if an acknowledgment's `params` name the task as subscribed.
pub fn acknowledges_task(params: &[u8], task: &str) -> bool {
    acknowledged_names(params, TASKS).contains(task)
}

fn acknowledged_names(params: &[u8], member: &str) -> BTreeSet<String> {
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

/// Returns the lists that an acknowledgment's `params` name as subscribed.
pub fn acknowledged_lists(params: &[u8]) -> ListKinds {
    let Some(range) = scan::find(params, "notifications") else {
        return ListKinds::default();
    };
    let honoured = &params[range];
    let is_told = |kind: &ListKind| {
        scan::find(honoured, filter_member(*kind)).is_some_and(|range| &honoured[range] == b"true")
    };
    ListKind::ALL.into_iter().filter(is_told).collect()
}

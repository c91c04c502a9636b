//! The tools of notes: their definitions, their arguments, and their effects on the store.

use serde_json::{Map, Value, json};
use weir_wire::revision::Revision;

use crate::notes::note_store::{self, NoteStore, StoredNote};
use crate::rpc;

/// The count of notes between progress notifications of a search.
const PROGRESS_STEP: usize = 10;
/// The most notes in one answer of `list_notes` without a `limit`.
const DEFAULT_LIMIT: u64 = 50;

/// The outcome of a tool.
pub(super) enum NoteToolOutcome {
    /// It succeeded: the result, and the notifications that precede it.
    Done(Value, Vec<Value>),
    /// The arguments are of the wrong type; the revision decides the kind of error.
    BadArguments(String),
    /// It failed; the sentence is for the model.
    Failed(String),
}

/// The parts of one call.
pub(super) struct NoteToolCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a Map<String, Value>,
    pub(super) progress_token: Option<Value>,
    pub(super) revealed: bool,
}

/// The tools as `tools/list` shows them to a client of `revision`.
pub(super) fn list(revision: Revision, revealed: bool) -> Vec<Value> {
    let mut tools = vec![add_tool(), list_tool(), search_tool()];
    if revealed {
        tools.insert(1, clear_tool());
    }
    for tool in tools.iter_mut().filter_map(Value::as_object_mut) {
        if !revision.has_structured_content() {
            tool.remove("title");
            tool.remove("outputSchema");
        }
        if revision == Revision::V2024_11_05 {
            tool.remove("annotations");
        }
    }
    tools
}

/// Runs a tool; no outcome for an unknown name.
pub(super) fn call(store: &mut NoteStore, call: &NoteToolCall<'_>) -> Option<NoteToolOutcome> {
    let outcome = match call.name {
        "add_note" => add(store, call.arguments),
        "list_notes" => list_notes(store, call.arguments),
        "search_notes" => search(store, call),
        "clear_notes" if call.revealed => Ok(clear(store)),
        _ => return None,
    };
    Some(outcome.unwrap_or_else(NoteToolOutcome::BadArguments))
}

fn add(store: &mut NoteStore, arguments: &Map<String, Value>) -> Result<NoteToolOutcome, String> {
    let text = string(arguments, "text")?.ok_or("`text` is missing: the note to keep.")?;
    let tags = match arguments.get("tags") {
        None => Vec::new(),
        Some(tags) => serde_json::from_value(tags.clone())
            .map_err(|_| "`tags` must be an array of strings.")?,
    };
    Ok(match store.add(text, tags) {
        Ok(note) => {
            let said = format!("Note {} added.", note.id);
            let log = json!({"level": "info", "logger": "notes", "data": said});
            let log = rpc::notification("notifications/message", &log);
            NoteToolOutcome::Done(
                rpc::tool_structured(said, json!({"note": note.to_json()})),
                vec![log],
            )
        }
        Err(why) => NoteToolOutcome::Failed(why),
    })
}

fn list_notes(
    store: &NoteStore,
    arguments: &Map<String, Value>,
) -> Result<NoteToolOutcome, String> {
    let tag = string(arguments, "tag")?;
    let limit = match arguments.get("limit") {
        None => DEFAULT_LIMIT,
        Some(limit) => limit
            .as_u64()
            .filter(|limit| *limit > 0)
            .ok_or("`limit` must be a whole number above zero.")?,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found: Vec<&StoredNote> = store
        .newest()
        .filter(|note| tag.is_none_or(|tag| note.has_tag(tag)))
        .collect();
    let shown = &found[..found.len().min(limit)];
    Ok(NoteToolOutcome::Done(
        rpc::tool_structured(as_text(shown), as_json(shown, found.len())),
        Vec::new(),
    ))
}

fn search(store: &NoteStore, call: &NoteToolCall<'_>) -> Result<NoteToolOutcome, String> {
    let query = string(call.arguments, "query")?
        .ok_or("`query` is missing: the text to look for.")?
        .to_lowercase();
    let total = store.len();
    let mut notes = Vec::new();
    let mut found = Vec::new();
    for (number, note) in store.newest().enumerate() {
        if note.text.to_lowercase().contains(&query) {
            found.push(note);
        }
        let done = number + 1;
        if let Some(token) = call
            .progress_token
            .as_ref()
            .filter(|_| done % PROGRESS_STEP == 0 || done == total)
        {
            let progress = json!({"progressToken": token, "progress": done, "total": total});
            notes.push(rpc::notification("notifications/progress", &progress));
        }
    }
    Ok(NoteToolOutcome::Done(
        rpc::tool_structured(as_text(&found), as_json(&found, found.len())),
        notes,
    ))
}

fn clear(store: &mut NoteStore) -> NoteToolOutcome {
    let cleared = store.clear();
    NoteToolOutcome::Done(
        rpc::tool_structured(
            format!("{cleared} notes cleared."),
            json!({"cleared": cleared}),
        ),
        Vec::new(),
    )
}

fn string<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, String> {
    match arguments.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` must be a string.")),
    }
}

fn as_text(notes: &[&StoredNote]) -> String {
    if notes.is_empty() {
        return "No notes.".to_owned();
    }
    notes
        .iter()
        .map(|note| format!("{}. {}", note.id, note.text))
        .collect::<Vec<_>>()
        .join("\n")
}

fn as_json(notes: &[&StoredNote], total: usize) -> Value {
    json!({"notes": notes.iter().map(|note| note.to_json()).collect::<Vec<_>>(), "total": total})
}

fn note_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "text": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["id", "text", "tags"],
    })
}

fn notes_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"notes": {"type": "array", "items": note_schema()}, "total": {"type": "integer"}},
        "required": ["notes", "total"],
    })
}

fn add_tool() -> Value {
    json!({
        "name": "add_note",
        "title": "Add a note",
        "description": "Keeps a note in memory.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "minLength": 1, "maxLength": note_store::MAX_TEXT},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": note_store::MAX_TAGS},
            },
            "required": ["text"],
        },
        "outputSchema": {"type": "object", "properties": {"note": note_schema()}, "required": ["note"]},
        "annotations": {"readOnlyHint": false, "destructiveHint": false, "openWorldHint": false},
    })
}

fn list_tool() -> Value {
    json!({
        "name": "list_notes",
        "title": "List notes",
        "description": "Lists the notes, newest first.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tag": {"type": "string", "description": "Only notes with this tag."},
                "limit": {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT},
            },
        },
        "outputSchema": notes_schema(),
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

fn search_tool() -> Value {
    json!({
        "name": "search_notes",
        "title": "Search notes",
        "description": "Finds the notes that contain a text, whatever its case.",
        "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        "outputSchema": notes_schema(),
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

fn clear_tool() -> Value {
    json!({
        "name": "clear_notes",
        "title": "Clear notes",
        "description": "Forgets every note.",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"cleared": {"type": "integer"}}, "required": ["cleared"]},
        "annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false},
    })
}

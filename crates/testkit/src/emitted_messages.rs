//! A record of the messages that weir sends to clients and servers during tests. At the end of a
//! run all of them are checked against the official SDK's types (`cargo xtask test`).
//!
//! One message of each shape is kept for each process: a message that differs only in texts and
//! numbers breaks no type that the first one keeps. Recording is on only if the environment names a
//! folder and the tests declare that their peer is weir.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_wire::Revision;

use crate::schemas::MessageSender;

/// The environment variable that names the folder.
pub const EMITTED_FOLDER_VARIABLE: &str = "WEIR_EMITTED";

/// The most bytes kept of a text. It is a multiple of four, so that a cut base64 text stays base64.
const MAX_TEXT_CHARS: usize = 256;
/// The most items kept of an array, each of another shape.
const MAX_ARRAY_ITEMS: usize = 32;
/// Members with texts that are words of the protocol: each word is a shape of its own.
const PROTOCOL_WORD_MEMBERS: [&str; 14] = [
    "action",
    "audience",
    "cacheScope",
    "includeContext",
    "jsonrpc",
    "level",
    "method",
    "mode",
    "resultType",
    "role",
    "status",
    "stopReason",
    "taskSupport",
    "type",
];

static NOTES: OnceLock<Option<EmittedRecord>> = OnceLock::new();

/// Declares that this process's raw clients and mock servers talk to weir, so that their messages
/// are recorded.
pub fn start_recording() {
    NOTES.get_or_init(|| {
        std::env::var_os(EMITTED_FOLDER_VARIABLE)
            .map(|folder| EmittedRecord::open(PathBuf::from(folder)))
    });
}

/// Turns recording on with this folder, for a process that gets it as an argument.
pub fn start_recording_in(folder: &Path) {
    NOTES.get_or_init(|| Some(EmittedRecord::open(folder.to_owned())));
}

/// The folder of the record, if recording is on.
pub fn folder() -> Option<&'static Path> {
    NOTES.get()?.as_ref().map(|notes| &*notes.folder)
}

/// Records a message of weir's, if recording is on. `answered` is the method of the request for a
/// response.
pub fn record_message(sender: MessageSender, revision: Revision, answered: &str, message: &Value) {
    if let Some(Some(notes)) = NOTES.get() {
        notes.add(sender, revision, answered, message);
    }
}

struct EmittedRecord {
    folder: PathBuf,
    /// The shapes seen so far, and the file with one message of each.
    kept: Mutex<(HashSet<u64>, File)>,
}

impl EmittedRecord {
    fn open(folder: PathBuf) -> Self {
        let path = folder.join(format!("{}.jsonl", std::process::id()));
        let file = File::options().create(true).append(true).open(&path);
        let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            folder,
            kept: Mutex::new((HashSet::new(), file)),
        }
    }

    fn add(&self, sender: MessageSender, revision: Revision, answered: &str, message: &Value) {
        let mut hasher = DefaultHasher::new();
        (sender, revision, answered).hash(&mut hasher);
        shape("", message, &mut hasher);
        let mut notes = self.kept.lock();
        if !notes.0.insert(hasher.finish()) {
            return;
        }
        let sender = if sender == MessageSender::Server {
            "server"
        } else {
            "client"
        };
        let message = reduced(message);
        let line = json!({"sender": sender, "revision": revision.as_str(), "answered": answered, "message": message});
        notes
            .1
            .write_all(format!("{line}\n").as_bytes())
            .unwrap_or_else(|error| panic!("what weir said: {error}"));
    }
}

/// Hashes the parts of a message that a type distinguishes: members, kinds of values, words of the
/// protocol, distinct items.
fn shape(key: &str, value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0.hash(hasher),
        Value::Bool(yes) => (1, yes).hash(hasher),
        Value::Number(number) => (
            2,
            number.is_f64(),
            number.as_i64().is_some_and(i64::is_negative),
        )
            .hash(hasher),
        Value::String(text) if PROTOCOL_WORD_MEMBERS.contains(&key) => (3, text).hash(hasher),
        Value::String(text) => (3, text.is_empty()).hash(hasher),
        Value::Array(items) => {
            4.hash(hasher);
            distinct(key, items)
                .iter()
                .for_each(|(_, own)| own.hash(hasher));
        }
        Value::Object(members) => {
            (5, members.len()).hash(hasher);
            for (key, value) in members {
                key.hash(hasher);
                shape(key, value, hasher);
            }
        }
    }
}

/// The first items of each shape.
fn distinct<'a>(key: &str, items: &'a [Value]) -> Vec<(&'a Value, u64)> {
    let mut seen = HashSet::new();
    let shaped = items.iter().map(|item| {
        let mut own = DefaultHasher::new();
        shape(key, item, &mut own);
        (item, own.finish())
    });
    shaped
        .filter(|(_, own)| seen.insert(*own))
        .take(MAX_ARRAY_ITEMS)
        .collect()
}

/// The message without repetitions.
fn reduced(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.chars().take(MAX_TEXT_CHARS).collect()),
        Value::Array(items) => distinct("", items)
            .into_iter()
            .map(|(item, _)| reduced(item))
            .collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.clone(), reduced(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped(value: &Value) -> u64 {
        let mut hasher = DefaultHasher::new();
        shape("", value, &mut hasher);
        hasher.finish()
    }

    #[test]
    fn shapes_differ_exactly_if_types_do() {
        let same = [
            (
                json!({"id": 1, "text": "a"}),
                json!({"id": 2, "text": "other"}),
            ),
            (json!([{"a": 1}, {"a": 2}]), json!([{"a": 3}])),
        ];
        for (one, other) in same {
            assert_eq!(shaped(&one), shaped(&other), "{one} {other}");
        }
        let apart = [
            (json!({"id": 1}), json!({"id": "1"})),
            (json!({"id": 1}), json!({"id": 1.5})),
            (json!({"id": null}), json!({})),
            (json!({"type": "text"}), json!({"type": "image"})),
            (
                json!({"audience": ["user"]}),
                json!({"audience": ["assistant"]}),
            ),
            (json!([{"a": 1}]), json!([{"a": 1}, {"b": 1}])),
        ];
        for (one, other) in apart {
            assert_ne!(shaped(&one), shaped(&other), "{one} {other}");
        }
    }

    #[test]
    fn long_texts_are_cut_and_equal_items_kept_once() {
        let message = json!({"data": "é".repeat(1000), "tools": [{"name": "a"}, {"name": "b"}, {"name": "c", "x": 1}]});
        let kept = reduced(&message);
        assert_eq!(
            kept["data"].as_str().map(|text| text.chars().count()),
            Some(MAX_TEXT_CHARS)
        );
        assert_eq!(kept["tools"], json!([{"name": "a"}, {"name": "c", "x": 1}]));
    }
}

//! The official JSON Schemas of every revision, and the check of messages against them. The files
//! are not part of this repository: they are the `schema.json` of each revision, named after it
//! (`2025-06-18.json`), in one folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jsonschema::{Registry, Validator};
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_wire::Revision;

/// The environment variable that names the folder.
pub const SCHEMAS_FOLDER_VARIABLE: &str = "MCP_SCHEMAS";
/// Violations shown of one message.
const MAX_SHOWN: usize = 5;

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageSender {
    /// The MCP client.
    Client,
    /// The MCP server.
    Server,
}

/// The schemas of a folder. Each is read at first use, as its validators are compiled, and kept.
#[derive(Debug)]
pub struct ProtocolSchemas {
    folder: PathBuf,
    revisions: Mutex<HashMap<Revision, RevisionSchema>>,
}

/// The schema of one revision.
#[derive(Debug)]
struct RevisionSchema {
    document: Value,
    /// The document, prepared once for all validators.
    registry: Registry<'static>,
    compiled: HashMap<String, Validator>,
}

impl ProtocolSchemas {
    /// Takes the files of a folder. A check panics if the file of its revision is missing or broken.
    pub fn load(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            revisions: Mutex::default(),
        }
    }

    /// Loads the folder that `MCP_SCHEMAS` names; no schemas if it is not set.
    pub fn from_environment() -> Option<Self> {
        std::env::var_os(SCHEMAS_FOLDER_VARIABLE).map(|folder| Self::load(Path::new(&folder)))
    }

    /// Checks one message (no batch). `answered` is the method that a response answers; results of
    /// unknown methods are checked as plain JSON-RPC. The error lists the violations and their
    /// positions.
    pub fn check(
        &self,
        revision: Revision,
        sender: MessageSender,
        answered: &str,
        message: &Value,
    ) -> Result<(), String> {
        let envelope = match (message.get("method"), message.get("error")) {
            (Some(_), _) if message.get("id").is_some() => "JSONRPCRequest",
            (Some(_), _) => "JSONRPCNotification",
            (None, Some(_)) if revision >= Revision::V2025_11_25 => "JSONRPCErrorResponse",
            (None, Some(_)) => "JSONRPCError",
            (None, None) if revision >= Revision::V2025_11_25 => "JSONRPCResultResponse",
            (None, None) => "JSONRPCResponse",
        };
        self.check_as(revision, envelope, message)?;
        // The tasks extension has no schema.
        let of_tasks =
            |method: &str| method.starts_with("tasks/") || method == "notifications/tasks";
        if revision.is_modern() && message["method"].as_str().is_some_and(of_tasks) {
            return Ok(());
        }
        let side = match sender {
            MessageSender::Client => "Client",
            MessageSender::Server => "Server",
        };
        match envelope {
            "JSONRPCRequest" => self.check_as(revision, &format!("{side}Request"), message),
            "JSONRPCNotification" => {
                self.check_as(revision, &format!("{side}Notification"), message)
            }
            "JSONRPCResponse" | "JSONRPCResultResponse" => {
                match result_definition(revision, answered, &message["result"]) {
                    Some(definition) => self.check_as(revision, definition, &message["result"]),
                    None => Ok(()),
                }
            }
            _ => self.check_error(revision, message),
        }
    }

    /// Checks a value against one definition of the schema.
    ///
    /// # Errors
    /// The violations, or that the revision has no such definition: then the message should not
    /// exist in it, or the test is wrong.
    pub fn check_as(
        &self,
        revision: Revision,
        definition: &str,
        value: &Value,
    ) -> Result<(), String> {
        let mut revisions = self.revisions.lock();
        let schema = revisions
            .entry(revision)
            .or_insert_with(|| RevisionSchema::read(&self.folder, revision));
        let Some(validator) = schema.validator(definition) else {
            return Err(format!("{revision:?} has no {definition}: {value}"));
        };
        let wrong: Vec<_> = validator
            .iter_errors(value)
            .take(MAX_SHOWN)
            .map(|error| format!("{}: {}", error.instance_path(), error.masked()))
            .collect();
        let message = || format!("no {definition} of {revision:?}: {wrong:?} in {value}");
        wrong.is_empty().then_some(()).ok_or_else(message)
    }

    /// Checks the errors that modern revisions define a shape for.
    fn check_error(&self, revision: Revision, message: &Value) -> Result<(), String> {
        if !revision.is_modern() {
            return Ok(());
        }
        let definition = match message["error"]["code"].as_i64() {
            Some(weir_wire::error_code::HEADER_MISMATCH) => "HeaderMismatchError",
            Some(weir_wire::error_code::MISSING_REQUIRED_CLIENT_CAPABILITY) => {
                "MissingRequiredClientCapabilityError"
            }
            Some(weir_wire::error_code::UNSUPPORTED_PROTOCOL_VERSION) => {
                "UnsupportedProtocolVersionError"
            }
            _ => return Ok(()),
        };
        self.check_as(revision, definition, message)
    }
}

impl RevisionSchema {
    /// The URI of the document in its registry.
    const URI: &str = "mcp:schema";

    fn read(folder: &Path, revision: Revision) -> Self {
        let path = folder.join(format!("{}.json", revision.as_str()));
        let text =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let document: Value = serde_json::from_slice(&text).expect("the file is JSON");
        let registry = Registry::new().add(Self::URI, document.clone());
        let registry = registry.and_then(|registry| registry.prepare());
        Self {
            document,
            registry: registry.expect("the file is a schema"),
            compiled: HashMap::new(),
        }
    }

    fn validator(&mut self, definition: &str) -> Option<&Validator> {
        let found = |home: &&str| self.document[*home].get(definition).is_some();
        let home = ["$defs", "definitions"].into_iter().find(found)?;
        let validator = self
            .compiled
            .entry(definition.to_owned())
            .or_insert_with(|| {
                let schema = json!({
                    "$schema": self.document["$schema"],
                    "$ref": format!("{}#/{home}/{definition}", Self::URI),
                });
                let options = jsonschema::options().with_registry(&self.registry);
                options.build(&schema).expect("the definition is a schema")
            });
        Some(validator)
    }
}

/// The definition of a method's result.
fn result_definition(revision: Revision, method: &str, result: &Value) -> Option<&'static str> {
    Some(match method {
        _ if result["resultType"] == "input_required" => "InputRequiredResult",
        _ if result["resultType"] == "task" && revision.is_modern() => return None,
        "tools/call" if result.get("task").is_some() && revision.has_task_param() => {
            "CreateTaskResult"
        }
        "tasks/get" if revision.has_task_param() => "GetTaskResult",
        "tasks/cancel" if revision.has_task_param() => "CancelTaskResult",
        "tasks/list" if revision.has_task_param() => "ListTasksResult",
        // Its result is the result of the call.
        "tasks/result" if revision.has_task_param() => "CallToolResult",
        "initialize" => "InitializeResult",
        "server/discover" => "DiscoverResult",
        "subscriptions/listen" => "SubscriptionsListenResult",
        "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
            "EmptyResult"
        }
        "tools/list" => "ListToolsResult",
        "tools/call" => "CallToolResult",
        "prompts/list" => "ListPromptsResult",
        "prompts/get" => "GetPromptResult",
        "resources/list" => "ListResourcesResult",
        "resources/templates/list" => "ListResourceTemplatesResult",
        "resources/read" => "ReadResourceResult",
        "completion/complete" => "CompleteResult",
        "roots/list" => "ListRootsResult",
        "sampling/createMessage" => "CreateMessageResult",
        "elicitation/create" if revision >= Revision::V2025_06_18 => "ElicitResult",
        _ => return None,
    })
}

//! The strings that are cleaned, by kind of document: a table of members.
//!
//! The position of a string decides, never a member beside it, since the order of members is
//! arbitrary. A content block is cleaned in its `text` for every `type`: only text blocks have such
//! a member (images and audio have `data`, embedded resources `resource`).
//!
//! Keys are compared without regard to ASCII case, since some readers do.

/// The kinds of JSON texts that can be cleaned. Each is one object, without the envelope of
/// JSON-RPC around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// The result of `tools/call` or `tasks/result`: also one that asks for input or reports a
    /// task.
    ToolResult,
    /// The result of `prompts/get`.
    PromptResult,
    /// The result of `tools/list`, `prompts/list`, `resources/list` or `resources/templates/list`.
    Definitions,
    /// One tool, prompt, resource or resource template.
    Definition,
    /// The result of `initialize` or `server/discover`.
    Instructions,
    /// The `error` of an answer.
    Error,
    /// The `params` of `elicitation/create` or `sampling/createMessage`.
    Question,
    /// The `params` of `notifications/message`, `notifications/progress` or
    /// `notifications/tasks/status`.
    Notification,
    /// The result of `tasks/get`, `tasks/list` or `tasks/cancel`.
    Task,
    /// The state of one task without its result, which is a [`DocumentKind::ToolResult`] of its
    /// own.
    TaskState,
    /// The `arguments` of a tool. They come from the client and are not cleaned: for
    /// [`SecretPatterns`](crate::SecretPatterns).
    Arguments,
}

impl DocumentKind {
    pub(crate) const fn root(self) -> DocumentNode {
        match self {
            Self::ToolResult => DocumentNode::ToolResult,
            Self::PromptResult => DocumentNode::PromptResult,
            Self::Definitions => DocumentNode::Definitions,
            Self::Definition => DocumentNode::Definition,
            Self::Instructions => DocumentNode::Instructions,
            Self::Error => DocumentNode::Error,
            Self::Question => DocumentNode::Question,
            Self::Notification => DocumentNode::Notification,
            Self::Task => DocumentNode::Task,
            Self::TaskState => DocumentNode::TaskState,
            Self::Arguments => DocumentNode::Values,
        }
    }
}

/// A place in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentNode {
    /// This node and all below it stay as they are.
    Untouched,
    /// A string that is cleaned.
    Text,
    /// A value whose strings are cleaned at every depth.
    Values,
    ToolResult,
    /// A content block, or an array of them.
    Block,
    PromptResult,
    /// A message of a prompt or of sampling, or an array of them.
    Message,
    Definitions,
    /// A tool, prompt, prompt's argument, resource or template, or an array of them.
    Definition,
    Annotations,
    /// A JSON Schema, or an array of them.
    Schema,
    /// JSON Schemas by name.
    Schemas,
    Instructions,
    Implementation,
    Error,
    ErrorData,
    Question,
    /// Questions by key, as in `inputRequests`.
    Questions,
    /// One question, with `method` and `params`.
    KeyedQuestion,
    Notification,
    /// A task, or an array of them.
    Task,
    TaskState,
}

/// The members of an object at a node; others are [`DocumentNode::others`].
type NodeMembers = &'static [(&'static str, DocumentNode)];

const TOOL_RESULT: NodeMembers = &[
    ("content", DocumentNode::Block),
    ("structuredContent", DocumentNode::Values),
    ("inputRequests", DocumentNode::Questions),
    ("statusMessage", DocumentNode::Text),
    ("task", DocumentNode::Task),
];
// Title and description are those of links to resources; content and structuredContent those of
// tool results in sampling.
const BLOCK: NodeMembers = &[
    ("text", DocumentNode::Text),
    ("title", DocumentNode::Text),
    ("description", DocumentNode::Text),
    ("content", DocumentNode::Block),
    ("structuredContent", DocumentNode::Values),
];
const PROMPT_RESULT: NodeMembers = &[
    ("description", DocumentNode::Text),
    ("messages", DocumentNode::Message),
    ("inputRequests", DocumentNode::Questions),
];
const MESSAGE: NodeMembers = &[("content", DocumentNode::Block)];
const DEFINITIONS: NodeMembers = &[
    ("tools", DocumentNode::Definition),
    ("prompts", DocumentNode::Definition),
    ("resources", DocumentNode::Definition),
    ("resourceTemplates", DocumentNode::Definition),
];
const DEFINITION: NodeMembers = &[
    ("title", DocumentNode::Text),
    ("description", DocumentNode::Text),
    ("annotations", DocumentNode::Annotations),
    ("arguments", DocumentNode::Definition),
    ("inputSchema", DocumentNode::Schema),
    ("outputSchema", DocumentNode::Schema),
];
const ANNOTATIONS: NodeMembers = &[("title", DocumentNode::Text)];
/// The keywords that hold texts for readers, and those that hold schemas. Not `enum`, `const`,
/// `default`, `examples` and `pattern`: their values are compared with arguments.
const SCHEMA: NodeMembers = &[
    ("title", DocumentNode::Text),
    ("description", DocumentNode::Text),
    ("$comment", DocumentNode::Text),
    // The titles of choices in forms of old revisions.
    ("enumNames", DocumentNode::Values),
    ("properties", DocumentNode::Schemas),
    ("patternProperties", DocumentNode::Schemas),
    ("dependentSchemas", DocumentNode::Schemas),
    ("dependencies", DocumentNode::Schemas),
    ("$defs", DocumentNode::Schemas),
    ("definitions", DocumentNode::Schemas),
    ("items", DocumentNode::Schema),
    ("prefixItems", DocumentNode::Schema),
    ("additionalItems", DocumentNode::Schema),
    ("unevaluatedItems", DocumentNode::Schema),
    ("contains", DocumentNode::Schema),
    ("additionalProperties", DocumentNode::Schema),
    ("unevaluatedProperties", DocumentNode::Schema),
    ("propertyNames", DocumentNode::Schema),
    ("contentSchema", DocumentNode::Schema),
    ("allOf", DocumentNode::Schema),
    ("anyOf", DocumentNode::Schema),
    ("oneOf", DocumentNode::Schema),
    ("not", DocumentNode::Schema),
    ("if", DocumentNode::Schema),
    ("then", DocumentNode::Schema),
    ("else", DocumentNode::Schema),
];
const INSTRUCTIONS: NodeMembers = &[
    ("instructions", DocumentNode::Text),
    ("serverInfo", DocumentNode::Implementation),
];
const IMPLEMENTATION: NodeMembers = &[
    ("title", DocumentNode::Text),
    ("description", DocumentNode::Text),
];
const ERROR: NodeMembers = &[
    ("message", DocumentNode::Text),
    ("data", DocumentNode::ErrorData),
];
/// Members of `data` that clients use as they are, at any depth of it.
const ERROR_DATA: NodeMembers = &[
    ("_meta", DocumentNode::Untouched),
    ("uri", DocumentNode::Untouched),
    ("url", DocumentNode::Untouched),
    ("elicitationId", DocumentNode::Untouched),
    ("taskId", DocumentNode::Untouched),
    ("requestState", DocumentNode::Untouched),
];
const QUESTION: NodeMembers = &[
    ("message", DocumentNode::Text),
    ("requestedSchema", DocumentNode::Schema),
    ("systemPrompt", DocumentNode::Text),
    ("messages", DocumentNode::Message),
    ("tools", DocumentNode::Definition),
];
const KEYED_QUESTION: NodeMembers = &[("params", DocumentNode::Question)];
const NOTIFICATION: NodeMembers = &[
    ("message", DocumentNode::Text),
    ("data", DocumentNode::Values),
    ("statusMessage", DocumentNode::Text),
];
const TASK: NodeMembers = &[
    ("statusMessage", DocumentNode::Text),
    ("tasks", DocumentNode::Task),
    ("result", DocumentNode::ToolResult),
    ("error", DocumentNode::Error),
    ("inputRequests", DocumentNode::Questions),
];

const TASK_STATE: NodeMembers = &[
    ("statusMessage", DocumentNode::Text),
    ("error", DocumentNode::Error),
    ("inputRequests", DocumentNode::Questions),
];

/// The length of the longest key in the tables above.
pub(crate) const MAX_KEY: usize = 21;

impl DocumentNode {
    /// True if a string at this node is cleaned.
    pub(crate) const fn is_cleaned(self) -> bool {
        matches!(self, Self::Text | Self::Values | Self::ErrorData)
    }

    /// True if the keys of an object at this node select other nodes.
    pub(crate) const fn reads_keys(self) -> bool {
        !self.members().is_empty()
    }

    /// The node inside a bracket at this node: an array's elements have the node of the array.
    pub(crate) const fn container(self) -> Self {
        if matches!(self, Self::Text) {
            Self::Untouched
        } else {
            self
        }
    }

    /// The node of a member of an object at this node, by its decoded key; `None` for a key that is
    /// too long for the tables.
    pub(crate) fn member(self, key: Option<&[u8]>) -> Self {
        let named = key.and_then(|key| {
            self.members()
                .iter()
                .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(key))
        });
        named.map_or(self.others(), |(_, node)| *node)
    }

    const fn others(self) -> Self {
        match self {
            Self::Values => Self::Values,
            Self::ErrorData => Self::ErrorData,
            Self::Schemas => Self::Schema,
            Self::Questions => Self::KeyedQuestion,
            Self::Untouched
            | Self::Text
            | Self::ToolResult
            | Self::Block
            | Self::PromptResult
            | Self::Message
            | Self::Definitions
            | Self::Definition
            | Self::Annotations
            | Self::Schema
            | Self::Instructions
            | Self::Implementation
            | Self::Error
            | Self::Question
            | Self::KeyedQuestion
            | Self::Notification
            | Self::Task
            | Self::TaskState => Self::Untouched,
        }
    }

    const fn members(self) -> NodeMembers {
        match self {
            Self::Untouched | Self::Text | Self::Values | Self::Schemas | Self::Questions => &[],
            Self::ToolResult => TOOL_RESULT,
            Self::Block => BLOCK,
            Self::PromptResult => PROMPT_RESULT,
            Self::Message => MESSAGE,
            Self::Definitions => DEFINITIONS,
            Self::Definition => DEFINITION,
            Self::Annotations => ANNOTATIONS,
            Self::Schema => SCHEMA,
            Self::Instructions => INSTRUCTIONS,
            Self::Implementation => IMPLEMENTATION,
            Self::Error => ERROR,
            Self::ErrorData => ERROR_DATA,
            Self::Question => QUESTION,
            Self::KeyedQuestion => KEYED_QUESTION,
            Self::Notification => NOTIFICATION,
            Self::Task => TASK,
            Self::TaskState => TASK_STATE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_key_constant_matches_the_tables() {
        let tables = [
            TOOL_RESULT,
            BLOCK,
            PROMPT_RESULT,
            MESSAGE,
            DEFINITIONS,
            DEFINITION,
            ANNOTATIONS,
            SCHEMA,
            INSTRUCTIONS,
            IMPLEMENTATION,
            ERROR,
            ERROR_DATA,
            QUESTION,
            KEYED_QUESTION,
            NOTIFICATION,
            TASK,
            TASK_STATE,
        ];
        let longest = tables
            .iter()
            .flat_map(|table| table.iter())
            .map(|(key, _)| key.len())
            .max();
        assert_eq!(longest, Some(MAX_KEY));
    }
}

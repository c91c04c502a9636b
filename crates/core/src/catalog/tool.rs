//! A tool as the catalog keeps it: the upstream's own bytes, and the facts computed from them once.
//! Prompts, resources and resource templates are kept the same way; they have no schemas.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use weir_wire::scan::{self, JsonLimits};

use crate::content_version::ContentVersion;
use crate::list_kind::ListKind;
use crate::log_text::sanitize_text;
use crate::names::UpstreamId;
use crate::schema::compile::{SchemaCache, ToolSchema};
use crate::schema::unusable::UnusableSchema;
use crate::telemetry::meters::{ItemMeter, UpstreamMeter};
use crate::toolset::ToolHints;

/// Characters of a tool's name that a metric label keeps.
const LABEL_LENGTH: usize = 64;

/// One tool, prompt, resource or template of one upstream. Immutable; an unchanged one keeps its
/// `Arc` over every walk.
pub struct Tool {
    /// The list that it is in.
    pub kind: ListKind,
    /// Its upstream.
    pub upstream: UpstreamId,
    /// Its own name there; the URI of a resource, the URI template of a template.
    pub native: Arc<str>,
    /// The tool object, as the upstream wrote it.
    pub raw: Bytes,
    /// The range of the value of its key ([`ListKind::key`]) in [`Self::raw`], so that the value
    /// can be replaced without parsing.
    pub name: Range<usize>,
    /// A digest of [`Self::raw`].
    pub digest: ContentVersion,
    /// Its own annotations. Not to be believed, unless the operator trusts its upstream: see
    /// [`super::CallTerms::hints`].
    pub hints: ToolHints,
    /// True if arguments of it may have to be repeated as headers: it has an `x-mcp-header`
    /// somewhere.
    pub has_header_arguments: bool,
    /// The support of its calls for tasks.
    pub tasks: TaskSupport,
    pub(crate) input: ToolSchema,
    pub(crate) output: ToolSchema,
    /// The metrics of its calls.
    pub(crate) meter: Arc<ItemMeter>,
}

/// `execution.taskSupport` of a tool (2025-11-25). Tools of servers that know no tasks come without
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskSupport {
    /// Its calls never become tasks.
    #[default]
    Forbidden,
    /// They may.
    Optional,
    /// They always do.
    Required,
}

impl TaskSupport {
    /// Reads an `execution` object.
    fn of(execution: &[u8]) -> Self {
        let said = scan::find(execution, "taskSupport").filter(|_| scan::is_object(execution));
        match said.and_then(|at| scan::string(&execution[at])).as_deref() {
            Some("optional") => Self::Optional,
            Some("required") => Self::Required,
            _ => Self::Forbidden,
        }
    }
}

/// The reason why an item of a list is no tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidItem {
    /// Not a JSON object within the limits of upstream messages.
    #[error("the item is not a JSON object within the limits")]
    Malformed,
    /// Its key (`name`, `uri` or `uriTemplate`) is absent, given twice, or not a string.
    #[error("the item has no single name or URI")]
    Name,
}

/// An item of a list that is known to be a tool, before the costly part of making one.
pub(crate) struct ToolDraft {
    kind: ListKind,
    pub(crate) native: String,
    pub(crate) raw: Bytes,
    pub(crate) digest: ContentVersion,
    name: Range<usize>,
    input: Option<Range<usize>>,
    output: Option<Range<usize>>,
    annotations: Option<Range<usize>>,
    tasks: TaskSupport,
}

impl ToolDraft {
    /// Reads an item of a list.
    ///
    /// # Errors
    /// [`InvalidItem`].
    pub(crate) fn read(kind: ListKind, raw: Bytes) -> Result<Self, InvalidItem> {
        scan::check(&raw, &JsonLimits::upstream()).map_err(|_| InvalidItem::Malformed)?;
        if !scan::is_object(&raw) {
            return Err(InvalidItem::Malformed);
        }
        let (mut name, mut input, mut output, mut annotations) = (None, None, None, None);
        let mut tasks = TaskSupport::default();
        for member in scan::members(&raw) {
            if member.key.eq_str(kind.key()) {
                name = Some(member.value);
            } else if kind != ListKind::Tools {
                // Only tools have schemas, and annotations of this kind.
            } else if member.key.eq_str("inputSchema") {
                input = Some(member.value);
            } else if member.key.eq_str("outputSchema") {
                output = Some(member.value);
            } else if member.key.eq_str("annotations") {
                annotations = Some(member.value);
            } else if member.key.eq_str("execution") {
                tasks = TaskSupport::of(&raw[member.value]);
            }
        }
        let name = name.ok_or(InvalidItem::Name)?;
        let native = scan::string(&raw[name.clone()])
            .ok_or(InvalidItem::Name)?
            .into_owned();
        let digest = ContentVersion::of(&[&raw]);
        Ok(Self {
            kind,
            native,
            raw,
            digest,
            name,
            input,
            output,
            annotations,
            tasks,
        })
    }

    /// Does the costly part: compiles the schemas. Not for the hot path.
    pub(crate) fn finish(self, upstream: &UpstreamId, contracts: &SchemaCache) -> Tool {
        let contract = |at: Option<Range<usize>>| {
            at.map_or(ToolSchema::None, |at| contracts.of(&self.raw[at]))
        };
        let (input, output) = (contract(self.input.clone()), contract(self.output.clone()));
        let meter = ItemMeter::new(
            UpstreamMeter::of(upstream),
            self.kind,
            sanitize_text(&self.native, LABEL_LENGTH),
        );
        Tool {
            kind: self.kind,
            hints: self.hints(),
            has_header_arguments: self.has_header_arguments(),
            tasks: self.tasks,
            upstream: upstream.clone(),
            native: self.native.into(),
            raw: self.raw,
            name: self.name,
            digest: self.digest,
            input,
            output,
            meter,
        }
    }

    /// Makes the tool of a changed definition of `other`: the schemas are not compiled again.
    pub(crate) fn replace_definition(self, other: &Tool) -> Tool {
        Tool {
            kind: other.kind,
            hints: self.hints(),
            has_header_arguments: self.has_header_arguments(),
            tasks: self.tasks,
            upstream: other.upstream.clone(),
            native: other.native.clone(),
            raw: self.raw,
            name: self.name,
            digest: self.digest,
            input: other.input.clone(),
            output: other.output.clone(),
            meter: other.meter.clone(),
        }
    }

    fn has_header_arguments(&self) -> bool {
        let schema = self
            .input
            .clone()
            .map(|at| &self.raw[at])
            .unwrap_or_default();
        scan::contains(schema, b"x-mcp-header")
    }

    fn hints(&self) -> ToolHints {
        let Some(annotations) = self.annotations.clone().map(|at| &self.raw[at]) else {
            return ToolHints::default();
        };
        let hint = |name: &str| match scan::find(annotations, name).map(|at| &annotations[at]) {
            Some(b"true") => Some(true),
            Some(b"false") => Some(false),
            _ => None,
        };
        ToolHints {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
        }
    }
}

impl Tool {
    /// `upstream/tool`: the name of a tool for uses that need unique names independent of
    /// endpoints. An upstream's id has no `/`, so it can be read in one way only.
    #[must_use]
    pub fn qualified_name(&self) -> String {
        format!("{}/{}", self.upstream, self.native)
    }

    /// The result of compiling its input schema for validation; absent without a schema.
    #[must_use]
    pub fn input_schema(&self) -> Option<Result<(), UnusableSchema>> {
        self.input.usable()
    }

    /// True if its input schema names the argument that a JSON pointer (RFC 6901) leads to. A
    /// schema that cannot be used names no argument.
    #[must_use]
    pub fn names_argument(&self, pointer: &str) -> bool {
        let ToolSchema::Checked(schema) = &self.input else {
            return false;
        };
        let steps: Vec<_> = pointer
            .split('/')
            .skip(1)
            .map(|step| step.replace("~1", "/").replace("~0", "~"))
            .collect();
        schema.names(&steps.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The result of compiling its output schema for validation; absent without a schema.
    #[must_use]
    pub fn output_schema(&self) -> Option<Result<(), UnusableSchema>> {
        self.output.usable()
    }

    /// A resource that no list shows, but that a client may ask for by its URI.
    pub(crate) fn unlisted(upstream: &UpstreamId, uri: &str) -> Self {
        let raw = Bytes::from(serde_json::json!({ "uri": uri }).to_string());
        let name = scan::find(&raw, "uri").unwrap_or_default();
        let meter = ItemMeter::new(
            UpstreamMeter::of(upstream),
            ListKind::Resources,
            String::new(),
        );
        Self {
            hints: ToolHints::default(),
            has_header_arguments: false,
            tasks: TaskSupport::Forbidden,
            kind: ListKind::Resources,
            upstream: upstream.clone(),
            native: uri.into(),
            digest: ContentVersion::of(&[&raw]),
            raw,
            name,
            input: ToolSchema::None,
            output: ToolSchema::None,
            meter,
        }
    }

    /// Stands for a method that no revision knows.
    pub(crate) fn of_method(upstream: &UpstreamId, name: &str) -> Self {
        Self {
            meter: ItemMeter::of_method(UpstreamMeter::of(upstream), name),
            ..Self::unlisted(upstream, name)
        }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Tool({} of {}, {} bytes)",
            sanitize_text(&self.native, LABEL_LENGTH),
            self.upstream,
            self.raw.len()
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn draft(text: &str) -> Result<ToolDraft, InvalidItem> {
        ToolDraft::read(ListKind::Tools, Bytes::copy_from_slice(text.as_bytes()))
    }

    // Proves R119.
    #[test]
    fn a_tool_keeps_the_bytes_of_its_upstream() {
        let text = r#" {"x-odd": 1e400, "name" : "a\u002fb", "_meta":{"k":12345678901234567890}} "#;
        let tool = draft(text)
            .unwrap()
            .finish(&UpstreamId::new("u").unwrap(), &SchemaCache::default());
        assert_eq!(&tool.raw[..], text.as_bytes());
        assert_eq!(&*tool.native, "a/b");
        assert_eq!(&tool.raw[tool.name.clone()], br#""a\u002fb""#);
    }

    // Proves B18.
    #[test]
    fn invalid_items_are_classified() {
        for bad in [
            "",
            "1",
            "[]",
            "{",
            "nonsense",
            "{\"name\":\"a\",\"name\":\"b\"}",
        ] {
            assert_eq!(draft(bad).err(), Some(InvalidItem::Malformed), "{bad}");
        }
        for bad in [
            "{}",
            r#"{"name":1}"#,
            r#"{"name":null}"#,
            r#"{"Name":"a"}"#,
            r#"{"name":"\ud800"}"#,
        ] {
            assert_eq!(draft(bad).err(), Some(InvalidItem::Name), "{bad}");
        }
    }
}

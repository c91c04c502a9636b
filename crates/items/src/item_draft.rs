//! The reading of an item of an upstream's list.

use std::ops::Range;

use bytes::Bytes;
use weir_core::content_version::ContentVersion;
use weir_core::log_text::sanitize_text;
use weir_core::names::UpstreamId;
use weir_core::server_item::{LABEL_LENGTH, ServerItem, TaskSupport};
use weir_core::telemetry::meters::{ItemMeter, UpstreamMeter};
use weir_core::toolset::ToolHints;
use weir_core::upstream::ListKind;
use weir_schema::{SchemaCache, ToolSchema};
use weir_wire::header;
use weir_wire::scan::{self, JsonLimits};

use crate::invalid_item::InvalidItem;
use crate::item_repair;

/// A member of a list that is known to be an item, before the costly part of making one.
#[derive(Debug)]
pub struct ItemDraft {
    kind: ListKind,
    /// The server's own name, or URI.
    pub native: String,
    /// The item as the server sent it, except for repairs.
    pub raw: Bytes,
    /// The digest of [`Self::raw`].
    pub digest: ContentVersion,
    name: Range<usize>,
    input: Option<Range<usize>>,
    output: Option<Range<usize>>,
    annotations: Option<Range<usize>>,
    tasks: TaskSupport,
}

impl ItemDraft {
    /// Reads an item of a server's list, and repairs members that break the specification. A
    /// well-formed item stays byte for byte.
    ///
    /// # Errors
    /// [`InvalidItem`].
    pub fn read_listed(kind: ListKind, raw: Bytes) -> Result<Self, InvalidItem> {
        check_object(&raw)?;
        let repaired = item_repair::repair(kind, raw)?;
        Self::read_checked(kind, repaired)
    }

    /// Reads an item of weir's own.
    ///
    /// # Errors
    /// [`InvalidItem`].
    pub fn read(kind: ListKind, raw: Bytes) -> Result<Self, InvalidItem> {
        check_object(&raw)?;
        Self::read_checked(kind, raw)
    }

    fn read_checked(kind: ListKind, raw: Bytes) -> Result<Self, InvalidItem> {
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
                tasks = task_support(&raw[member.value]);
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
    pub fn finish(self, upstream: &UpstreamId, contracts: &SchemaCache) -> ServerItem {
        let contract = |at: Option<Range<usize>>| {
            at.map_or(ToolSchema::None, |at| contracts.of(&self.raw[at]))
        };
        let (input, output) = (contract(self.input.clone()), contract(self.output.clone()));
        let meter = ItemMeter::new(
            &UpstreamMeter::of(upstream),
            self.kind,
            sanitize_text(&self.native, LABEL_LENGTH),
        );
        ServerItem {
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
    pub fn replace_definition(self, other: &ServerItem) -> ServerItem {
        ServerItem {
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
        header::ANNOTATION_SEARCH.is_in(schema)
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

/// Checks that an item is an object within the limits of upstream messages.
fn check_object(raw: &[u8]) -> Result<(), InvalidItem> {
    let is_json = scan::check(raw, &JsonLimits::upstream()).is_ok();
    if is_json && scan::is_object(raw) {
        Ok(())
    } else {
        Err(InvalidItem::Malformed)
    }
}

/// Reads an `execution` object.
fn task_support(execution: &[u8]) -> TaskSupport {
    let support = scan::find(execution, "taskSupport").filter(|_| scan::is_object(execution));
    match support
        .and_then(|at| scan::string(&execution[at]))
        .as_deref()
    {
        Some("optional") => TaskSupport::Optional,
        Some("required") => TaskSupport::Required,
        _ => TaskSupport::Forbidden,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn draft(text: &str) -> Result<ItemDraft, InvalidItem> {
        ItemDraft::read_listed(ListKind::Tools, Bytes::copy_from_slice(text.as_bytes()))
    }

    // Proves R119.
    #[test]
    fn a_tool_keeps_the_bytes_of_its_upstream() {
        let text = r#" {"x-odd": 1.50E+300, "name" : "a\u002fb", "inputSchema":{ "type":"object"}, "_meta":{"k":12345678901234567890}} "#;
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
        let named = draft(r#"{"name":"a","inputSchema":5}"#).unwrap_err();
        assert_eq!(named.key(), "a", "the log names the item");
    }
}

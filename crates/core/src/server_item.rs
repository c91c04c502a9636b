//! An item of an upstream's list, as the catalog keeps it: the upstream's own bytes, and the facts
//! computed from them once.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use weir_wire::scan;

use crate::content_version::ContentVersion;
use crate::list_kind::ListKind;
use crate::log_text::sanitize_text;
use crate::names::UpstreamId;
use crate::telemetry::meters::{ItemMeter, UpstreamMeter};
use crate::toolset::ToolHints;
use weir_schema::ToolSchema;
use weir_schema::UnusableSchema;

/// Characters of an item's name that a metric label and a log field keep.
pub const LABEL_LENGTH: usize = 64;

/// One tool, prompt, resource or template of one upstream. Immutable; an unchanged one keeps its
/// `Arc` over every walk.
pub struct ServerItem {
    /// The list that it is in.
    pub kind: ListKind,
    /// Its upstream.
    pub upstream: UpstreamId,
    /// Its own name there; the URI of a resource, the URI template of a template.
    pub native: Arc<str>,
    /// The item's object, as the upstream wrote it, except for repairs.
    pub raw: Bytes,
    /// The range of the value of its key ([`ListKind::key`]) in [`Self::raw`], so that the value
    /// can be replaced without parsing.
    pub name: Range<usize>,
    /// A digest of [`Self::raw`].
    pub digest: ContentVersion,
    /// Its own annotations, of a tool. Not to be believed, unless the operator trusts its upstream: see
    /// [`crate::catalog_item::CallTerms::hints`].
    pub hints: ToolHints,
    /// True if arguments of it may have to be repeated as headers: it has an `x-mcp-header`
    /// somewhere.
    pub has_header_arguments: bool,
    /// The support of its calls for tasks.
    pub tasks: TaskSupport,
    /// Its input schema. Tools alone have schemas.
    pub input: ToolSchema,
    /// Its output schema.
    pub output: ToolSchema,
    /// The metrics of its calls.
    pub meter: Arc<ItemMeter>,
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

impl ServerItem {
    /// `upstream/item`: a name for uses that need unique names independent of
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
    #[must_use]
    pub fn unlisted(upstream: &UpstreamId, uri: &str) -> Self {
        let raw = Bytes::from(serde_json::json!({ "uri": uri }).to_string());
        let name = scan::find(&raw, "uri").unwrap_or_default();
        let meter = ItemMeter::new(
            &UpstreamMeter::of(upstream),
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
    #[must_use]
    pub fn of_method(upstream: &UpstreamId, name: &str) -> Self {
        Self {
            meter: ItemMeter::of_method(&UpstreamMeter::of(upstream), name),
            ..Self::unlisted(upstream, name)
        }
    }
}

impl fmt::Debug for ServerItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ServerItem({} of {}, {} bytes)",
            sanitize_text(&self.native, LABEL_LENGTH),
            self.upstream,
            self.raw.len()
        )
    }
}

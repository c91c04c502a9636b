//! Extensions of the protocol by their identifiers: those that weir understands, and all others.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::upstream::DeclaredExtension;
use weir_wire::scan;

/// The tasks extension (SEP-2663).
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The extension of MCP Apps (SEP-1865): interfaces behind `ui://` resources.
pub const APPS: &str = "io.modelcontextprotocol/ui";

/// The extensions that an object of capabilities declares, except those that weir understands, each
/// with its settings.
#[must_use]
pub fn declared_extensions(raw: &Bytes) -> Vec<DeclaredExtension> {
    let all = scan::find(raw, "extensions")
        .map(|at| raw.slice(at))
        .unwrap_or_default();
    named_objects(&all)
        .filter(|(name, _)| ![TASKS, APPS].contains(&&**name))
        .collect()
}

/// The members of an object that are objects, at most 32.
fn named_objects(all: &Bytes) -> impl Iterator<Item = DeclaredExtension> {
    const MAX_EXTENSIONS: usize = 32;
    let members = scan::members(if scan::is_object(all) { all } else { b"{}" });
    let objects = members.map(|member| (Arc::from(&*member.key.decode()), all.slice(member.value)));
    objects
        .filter(|(_, value): &DeclaredExtension| scan::is_object(value))
        .take(MAX_EXTENSIONS)
}

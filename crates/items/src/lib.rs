//! Items of servers' lists: an item is read and checked once, when its list is, and may then be
//! described as the operator of an endpoint wants it.

mod overrides;
mod tool_draft;

pub use overrides::{apply_overrides, link_interface};
pub use tool_draft::{InvalidItem, ToolDraft};

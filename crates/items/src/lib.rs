//! Items of servers' lists: an item is read, checked and, if necessary, repaired once, when its
//! list is read, and may then be described as the operator of an endpoint wants it, under the names
//! that it may get there. The operator's rules for calls are resolved for each tool. A list is
//! compared with another one, and may have a fault while the server gives its other lists. The
//! lists of a server are read again at a pace.

mod invalid_item;
mod item_draft;
mod item_repair;
mod list_difference;
mod list_entry;
mod list_fault;
mod overrides;
mod refresh_pace;
mod reserved_names;
mod resolved_rules;
mod timestamp;
mod walk_pace;

pub use invalid_item::InvalidItem;
pub use item_draft::ItemDraft;
pub use list_difference::{ListDifference, WalkMark};
pub use list_entry::{ListEntry, names};
pub use list_fault::{
    ListFault, WalkTrigger, is_late, is_of_list_alone, is_same_cause, pause_after_late,
    requested_pause,
};
pub use overrides::{apply_overrides, link_interface};
pub use refresh_pace::{RefreshPacer, announced_until};
pub use reserved_names::{ReservedNames, is_of_other, is_uri_of_other};
pub use resolved_rules::ResolvedRules;
pub use walk_pace::WalkPace;

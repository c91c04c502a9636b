//! The attributes of this process in all that it exports: metrics, traces and audit records.

use std::sync::OnceLock;

static RESOURCE: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Sets the attributes. Only the first call has an effect, because a process has one identity.
pub fn set_process_resource(attributes: Vec<(String, String)>) {
    let _first = RESOURCE.set(attributes);
}

/// The attributes; none before they are set.
pub fn process_resource() -> &'static [(String, String)] {
    RESOURCE.get().map_or(&[], Vec::as_slice)
}

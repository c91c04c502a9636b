//! Principals of any name, for this crate's tests.

use weir_core::Principal;

/// The principal of this name; of an empty name, the anonymous one.
pub(crate) fn principal(name: &str) -> Principal {
    Principal::owner((!name.is_empty()).then_some(("issuer", name)))
}

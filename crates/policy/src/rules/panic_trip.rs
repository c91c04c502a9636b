//! A panic at the call of the rule engine, for tests.

use std::cell::Cell;

thread_local!(static TRIPPED: Cell<bool> = const { Cell::new(false) });

/// Has each later call of the engine on this thread panic, or not.
pub(super) fn set(panics: bool) {
    TRIPPED.set(panics);
}

/// Panics if the test wants it.
pub(super) fn trip() {
    assert!(!TRIPPED.get(), "the engine panics");
}

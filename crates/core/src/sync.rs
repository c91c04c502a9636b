//! The locks and atomics of this crate's own synchronization. `crates/interleavings` compiles the same
//! code with those of loom, which tries every order of the threads' steps.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use parking_lot::Mutex;

pub(crate) use tokio::time::timeout;

//! The locks, atomics and tasks of this crate's own synchronization. `crates/interleavings` compiles
//! the same code with those of loom, which tries every order of the threads' steps.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) use parking_lot::Mutex;

pub(crate) use tokio::runtime::Handle;
pub(crate) use tokio::sync::oneshot;
pub(crate) use tokio::task::yield_now;
pub(crate) use tokio::time::timeout;

//! The atomics of this crate's own wakers. `crates/interleavings` compiles the same code with those of
//! loom, which tries every order of the threads' steps.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

pub(crate) use futures_util::task::AtomicWaker;

//! The state of the path of a chain's file during and after a graceful restart.

use crate::record::ChainHead;

/// The state of a path that was left to another process.
#[derive(Debug)]
pub(super) struct LeftPath {
    /// The record after which the other process continues.
    pub(super) head: ChainHead,
    /// True once that process has failed.
    pub(super) is_taken_back: bool,
    /// True after a failed attempt to take the path back.
    pub(super) has_failed: bool,
}

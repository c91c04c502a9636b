//! The shared parts of the tests.

pub(crate) mod meeting_upstream;

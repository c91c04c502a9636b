//! The shared parts of the tests.

pub(crate) mod test_upstream;

//! The route of one call over the instances of its server, shared by its attempts and its time
//! limits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The instance that a call has to go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredInstance {
    /// None in particular.
    Any,
    /// The instance at this position: the call continues something that began there.
    At(usize),
    /// An instance that the config no longer has.
    Removed,
}

impl RequiredInstance {
    /// Returns the position of a certain instance that the config has.
    pub(crate) fn position(self) -> Option<usize> {
        match self {
            Self::At(index) => Some(index),
            Self::Any | Self::Removed => None,
        }
    }
}

/// The route of one call.
#[derive(Debug)]
pub(crate) struct InstanceRoute {
    required: RequiredInstance,
    /// The position of the instance that has the call now, plus one; 0 before the first attempt.
    current: AtomicUsize,
    /// A bit for each instance that had an attempt.
    tried: AtomicU64,
}

impl InstanceRoute {
    /// Makes the route of a call before its first attempt.
    pub(crate) fn new(required: RequiredInstance) -> Self {
        Self {
            required,
            current: AtomicUsize::new(0),
            tried: AtomicU64::new(0),
        }
    }

    pub(crate) fn required(&self) -> RequiredInstance {
        self.required
    }

    /// Returns the position of the instance that has the call; absent before the first attempt.
    pub(crate) fn current(&self) -> Option<usize> {
        self.current.load(Ordering::Acquire).checked_sub(1)
    }

    /// Notes an attempt at this instance.
    pub(crate) fn enter(&self, index: usize) {
        self.current.store(index + 1, Ordering::Release);
        // `InstanceSettings::MAX_INSTANCES` instances have a bit each.
        self.tried.fetch_or(bit(index), Ordering::AcqRel);
    }

    /// True if this instance had an attempt.
    pub(crate) fn has_tried(&self, index: usize) -> bool {
        self.tried.load(Ordering::Acquire) & bit(index) != 0
    }
}

const fn bit(index: usize) -> u64 {
    1 << (index % u64::BITS as usize)
}

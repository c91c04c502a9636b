//! The owner of a limit's budget, and its use of concurrency slots.

/// The owner of a limit's budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitOwner {
    /// A network, as `192.0.2.0/24`.
    Network(String),
    /// A principal, by its digest.
    Principal([u8; 16]),
    /// An upstream, by its id.
    Upstream(String),
    /// Shared by all.
    Everybody,
}

/// The use of concurrency slots by one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotUsage {
    /// The owner.
    pub owner: LimitOwner,
    /// Calls with a slot.
    pub held: usize,
    /// Calls that wait for one.
    pub waiting: usize,
    /// The number of slots.
    pub most: usize,
}

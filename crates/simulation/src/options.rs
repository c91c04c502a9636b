//! The options of a run.

/// A fault in the simulation itself: proof that a run finds faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    /// Children are written to without a look at the fence of their lease.
    NoFence,
    /// A request that was lost on its way to its owner is sent to the owner again.
    RepeatedForward,
    /// The store forgets that sessions were ended.
    NoTombstones,
}

/// The kind of faults of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultScenario {
    /// Faults of all kinds.
    #[default]
    All,
    /// Replicas lose each other again and again: their sessions move away, and back.
    MovingSessions,
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct SimulationOptions {
    /// The seed, from which everything else follows.
    pub seed: u64,
    /// A fault in the simulation itself.
    pub planted: Option<PlantedFault>,
    /// The kind of faults.
    pub scenario: FaultScenario,
    /// True if the trace has each part of a stream that is sent.
    pub traces_streams: bool,
}

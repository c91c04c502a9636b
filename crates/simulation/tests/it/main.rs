//! Runs of many seeds. Each seed has a process of its own, so that it is the same run each time.
//!
//! `WEIR_SIMULATION_SEED` names the one seed of a run, `WEIR_SIMULATION_SEEDS` the number of seeds from
//! 1 on, and with `WEIR_SIMULATION_STREAMS` the trace has each part of a stream. With
//! `WEIR_SIMULATION_MOVES` the faults of a run have sessions move away and back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "a long run prints its figure")]

mod planted_faults;
mod seed_process;
mod seeds;

//! The process of weir: its program, its signals, and the command that runs the keeper of child
//! processes.

pub mod keeper;
mod own_program;
mod process_signals;

pub use own_program::OwnProgram;
pub use process_signals::{ProcessSignals, SignalAction, catch_file_size_limit};

//! `weir keeper`: the process that weir starts as the parent of its child processes.

use std::process::ExitCode;

/// The subcommand. It is not for people, so help does not list it.
pub(crate) const KEEPER_COMMAND: &str = "keeper";

/// Runs the keeper if the command line asks for it; returns `None` for every other command. Call it
/// first: a keeper needs neither the threads of a gateway nor its environment.
#[must_use]
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != KEEPER_COMMAND || arguments.next().is_some() {
        return None;
    }
    Some(match weir_process::keeper::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weir: keeper: {why}");
            ExitCode::from(2)
        }
    })
}

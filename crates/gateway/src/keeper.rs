//! `weir keeper`: what weir starts by itself, to be the parent of its child processes.

use std::process::ExitCode;

/// The command. It is not for people, so help does not name it.
pub(crate) const KEEPER_COMMAND: &str = "keeper";

/// Is the keeper where the command line says so; `None` for every other command. To be called
/// first: a keeper needs neither the threads of a gateway nor its environment.
#[must_use]
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != KEEPER_COMMAND || arguments.next().is_some() {
        return None;
    }
    Some(match weir_upstream::keeper::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weir: keeper: {why}");
            ExitCode::from(2)
        }
    })
}

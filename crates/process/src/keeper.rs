//! The keeper: a small process of weir's own that is parent and subreaper of all stdio children. It
//! ends them after any end of weir.
//!
//! [`ChildKeeper`] starts it with the first child: weir's own program again, with one end of a Unix
//! socket, the *pipe*, as its standard input. For each child one byte goes over the pipe, with four
//! descriptors: the *line*, a socket of this child alone, and the child's three streams. On the
//! line weir writes the command to start ([`ChildSpec`]). The keeper answers `started` or `failed`,
//! and later `ended` with the status. weir requests a child's end by closing its half of the line;
//! the keeper answers `ending`, and then weir closes the child's input.
//!
//! A line that closes ends its child. A SIGKILL of weir ends all children at once, since the system
//! closes all of a process's sockets. When every process has closed the pipe (a hand-over passes it
//! on), the keeper ends every descendant that is left, and then itself. PR_SET_PDEATHSIG does not
//! serve: it follows the thread that forked, and threads of a runtime come and go.
//!
//! The keeper signals only its own children that it has not waited for, because their process ids
//! cannot be used again yet. A descendant further down becomes its child when the parents in
//! between have ended. On systems without a subreaper (macOS) and without `/proc`, process groups
//! are ended; a process that left its group is not.
//!
//! A keeper that is killed closes all lines at once. weir got a descriptor of each child's process
//! ([`process_handle`]) with the message that it was started, and now ends it by that, with all its
//! descendants. A process that had lost its parents before, and was the keeper's own child by then,
//! is not found.

mod descendants;
mod keeper_client;
mod keeper_process;
mod keeper_protocol;
mod process_handle;

pub use keeper_client::{ChildControlSocket, ChildKeeper, KeeperProgram, KeptChild};
pub use keeper_process::run;
pub use keeper_protocol::ChildSpec;

//! The keeper: a small process of weir's own that is parent and subreaper of all stdio children,
//! and ends them when weir has ended, however it did.
//!
//! [`Keeper`] starts it with the first child: weir's own program again, with one end of a Unix
//! socket, the *pipe*, as its standard input. For each child one byte goes over the pipe, with four
//! descriptors: the *line*, a socket of this child alone, and the child's three streams. On the
//! line weir writes what to start ([`ChildSpec`]), and the keeper says `started` or why not, and
//! `ended` with the status. weir asks for a child's end by closing its half of the line; the keeper
//! says `ending`, and then weir closes the child's input.
//!
//! A line that closes ends its child: at once for a SIGKILL of weir, since the system closes all of
//! a process's sockets. A pipe that is closed by every process that had it (a hand-over passes it
//! on) ends every descendant that is left, and then the keeper itself. PR_SET_PDEATHSIG would not
//! do: it follows the thread that forked, and threads of a runtime come and go.
//!
//! The keeper signals only its own children that it has not waited for: nobody else can have such a
//! process id. A descendant further down becomes its child when the parents in between have ended.
//! Where there is no subreaper (macOS) and no `/proc`, process groups are ended, and what left its
//! group is not.
//!
//! A keeper that is killed closes all lines at once. With the word that a child was started, weir
//! was given a descriptor of its process ([`handle`]), and now ends it by that, with all that still
//! descends from it. What had left its parents before, and was the keeper's own child by then, is
//! lost sight of.

mod client;
mod descendants;
mod handle;
mod process;
mod protocol;

pub(crate) use client::{ChildLine, KeptChild};
pub use client::{Keeper, KeeperProgram};
pub use process::run;
pub(crate) use protocol::ChildSpec;

//! What two processes say to each other while one takes the other's place: lines of text, a few and
//! short.
//!
//! | who | says | when |
//! |---|---|---|
//! | predecessor | `weir 2 KEY` | before the successor runs |
//! | successor | `prepared` | it has read its config, and will now open its files |
//! | predecessor | `go WILL` | it has put its audit file aside; the [`Will`] is JSON |
//! | successor | `serving sessions` | it accepts; the predecessor drains. From now on both send a [`Message`](super::message::Message) a line |
//!
//! A predecessor whose will does not say that sessions move, and a successor that takes none, are
//! of an older release:
//!
//! | who | says | when |
//! |---|---|---|
//! | successor | `serving` | it accepts; the predecessor drains |
//! | predecessor | `ended SEQ:HASH SEQ:HASH` | it has kept its last audit records, of calls and of refusals (`-`: not), and goes |

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader as Reader};
use tokio::task::JoinHandle;
use weir_policy::audit::Head;

use super::Sealing;
use super::moving::{SessionState, receive_state};
use crate::admin::Noted;
use crate::audit::Heads;

/// The version of what is said here. Two that differ do not follow one another.
pub(super) const GREETING: &str = "weir 2";
pub(super) const PREPARED: &str = "prepared";
pub(super) const GO: &str = "go ";
pub(super) const SERVING: &str = "serving";
pub(super) const SERVING_SESSIONS: &str = "serving sessions";
pub(super) const ENDED: &str = "ended ";

/// How long one waits for the other's next word.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known only when the successor may begin.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Will {
    /// The last audit record, after which the chain goes on; as [`Head`] is written.
    pub(crate) audit: Option<String>,
    /// The same of the chain of refusals.
    #[serde(default)]
    pub(crate) refusals: Option<String>,
    /// What operators changed and is in force.
    pub(crate) changes: Vec<Noted>,
    /// Whether sessions move to a successor that says `serving sessions`.
    #[serde(default)]
    pub(crate) sessions_move: bool,
}

impl Will {
    /// The last audit records, where there are some.
    pub(crate) fn left(&self) -> Heads {
        let read = |head: &Option<String>| head.as_deref().and_then(Head::read);
        Heads {
            calls: read(&self.audit),
            refusals: read(&self.refusals),
        }
    }
}

/// The process before, while it drains.
#[derive(Debug)]
pub(crate) struct Parting(JoinHandle<Heads>);

impl Parting {
    /// Waits for its end: the last audit records, where it says so. Cancel safe.
    pub(crate) async fn heard(&mut self) -> Heads {
        (&mut self.0).await.unwrap_or_default()
    }
}

/// Hears the end of a process that moves no sessions.
async fn hear_end(line: tokio::net::UnixStream) -> Heads {
    let said = Reader::new(line)
        .lines()
        .next_line()
        .await
        .ok()
        .flatten()
        .unwrap_or_default();
    let mut heads = said
        .strip_prefix(ENDED)
        .unwrap_or_default()
        .split(' ')
        .map(Head::read);
    Heads {
        calls: heads.next().flatten(),
        refusals: heads.next().flatten(),
    }
}

/// The process before, seen from its successor. Dropping it without [`Predecessor::serving`] tells
/// that nothing came of it.
#[derive(Debug)]
pub(crate) struct Predecessor(BufReader<UnixStream>);

impl Predecessor {
    /// Hears what it leaves.
    ///
    /// # Errors
    /// It says something else, or nothing for a while.
    pub(super) fn hear(line: UnixStream) -> io::Result<(Sealing, Self)> {
        line.set_read_timeout(Some(PATIENCE))?;
        let mut line = BufReader::new(line);
        let said = word(&mut line)?;
        let key = said
            .strip_prefix(GREETING)
            .and_then(|rest| Sealing::read(rest.trim()));
        let sealing = key.ok_or_else(|| io::Error::other("it is a weir of another version"))?;
        Ok((sealing, Self(line)))
    }

    /// Says that this process is about to open its files, and waits until it may: with what the
    /// process before leaves.
    ///
    /// # Errors
    /// The process before is gone, or has changed its mind.
    pub(crate) fn may_begin(&mut self) -> io::Result<Will> {
        say(self.0.get_ref(), PREPARED)?;
        let said = word(&mut self.0)?;
        match said.strip_prefix(GO).map(serde_json::from_str) {
            Some(Ok(will)) => Ok(will),
            _ => Err(io::Error::other(format!("it says `{said:.40}`"))),
        }
    }

    /// Says that this process serves, and takes the sessions where the process before has some to
    /// move (`state`). Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The process before is gone.
    pub(crate) fn serving(self, state: Option<SessionState>) -> io::Result<Parting> {
        let line = self.0.into_inner();
        say(
            &line,
            if state.is_some() {
                SERVING_SESSIONS
            } else {
                SERVING
            },
        )?;
        line.set_nonblocking(true)?;
        let line = tokio::net::UnixStream::from_std(line)?;
        Ok(Parting(match state {
            Some(state) => tokio::spawn(receive_state(state, line)),
            None => tokio::spawn(hear_end(line)),
        }))
    }
}

/// Says one word.
pub(super) fn say(mut line: &UnixStream, word: &str) -> io::Result<()> {
    line.write_all(format!("{word}\n").as_bytes())
}

/// Hears one word.
fn word(line: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut said = String::new();
    line.read_line(&mut said)?;
    match said.pop() {
        Some('\n') => Ok(said),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

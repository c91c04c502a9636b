//! What two processes say to each other while one takes the other's place: lines of text, a few and short.
//!
//! | who | says | when |
//! |---|---|---|
//! | predecessor | `weir 1 KEY` | before the successor runs |
//! | successor | `prepared` | it has read its config, and will now open its files |
//! | predecessor | `go` | it has put its audit file aside |
//! | successor | `serving` | it accepts; the predecessor drains |

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Sealing;

/// The version of what is said here. Two that differ do not follow one another.
pub(super) const GREETING: &str = "weir 1";
pub(super) const PREPARED: &str = "prepared";
pub(super) const GO: &str = "go";
pub(super) const SERVING: &str = "serving";

/// How long one waits for the other's next word.
const PATIENCE: Duration = Duration::from_secs(30);

/// The process before, seen from its successor. Dropping it without [`Predecessor::serving`] tells that nothing came of it.
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
        let key = said.strip_prefix(GREETING).and_then(|rest| Sealing::read(rest.trim()));
        let sealing = key.ok_or_else(|| io::Error::other("it is a weir of another version"))?;
        Ok((sealing, Self(line)))
    }

    /// Says that this process is about to open its files, and waits until it may.
    ///
    /// # Errors
    /// The process before is gone, or has changed its mind.
    pub(crate) fn may_begin(&mut self) -> io::Result<()> {
        say(self.0.get_ref(), PREPARED)?;
        match word(&mut self.0)?.as_str() {
            GO => Ok(()),
            other => Err(io::Error::other(format!("it says `{other:.40}`"))),
        }
    }

    /// Says that this process serves.
    ///
    /// # Errors
    /// The process before is gone: so much the better.
    pub(crate) fn serving(self) -> io::Result<()> {
        say(self.0.get_ref(), SERVING)
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

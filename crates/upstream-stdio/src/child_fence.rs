//! The fence before the children of an upstream that one replica runs for all: each write checks
//! that this replica still holds the lease.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::AsyncWrite;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::lease_fence::FencePass;
use weir_upstream_core::upstream_context::UpstreamContext;

const NOT_HERE: &str = "The upstream runs at another replica: try again";

/// Returns the pass of a child; absent if each replica runs its own.
///
/// # Errors
/// `Overloaded` if another replica runs the children.
pub(crate) fn enter(context: &Arc<UpstreamContext>) -> Result<Option<FencePass>, Failure> {
    let Some(fence) = &context.fence else {
        return Ok(None);
    };
    let refused =
        || Failure::new(FailureKind::Overloaded, NOT_HERE).with_upstream(&context.label.id);
    fence.enter().map(Some).ok_or_else(refused)
}

/// Checks that children may be started here.
///
/// # Errors
/// Another replica runs them. The call was not made.
pub(crate) fn check(context: &Arc<UpstreamContext>) -> Result<(), FailedAttempt> {
    enter(context).map(drop).map_err(|failure| {
        FailedAttempt::new(failure)
            .with_proof(Some(ResendProof::NotSent))
            .mark_not_attempted()
    })
}

/// The input of a child, or of a relay to another process.
#[derive(Debug)]
pub(crate) struct FencedInput<W> {
    pub(crate) input: W,
    pub(crate) pass: Option<FencePass>,
}

impl<W: AsyncWrite + Unpin> FencedInput<W> {
    /// An input that is always written to.
    pub(crate) fn without_fence(input: W) -> Self {
        Self { input, pass: None }
    }

    /// Writes a line. The pass is checked before each write to the pipe: a process that was stopped
    /// in between finds it closed.
    ///
    /// # Errors
    /// The pass is closed, or the pipe.
    pub(crate) async fn write_line(&mut self, mut line: &[u8]) -> io::Result<()> {
        while !line.is_empty() {
            let written = poll_fn(|cx| {
                self.check()?;
                Pin::new(&mut self.input).poll_write(cx, line)
            })
            .await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            line = &line[written..];
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        match &self.pass {
            Some(pass) if !pass.is_open() => Err(io::Error::other("the lease has ended")),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use weir_testkit::FakeClock;
    use weir_upstream_core::lease_fence::LeaseFence;

    use super::*;

    #[tokio::test]
    async fn nothing_is_written_after_the_end_of_the_lease() {
        let clock = Arc::new(FakeClock::new());
        let fence = LeaseFence::new(clock.clone());
        fence.extend(Duration::from_secs(10));
        let (input, mut output) = tokio::io::duplex(4);
        let mut fenced = FencedInput {
            input,
            pass: fence.enter(),
        };
        fenced.write_line(b"one\n").await.unwrap();
        let mut read = [0; 4];
        output.read_exact(&mut read).await.unwrap();
        // The lease ends while the second half of a line waits for room.
        let mut writing = Box::pin(fenced.write_line(b"two more\n"));
        assert!(futures_util::FutureExt::now_or_never(&mut writing).is_none());
        clock.advance(Duration::from_secs(10));
        output.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"two ");
        assert!(writing.await.is_err());
        assert!(fenced.write_line(b"three\n").await.is_err());
        drop(fenced);
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
    }
}

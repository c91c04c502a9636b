//! The pump that moves the bytes of one direction, with the faults of the current toxics.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::{Direction, Shared, Toxic};

/// The largest piece that passes at once.
const PIECE: usize = 16 * 1024;

/// The end of a direction, and its effect on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This direction ended; the other goes on.
    Done,
    Close,
    Reset,
}

/// A limit on bytes, and the action when it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Stall,
    Close,
    Reset,
    HalfClose,
}

type Toxics = watch::Receiver<Vec<(Direction, Toxic)>>;

pub(super) async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    direction: Direction,
    number: u64,
    shared: &Shared,
) -> Verdict {
    let mut pump = Pump {
        toxics: shared.toxics.subscribe(),
        direction,
        passed: 0,
        random: shared.seed
            ^ (number << 1 | u64::from(direction == Direction::Up))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15),
    };
    let mut buffer = vec![0; PIECE];
    loop {
        let toxics = pump.current();
        if toxics.contains(&Toxic::BlackHole) {
            pump.changed().await;
            continue;
        }
        if let Some(verdict) = pump.at_limit(&toxics) {
            match verdict {
                Limit::Stall => pump.changed().await,
                Limit::Close => return Verdict::Close,
                Limit::Reset => return Verdict::Reset,
                Limit::HalfClose => return half_close(from, to).await,
            }
            continue;
        }
        let most = pump.piece(&toxics);
        let read = tokio::select! {
            read = from.read(&mut buffer[..most]) => read,
            () = pump.changed() => continue,
        };
        let length = match read {
            Ok(0) => return half_close(from, to).await,
            Ok(length) => length,
            // The other side must see the same end.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Verdict::Reset,
            Err(_) => return Verdict::Close,
        };
        let piece = &mut buffer[..length];
        if pump.write(&mut to, piece, &toxics).await.is_err() {
            return Verdict::Reset;
        }
        shared
            .passed(direction)
            .fetch_add(length as u64, Ordering::Relaxed);
    }
}

struct Pump {
    toxics: Toxics,
    direction: Direction,
    passed: u64,
    random: u64,
}

impl Pump {
    fn current(&mut self) -> Vec<Toxic> {
        let toxics = self.toxics.borrow_and_update();
        toxics
            .iter()
            .filter(|(direction, _)| *direction == self.direction)
            .map(|(_, toxic)| *toxic)
            .collect()
    }

    /// Ends when the toxics change; never, once the proxy is gone.
    async fn changed(&mut self) {
        if self.toxics.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn at_limit(&self, toxics: &[Toxic]) -> Option<Limit> {
        let nearest = toxics
            .iter()
            .filter_map(limit)
            .min_by_key(|(bytes, _)| *bytes)?;
        (nearest.0 <= self.passed).then_some(nearest.1)
    }

    /// The most bytes to read now without passing a limit.
    fn piece(&self, toxics: &[Toxic]) -> usize {
        let allowed = |toxic: &Toxic| match toxic {
            Toxic::Slice { bytes, .. } => (*bytes).max(1),
            // About fifty pieces a second: smooth enough.
            Toxic::Bandwidth(rate) => usize::try_from((rate / 50).max(1)).unwrap_or(PIECE),
            other => limit(other).map_or(PIECE, |(bytes, _)| {
                usize::try_from(bytes.saturating_sub(self.passed)).unwrap_or(PIECE)
            }),
        };
        toxics
            .iter()
            .map(allowed)
            .min()
            .unwrap_or(PIECE)
            .clamp(1, PIECE)
    }

    async fn write(
        &mut self,
        to: &mut WriteHalf<'_>,
        piece: &mut [u8],
        toxics: &[Toxic],
    ) -> io::Result<()> {
        let mut times = 1;
        for toxic in toxics {
            match *toxic {
                Toxic::Latency { wait, jitter } => {
                    tokio::time::sleep(wait + self.part_of(jitter)).await
                }
                Toxic::Bandwidth(rate) => {
                    tokio::time::sleep(Duration::from_secs_f64(
                        piece.len() as f64 / rate.max(1) as f64,
                    ))
                    .await;
                }
                Toxic::Slice { every, .. } => tokio::time::sleep(every).await,
                Toxic::Corrupt { at } => {
                    let byte = at
                        .checked_sub(self.passed)
                        .and_then(|offset| usize::try_from(offset).ok());
                    if let Some(byte) = byte.and_then(|offset| piece.get_mut(offset)) {
                        *byte = !*byte;
                    }
                }
                Toxic::Duplicate => times = 2,
                _ => {}
            }
        }
        for _ in 0..times {
            to.write_all(piece).await?;
        }
        self.passed += piece.len() as u64;
        Ok(())
    }

    /// A part of `whole` that depends on the seed alone (splitmix64).
    fn part_of(&mut self, whole: Duration) -> Duration {
        whole.mul_f64(crate::fakes::splitmix(&mut self.random) as f64 / u64::MAX as f64)
    }
}

fn limit(toxic: &Toxic) -> Option<(u64, Limit)> {
    match *toxic {
        Toxic::StallAfter(bytes) => Some((bytes, Limit::Stall)),
        Toxic::CloseAfter(bytes) => Some((bytes, Limit::Close)),
        Toxic::ResetAfter(bytes) => Some((bytes, Limit::Reset)),
        Toxic::HalfCloseAfter(bytes) => Some((bytes, Limit::HalfClose)),
        _ => None,
    }
}

/// Ends the direction towards `to`, and discards the bytes that still come.
async fn half_close(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Verdict {
    if to.shutdown().await.is_err() {
        return Verdict::Close;
    }
    match tokio::io::copy(&mut from, &mut tokio::io::sink()).await {
        Ok(_) => Verdict::Done,
        Err(_) => Verdict::Reset,
    }
}

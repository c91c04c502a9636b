//! The pump that moves the bytes of one direction, with the faults of the current toxics.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use crate::fault_proxy::proxy_state::ProxyState;
use crate::fault_proxy::toxic::{ProxyDirection, Toxic};

/// The largest piece that passes at once.
const MAX_PIECE_BYTES: usize = 16 * 1024;

/// The end of a direction, and its effect on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectionEnd {
    /// This direction ended; the other goes on.
    Done,
    Close,
    Reset,
}

/// A limit on bytes, and the action when it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteLimit {
    Stall,
    Close,
    Reset,
    HalfClose,
}

type ToxicsReceiver = watch::Receiver<Vec<(ProxyDirection, Toxic)>>;

pub(super) async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    direction: ProxyDirection,
    number: u64,
    shared: &ProxyState,
) -> DirectionEnd {
    let mut pump = DirectionPump {
        toxics: shared.toxics.subscribe(),
        direction,
        passed: 0,
        random: shared.seed
            ^ (number << 1 | u64::from(direction == ProxyDirection::Up))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15),
    };
    let mut buffer = vec![0; MAX_PIECE_BYTES];
    loop {
        let toxics = pump.current();
        if toxics.contains(&Toxic::BlackHole) {
            pump.changed().await;
            continue;
        }
        if let Some(verdict) = pump.at_limit(&toxics) {
            match verdict {
                ByteLimit::Stall => pump.changed().await,
                ByteLimit::Close => return DirectionEnd::Close,
                ByteLimit::Reset => return DirectionEnd::Reset,
                ByteLimit::HalfClose => return half_close(from, to).await,
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
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return DirectionEnd::Reset;
            }
            Err(_) => return DirectionEnd::Close,
        };
        let piece = &mut buffer[..length];
        if pump.write(&mut to, piece, &toxics).await.is_err() {
            return DirectionEnd::Reset;
        }
        shared
            .passed(direction)
            .fetch_add(length as u64, Ordering::Relaxed);
    }
}

struct DirectionPump {
    toxics: ToxicsReceiver,
    direction: ProxyDirection,
    passed: u64,
    random: u64,
}

impl DirectionPump {
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

    fn at_limit(&self, toxics: &[Toxic]) -> Option<ByteLimit> {
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
            Toxic::Bandwidth(rate) => {
                usize::try_from((rate / 50).max(1)).unwrap_or(MAX_PIECE_BYTES)
            }
            Toxic::Latency { .. }
            | Toxic::StallAfter(_)
            | Toxic::CloseAfter(_)
            | Toxic::ResetAfter(_)
            | Toxic::HalfCloseAfter(_)
            | Toxic::BlackHole
            | Toxic::Corrupt { .. }
            | Toxic::Duplicate => limit(toxic).map_or(MAX_PIECE_BYTES, |(bytes, _)| {
                usize::try_from(bytes.saturating_sub(self.passed)).unwrap_or(MAX_PIECE_BYTES)
            }),
        };
        toxics
            .iter()
            .map(allowed)
            .min()
            .unwrap_or(MAX_PIECE_BYTES)
            .clamp(1, MAX_PIECE_BYTES)
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
                Toxic::StallAfter(_)
                | Toxic::CloseAfter(_)
                | Toxic::ResetAfter(_)
                | Toxic::HalfCloseAfter(_)
                | Toxic::BlackHole => {}
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

fn limit(toxic: &Toxic) -> Option<(u64, ByteLimit)> {
    match *toxic {
        Toxic::StallAfter(bytes) => Some((bytes, ByteLimit::Stall)),
        Toxic::CloseAfter(bytes) => Some((bytes, ByteLimit::Close)),
        Toxic::ResetAfter(bytes) => Some((bytes, ByteLimit::Reset)),
        Toxic::HalfCloseAfter(bytes) => Some((bytes, ByteLimit::HalfClose)),
        Toxic::Latency { .. }
        | Toxic::Bandwidth(_)
        | Toxic::Slice { .. }
        | Toxic::BlackHole
        | Toxic::Corrupt { .. }
        | Toxic::Duplicate => None,
    }
}

/// Ends the direction towards `to`, and discards the bytes that still come.
async fn half_close(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> DirectionEnd {
    if to.shutdown().await.is_err() {
        return DirectionEnd::Close;
    }
    match tokio::io::copy(&mut from, &mut tokio::io::sink()).await {
        Ok(_) => DirectionEnd::Done,
        Err(_) => DirectionEnd::Reset,
    }
}

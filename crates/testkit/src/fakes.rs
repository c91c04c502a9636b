//! Fakes of core's ports for time, randomness and identities, so that a test controls them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;
use weir_core::port::{BoxFuture, Clock, Evidence, Random, Verifier};
use weir_core::principal::VerifiedIdentity;
use weir_core::{EndpointId, Failure, Principal, authenticate};

/// The wall-clock time of a fake clock at its start: 2026-08-01T00:00:00Z.
const EPOCH: Duration = Duration::from_secs(1_785_542_400);

/// A clock that moves only when a test advances it. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct FakeClock(Arc<Mutex<Duration>>);

impl FakeClock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        *self.0.lock() += by;
    }
}

impl Clock for FakeClock {
    fn monotonic(&self) -> Duration {
        *self.0.lock()
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + EPOCH + self.monotonic()
    }
}

/// A clock that follows tokio's: paused and advanced together with it.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock(Instant);

impl TokioClock {
    /// A clock at zero.
    #[expect(
        clippy::new_without_default,
        reason = "two clocks made at different times are not equal"
    )]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TokioClock {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + EPOCH + self.monotonic()
    }
}

/// Randomness that is the same in every run. Clones draw from the same sequence.
#[derive(Clone, Debug)]
pub struct FakeRandom(Arc<Mutex<u64>>);

impl FakeRandom {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }
}

impl Random for FakeRandom {
    fn fill(&self, buffer: &mut [u8]) {
        let mut state = self.0.lock();
        for piece in buffer.chunks_mut(8) {
            piece.copy_from_slice(&splitmix(&mut state).to_le_bytes()[..piece.len()]);
        }
    }
}

/// Randomness whose bytes are all the same.
#[derive(Clone, Copy, Debug)]
pub struct FixedRandom(pub u8);

impl Random for FixedRandom {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(self.0);
    }
}

#[derive(Debug)]
struct FixedVerifier(VerifiedIdentity);

impl Verifier for FixedVerifier {
    fn verify<'a>(
        &'a self,
        _: &'a Evidence<'a>,
    ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

/// The principal of an identity.
pub fn principal_of(identity: VerifiedIdentity) -> Principal {
    let endpoint = EndpointId::new("/mcp");
    let evidence = Evidence::none([127, 0, 0, 1].into(), &endpoint);
    let verifier = FixedVerifier(identity);
    let known = authenticate(&verifier, &evidence).now_or_never();
    let known = known.and_then(Result::ok);
    let known = known.expect("the verifier refuses no request and does not wait");
    known.into_parts().principal
}

/// The next number of a splitmix64 sequence.
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fake_time_moves_only_when_advanced() {
        let clock = FakeClock::new();
        let before = clock.wall();
        clock.clone().advance(Duration::from_secs(3));
        assert_eq!(clock.monotonic(), Duration::from_secs(3));
        assert_eq!(
            clock.wall().duration_since(before).ok(),
            Some(Duration::from_secs(3))
        );
    }

    #[test]
    fn randomness_repeats_with_its_seed_and_only_then() {
        let draw = |seed| {
            let (random, mut bytes) = (FakeRandom::new(seed), [[0; 13]; 2]);
            bytes.iter_mut().for_each(|bytes| random.fill(bytes));
            bytes
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1)[0], draw(1)[1]);
    }
}

//! A clock that moves by hand, randomness that counts, and principals of any name, for this crate's
//! tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use weir_core::port::{Clock, Evidence, Fut, Random, Verifier};
use weir_core::principal::VerifiedIdentity;
use weir_core::{EndpointId, Failure, Principal};

#[derive(Debug, Default)]
pub(crate) struct StoreManualClock(AtomicU64);

impl StoreManualClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for StoreManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.monotonic()
    }
}

#[derive(Debug, Default)]
pub(crate) struct StoreFakeRandom(AtomicU64);

impl Random for StoreFakeRandom {
    fn fill(&self, buffer: &mut [u8]) {
        for byte in buffer {
            *byte = self.0.fetch_add(1, Ordering::SeqCst) as u8;
        }
    }
}

struct StoreTestVerifier(&'static str);

impl Verifier for StoreTestVerifier {
    fn verify<'a>(&'a self, _: &'a Evidence<'a>) -> Fut<'a, Result<VerifiedIdentity, Failure>> {
        let identity = if self.0.is_empty() {
            VerifiedIdentity::Anonymous
        } else {
            VerifiedIdentity::subject("iss", self.0)
        };
        Box::pin(async move { Ok(identity) })
    }
}

/// The principal of this name; of an empty name, the anonymous one.
pub(crate) async fn principal_named(name: &'static str) -> Principal {
    let endpoint = EndpointId::new("/mcp");
    let evidence = Evidence::none([127, 0, 0, 1].into(), &endpoint);
    weir_core::authenticate(&StoreTestVerifier(name), &evidence, ())
        .await
        .expect("it lets everybody in")
        .into_parts()
        .principal
}

//! The limiter over rates that replicas share.

use weir_core::port::{RateBucket, RateUnit};

use super::*;

/// Shared rates with a decision for each unit, which some give at once and others after a wait. It
/// keeps the charges in their order.
#[derive(Default)]
struct ScriptedRates {
    refused: Mutex<Option<RateUnit>>,
    is_slow: bool,
    charges: Mutex<Vec<(RateUnit, u32)>>,
}

const WAIT: Duration = Duration::from_millis(1500);

impl ScriptedRates {
    fn decide(&self, unit: RateUnit) -> Result<(), Duration> {
        match *self.refused.lock() {
            Some(refused) if refused == unit => Err(WAIT),
            _ => Ok(()),
        }
    }

    fn take_charges(&self) -> Vec<(RateUnit, u32)> {
        std::mem::take(&mut self.charges.lock())
    }
}

impl SharedRates for ScriptedRates {
    fn take(&self, bucket: RateBucket, _: &Rate, cost: NonZeroU32) -> RateDecision<'_, Duration> {
        let charge = (bucket.unit, cost.get());
        self.charges.lock().push(charge);
        let decision = self.decide(bucket.unit);
        // Those of a tool are known without a wait.
        if self.is_slow && bucket.unit != RateUnit::Tool {
            RateDecision::Later(Box::pin(async move {
                tokio::task::yield_now().await;
                decision
            }))
        } else {
            RateDecision::Now(decision)
        }
    }

    fn wait(&self, bucket: RateBucket, _: Rate, _: NonZeroU32) -> BoxFuture<'_, Duration> {
        let decision = self.decide(bucket.unit);
        Box::pin(std::future::ready(decision.err().unwrap_or_default()))
    }

    fn refusing(&self) -> Vec<(RateBucket, Duration)> {
        let bucket = |limit| RateBucket {
            limit,
            unit: RateUnit::Calls,
            owner: [7; 16],
        };
        let known = limit("principal", 10).digest;
        // One of another config.
        vec![(bucket(known), WAIT), (bucket(known ^ 1), WAIT)]
    }
}

/// A limiter with a limit of each kind, over these shared rates.
fn limiter(shared: &Arc<ScriptedRates>) -> LimiterFixture {
    let upstream = UpstreamId::new("files").unwrap();
    let rate = limit("upstream", 10).rate;
    let of_upstream = RateLimit::new("upstream", rate, Some(10));
    let mut world = LimiterFixture::new(LimitSettings {
        principal: Some(limit("principal", 10)),
        tools: vec![tool("files/dear", limit("tool", 10), 3)],
        upstreams: [(upstream, of_upstream)].into(),
        address: Some(limit("address", 2)),
        ..LimitSettings::default()
    });
    world.limits = world.limits.with_shared_rates(shared.clone());
    world
}

#[tokio::test]
async fn shared_charges_are_made_in_order_and_end_at_a_refusal() {
    let charges = [
        (RateUnit::Calls, 3),
        (RateUnit::Tool, 1),
        (RateUnit::Upstream, 3),
    ];
    for is_slow in [false, true] {
        let shared = Arc::new(ScriptedRates {
            is_slow,
            ..ScriptedRates::default()
        });
        let world = limiter(&shared);
        let one = somebody("one");
        world.call(&one, "dear").await.unwrap();
        assert_eq!(shared.take_charges(), charges);
        for (made, (unit, _)) in charges.iter().enumerate() {
            *shared.refused.lock() = Some(*unit);
            let refused = world.call(&one, "dear").await.unwrap_err();
            assert_eq!(refused.retry_delay(), Some(WAIT));
            assert_eq!(refused.upstream().is_some(), *unit == RateUnit::Upstream);
            assert_eq!(shared.take_charges(), charges[..=made]);
        }
        // The quota of the upstream counts admitted calls alone.
        let values = world.counters.values.lock();
        assert_eq!(values.values().sum::<u64>(), 3);
    }
}

#[tokio::test]
async fn requests_are_shared_and_addresses_are_not() {
    for is_slow in [false, true] {
        let shared = Arc::new(ScriptedRates {
            is_slow,
            ..ScriptedRates::default()
        });
        let world = limiter(&shared);
        let one = somebody("one");
        let ask = async || match world.limits.admit_request(&one, &world.endpoint) {
            RateDecision::Now(decision) => decision,
            RateDecision::Later(decision) => decision.await,
        };
        ask().await.unwrap();
        *shared.refused.lock() = Some(RateUnit::Requests);
        let refused = ask().await.unwrap_err();
        assert_eq!(refused.retry_delay(), Some(WAIT));
        assert_eq!(&*refused.limit_reached().unwrap().policy, "principal");
        assert_eq!(shared.take_charges(), [(RateUnit::Requests, 1); 2]);
        let address = std::net::Ipv4Addr::new(192, 0, 2, 1).into();
        let arrivals = (0..5).filter(|_| world.limits.admit_address(address).is_ok());
        assert_eq!(arrivals.count(), 2);
        assert!(shared.take_charges().is_empty());
    }
}

#[tokio::test]
async fn overview_and_status_have_the_shared_refusals() {
    let shared = Arc::<ScriptedRates>::default();
    let world = limiter(&shared);
    let exhausted = world.limits.exhausted_budgets();
    assert_eq!(exhausted.len(), 1, "{exhausted:?}");
    assert_eq!(
        (&*exhausted[0].limit, &exhausted[0].owner, exhausted[0].wait),
        ("principal", &LimitOwner::Principal([7; 16]), WAIT)
    );
    *shared.refused.lock() = Some(RateUnit::Upstream);
    let one = somebody("one");
    let status = world
        .limits
        .limit_status(&one, &world.endpoint, &world.upstream, "dear")
        .await;
    let refusing: Vec<_> = status
        .iter()
        .filter_map(|limit| Some((&*limit.limit, limit.refuses.as_deref()?)))
        .collect();
    assert_eq!(refusing, [("upstream", "used up for 2 s")]);
    assert!(shared.take_charges().is_empty());
}

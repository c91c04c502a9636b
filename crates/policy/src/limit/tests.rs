#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZeroU32;
use std::time::Duration;

use parking_lot::Mutex;
use weir_core::failure::FailureKind;
use weir_core::names::UpstreamId;
use weir_core::port::{BoxFuture, CounterAddition, CounterValue, OutageCounting, Rate, StoreError};
use weir_core::principal::{API_KEY_ISSUER, Subject, VerifiedIdentity};
use weir_testkit::{FakeClock, principal_of};

use super::*;

mod shared_rates;

/// Counters that can fail.
#[derive(Default)]
struct FailingCounters {
    values: Mutex<std::collections::HashMap<String, u64>>,
    broken: Mutex<bool>,
    /// The counting in outages that was last asked for.
    in_outage: Mutex<Option<OutageCounting>>,
}

impl SharedCounters for FailingCounters {
    fn add<'a>(
        &'a self,
        addition: CounterAddition<'a>,
        in_outage: OutageCounting,
    ) -> BoxFuture<'a, Result<CounterValue, StoreError>> {
        let ttl = addition.ttl;
        assert!(!ttl.is_zero() && ttl <= settings::DAY, "{ttl:?}");
        *self.in_outage.lock() = Some(in_outage);
        let result = if *self.broken.lock() {
            Err(StoreError("out of order".to_owned()))
        } else {
            let mut values = self.values.lock();
            let value = values.entry(addition.name.to_owned()).or_default();
            let is_added = *value + addition.amount <= addition.most;
            *value += if is_added { addition.amount } else { 0 };
            Ok(CounterValue {
                value: *value,
                is_added,
            })
        };
        Box::pin(std::future::ready(result))
    }
}

/// A limiter with its ports.
struct LimiterFixture {
    limits: PolicyLimiter,
    clock: FakeClock,
    counters: Arc<FailingCounters>,
    endpoint: EndpointId,
    upstream: UpstreamId,
}

impl LimiterFixture {
    fn new(rates: LimitSettings) -> Self {
        let (clock, counters) = (FakeClock::new(), Arc::<FailingCounters>::default());
        let limits = PolicyLimiter::new(rates, Arc::new(clock.clone()), counters.clone());
        let upstream = UpstreamId::new("files").unwrap();
        Self {
            limits,
            clock,
            counters,
            endpoint: EndpointId::new("/mcp"),
            upstream,
        }
    }

    async fn call(&self, principal: &Principal, native: &str) -> Result<CallPermit, Failure> {
        self.ask(principal, Some(native)).await
    }

    async fn ask(&self, principal: &Principal, tool: Option<&str>) -> Result<CallPermit, Failure> {
        let Self {
            endpoint, upstream, ..
        } = self;
        match self.limits.admit(LimitedCall {
            principal,
            endpoint,
            upstream,
            tool,
        })? {
            PermitWait::Now(permit) => Ok(permit),
            PermitWait::Later(turn) => turn.await,
        }
    }

    /// The decision on a call that goes on.
    async fn continuation(&self, principal: &Principal) -> Result<CallPermit, Failure> {
        match self.limits.enter(principal, &self.upstream)? {
            PermitWait::Now(permit) => Ok(permit),
            PermitWait::Later(turn) => turn.await,
        }
    }

    /// The decision on a request, which is known at once.
    fn request(&self, principal: &Principal, endpoint: &EndpointId) -> Result<(), Failure> {
        match self.limits.admit_request(principal, endpoint) {
            RateDecision::Now(decision) => decision,
            RateDecision::Later(_) => panic!("rates of one replica need no wait"),
        }
    }

    /// The number of requests allowed of a hundred.
    fn requests(&self, principal: &Principal, endpoint: &str) -> usize {
        let endpoint = EndpointId::new(endpoint);
        (0..100)
            .filter(|_| self.request(principal, &endpoint).is_ok())
            .count()
    }

    /// The number of calls allowed of a hundred.
    async fn calls(&self, principal: &Principal, native: &str) -> usize {
        let mut admitted = 0;
        for _ in 0..100 {
            admitted += usize::from(self.call(principal, native).await.is_ok());
        }
        admitted
    }
}

fn principal(change: impl FnOnce(&mut Subject), name: &str) -> Principal {
    let mut subject = Subject::new("test", name);
    change(&mut subject);
    principal_of(VerifiedIdentity::Subject(Arc::new(subject)))
}

/// The principal of this name; of an empty name, the anonymous one.
fn somebody(name: &str) -> Principal {
    Principal::owner((!name.is_empty()).then_some(("test", name)))
}

fn limit(name: &str, burst: u32) -> RateLimit {
    let some = |number| NonZeroU32::new(number).unwrap();
    RateLimit::new(
        name,
        Some(Rate {
            count: some(1),
            per: Duration::from_secs(1),
            burst: some(burst),
        }),
        None,
    )
}

fn daily(name: &str, most: u64) -> RateLimit {
    RateLimit::new(name, None, Some(most))
}

fn tool(pattern: &str, limit: RateLimit, cost: u32) -> ToolLimit {
    let pattern = ToolPattern::new(pattern).unwrap();
    ToolLimit {
        pattern,
        limit,
        cost: NonZeroU32::new(cost).unwrap(),
        shared: false,
    }
}

// Proves F01.
#[tokio::test]
async fn one_principals_flood_takes_nothing_from_another() {
    let world = LimiterFixture::new(LimitSettings {
        principal: Some(limit("principal", 7)),
        ..LimitSettings::default()
    });
    let (one, other) = (somebody("one"), somebody("other"));
    assert_eq!(world.requests(&one, "/mcp"), 7);
    assert_eq!(world.requests(&other, "/mcp"), 7);
    let refused = world.request(&one, &world.endpoint).unwrap_err();
    assert_eq!(*refused.kind(), FailureKind::Limit);
    assert_eq!(refused.retry_delay(), Some(Duration::from_secs(1)));
    let limited = refused.limit_reached().unwrap();
    assert_eq!(
        (
            &*limited.policy,
            limited.limit,
            limited.window.as_secs(),
            limited.quota
        ),
        ("principal", 1, 1, false)
    );
    assert_eq!(
        refused.message(),
        "Rate limit `principal` reached (requests): at most 1 in 1 s, 7 at once. Wait 1 s before trying again"
    );
    world.clock.advance(Duration::from_secs(3));
    assert_eq!(world.requests(&one, "/mcp"), 3);
}

#[tokio::test]
async fn the_most_particular_limit_holds_for_a_principal() {
    let world = LimiterFixture::new(LimitSettings {
        principal: Some(limit("principal", 10)),
        endpoints: [(EndpointId::new("/few"), limit("endpoint:/few", 5))].into(),
        groups: vec![
            ("batch".into(), limit("group:batch", 3)),
            ("all".into(), limit("group:all", 50)),
        ],
        clients: [("robot".into(), limit("client:robot", 2))].into(),
        ..LimitSettings::default()
    });
    let plain = somebody("plain");
    assert_eq!(
        (
            world.requests(&plain, "/mcp"),
            world.requests(&plain, "/few")
        ),
        (10, 5),
        "each with its own budget"
    );
    let batch = principal(
        |subject| subject.groups = ["all".into(), "batch".into()].into(),
        "batch",
    );
    assert_eq!(
        world.requests(&batch, "/few"),
        3,
        "the first group of the config that it is in"
    );
    let robot = principal(
        |subject| {
            subject.groups = ["batch".into()].into();
            subject.client = Some("robot".into());
        },
        "robot",
    );
    assert_eq!(world.requests(&robot, "/mcp"), 2);
}

#[tokio::test]
async fn the_subject_of_an_api_key_names_its_limit() {
    let key = |id: &str| {
        let mut subject = Subject::new(API_KEY_ISSUER, "ci");
        subject.client = Some(id.into());
        principal_of(VerifiedIdentity::Subject(Arc::new(subject)))
    };
    let world = LimiterFixture::new(LimitSettings {
        principal: Some(limit("principal", 10)),
        clients: [
            ("ci".into(), limit("client:ci", 5)),
            ("0fed".into(), limit("client:0fed", 2)),
        ]
        .into(),
        ..LimitSettings::default()
    });
    assert_eq!(world.requests(&key("0123"), "/mcp"), 5);
    assert_eq!(world.requests(&key("4567"), "/mcp"), 0, "a replaced key");
    assert_eq!(world.requests(&key("0fed"), "/mcp"), 2, "its own entry");
    assert_eq!(
        world.requests(&somebody("ci"), "/mcp"),
        10,
        "a subject of another issuer is no client"
    );
}

#[tokio::test]
async fn the_anonymous_principal_is_everybody_and_under_no_limit_of_one() {
    let concurrency = ConcurrencyLimits {
        principal: 1,
        ..ConcurrencyLimits::default()
    };
    let world = LimiterFixture::new(LimitSettings {
        principal: Some(limit("principal", 1)),
        concurrency,
        ..LimitSettings::default()
    });
    let nobody = somebody("");
    assert_eq!(world.requests(&nobody, "/mcp"), 100);
    let held = (
        world.call(&nobody, "a").await.unwrap(),
        world.call(&nobody, "a").await.unwrap(),
    );
    drop(held);
}

/// The items of a batch come with one request, and a costly call counts as several: calls have a
/// budget beside requests.
#[tokio::test]
async fn calls_are_weighed_by_their_cost_whatever_request_they_came_with() {
    let tools = vec![tool("files/dear_*", daily("tool:dear", u64::MAX), 4)];
    let world = LimiterFixture::new(LimitSettings {
        principal: Some(limit("principal", 10)),
        tools,
        ..LimitSettings::default()
    });
    let one = somebody("one");
    assert_eq!(world.calls(&one, "dear_search").await, 2);
    assert_eq!(
        world.calls(&one, "cheap").await,
        2,
        "what 10 has left after 2 times 4"
    );
    let refused = world.call(&one, "dear_search").await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.retry_delay()),
        (&FailureKind::Limit, Some(Duration::from_secs(4)))
    );
    assert!(
        refused.message().contains("calls (by their cost)"),
        "{refused}"
    );
    assert_eq!(world.requests(&one, "/mcp"), 10);
}

#[tokio::test]
async fn tools_have_a_budget_for_each_principal_or_one_for_all() {
    let shared = ToolLimit {
        shared: true,
        ..tool("*/all_*", limit("tool:*/all_*", 4), 1)
    };
    let tools = vec![
        tool("files/own", limit("tool:files/own", 3), 1),
        shared,
        tool("*/*", limit("tool:*/*", 9), 1),
    ];
    let world = LimiterFixture::new(LimitSettings {
        tools,
        ..LimitSettings::default()
    });
    let (one, other) = (somebody("one"), somebody("other"));
    assert_eq!(
        (
            world.calls(&one, "own").await,
            world.calls(&other, "own").await
        ),
        (3, 3)
    );
    assert_eq!(
        (
            world.calls(&one, "all_of_us").await,
            world.calls(&other, "all_of_us").await
        ),
        (4, 0)
    );
    assert_eq!(
        world.calls(&one, "any").await,
        9,
        "the first pattern that matches counts"
    );
    assert!(world.call(&one, "any").await.is_err());
    assert!(
        world.ask(&one, None).await.is_ok(),
        "a prompt or a resource is no tool"
    );
}

#[tokio::test]
async fn an_upstreams_limit_is_shared_and_its_refusal_names_it() {
    let upstreams = [(
        UpstreamId::new("files").unwrap(),
        limit("upstream:files", 5),
    )]
    .into();
    let world = LimiterFixture::new(LimitSettings {
        principal: Some(limit("principal", 3)),
        upstreams,
        ..LimitSettings::default()
    });
    let (one, other) = (somebody("one"), somebody("other"));
    assert_eq!(
        world.calls(&one, "a").await,
        3,
        "its own limit comes first, and takes nothing from the others"
    );
    assert_eq!(world.calls(&other, "a").await, 2);
    let refused = world.call(&somebody("third"), "a").await.unwrap_err();
    assert_eq!(refused.upstream().map(UpstreamId::as_str), Some("files"));
    assert_eq!(&*refused.limit_reached().unwrap().policy, "upstream:files");
}

#[tokio::test]
async fn quotas_count_by_the_day_of_utc_and_outlive_a_reload() {
    let rates = LimitSettings {
        principal: Some(daily("principal", 5)),
        ..LimitSettings::default()
    };
    let world = LimiterFixture::new(rates.clone());
    let (one, other) = (somebody("one"), somebody("other"));
    // The fake clock begins at midnight.
    world.clock.advance(Duration::from_secs(86_399));
    assert_eq!(
        (world.calls(&one, "a").await, world.calls(&other, "a").await),
        (5, 5)
    );
    world.limits.replace(rates);
    let refused = world.call(&one, "a").await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.retry_delay()),
        (&FailureKind::Limit, Some(Duration::from_secs(1)))
    );
    let limited = refused.limit_reached().unwrap();
    assert_eq!(
        (limited.quota, limited.limit, limited.window),
        (true, 5, Duration::from_secs(86_400))
    );
    assert!(refused.message().contains("5 a day"), "{refused}");
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.calls(&one, "a").await, 5);
}

#[tokio::test]
async fn quotas_count_no_call_that_was_refused() {
    let rates = |most| LimitSettings {
        principal: Some(daily("principal", most)),
        tools: vec![
            tool("files/dear", limit("tool:dear", 1000), 4),
            tool("files/rare", daily("tool:rare", 1), 1),
        ],
        upstreams: [(UpstreamId::new("files").unwrap(), daily("files", 30))].into(),
        ..LimitSettings::default()
    };
    let world = LimiterFixture::new(rates(5));
    let (one, other, third) = (somebody("one"), somebody("other"), somebody("third"));
    // Beyond the quota.
    assert_eq!(world.calls(&one, "a").await, 5);
    world.limits.replace(rates(10));
    assert_eq!(world.calls(&one, "a").await, 5);
    // Beyond the rest of the quota, which is left for cheaper calls.
    assert_eq!(world.calls(&other, "dear").await, 2);
    let refused = world.call(&other, "dear").await.unwrap_err();
    assert!(
        refused
            .message()
            .contains("has 2 left, and this call costs 4"),
        "{refused}"
    );
    assert_eq!(world.calls(&other, "a").await, 2);
    // By the quota of the tool, and by that of the server.
    assert_eq!(world.calls(&third, "rare").await, 1);
    assert_eq!(world.calls(&third, "a").await, 9);
    let used = |owner: &str| {
        let values = world.counters.values.lock();
        let mut found = values.iter().filter(|(name, _)| name.ends_with(owner));
        found.next().map(|(_, used)| *used)
    };
    assert_eq!((used("/files"), used("/tool:rare")), (Some(30), Some(1)));
    let fourth = somebody("fourth");
    assert_eq!(world.calls(&fourth, "a").await, 0);
    let of_principals: Vec<u64> = {
        let values = world.counters.values.lock();
        let found = values
            .iter()
            .filter(|(name, _)| name.ends_with("/principal"));
        found.map(|(_, used)| *used).collect()
    };
    assert_eq!(of_principals, [10, 10, 10], "the fourth paid nothing");
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_slot_take_nothing_from_quotas_and_an_exhausted_quota_waits_for_no_slot() {
    let world = LimiterFixture::new(LimitSettings {
        principal: Some(daily("principal", 3)),
        concurrency: ConcurrencyLimits {
            principal: 1,
            queue: 1,
            wait: Duration::from_secs(2),
            ..ConcurrencyLimits::default()
        },
        ..LimitSettings::default()
    });
    let one = somebody("one");
    let held = world.call(&one, "a").await.unwrap();
    for _ in 0..10 {
        let waited = world.call(&one, "a").await.unwrap_err();
        assert_eq!(waited.kind(), &FailureKind::Busy);
    }
    drop(held);
    drop(world.call(&one, "a").await.unwrap());
    let held = world.call(&one, "a").await.unwrap();
    let begun = tokio::time::Instant::now();
    let spent = world.call(&one, "a").await.unwrap_err();
    assert_eq!(spent.kind(), &FailureKind::Limit);
    assert!(begun.elapsed().is_zero(), "it did not wait for a slot");
    drop(held);
}

#[tokio::test]
async fn overview_has_the_daily_quotas_that_are_exhausted_today() {
    let rates = |most| LimitSettings {
        principal: Some(daily("principal", most)),
        upstreams: [(UpstreamId::new("files").unwrap(), daily("files", 7))].into(),
        ..LimitSettings::default()
    };
    let world = LimiterFixture::new(rates(5));
    let exhausted = || {
        let mut found = world.limits.exhausted_budgets();
        found.sort_by(|one, other| one.limit.cmp(&other.limit));
        found
    };
    let (one, other) = (somebody("one"), somebody("other"));
    for _ in 0..4 {
        world.call(&one, "a").await.unwrap();
    }
    assert_eq!(exhausted(), [], "one call is left");
    world.call(&one, "a").await.unwrap();
    let budget = |limit: &str, owner, allows: &str| ExhaustedBudget {
        limit: limit.into(),
        owner,
        allows: allows.to_owned(),
        wait: settings::DAY,
    };
    let principal = budget("principal", LimitOwner::Principal(*one.digest()), "5 a day");
    let refusing = std::slice::from_ref(&principal);
    assert_eq!(exhausted(), refusing, "the next call is refused");
    assert_eq!(world.calls(&other, "a").await, 2);
    let upstream = budget("files", LimitOwner::Upstream("files".to_owned()), "7 a day");
    let both = [upstream.clone(), principal];
    assert_eq!(exhausted(), both, "the other one has three calls left");
    world.limits.replace(rates(1000));
    assert_eq!(
        exhausted(),
        [upstream],
        "the quota of principals was raised"
    );
    world.clock.advance(settings::DAY);
    assert_eq!(exhausted(), []);
}

// Proves F09.
#[tokio::test]
async fn uncountable_quota_follows_the_setting() {
    for (uncounted, admitted, in_outage) in [
        (UncountedQuota::Allowed, 100, OutageCounting::Own),
        (UncountedQuota::Refused, 0, OutageCounting::Fails),
    ] {
        let world = LimiterFixture::new(LimitSettings {
            principal: Some(daily("principal", 5)),
            uncounted,
            ..LimitSettings::default()
        });
        *world.counters.broken.lock() = true;
        let one = somebody("one");
        assert_eq!(world.calls(&one, "a").await, admitted);
        assert_eq!(*world.counters.in_outage.lock(), Some(in_outage));
        if uncounted == UncountedQuota::Refused {
            let refused = world.call(&one, "a").await.unwrap_err();
            assert_eq!(
                (refused.kind(), refused.retry_delay()),
                (&FailureKind::Busy, Some(Duration::from_secs(60)))
            );
        }
    }
}

// Proves F02.
#[test]
fn address_limit_counts_by_network_and_exempts_loopback() {
    let world = LimiterFixture::new(LimitSettings {
        address: Some(limit("address", 2)),
        ..LimitSettings::default()
    });
    let arrive = |address: &str| world.limits.admit_address(address.parse().unwrap()).is_ok();
    assert!(arrive("203.0.113.1") && arrive("::ffff:203.0.113.2") && !arrive("203.0.113.3"));
    assert!(arrive("203.0.114.1"));
    assert!(arrive("2001:db8::1") && arrive("2001:db8::ffff:1") && !arrive("2001:db8:0:0:1::"));
    assert!(arrive("2001:db8:0:1::1"));
    for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        assert!((0..10).all(|_| arrive(address)), "{address}");
    }
}

// Proves F02.
#[test]
fn a_million_addresses_fill_the_table_and_no_more() {
    let rates = LimitSettings {
        address: Some(limit("address", 1)),
        ..LimitSettings::default()
    };
    let clock = FakeClock::new();
    let limits = PolicyLimiter::with_capacities(
        rates,
        1000,
        1000,
        Arc::new(clock),
        Arc::<FailingCounters>::default(),
    );
    for number in 0..1_000_000u128 {
        limits
            .admit_address(std::net::Ipv6Addr::from(0x2001_0db8 << 96 | number << 64).into())
            .unwrap();
    }
    assert!(limits.addresses.len() <= 1024);
}

#[tokio::test]
async fn reload_keeps_counters_of_unchanged_limits() {
    let rates = |burst| LimitSettings {
        address: Some(limit("address", 2)),
        principal: Some(limit("principal", 5)),
        endpoints: [(EndpointId::new("/other"), limit("endpoint:/other", burst))].into(),
        ..LimitSettings::default()
    };
    let world = LimiterFixture::new(rates(5));
    let one = somebody("one");
    assert_eq!(
        (world.requests(&one, "/mcp"), world.requests(&one, "/other")),
        (5, 5)
    );
    world.limits.replace(rates(6));
    assert_eq!(
        (world.requests(&one, "/mcp"), world.requests(&one, "/other")),
        (0, 6),
        "other numbers begin anew"
    );
    world.limits.replace(LimitSettings::default());
    assert_eq!(world.requests(&one, "/mcp"), 100);
    world.limits.replace(rates(6));
    assert_eq!(world.requests(&one, "/mcp"), 0);
}

fn few(principal: usize, upstream: usize, queue: usize) -> LimiterFixture {
    let upstreams = [(UpstreamId::new("files").unwrap(), upstream)].into();
    let concurrency = ConcurrencyLimits {
        principal,
        upstreams,
        queue,
        upstream_queue: queue,
        wait: Duration::from_secs(2),
    };
    LimiterFixture::new(LimitSettings {
        concurrency,
        ..LimitSettings::default()
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_that_goes_on_takes_a_slot_and_no_charge() {
    let rates = |principal| LimitSettings {
        tools: vec![tool("files/a", daily("tool", 1), 1)],
        concurrency: ConcurrencyLimits {
            principal,
            queue: 0,
            ..ConcurrencyLimits::default()
        },
        ..LimitSettings::default()
    };
    let world = LimiterFixture::new(rates(1));
    let one = somebody("one");
    drop(world.call(&one, "a").await.unwrap());
    let spent = world.call(&one, "a").await.unwrap_err();
    assert_eq!(spent.kind(), &FailureKind::Limit);
    let held = world.continuation(&one).await.unwrap();
    let full = world.continuation(&one).await.unwrap_err();
    assert_eq!(full.kind(), &FailureKind::Busy);
    drop(held);
    assert!(world.continuation(&one).await.is_ok());
}

// Proves R282.
#[tokio::test(start_paused = true)]
async fn calls_of_a_principal_wait_for_each_other_and_not_for_long() {
    let world = few(2, 100, 1);
    let (one, other) = (somebody("one"), somebody("other"));
    let held = [
        world.call(&one, "a").await.unwrap(),
        world.call(&one, "a").await.unwrap(),
    ];
    let _others = world.call(&other, "a").await.unwrap();
    let (waited, full) = tokio::join!(world.call(&one, "a"), world.call(&one, "a"));
    let (waited, full) = (waited.unwrap_err(), full.unwrap_err());
    assert_eq!(
        (waited.kind(), full.kind()),
        (&FailureKind::Busy, &FailureKind::Busy)
    );
    assert_eq!(
        &*waited.limit_reached().unwrap().policy,
        "concurrency:principal"
    );
    assert!(waited.is_own_limit() && full.is_own_limit());
    assert!(
        waited.message().contains("2 at once") && waited.retry_delay().is_some(),
        "{waited}"
    );
    let (later, ()) = tokio::join!(world.call(&one, "a"), async { drop(held) });
    later.unwrap();
}

// Proves F12.
#[tokio::test(start_paused = true)]
async fn flooding_principal_does_not_delay_others() {
    let world = few(100, 1, 64);
    let (flood, other) = (somebody("flood"), somebody("other"));
    let held = world.call(&flood, "a").await.unwrap();
    let mut flooding: Vec<_> = (0..60).map(|_| Box::pin(world.call(&flood, "a"))).collect();
    // All of them are queued.
    for call in &mut flooding {
        assert!(at_once(call).is_none());
    }
    let mut others = Box::pin(world.call(&other, "a"));
    assert!(at_once(&mut others).is_none());
    drop(held);
    let first = at_once(&mut flooding[0]).unwrap().unwrap();
    assert!(at_once(&mut others).is_none());
    drop(first);
    assert!(
        at_once(&mut others).unwrap().is_ok(),
        "after one call of the flood, not after sixty"
    );
    drop(flooding);
    world.call(&other, "a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_has_taken_nothing() {
    let world = few(1, 1, 8);
    let (one, other) = (somebody("one"), somebody("other"));
    let held = world.call(&one, "a").await.unwrap();
    for who in [&one, &other] {
        let mut call = Box::pin(world.call(who, "a"));
        assert!(at_once(&mut call).is_none());
    }
    drop(held);
    let both = world.call(&other, "a").await.unwrap();
    drop(both);
    world.call(&one, "a").await.unwrap();
}

/// The output of a future that is ready at once.
fn at_once<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    match future
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    {
        std::task::Poll::Ready(done) => Some(done),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn limit_status_is_exact_and_charges_no_budget() {
    let rates = LimitSettings {
        principal: Some(limit("own", 8)),
        tools: vec![tool("files/dear", limit("dear", 2), 3)],
        upstreams: [(UpstreamId::new("files").unwrap(), daily("files", 30))].into(),
        ..LimitSettings::default()
    };
    let world = LimiterFixture::new(rates);
    let alice = somebody("alice");
    let refusals = async |native: &str| {
        let told = world
            .limits
            .limit_status(&alice, &world.endpoint, &world.upstream, native)
            .await;
        told.into_iter()
            .filter(|limit| limit.refuses.is_some())
            .map(|limit| limit.limit.to_string())
            .collect::<Vec<_>>()
    };
    let mut seen = std::collections::BTreeSet::new();
    for step in 0..120u64 {
        let native = if step % 3 == 0 { "dear" } else { "cheap" };
        let told = refusals(native).await;
        for _ in 0..3 {
            assert_eq!(refusals(native).await, told, "asking takes something");
        }
        assert_eq!(
            world.call(&alice, native).await.is_ok(),
            told.is_empty(),
            "step {step}: {told:?}"
        );
        seen.extend(told);
        world.clock.advance(Duration::from_millis(step * 37 % 900));
    }
    assert_eq!(seen, ["dear", "files", "own"].map(str::to_owned).into());
}

//! Rates of several replicas.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::port::{Rate, RateBucket, RateDecision, RateUnit, SharedRates as _};
use weir_replica_testkit::RedisServer;
use weir_store::LeasePlan;
use weir_testkit::{FaultProxy, ProxyDirection, Toxic};

use crate::redis_rates::RedisRates;

use super::replica::{
    COMMAND_TIMEOUT, SHORT_COMMAND_TIMEOUT, TestReplica, impatient_settings, old_server, wait_for,
};

const ONE: NonZeroU32 = NonZeroU32::MIN;
/// So long that the rate gives nothing while a test runs: its bucket has the burst alone.
pub(super) const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn rate(count: u32, per: Duration, burst: u32) -> Rate {
    Rate {
        count: count.try_into().expect("not zero"),
        per,
        burst: burst.try_into().expect("not zero"),
    }
}

pub(super) fn bucket(limit: u64) -> RateBucket {
    RateBucket {
        limit,
        unit: RateUnit::Calls,
        owner: [9; 16],
    }
}

/// Two replicas that see each other, with their rates.
async fn two_replicas(server: &RedisServer) -> [(TestReplica, Arc<RedisRates>); 2] {
    let one = TestReplica::start(server, 1).await;
    let two = TestReplica::start(server, 2).await;
    one.wait_live(&[&two]).await;
    two.wait_live(&[&one]).await;
    [one, two].map(|replica| {
        let rates = replica.store.rates();
        (replica, rates)
    })
}

pub(super) async fn take(rates: &RedisRates, limit: u64, rate: &Rate) -> Result<(), Duration> {
    match rates.take(bucket(limit), rate, ONE) {
        RateDecision::Now(decision) => decision,
        RateDecision::Later(decision) => decision.await,
    }
}

/// The number granted of so many charges, in turn at each replica.
pub(super) async fn granted(rates: &[&RedisRates], limit: u64, rate: &Rate, count: usize) -> usize {
    let mut granted = 0;
    for turn in 0..count {
        let rates = rates[turn % rates.len()];
        granted += usize::from(take(rates, limit, rate).await.is_ok());
    }
    granted
}

/// Has replicas pay the tokens that they admitted alone, until the bucket has none. Returns the number
/// of requests that pass meanwhile and afterwards.
pub(super) async fn passed_after_outage(
    rates: &[&RedisRates],
    limit: u64,
    rate: &Rate,
    has_tokens: impl Fn() -> bool,
) -> usize {
    let begun = Instant::now();
    let mut passed = 0;
    // A replica that is later than another one also pays later: the other one could take the tokens.
    for rates in rates {
        while rates.decides_alone() {
            assert!(begun.elapsed() < Duration::from_secs(40), "it lasts");
            passed += granted(&[rates], limit, rate, 1).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let begun = Instant::now();
    while has_tokens() {
        assert!(begun.elapsed() < Duration::from_secs(40), "nothing is paid");
        passed += granted(rates, limit, rate, 2).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    passed + granted(rates, limit, rate, 200).await
}

fn commands(server: &RedisServer) -> u64 {
    let counts = server.command_counts();
    let of = |name: &str| counts.get(name).copied().unwrap_or_default();
    of("evalsha") + of("eval")
}

/// A bucket as the server has it: its tokens.
fn tokens_in(server: &RedisServer, limit: u64) -> Option<f64> {
    let text = server.run(&["GET", &bucket_name(limit)]).text();
    text.split(' ').next()?.parse().ok()
}

fn bucket_name(limit: u64) -> String {
    format!("test:r:calls:{limit:016x}:{}", "09".repeat(16))
}

#[tokio::test(flavor = "multi_thread")]
async fn small_rate_is_exact_over_replicas_and_a_refused_client_makes_no_trips() {
    let server = old_server();
    let [(_one, first), (_two, second)] = two_replicas(&server).await;
    let rate = rate(10, DAY, 10);
    assert_eq!(granted(&[&first, &second], 1, &rate, 10).await, 10);
    let wait = take(&first, 1, &rate).await.expect_err("used up");
    assert!(wait > DAY / 20 && wait <= DAY / 10, "{wait:?}");
    assert!(take(&second, 1, &rate).await.is_err());
    server.reset_command_counts();
    let hammered = granted(&[&first, &second], 1, &rate, 1000).await;
    assert_eq!(hammered, 0);
    // Heartbeats alone.
    assert!(commands(&server) < 50, "{}", commands(&server));
    let refusing = first.refusing();
    assert_eq!(refusing.len(), 1, "{refusing:?}");
    assert_eq!(refusing[0].0, bucket(1));
    let known = first.wait(bucket(1), rate, ONE).await;
    assert!(!known.is_zero() && known <= wait);
    // Another limit has a bucket of its own; a look takes nothing.
    assert!(second.wait(bucket(2), rate, ONE).await.is_zero());
    assert_eq!(granted(&[&first, &second], 2, &rate, 11).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn burst_over_replicas_is_one_burst_and_few_charges_wait() {
    let server = old_server();
    let [(_one, first), (_two, second)] = two_replicas(&server).await;
    // The rate counts in the bounds, because the test takes some time.
    let rate = rate(1000, Duration::from_secs(1), 2000);
    let lease = LeasePlan::of(&rate, 2).size as usize;
    let begun = Instant::now();
    let (mut passed, mut awaited) = (0, 0);
    for turn in 0..20_000 {
        let rates = [&first, &second][turn % 2];
        let decision = match rates.take(bucket(1), &rate, ONE) {
            RateDecision::Now(decision) => decision,
            RateDecision::Later(decision) => {
                awaited += 1;
                decision.await
            }
        };
        passed += usize::from(decision.is_ok());
        // Other tasks run as between requests.
        tokio::task::yield_now().await;
    }
    let of_time = (begun.elapsed().as_secs_f64() * 1000.0) as usize + 1;
    let burst = 2000;
    assert!(
        passed <= burst + of_time + 2 * lease,
        "{passed} with {of_time} of the time"
    );
    assert!(passed + 2 * lease >= burst, "{passed} of {burst}");
    assert!(awaited <= 1000, "{awaited} waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn charges_at_once_share_few_trips() {
    let server = old_server();
    let [(_one, first), (_two, _)] = two_replicas(&server).await;
    let rate = rate(1000, DAY, 500);
    server.reset_command_counts();
    let charges: Vec<_> = (0..600)
        .map(|_| {
            let rates = first.clone();
            tokio::spawn(async move { take(&rates, 1, &rate).await })
        })
        .collect();
    let mut passed = 0;
    for charge in charges {
        passed += usize::from(charge.await.expect("no panic").is_ok());
    }
    assert_eq!(passed, 500);
    assert!(commands(&server) < 300, "{}", commands(&server));
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_tokens_come_back_when_idle_and_at_the_end() {
    let server = old_server();
    let [(one, first), _] = two_replicas(&server).await;
    let rate = rate(1000, Duration::from_secs(1), 1000);
    assert_eq!(granted(&[&first], 1, &rate, 1).await, 1);
    assert!(first.has_tokens(&bucket(1)));
    wait_for("the return of idle tokens", || {
        !first.has_tokens(&bucket(1))
    })
    .await;
    assert_eq!(granted(&[&first], 2, &rate, 1).await, 1);
    assert!(first.has_tokens(&bucket(2)));
    one.store.return_rate_tokens().await;
    assert!(!first.has_tokens(&bucket(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_tokens_are_in_the_bucket_up_to_its_burst() {
    let server = old_server();
    let [(_one, first), _] = two_replicas(&server).await;
    let rate = rate(100, DAY, 100);
    assert_eq!(granted(&[&first], 1, &rate, 10).await, 10);
    let returned = async |tokens| first.give_back(&bucket(1), &rate, tokens).await;
    returned(4).await.expect("an answer");
    let tokens = tokens_in(&server, 1).expect("a bucket");
    assert!((94.0..94.9).contains(&tokens), "{tokens}");
    returned(50).await.expect("an answer");
    // A full bucket is one that is not there.
    wait_for("a full bucket", || tokens_in(&server, 1).is_none()).await;
    assert_eq!(granted(&[&first], 1, &rate, 101).await, 100);
}

// Proves F04.
#[tokio::test(flavor = "multi_thread")]
async fn killed_server_leaves_each_replica_its_share() {
    let mut server = old_server();
    let [(_one, first), (_two, second)] = two_replicas(&server).await;
    let rate = rate(100, DAY, 100);
    assert_eq!(granted(&[&first, &second], 1, &rate, 101).await, 100);
    server.kill();
    for rates in [&first, &second] {
        // A bucket without a refusal.
        assert_eq!(granted(&[rates], 2, &rate, 1000).await, 50);
        let wait = take(rates, 2, &rate).await.expect_err("used up");
        assert!(wait <= DAY / 50, "{wait:?}");
        let told = rates.wait(bucket(2), rate, ONE).await;
        assert!(!told.is_zero() && told <= DAY / 50, "{told:?}");
    }
    server.restart_empty();
    // The bucket is full again, but the replicas owe it all tokens that they admitted alone.
    let has_tokens = || tokens_in(&server, 2).is_none_or(|tokens| tokens >= 1.0);
    let passed = passed_after_outage(&[&first, &second], 2, &rate, has_tokens).await;
    // At each replica the trips of the first moment may have run, so they are not owed.
    assert!(passed <= 4, "{passed} beside the 100 of the outage");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_server_holds_few_charges_and_none_longer_than_its_time_limit() {
    let server = old_server();
    let [(_one, first), _] = two_replicas(&server).await;
    let rate = rate(20, DAY, 20);
    server.pause();
    let begun = Instant::now();
    let mut awaited = 0;
    let mut passed = 0;
    for _ in 0..2000 {
        let decision = match first.take(bucket(1), &rate, ONE) {
            RateDecision::Now(decision) => decision,
            RateDecision::Later(decision) => {
                awaited += 1;
                decision.await
            }
        };
        passed += usize::from(decision.is_ok());
    }
    assert_eq!(passed, 10, "half of the burst");
    // The first one finds it out for all. On a busy machine a late one more may.
    assert!(awaited <= 3, "{awaited}");
    assert!(
        begun.elapsed() < 20 * COMMAND_TIMEOUT,
        "{:?}",
        begun.elapsed()
    );
    server.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_tasks_leave_decisions_to_the_share() {
    let server = old_server();
    let [(one, first), _] = two_replicas(&server).await;
    one.crash();
    let rate = rate(20, DAY, 20);
    // It may have been sent to the ending task; it is decided after its time limit.
    assert!(take(&first, 7, &rate).await.is_ok());
    assert_eq!(granted(&[&first], 1, &rate, 100).await, 10);
}

// Proves F08.
#[tokio::test(flavor = "multi_thread")]
async fn bucket_fills_by_the_servers_time_and_ends_when_full() {
    let server = old_server();
    let [(_one, first), _] = two_replicas(&server).await;
    let rate = rate(50, Duration::from_secs(1), 5);
    assert_eq!(granted(&[&first], 1, &rate, 5).await, 5);
    // A clock that was set back stops no client: the bucket fills from now on.
    server.run(&["SET", &bucket_name(1), "0 99999999999999999"]);
    let begun = Instant::now();
    while take(&first, 1, &rate).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(40), "no token");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    wait_for("the end of the full bucket", || {
        !server.keys().contains(&bucket_name(1))
    })
    .await;
}

/// A slow server answers each look too late, and runs it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn looks_at_a_slow_server_take_no_tokens() {
    let server = old_server();
    let proxy = FaultProxy::start(server.address()).await;
    let url = format!("redis://{}", proxy.address());
    let one = TestReplica::start_with(&impatient_settings(&url), 1).await;
    let (rates, rate) = (one.store.rates(), rate(1000, DAY, 1000));
    // The server knows the script from now on.
    assert!(take(&rates, 2, &rate).await.is_ok());
    let slow = Toxic::Latency {
        wait: SHORT_COMMAND_TIMEOUT * 3 / 2,
        jitter: Duration::ZERO,
    };
    proxy.add_toxic(ProxyDirection::Down, slow);
    server.reset_command_counts();
    let begun = Instant::now();
    while begun.elapsed() < 8 * SHORT_COMMAND_TIMEOUT {
        assert!(take(&rates, 1, &rate).await.is_ok());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(commands(&server) >= 4, "{}", commands(&server));
    let tokens = tokens_in(&server, 1).expect("the first request's trip ran");
    assert!(tokens > 998.0, "{tokens}");
}

//! Two principals on one weir that use every feature at once, with the same ids, the same progress
//! tokens and the same tool names: neither ever sees a byte of the other's.
//!
//! Their keys identify them, through the same verifier as any token; a test cannot name a principal
//! in another way.

mod library_steps;
mod tenant_steps;
mod tenant_world;

pub use tenant_world::{TENANTS, Tenant};

use crate::harness::{CheckedStream, within_test_timeout};
use tenant_steps::{ForeignIdBoard, TenantWalker};
use tenant_world::{BOTH, TenantWorld};

/// The number of clients of a tenant and revision.
const CLIENTS: u64 = 4;

/// Steps on one weir before a new one takes its place: the servers record every request that they
/// saw.
const ROUND: u64 = 50_000;

/// Replicas of the worlds that have several.
const REPLICAS: usize = 3;

/// Runs this many steps, mixed by a seed that a failure prints.
async fn interleave(world: TenantWorld, steps: u64, seed: u64) {
    let board = ForeignIdBoard::default();
    let mut walkers = tokio::task::JoinSet::new();
    let all = TENANTS.len() as u64 * BOTH.len() as u64 * CLIENTS;
    for (nth, tenant) in TENANTS.iter().enumerate() {
        for revision in BOTH {
            for client in 0..CLIENTS {
                let mut walker = TenantWalker::open(
                    &world,
                    tenant,
                    revision,
                    &board,
                    seed ^ (nth as u64 * 64 + client),
                )
                .await;
                let url = world.url();
                walkers.spawn(async move {
                    for _ in 0..steps.div_ceil(all) {
                        walker.step(&url).await;
                    }
                });
            }
        }
    }
    while let Some(walker) = walkers.join_next().await {
        walker.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(
        board.attempts() > steps / 20,
        "only {} of {steps} steps reached for what is the other's",
        board.attempts()
    );
    for upstream in [&world.old, &world.new] {
        assert!(upstream.total_executions() > 0);
        world.check_sessions(upstream);
    }
}

// Proves D02, R276.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tenants_with_colliding_ids_never_see_each_other() {
    interleave(TenantWorld::start().await, 2_000, 1).await;
}

// Proves D02, R276.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tenants_never_see_each_other_over_replicas() {
    interleave(TenantWorld::start_replicated(REPLICAS).await, 1_000, 3).await;
}

/// The same for long; `WEIR_TENANT_STEPS` and `WEIR_TENANT_SEED` set the number of steps and the
/// seed.
// Proves D02, R276.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a quarter of an hour"]
async fn two_tenants_never_see_each_other_in_a_million_steps() {
    interleave_long(TenantWorld::start).await;
}

// Proves D02, R276.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half an hour"]
async fn two_tenants_never_see_each_other_in_a_million_steps_over_replicas() {
    interleave_long(async || TenantWorld::start_replicated(REPLICAS).await).await;
}

/// Runs as many steps as the environment says, each round in a world of its own.
async fn interleave_long(start: impl AsyncFn() -> TenantWorld) {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let (mut left, mut seed) = (
        number("WEIR_TENANT_STEPS", 1_000_000),
        number("WEIR_TENANT_SEED", 2),
    );
    while left > 0 {
        let steps = left.min(ROUND);
        interleave(start().await, steps, seed).await;
        (left, seed) = (left - steps, seed + 1);
    }
}

/// A change of one tenant's view is announced to that tenant alone; a change of both views to both.
// Proves D02, B12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_changes_reach_only_tenants_that_see_the_tool() {
    let mut world = TenantWorld::start().await;
    let mut streams = Vec::new();
    for revision in BOTH {
        for tenant in &TENANTS {
            let client = tenant.client(&world.url(), revision).await;
            let heard: CheckedStream = client.open_change_stream().await;
            streams.push((tenant, heard, client));
        }
    }
    let mut more = Vec::new();
    for tool in ["for_ada", "for_bob", "for_both"] {
        more.push(tool);
        world.set_more_tools(&more);
        for (tenant, stream, _) in &mut streams {
            if tenant.sees(tool) {
                stream.expect_list_changed().await;
            }
        }
    }
    let exit_codes = world.weir.stop();
    for (tenant, stream, _client) in streams {
        let rest = within_test_timeout("the stream to end", stream.read_rest()).await;
        let more = rest
            .iter()
            .filter(|message| message["method"] == "notifications/tools/list_changed");
        assert_eq!(
            more.count(),
            0,
            "{} heard of what it does not see: {rest:?}",
            tenant.name
        );
    }
    assert_eq!(exit_codes.await, [Some(0)]);
}

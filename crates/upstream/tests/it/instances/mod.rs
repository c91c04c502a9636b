//! Servers with several URLs: shares, failover, circuit breakers, sessions, continued calls, watches.

mod continued_calls;
mod failover;
mod lists;
mod sessions;
mod shares;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_core::upstream::{InstanceBreakerState, InstanceHealth, Upstream};
use weir_testkit::{MockBehaviour, MockServer, wait_for_condition};
use weir_upstream::{InstanceSettings, TransportSettings, UpstreamProtocol, UpstreamSettings};
use weir_wire::Revision;

use crate::fixtures::*;

/// Starts modern servers with the tool `echo`.
async fn modern<const N: usize>() -> [MockServer; N] {
    start(|| MockServer::modern().tool("echo", MockBehaviour::echo())).await
}

/// Starts legacy servers with the tool `echo`.
async fn legacy<const N: usize>() -> [MockServer; N] {
    let builder = || MockServer::legacy(Revision::V2025_11_25);
    start(|| builder().tool("echo", MockBehaviour::echo())).await
}

async fn start<const N: usize>(
    builder: impl Fn() -> weir_testkit::mock_server::MockServerBuilder,
) -> [MockServer; N] {
    let mut mocks = Vec::new();
    for _ in 0..N {
        mocks.push(builder().start().await);
    }
    mocks.try_into().expect("so many were started")
}

/// Settings for these servers as instances of one, with weights.
fn weighted(instances: &[(&MockServer, u32)]) -> UpstreamSettings {
    let mut settings = settings(&instances[0].0.url());
    let TransportSettings::Http(http) = &mut settings.transport else {
        panic!("built as HTTP")
    };
    http.instances = instances
        .iter()
        .map(|(mock, weight)| InstanceSettings {
            url: mock.url().parse().unwrap(),
            weight: *weight,
        })
        .collect();
    settings
}

/// Settings for these servers as equal instances of one.
fn even(mocks: &[MockServer]) -> UpstreamSettings {
    let instances: Vec<_> = mocks.iter().map(|mock| (mock, 1)).collect();
    weighted(&instances)
}

fn upstream_of(mocks: &[MockServer]) -> Arc<dyn Upstream> {
    build(even(mocks))
}

fn pinned_to(mocks: &[MockServer], protocol: UpstreamProtocol) -> Arc<dyn Upstream> {
    build(UpstreamSettings {
        protocol,
        ..even(mocks)
    })
}

/// Makes so many calls of `echo`, one after another, that all have to succeed.
async fn echo(upstream: &Arc<dyn Upstream>, times: usize) {
    for nth in 0..times {
        let reply = call_anonymously(upstream, "echo", json!({"n": nth})).await;
        outcome(reply).await.end.unwrap();
    }
}

fn instances(upstream: &Arc<dyn Upstream>) -> Vec<InstanceHealth> {
    upstream.health().instances
}

fn breaker(upstream: &Arc<dyn Upstream>, index: usize) -> InstanceBreakerState {
    instances(upstream)[index].breaker
}

/// Waits until the condition holds, at most 20 seconds.
async fn wait_until(name: &str, condition: impl FnMut() -> bool) {
    wait_for_condition(name, Duration::from_secs(20), condition).await;
}

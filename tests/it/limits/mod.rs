//! Rates: the refusals that a client over its rate gets, and that other clients are not affected.

mod call_limits;
mod completion_limits;
mod flood;
mod principal_limits;
mod request_limits;

use serde_json::{Value, json};
use weir_testkit::mock_server::MockServerBuilder;
use weir_testkit::{MockServer, RawClient};

use crate::harness::Weir;

/// Starts weir in front of one server of two tools, with these limits. It trusts this machine as a
/// proxy for the address of a request.
async fn weir_with(rates: Value) -> (MockServer, Weir) {
    weir_over(MockServer::modern().tools(2), rates).await
}

async fn weir_over(upstream: MockServerBuilder, rates: Value) -> (MockServer, Weir) {
    let upstream = upstream.start().await;
    let weir = Weir::with_config(config(&upstream, rates));
    (upstream, weir)
}

fn config(upstream: &MockServer, rates: Value) -> Value {
    let mut config = json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "trusted_proxies": ["127.0.0.0/8"],
    });
    config["rates"] = rates;
    config
}

/// Returns a modern client that comes from `address`, according to a proxy in front of weir.
fn from(weir: &Weir, address: &str) -> RawClient {
    RawClient::new(&weir.url("/mcp"))
        .modern()
        .with_header("X-Forwarded-For", address)
}

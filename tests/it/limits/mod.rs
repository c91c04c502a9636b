//! How often: what whoever comes too often is told, and that the others do not notice.

mod calls;
mod completions;
mod flood;
mod principals;
mod requests;

use serde_json::{Value, json};
use weir_testkit::mockup::Builder;
use weir_testkit::{Mockup, RawClient};

use crate::harness::Weir;

/// weir in front of one server of two tools, with these limits. It believes this machine what
/// address a request is from.
async fn weir_with(rates: Value) -> (Mockup, Weir) {
    weir_over(Mockup::modern().tools(2), rates).await
}

async fn weir_over(upstream: Builder, rates: Value) -> (Mockup, Weir) {
    let upstream = upstream.start().await;
    let weir = Weir::with(config(&upstream, rates));
    (upstream, weir)
}

fn config(upstream: &Mockup, rates: Value) -> Value {
    json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "trusted_proxies": ["127.0.0.0/8"],
        "rates": rates,
    })
}

/// A modern client that comes from `address`, as a proxy in front of weir says.
fn from(weir: &Weir, address: &str) -> RawClient {
    RawClient::new(&weir.url("/mcp"))
        .modern()
        .with_header("X-Forwarded-For", address)
}

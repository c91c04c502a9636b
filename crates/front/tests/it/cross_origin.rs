//! Pages of allowed origins: what they may send, and what they can read.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::json;
use tokio::task::JoinSet;
use weir_testkit::HttpExchange;

use crate::test_front::{TestFront, settings};

const PAGE: &str = "https://app.example.com";

async fn front() -> TestFront {
    let mut settings = settings();
    settings.origins = vec!["https://App.Example.com:443".into()];
    settings.limits.in_flight = 1;
    settings.limits.in_flight_wait = Duration::ZERO;
    TestFront::anonymous(settings).await
}

async fn preflight(world: &TestFront) -> HttpExchange {
    let mut headers = HeaderMap::new();
    headers.insert("origin", HeaderValue::from_static(PAGE));
    let method = HeaderValue::from_static("POST");
    headers.insert("access-control-request-method", method);
    let client = world.client();
    client.send(Method::OPTIONS, headers, "").await.unwrap()
}

fn assert_readable(headers: &HeaderMap) {
    assert_eq!(headers["access-control-allow-origin"], PAGE);
    let varies = headers.get_all("vary").iter();
    let mut varies = varies.filter_map(|vary| vary.to_str().ok());
    assert!(varies.any(|vary| vary.contains("origin")), "{headers:?}");
}

#[tokio::test]
async fn page_of_an_origin_in_any_notation_is_served_and_keeps_preflights_for_minutes() {
    let world = front().await;
    let page = world.client().with_header("origin", PAGE).modern();
    let answer = page.ask("tools/list", json!({})).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    assert_readable(&answer.headers);
    let answer = preflight(&world).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_readable(&answer.headers);
    assert_eq!(answer.headers["access-control-max-age"], "600");
}

#[tokio::test]
async fn page_can_read_a_refusal_under_overload_and_its_preflight_is_answered() {
    let world = front().await;
    let mut silent = JoinSet::new();
    let busy = world.client().modern();
    silent.spawn(async move { busy.call("wait", json!({"silent": true})).await });
    while world.upstream.waits() == 0 {
        tokio::task::yield_now().await;
    }
    let page = world.client().with_header("origin", PAGE).modern();
    let refused = page.ask("tools/list", json!({})).await.unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_readable(&refused.headers);
    let exposed = refused.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("retry-after"), "{exposed}");
    let answer = preflight(&world).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_readable(&answer.headers);
    let foreign = world
        .client()
        .with_header("origin", "https://other.example.com");
    let refused = foreign.modern().ask("tools/list", json!({})).await.unwrap();
    assert_eq!(refused.header("access-control-allow-origin"), None);
}

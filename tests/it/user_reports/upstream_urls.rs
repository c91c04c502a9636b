//! An upstream with several URLs: one of its servers is killed and comes back while clients call, or
//! is in maintenance.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::mock_server::MockServerBuilder;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{BOTH, missing_upstreams, mock_server, own_error};
use crate::admin::OperatorClient;
use crate::harness::{CheckedClient, Weir, wait_until_async};

/// Callers of each era, and the calls that each of them makes.
const CALLERS: usize = 3;
const CALLS: usize = 60;
/// A URL without calls, with a query that may hold a key: operators never see the query.
const UNUSED: &str = "http://127.0.0.1:9/mcp";
const QUERY: &str = "key=CANARY-of-a-url";

async fn three(builder: impl Fn() -> MockServerBuilder) -> [MockServer; 3] {
    let slow = || MockBehaviour::slow(Duration::from_millis(3));
    let start = || builder().tool("order", slow()).start();
    [start().await, start().await, start().await]
}

fn weir_over(mocks: &[MockServer]) -> Weir {
    let mut urls: Vec<_> = mocks.iter().map(|mock| json!(mock.url())).collect();
    urls.push(json!({ "url": format!("{UNUSED}?{QUERY}"), "weight": 0 }));
    Weir::with_upstreams(json!({ "shop": { "urls": urls } }))
}

/// Makes calls with numbers of their own. Returns the numbers of those with an unknown result.
async fn order(client: CheckedClient, first: usize) -> Vec<usize> {
    let mut unknown = Vec::new();
    for number in first..first + CALLS {
        let answer = client.call("shop__order", json!({ "n": number })).await;
        let error = own_error(&answer);
        if !error.is_null() {
            assert_eq!(error["reason"], "result_unknown", "{error}");
            unknown.push(number);
        }
    }
    unknown
}

async fn urls(weir: &Weir) -> Vec<Value> {
    let shown = OperatorClient::of(weir)
        .get_json("/admin/upstreams/shop")
        .await;
    shown["urls"].as_array().unwrap().clone()
}

async fn wait_for_breaker(weir: &Weir, at: usize, states: &[&str]) {
    wait_until_async(&format!("the breaker is one of {states:?}"), async || {
        let urls = urls(weir).await;
        let breaker = urls[at]["breaker"].as_str().unwrap();
        states.contains(&breaker).then_some(())
    })
    .await;
}

/// Returns the times that the call of each number was sent to a server.
fn sent(mocks: &[MockServer]) -> HashMap<u64, usize> {
    let mut sent = HashMap::new();
    for request in mocks.iter().flat_map(|mock| mock.requests_of("tools/call")) {
        let number = &request.message["params"]["arguments"]["n"];
        *sent.entry(number.as_u64().unwrap()).or_insert(0) += 1;
    }
    sent
}

/// Asserts that no call ran twice, and that every call ran whose result is not unknown.
fn assert_each_ran_once(era: Revision, mocks: &[MockServer], unknown: &[usize]) {
    let all = (2 * CALLERS + 2) * CALLS;
    let ran: usize = mocks.iter().map(|mock| mock.executions("order")).sum();
    assert!(ran <= all, "{era:?}: {ran} runs of {all} calls");
    assert!(
        all - ran <= unknown.len(),
        "{era:?}: {ran} runs of {all} calls"
    );
    // A restarted legacy server refuses a call in a session that it does not know, which is no run.
    let sent = sent(mocks);
    let times = if era.is_modern() { 1 } else { 2 };
    assert!(sent.values().all(|sent| *sent <= times), "{era:?}");
    assert!(unknown.len() <= 2 * CALLERS, "{era:?}: {unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_servers_is_killed_and_restarted_under_load() {
    for era in BOTH {
        let mut mocks = three(|| mock_server(era)).await;
        let weir = weir_over(&mocks);
        let mut callers = Vec::new();
        for caller in 0..2 * CALLERS {
            let revision = match caller % 2 {
                0 => Revision::MODERN,
                _ => Revision::NEWEST_LEGACY,
            };
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            callers.push(tokio::spawn(order(client, caller * 1000)));
        }
        mocks[1]
            .wait_until("it has calls", |mock| mock.executions("order") >= 5)
            .await;
        mocks[1].stop().await;
        wait_for_breaker(&weir, 1, &["open"]).await;
        assert_eq!(
            weir.metric(
                "weir_upstream_urls",
                &["upstream=\"shop\"", "state=\"open\""]
            ),
            1.0
        );
        // The upstream as a whole is up, and no call to it fails.
        let shown = OperatorClient::of(&weir)
            .get_json("/admin/upstreams/shop")
            .await;
        assert_eq!(shown["state"], "up");
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        assert!(order(client, 100_000).await.is_empty());
        mocks[1].restart().await;
        wait_for_breaker(&weir, 1, &["half_open", "closed"]).await;

        let mut unknown = Vec::new();
        for caller in callers {
            unknown.extend(caller.await.unwrap());
        }
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        assert!(order(client, 200_000).await.is_empty());
        wait_for_breaker(&weir, 1, &["closed"]).await;

        assert_each_ran_once(era, &mocks, &unknown);
        for mock in &mocks {
            assert!(mock.executions("order") > 0, "{era:?}");
        }
        assert_shown(&weir, &mocks).await;
    }
}

/// Asserts that operators see each URL, and no query.
async fn assert_shown(weir: &Weir, mocks: &[MockServer]) {
    let urls = urls(weir).await;
    let shown: Vec<_> = urls
        .iter()
        .map(|one| one["url"].as_str().unwrap())
        .collect();
    let mut expected: Vec<_> = mocks.iter().map(MockServer::url).collect();
    expected.push(UNUSED.to_owned());
    assert_eq!(shown, expected);
    assert_eq!(urls.iter().filter(|one| one["watched"] == true).count(), 1);
    assert!(urls[..3].iter().all(|one| one["latency_ms"].is_number()));
    let page = weir.get_admin_page("/upstreams/shop");
    let output = weir.process.output();
    assert!(page.contains(&mocks[2].url()), "{page}");
    assert!(
        output.contains("circuit breaker opened for a URL of an upstream")
            && output.contains("URL of an upstream answers again"),
        "{output}"
    );
    for text in [&page, &output, &json!(urls).to_string()] {
        assert!(!text.contains(QUERY), "{text}");
    }
}

/// Returns a server with one tool whose changes it does not announce: its lists are polled.
async fn polled(era: Revision) -> MockServer {
    mock_server(era)
        .tools(1)
        .without_list_changed()
        .start()
        .await
}

// Proves E13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_read_at_another_server_while_one_is_in_maintenance() {
    for era in BOTH {
        let servers = [polled(era).await, polled(era).await];
        let urls = servers.each_ref().map(MockServer::url);
        let weir = Weir::with_upstreams(json!({ "shop": { "urls": urls, "poll": "1s" } }));
        weir.wait_until_listed("/mcp", &["shop__tool_0000"]);
        assert!(servers[1].requests_of("tools/list").is_empty());
        servers[0].add_rule("*", usize::MAX, MockBehaviour::retry_after(503, 3600));
        servers[1]
            .wait_until("it is asked for its lists", |server| {
                !server.requests_of("tools/list").is_empty()
            })
            .await;
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        wait_until_async("whole lists", async || {
            let listed = client.ask("tools/list", json!({})).await;
            let tools = listed.result()["tools"].as_array().unwrap();
            assert_eq!(tools.len(), 1, "{era:?}");
            missing_upstreams(&listed).is_empty().then_some(())
        })
        .await;
    }
}

// Proves E13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_is_back_is_asked_for_its_lists_before_a_long_requested_pause_ends() {
    for era in BOTH {
        let server = polled(era).await;
        let upstream = json!({ "url": server.url(), "poll": "1s", "grace": "4s" });
        let weir = Weir::with_upstreams(json!({ "shop": upstream }));
        weir.wait_until_listed("/mcp", &["shop__tool_0000"]);
        let asked = || server.requests_of("tools/list").len();
        server.add_rule("tools/list", 1, MockBehaviour::retry_after(503, 3600));
        let before = asked();
        // One of these may be before the refusal.
        server
            .wait_until("it is asked again", |_| asked() >= before + 3)
            .await;
        weir.wait_until_listed("/mcp", &["shop__tool_0000"]);
    }
}

//! The gateway in one process with its tests: start, reload, shutdown, and the operators' listener.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_admin::Strictness;
use weir_composition::{Exposure, ReloadError, StartError, Weir};
use weir_config::{Config, ConfigLoader, ConfigSource};
use weir_testkit::mock_server::{CallGate, MockTool};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, RawClient};

/// Checks a config, which has no errors.
fn load(text: &str) -> Arc<Config> {
    let source = ConfigSource::Text {
        name: "test".to_owned(),
        text: text.to_owned(),
    };
    let outcome = ConfigLoader::new(source, &|_| None).load();
    outcome
        .config
        .map(Arc::new)
        .unwrap_or_else(|| panic!("{}", outcome.report))
}

fn reload(weir: &Weir, text: &str) -> Result<Vec<&'static str>, ReloadError> {
    weir.reload(&load(text), Strictness::NoWeaker)
}

/// Returns a config over these upstreams, on free ports.
fn config(upstreams: &[(&str, &MockServer)]) -> String {
    let mut text =
        "listen: 127.0.0.1:0\nadmin: { listen: \"127.0.0.1:0\" }\ndrain: 5s\nupstreams:\n"
            .to_owned();
    for (id, mock_server) in upstreams {
        text.push_str(&format!("  {id}: {{ url: \"{}\" }}\n", mock_server.url()));
    }
    text
}

async fn start(text: &str) -> Weir {
    Weir::start(load(text)).await.unwrap()
}

fn client(weir: &Weir) -> RawClient {
    RawClient::new(&format!("http://{}/mcp", weir.address())).modern()
}

async fn names(weir: &Weir) -> Vec<String> {
    let tools = client(weir).list_tools().await.unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn get(url: &str) -> ClientAnswer {
    let sent = RawClient::new(url)
        .send(http::Method::GET, http::HeaderMap::new(), "")
        .await;
    sent.unwrap().finish().await.unwrap()
}

async fn admin(weir: &Weir, path: &str) -> (u16, String) {
    let url = format!("http://{}{path}", weir.admin_address().unwrap());
    let answer = get(&url).await;
    (
        answer.status.as_u16(),
        String::from_utf8_lossy(&answer.body).into_owned(),
    )
}

/// Waits until a condition holds; otherwise the test runner's timeout fails the test.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_adds_an_upstream_and_is_counted() {
    let (one, two) = (
        MockServer::modern().tools(1).start().await,
        MockServer::modern().tools(1).start().await,
    );
    let weir = start(&config(&[("one", &one)])).await;
    reload(&weir, &config(&[("one", &one), ("two", &two)])).unwrap();
    until(async || {
        names(&weir)
            .await
            .iter()
            .any(|name| name.starts_with("two__"))
    })
    .await;
    assert!(
        admin(&weir, "/metrics")
            .await
            .1
            .contains("weir_config_reloads_total{result=\"ok\"}")
    );
    weir.shutdown().await;
}

// Proves G01.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_is_judged_by_the_addresses_that_the_listeners_are_bound_to() {
    let one = MockServer::modern().tools(1).start().await;
    let upstreams = format!("upstreams: {{ one: {{ url: \"{}\" }} }}\n", one.url());
    let anyone = "auth: { mode: none, allow_anyone: true }\n";
    let token =
        "admin: { listen: \"0.0.0.0:0\", auth: { token: weir_0123456789_of-the-operators } }\n";
    let weir = start(&format!("{upstreams}listen: 0.0.0.0:0\n{anyone}{token}")).await;
    assert!(weir.address().ip().is_unspecified());
    // Each would pass at a start on loopback.
    let clients = format!("{upstreams}listen: 127.0.0.1:0\n{token}");
    let operators = format!("{upstreams}{anyone}admin: {{ listen: \"127.0.0.1:0\", auth: off }}\n");
    let refused = reload(&weir, &clients).unwrap_err();
    assert!(
        matches!(refused, ReloadError::Exposed(Exposure::Clients(bound)) if bound == weir.address()),
        "{refused}"
    );
    let refused = reload(&weir, &operators).unwrap_err();
    assert!(
        matches!(refused, ReloadError::Exposed(Exposure::Operators(_))),
        "{refused}"
    );
    assert!(admin(&weir, "/admin/upstreams").await.0 == 401);
    reload(&weir, &format!("{upstreams}{anyone}{token}")).unwrap();
    weir.shutdown().await;
}

// Proves G01.
#[tokio::test(flavor = "multi_thread")]
async fn reload_does_not_touch_upstreams_with_unchanged_settings() {
    let (one, two) = (
        MockServer::modern().tools(3).start().await,
        MockServer::modern().tools(1).start().await,
    );
    let weir = start(&config(&[("one", &one)])).await;
    names(&weir).await;
    until(async || one.listeners() == 1).await;
    let (requests, connections) = (one.requests().len(), one.connections());
    reload(&weir, &config(&[("two", &two), ("one", &one)])).unwrap();
    until(async || {
        names(&weir)
            .await
            .iter()
            .any(|name| name.starts_with("two__"))
    })
    .await;
    assert_eq!(
        (one.requests().len(), one.connections()),
        (requests, connections),
        "no probe, no walk, no new connection"
    );
    weir.shutdown().await;
}

// Proves G02.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_flight_survives_the_removal_of_its_upstream() {
    let gate = CallGate::new();
    let one = MockServer::modern()
        .tool("slow", MockBehaviour::gated(&gate))
        .start()
        .await;
    let two = MockServer::modern().tools(1).start().await;
    let weir = start(&config(&[("one", &one), ("two", &two)])).await;
    names(&weir).await;
    let caller = client(&weir);
    let call = tokio::spawn(async move { caller.call("one__slow", json!({})).await });
    until(async || one.executions("slow") == 1).await;
    reload(&weir, &config(&[("two", &two)])).unwrap();
    until(async || {
        names(&weir)
            .await
            .iter()
            .all(|name| name.starts_with("two__"))
    })
    .await;
    gate.open();
    let answer = call.await.unwrap().unwrap();
    assert_eq!(answer.status, 200);
    assert!(!answer.result().is_null(), "{answer:?}");
    assert_eq!(one.executions("slow"), 1);
    until(async || one.listeners() == 0).await;
    weir.shutdown().await;
}

// Proves G04.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reloads_leave_nothing_behind() {
    let (one, two) = (
        MockServer::modern().tools(1).start().await,
        MockServer::modern().tools(1).start().await,
    );
    let weir = start(&config(&[("one", &one)])).await;
    names(&weir).await;
    until(async || one.listeners() == 1).await;
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    for turn in 0..1000 {
        // Every other reload adds and removes an upstream with its connections.
        let upstreams: &[(&str, &MockServer)] = if turn % 2 == 0 {
            &[("one", &one), ("two", &two)]
        } else {
            &[("one", &one)]
        };
        reload(&weir, &config(upstreams)).unwrap();
    }
    assert_eq!(one.listeners(), 1);
    until(async || two.listeners() == 0).await;
    // A few more for connections that the pools keep for a while.
    until(async || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
            <= tasks + 8
    })
    .await;
    assert_eq!(
        names(&weir).await,
        ["one__tool_0000"].map(str::to_owned).to_vec()
    );
    weir.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_need_a_restart_are_named() {
    let one = MockServer::modern().tools(1).start().await;
    let text = config(&[("one", &one)]);
    let weir = start(&text).await;
    assert_eq!(reload(&weir, &text).unwrap(), Vec::<&str>::new());
    let changed = format!("{text}log: {{ format: json }}\nfirst_list_wait: 1s\n")
        .replace("listen: 127.0.0.1:0\n", "listen: 127.0.0.1:1\n");
    let named = reload(&weir, &changed).unwrap();
    assert_eq!(named, ["listen", "log", "first_list_wait or change_window"]);
    assert_eq!(
        reload(&weir, &changed).unwrap(),
        named,
        "said as long as it holds"
    );
    weir.shutdown().await;
}

// Proves G03.
#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_for_new_requests_at_once() {
    let one = MockServer::modern().tools(1).start().await;
    let text = config(&[("one", &one)]);
    let weir = start(&text).await;
    let long = json!({ "text": "x".repeat(100_000) });
    assert_eq!(
        client(&weir)
            .call("one__tool_0000", long.clone())
            .await
            .unwrap()
            .status,
        200
    );
    reload(&weir, &format!("{text}limits: {{ body_bytes: 10KiB }}\n")).unwrap();
    assert_eq!(
        client(&weir)
            .call("one__tool_0000", long)
            .await
            .unwrap()
            .status,
        413
    );
    weir.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_about_weir_and_not_about_every_upstream() {
    let mut gone = MockServer::modern().tools(1).start().await;
    gone.stop().await;
    let weir = start(&config(&[("gone", &gone)])).await;
    assert_eq!(admin(&weir, "/healthz").await, (200, "alive\n".to_owned()));
    assert_eq!(admin(&weir, "/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(admin(&weir, "/elsewhere").await.0, 404);
    let clients = get(&format!("http://{}/metrics", weir.address())).await;
    assert_eq!(
        clients.status, 404,
        "the operators' pages are on their own port"
    );
    weir.shutdown().await;
}

// Proves G05.
#[tokio::test(flavor = "multi_thread")]
async fn taken_port_fails_the_start() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!(
        "listen: {address}\nadmin: {{ listen: off }}\nupstreams: {{ a: {{ url: \"http://127.0.0.1:1/mcp\" }} }}\n"
    );
    let error = Weir::start(load(&text)).await.unwrap_err();
    assert!(
        matches!(
            error,
            StartError::Listen {
                operators: false,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_teams_with_the_same_tool_get_two_names() {
    let (one, two) = (
        MockServer::modern()
            .with(MockTool::new("search"))
            .named("same")
            .start()
            .await,
        MockServer::modern()
            .with(MockTool::new("search"))
            .named("same")
            .start()
            .await,
    );
    let weir = start(&config(&[("one", &one), ("two", &two)])).await;
    assert_eq!(names(&weir).await, ["one__search", "two__search"]);
    let answer = client(&weir).call("two__search", json!({})).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!((one.executions("search"), two.executions("search")), (0, 1));
    weir.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_takes_exactly_the_methods_of_the_openapi_file() {
    let document = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/weir.yaml"
    ))
    .unwrap();
    let document: serde_json::Value = serde_saphyr::from_str(&document).unwrap();
    let one = MockServer::modern().tools(1).start().await;
    let weir = start(&config(&[("one", &one)])).await;
    let url = format!("http://{}/mcp", weir.address());
    let refused = RawClient::new(&url)
        .send(http::Method::PUT, http::HeaderMap::new(), "")
        .await
        .unwrap()
        .finish()
        .await;
    let refused = refused.unwrap();
    assert_eq!(refused.status, 405);
    let allowed = refused.header("allow").unwrap().to_ascii_lowercase();
    // CORS uses OPTIONS; that is no operation of the interface.
    let mut allowed: Vec<&str> = allowed
        .split(',')
        .map(str::trim)
        .filter(|method| *method != "options")
        .collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["delete", "get", "post"]);
    for method in allowed {
        assert!(document["paths"]["/mcp"][method].is_object(), "{method}");
    }
    weir.shutdown().await;
}

/// A panic while a reload built its parts once ended the process.
#[tokio::test]
async fn reload_that_panics_changes_nothing_and_is_counted() {
    let (one, two) = (
        MockServer::modern()
            .tool("a", MockBehaviour::echo())
            .start()
            .await,
        MockServer::modern()
            .tool("b", MockBehaviour::echo())
            .start()
            .await,
    );
    let before = config(&[("one", &one)]);
    let weir = start(&before).await;
    let text = config(&[("one", &one), ("two", &two)]);
    let mut faulty = Config::clone(&load(&text));
    // No check lets this through: no semaphore has so many permits.
    faulty.upstreams[1].settings.bounds.in_flight = usize::MAX;
    let refused = weir.reload(&Arc::new(faulty), Strictness::NoWeaker);
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, ReloadError::Panicked { has_begun: false }),
        "{refused}"
    );
    assert_eq!(names(&weir).await, ["one__a"]);
    let metrics = admin(&weir, "/metrics").await.1;
    for line in [
        "weir_config_reloads_total{result=\"error\"} 1",
        "weir_config_refused{reason=\"internal\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    reload(&weir, &text).unwrap();
    until(async || names(&weir).await == ["one__a", "two__b"]).await;
    weir.shutdown().await;
}

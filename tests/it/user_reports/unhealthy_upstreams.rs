//! One bad server among good ones: clients of the good ones do not wait, and every client gets the
//! reason.

use std::time::Duration;

use serde_json::json;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{BOTH, missing_upstreams, mock_server, own_error, wait_until_called};
use crate::harness::{CheckedClient, Weir, wait_until};

// Proves R141, E15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unhealthy_servers_do_not_delay_five_good_ones() {
    let mut good = Vec::new();
    for n in 0..5 {
        good.push(mock_server(BOTH[n % 2]).tools(4).start().await);
    }
    let hanging = MockServer::modern()
        .tools(4)
        .with_rule("*", MockBehaviour::hang())
        .start()
        .await;
    let drip = MockBehaviour::text("never whole").dripping(1, Duration::from_millis(500));
    let dripping = MockServer::modern()
        .tools(4)
        .with_rule("tools/list", drip)
        .start()
        .await;
    let crashing = mock_server(Revision::NEWEST_LEGACY)
        .tools(4)
        .with_rule("*", MockBehaviour::reset_after(10))
        .start()
        .await;
    let mut gone = MockServer::modern().tools(4).start().await;
    gone.stop().await;
    let mut flapping = mock_server(Revision::NEWEST_LEGACY).tools(4).start().await;

    let mut upstreams = json!({});
    for (n, mock_server) in good.iter().enumerate() {
        upstreams[format!("good{n}")] = json!({ "url": mock_server.url() });
    }
    let sick = [
        ("hanging", &hanging),
        ("dripping", &dripping),
        ("crashing", &crashing),
        ("gone", &gone),
    ];
    for (id, mock_server) in sick.iter().chain(&[("flapping", &flapping)]) {
        upstreams[*id] = json!({ "url": mock_server.url() });
    }
    let weir = Weir::with_upstreams(upstreams);
    let sick = sick.map(|(id, _)| id);
    for round in 0..6 {
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            // This ends while two servers have not answered at all: the list does not wait for
            // them.
            let list = client.ask("tools/list", json!({})).await;
            let names: Vec<_> = list.result()["tools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|tool| tool["name"].as_str().unwrap())
                .collect();
            assert_eq!(
                names.iter().filter(|name| name.starts_with("good")).count(),
                20,
                "round {round}: {names:?}"
            );
            let told = missing_upstreams(&list);
            for id in sick {
                assert!(
                    told.iter().any(|(told, _)| told == id),
                    "round {round}: {id} is missing, and {told:?} says so"
                );
                assert!(!names.iter().any(|name| name.starts_with(id)), "{names:?}");
            }
            assert!(
                !told.iter().any(|(id, _)| id.starts_with("good")),
                "{told:?}"
            );
            for n in 0..5 {
                let text = format!(r#"{{"round":{round}}}"#);
                let answer = client
                    .call(&format!("good{n}__tool_0000"), json!({ "round": round }))
                    .await;
                assert_eq!(answer.text(), text);
            }
        }
        if round % 2 == 0 {
            flapping.stop().await;
        } else {
            flapping.restart().await;
        }
    }
    for mock_server in &good {
        assert_eq!(
            mock_server.counts("tool_0000").completed,
            12,
            "one execution a call"
        );
    }
    assert_eq!(hanging.total_executions() + crashing.total_executions(), 0);
}

// Proves E03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_a_hanging_server_end_and_those_to_others_do_not_wait() {
    let sick = MockServer::modern()
        .tool("hang", MockBehaviour::hang())
        .start()
        .await;
    let well = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(json!({
        "upstreams": {
            "sick": { "url": sick.url(), "deadlines": { "idle": "10s" }, "limits": { "in_flight": 8 } },
            "well": { "url": well.url() },
        },
        "rates": { "concurrency": { "wait": "10ms" } },
    }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let mut hanging = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = client.clone();
        hanging.spawn(async move { client.call("sick__hang", json!({})).await });
    }
    sick.wait_until("all hang", |mock_server| {
        mock_server.executions("hang") == 8
    })
    .await;
    // The bulkhead is full: a further call gets an error, and is not run.
    let busy = client.call("sick__hang", json!({})).await;
    assert_eq!(own_error(&busy)["code"], 1006, "{}", busy.last());
    for n in 0..50 {
        assert_eq!(
            client
                .call("well__tool_0000", json!({ "n": n }))
                .await
                .text(),
            format!(r#"{{"n":{n}}}"#)
        );
    }
    assert_eq!(hanging.len(), 8);
    while let Some(answer) = hanging.join_next().await {
        assert_eq!(own_error(&answer.unwrap())["code"], 1001);
    }
    sick.wait_until("weir hung up on all", |mock_server| {
        mock_server.counts("hang").abandoned == 8
    })
    .await;
    assert_eq!(sick.executions("hang"), 8);
    // The permits are free again.
    let again = client.call("sick__hang", json!({})).await;
    assert_ne!(own_error(&again)["code"], 1006, "{}", again.last());
}

// Proves E04, E20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drips_and_comments_do_not_keep_a_call_alive() {
    let every = Duration::from_millis(100);
    for revision in BOTH {
        let upstream = mock_server(revision)
            .tool("comments", MockBehaviour::endless_comments(every))
            .tool("progress", MockBehaviour::endless_progress(every))
            .start()
            .await;
        let weir = Weir::with_config(json!({
            "upstreams": { "one": {
                "url": upstream.url(),
                "tools": {
                    "comments": { "deadlines": { "idle": "5s" } },
                    "progress": { "deadlines": { "idle": "20s", "hard": "5s" } },
                },
            } },
        }));
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        let (nothing, token) = (json!({}), json!(1));
        let progressing = client.call_with_token("one__progress", nothing.clone(), &token);
        let (commented, endless) = tokio::join!(client.call("one__comments", nothing), progressing);
        assert_eq!(
            own_error(&commented)["code"],
            1001,
            "E20: {}",
            commented.last()
        );
        assert_eq!(
            own_error(&endless)["code"],
            1001,
            "R143: a hard end, whatever the progress"
        );
        for tool in ["comments", "progress"] {
            upstream
                .wait_until("it was told", |mock_server| {
                    mock_server.counts(tool).abandoned + mock_server.counts(tool).cancelled == 1
                })
                .await;
            assert_eq!(upstream.executions(tool), 1, "R142");
        }
    }
}

// Proves E11, E14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_and_goes_is_used_again_as_soon_as_it_is_back() {
    let mut upstream = mock_server(Revision::NEWEST_LEGACY).tools(1).start().await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": upstream.url() } }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    for round in 0..3 {
        let ran = upstream.executions("tool_0000");
        let call = client
            .call("one__tool_0000", json!({ "round": round }))
            .await;
        assert!(own_error(&call).is_null(), "{}", call.last());
        assert_eq!(upstream.executions("tool_0000"), ran + 1);
        upstream.stop().await;
        for _ in 0..8 {
            let down = client.call("one__tool_0000", json!({})).await;
            assert_eq!(own_error(&down)["code"], 1002, "{}", down.last());
        }
        assert_eq!(upstream.executions("tool_0000"), ran + 1);
        upstream.restart().await;
        wait_until_called(&client, "one__tool_0000").await;
    }
}

/// The deadline of one endpoint is the wish of its clients: the server is as well as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impatient_endpoint_takes_no_server_from_others() {
    let slow = MockServer::modern()
        .tool("hang", MockBehaviour::hang())
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": { "slow": { "url": slow.url() } },
        "endpoints": {
            "/impatient": { "upstreams": ["slow"], "deadlines": { "hard": "300ms" } },
            "/patient": { "upstreams": ["slow"] },
        },
    }));
    weir.wait_until_listed("/patient", &["slow__hang", "slow__echo"]);
    let impatient = CheckedClient::open(&weir.url("/impatient"), Revision::MODERN).await;
    let patient = CheckedClient::open(&weir.url("/patient"), Revision::MODERN).await;
    for _ in 0..6 {
        let late = impatient.call("slow__hang", json!({})).await;
        assert_eq!(own_error(&late)["reason"], "timed_out");
        assert_eq!(weir.metric("weir_upstream_up", &["upstream=\"slow\""]), 1.0);
    }
    assert_eq!(patient.call("slow__echo", json!({})).await.text(), "{}");
}

/// The end of its grace is no good walk: an alert on an incomplete catalog must not end with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catalog_of_an_upstream_stays_incomplete_after_its_grace() {
    let mut server = MockServer::modern().tools(2).start().await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": server.url(), "grace": "100ms" } }));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let complete = || weir.metric("weir_catalog_complete", &[r#"upstream="one""#]);
    assert!(complete() > 0.5);
    server.stop().await;
    wait_until("the end of the grace", || {
        let text = weir.get_admin_page("/metrics");
        let tools = r#"weir_catalog_items{kind="tools",upstream="one"} 0"#;
        text.lines().any(|line| line == tools).then_some(())
    });
    assert!(complete() < 0.5, "{}", weir.get_admin_page("/metrics"));
}

//! Upstreams that answer another request than the one they got, or too late, or with a message that
//! is not a result.

use std::collections::BTreeSet;
use std::process::Command;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use tokio::task::JoinSet;
use weir_testkit::{RawClient, ScriptedServer};
use weir_testkit::{
    TestFolder,
    scripted_server::{
        LargeAnswer, ScriptedRequest, ServerAct, json_answer, modern_answer, text_answer,
    },
};

use crate::harness::{TestProcess, Weir};

const SIZE: usize = 5 << 20;

/// Starts weir in front of a server that answers calls with `answer`.
async fn before(
    answer: impl Fn(&ScriptedRequest) -> Vec<ServerAct> + Send + Sync + 'static,
) -> (ScriptedServer, Weir) {
    let server = ScriptedServer::start(move |request| {
        modern_answer(request, &["t"]).unwrap_or_else(|| answer(request))
    })
    .await;
    let config = json!({ "upstreams": { "up": { "url": server.url() } }, "endpoints": { "/mcp": { "upstream": "up" } } });
    let weir = tokio::task::block_in_place(|| Weir::with_memory_limit(300, config));
    (server, weir)
}

fn client(weir: &Weir) -> RawClient {
    RawClient::new(&weir.url("/mcp")).modern()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_error_without_an_id_reaches_none_of_the_next_fifteen_callers() {
    let (server, weir) = before(|request| vec![text_answer(request, "own")]).await;
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32603, "message": "of-another" } });
    let ServerAct::Write(late) = json_answer(200, &error) else {
        panic!("an answer is written")
    };
    for round in 0..15 {
        let answer = client(&weir).call("t", json!({})).await.unwrap();
        assert_eq!(answer.text(), "own", "{round}");
        server.write_to_all(&late).await;
    }
}

/// Official clients take such an answer, too, so servers that send it work without weir.
#[tokio::test(flavor = "multi_thread")]
async fn answer_with_the_id_as_a_text_of_its_digits_is_the_answer() {
    let answers_with_text = |request: &ScriptedRequest| {
        let result = json!({
            "resultType": "complete",
            "content": [{ "type": "text", "text": request.body["params"]["arguments"]["size"].to_string() }],
            "structuredContent": { "padding": "x".repeat(request.body["params"]["arguments"]["size"].as_u64().unwrap() as usize) },
        });
        let id = request.id().to_string();
        vec![json_answer(
            200,
            &json!({ "jsonrpc": "2.0", "result": result, "id": id }),
        )]
    };
    let (_server, weir) = before(answers_with_text).await;
    // A short answer, and one that is forwarded in parts.
    for size in [1, SIZE] {
        let answer = client(&weir)
            .call("t", json!({ "size": size }))
            .await
            .unwrap();
        assert_eq!(answer.text(), size.to_string());
    }
}

/// Reads an answer; returns its bytes, and if it ended in an orderly way.
async fn read(client: &RawClient) -> (Vec<u8>, bool) {
    let mut read = Vec::new();
    let mut exchange = client.start_call("t", json!({}), json!("p")).await.unwrap();
    loop {
        match exchange.next_bytes().await {
            Ok(Some(bytes)) => read.extend_from_slice(&bytes),
            Ok(None) => return (read, true),
            Err(_) => return (read, false),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answer_with_wrong_id_or_no_result_is_cut_off_before_its_last_byte() {
    let question = [
        ("resultType", json!("input_required")),
        ("requestState", json!("raw-state")),
    ];
    let cases = [
        (
            "late_id",
            LargeAnswer::new(false, SIZE).last().of(json!(999_999)),
        ),
        (
            "late_type",
            LargeAnswer::new(false, SIZE).last().members(&question),
        ),
        (
            "late_type",
            LargeAnswer::new(true, SIZE).last().members(&question),
        ),
    ];
    for (reason, large) in cases {
        let (_server, weir) = before(move |request| large.acts(request)).await;
        for (nth, client) in [client(&weir), client(&weir).with_http2()]
            .into_iter()
            .enumerate()
        {
            let (bytes, ended) = read(&client).await;
            assert!(!ended, "{reason} {nth}: {} bytes, and an end", bytes.len());
            assert!(
                !bytes.ends_with(b"}") && !bytes.ends_with(b"\n\n"),
                "{reason} {nth}"
            );
            assert!(memchr(&bytes, b"raw-state").is_none(), "{reason} {nth}");
            let counted = weir.metric("weir_upstream_protocol_errors_total", &[reason]);
            assert!(
                (counted - (nth as f64 + 1.0)).abs() < 0.1,
                "{reason} {nth}: counted {counted}"
            );
        }
    }
}

fn memchr(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_behind_content_reaches_no_client_that_declared_nothing() {
    let members = [
        ("resultType", json!("input_required")),
        (
            "inputRequests",
            json!({ "a": { "method": "elicitation/create", "params": { "mode": "url", "url": "https://evil.example/" } } }),
        ),
        ("requestState", json!("raw-state")),
    ];
    let large = LargeAnswer::new(false, 70 << 10).last().members(&members);
    let (_server, weir) = before(move |request| large.acts(request)).await;
    let answer = client(&weir).call("t", json!({})).await.unwrap();
    let text = answer.last().to_string();
    assert!(
        !text.contains("raw-state") && !text.contains("evil.example"),
        "{text}"
    );
}

/// Calls the tool `t` 32 times at once; returns the size of each answer in bytes.
pub(super) async fn sizes_of_32_results(weir: &Weir) -> Vec<usize> {
    let mut calls = JoinSet::new();
    for _ in 0..32 {
        let client = client(weir);
        calls.spawn(async move {
            let mut exchange = client.start_call("t", json!({}), json!("p")).await.unwrap();
            let mut size = 0;
            while let Some(bytes) = exchange.next_bytes().await.unwrap() {
                size += bytes.len();
            }
            size
        });
    }
    calls.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "moves 1.6 GB: cargo xtask hostile runs it"]
async fn thirty_two_results_of_50_mib_with_their_id_last_add_at_most_80_mib() {
    for events in [false, true] {
        let large = LargeAnswer::new(events, 50 << 20).last();
        let (_server, weir) = before(move |request| large.acts(request)).await;
        // A first call, so that the memory that every call needs is allocated before.
        assert!(read(&client(&weir)).await.1);
        let begun = weir.memory();
        let sizes = sizes_of_32_results(&weir).await;
        assert!(sizes.iter().all(|size| *size > 50 << 20), "{sizes:?}");
        let added = weir.peak_memory().saturating_sub(begun);
        assert!(
            added <= 80 << 20,
            "events {events}: {} MiB more",
            added >> 20
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs python3 and the library of OpenSSL 3: cargo xtask hostile runs it"]
async fn late_session_tickets_of_openssl_do_not_spoil_a_connection() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = TestFolder::new("late-tickets");
    let cert_file = folder.write("cert.pem", &cert.pem());
    let key_file = folder.write("key.pem", &signing_key.serialize_pem());
    let mut command = Command::new("python3");
    command
        .args(["-c", include_str!("late_tickets.py")])
        .arg(&cert_file)
        .arg(&key_file);
    let mut server = TestProcess::start(command);
    let port = tokio::task::block_in_place(|| server.wait_for_line("port "));
    let config = json!({
        "upstreams": { "up": { "url": format!("https://localhost:{port}/mcp"), "ca_file": cert_file } },
        "endpoints": { "/mcp": { "upstream": "up" } },
    });
    let weir = tokio::task::block_in_place(|| Weir::with_config(config));
    let client = client(&weir);
    let mut connections = BTreeSet::new();
    for _ in 0..20 {
        connections.insert(client.call("t", json!({})).await.unwrap().text().to_owned());
    }
    for file in [cert_file, key_file] {
        std::fs::remove_file(file).unwrap();
    }
    // One, unless the machine stands still for longer than an unused connection is kept.
    assert!(connections.len() <= 5, "{connections:?}");
}

//! Calls of clients of 2026-07-28 that wait for input over graceful restarts: they stay in the
//! process that made them, and go on by a request to the newest one.

use std::path::Path;

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockServerBuilder, MockTool};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer};
use weir_wire::{Revision, meta};

use super::handover_bench::HandoverBench;
use super::is_gone;
use crate::audit::{AuditFolder, of_kind};
use crate::harness::{
    CheckedClient, retry_params, signal, wait_until, wait_until_async, within_test_timeout,
};
use crate::telemetry::RawCollector;

/// Calls that wait at the same time.
const CALLS: usize = 8;

/// The bytes of a result that the sockets between two processes do not hold.
const RESULT_BYTES: usize = 4 << 20;

fn question() -> AnswerStep {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    AnswerStep::Ask {
        method: "elicitation/create",
        params: json!({ "message": "Your name?", "requestedSchema": schema }),
    }
}

/// A server with a tool `ask` of these steps.
fn server(steps: impl IntoIterator<Item = AnswerStep>) -> MockServerBuilder {
    let asking = MockBehaviour::steps(steps).as_events();
    MockServer::legacy(Revision::V2025_11_25)
        .tool("echo", MockBehaviour::echo())
        .with(MockTool::new("ask").does(asking))
}

async fn client(bench: &HandoverBench) -> CheckedClient {
    let capabilities = json!({ "elicitation": {} });
    let url = bench.weir.url("/mcp");
    CheckedClient::with_capabilities(&url, Revision::MODERN, capabilities).await
}

/// Goes on with a call that ended with this answer.
async fn retry(client: &CheckedClient, asked: &ClientAnswer, arguments: &Value) -> ClientAnswer {
    retry_with(client.clone(), retry_params(asked.result(), arguments)).await
}

/// Goes on with all of these calls at the same time.
async fn retry_all(
    client: &CheckedClient,
    asked: &[ClientAnswer],
    arguments: &[Value],
) -> Vec<ClientAnswer> {
    let calls = asked.iter().zip(arguments);
    let params = calls.map(|(asked, arguments)| retry_params(asked.result(), arguments));
    at_once(params.map(|params| retry_with(client.clone(), params))).await
}

async fn retry_with(client: CheckedClient, mut params: Value) -> ClientAnswer {
    params["_meta"] = json!({ "progressToken": 1 });
    client.ask("tools/call", params).await
}

/// Runs these futures at the same time.
async fn at_once<F>(all: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<_> = all.map(tokio::spawn).collect();
    let mut outputs = Vec::new();
    for task in tasks {
        outputs.push(task.await.unwrap());
    }
    outputs
}

#[track_caller]
fn expect_lost(answer: &ClientAnswer) {
    let error = &answer.result()["_meta"][meta::WEIR_ERROR];
    assert_eq!(error["reason"], "result_unknown", "{}", answer.last());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_calls_go_on_from_the_new_process_round_by_round_and_run_once() {
    let steps = [
        question(),
        AnswerStep::Progress(1, 2),
        question(),
        AnswerStep::Echo,
    ];
    let folder = AuditFolder::new("parked-over");
    let audit = json!({ "audit": { "file": { "path": folder.file() } } });
    let mut bench = HandoverBench::with_settings(server(steps), audit).await;
    let client = client(&bench).await;
    let numbers: Vec<Value> = (0..CALLS).map(|n| json!({ "n": n })).collect();
    let asked = at_once(numbers.iter().map(|n| {
        let (client, n) = (client.clone(), n.clone());
        async move { client.call_with_token("ask", n, &json!(1)).await }
    }))
    .await;
    bench.hand_over();

    // A malformed answer leaves its call parked.
    let mut malformed = retry_params(asked[0].result(), &numbers[0]);
    let key = malformed["inputResponses"]
        .as_object()
        .unwrap()
        .keys()
        .next();
    let key = key.unwrap().clone();
    malformed["inputResponses"][&key] = json!({ "action": "perhaps" });
    let refused = client.raw().ask("tools/call", malformed).await.unwrap();
    assert_eq!(refused.code(), -32602, "{}", refused.last());

    let second = retry_all(&client, &asked, &numbers).await;
    for answer in &second {
        let progress = answer.notes("notifications/progress").count();
        assert_eq!(progress, 1, "{:?}", answer.messages);
    }
    // A state is good once, also while its process waits for the next answers.
    let used = retry_params(asked[0].result(), &numbers[0]);
    let again = client.raw().ask("tools/call", used).await.unwrap();
    assert_eq!(again.code(), -32602, "{}", again.last());
    let done = retry_all(&client, &second, &numbers).await;
    for (answer, n) in done.iter().zip(&numbers) {
        assert_eq!(answer.text(), n.to_string(), "{}", answer.last());
    }
    assert_eq!(bench.mock_server.executions("ask"), CALLS);
    let counts = bench.mock_server.counts("ask");
    assert_eq!((counts.cancelled, counts.abandoned), (0, 0));
    bench.end();
    // The process that ran the calls has recorded each request about them, once.
    let count = |file: &Path, outcome: &str| {
        let records = of_kind(file, "call");
        let matching = records.iter().filter(|it| it["outcome"] == outcome);
        matching.count()
    };
    let expected = [
        ("input_required", 2 * CALLS),
        ("complete", CALLS),
        ("invalid_params", 2),
    ];
    let files = std::fs::read_dir(folder.0.path()).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    for (outcome, calls) in expected {
        let counts = files.iter().map(|file| count(file, outcome));
        assert_eq!(counts.sum::<usize>(), calls, "{outcome}");
        assert_eq!(count(&folder.file(), outcome), 0, "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_result_of_a_parked_call_comes_through_the_new_process() {
    let mut bench = HandoverBench::new(server([question(), AnswerStep::Huge(RESULT_BYTES)])).await;
    let client = client(&bench).await;
    let asked = client.call("ask", json!({})).await;
    bench.hand_over();
    let done = retry(&client, &asked, &json!({})).await;
    assert_eq!(done.text().len(), RESULT_BYTES);
    bench.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traced_parked_call_goes_on_from_the_new_process() {
    let collector = RawCollector::start();
    let telemetry = json!({
        "traces": { "sample": 1.0 },
        "otlp": { "endpoint": collector.url(), "interval": "300ms" },
    });
    let steps = [question(), AnswerStep::Echo];
    let settings = json!({ "telemetry": telemetry });
    let mut bench = HandoverBench::with_settings(server(steps), settings).await;
    let asked = client(&bench).await.call("ask", json!({ "n": 1 })).await;
    bench.hand_over();
    bench.wait_until_it_accepts_alone();
    // A client without a connection to the process before.
    let client = client(&bench).await;
    let done = retry(&client, &asked, &json!({ "n": 1 })).await;
    assert_eq!(done.text(), r#"{"n":1}"#, "{}", done.last());
    assert_eq!(bench.mock_server.executions("ask"), 1);
    bench.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_call_goes_on_after_two_graceful_restarts() {
    let mut bench = HandoverBench::new(server([question(), AnswerStep::Echo])).await;
    let client = client(&bench).await;
    let mut asked = Vec::new();
    for n in 0..3 {
        asked.push(client.call("ask", json!({ "n": n })).await);
        if n < 2 {
            bench.hand_over();
        }
    }
    for (n, asked) in asked.iter().enumerate() {
        let arguments = json!({ "n": n });
        let done = retry(&client, asked, &arguments).await;
        assert_eq!(done.text(), arguments.to_string(), "{}", done.last());
    }
    assert_eq!(bench.mock_server.executions("ask"), 3);
    bench.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_call_of_a_process_that_has_ended_is_reported_lost_and_does_not_run_again() {
    for (drain, kills) in [("120s", true), ("1ms", false)] {
        let steps = [question(), AnswerStep::Echo];
        let settings = json!({ "drain": drain });
        let mut bench = HandoverBench::with_settings(server(steps), settings).await;
        let asked = client(&bench).await.call("ask", json!({})).await;
        bench.hand_over();
        if kills {
            signal(bench.processes[0], "KILL");
        }
        wait_until("the end of the process before", || {
            is_gone(bench.processes[0]).then_some(())
        });
        let says = || {
            let said = "calls that wait for input are cancelled";
            bench.weir.process.output().contains(said)
        };
        if !kills {
            wait_until("the log of the cancelled call", || says().then_some(()));
        }
        for hand_over in [false, true] {
            if hand_over {
                bench.hand_over();
                bench.wait_until_it_accepts_alone();
            }
            let client = self::client(&bench).await;
            expect_lost(&retry(&client, &asked, &json!({})).await);
        }
        assert_eq!(bench.mock_server.executions("ask"), 1);
        bench.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_call_that_goes_on_ends_with_its_process_or_with_its_client() {
    for kills in [true, false] {
        let gate = CallGate::new();
        let steps = [question(), AnswerStep::Gate(gate.clone()), AnswerStep::Echo];
        let mut bench = HandoverBench::new(server(steps)).await;
        let asked = client(&bench).await.call("ask", json!({})).await;
        bench.hand_over();
        bench.wait_until_it_accepts_alone();
        // A client without a connection to the process before.
        let client = client(&bench).await;
        let going_on = tokio::spawn(async move { retry(&client, &asked, &json!({})).await });
        wait_until_async("the answer at the server", async || {
            (!bench.mock_server.answers().is_empty()).then_some(())
        })
        .await;
        if kills {
            signal(bench.processes[0], "KILL");
            let answer = within_test_timeout("the error", going_on).await.unwrap();
            expect_lost(&answer);
        } else {
            going_on.abort();
        }
        wait_until_async("the end at the server", async || {
            let counts = bench.mock_server.counts("ask");
            (counts.cancelled + counts.abandoned == 1).then_some(())
        })
        .await;
        gate.open();
        bench.end();
    }
}

//! Upstreams over HTTP/2 that violate the protocol. The affected call ends with a clear error and
//! in bounded time, and its cost is bounded: bytes that weir reads of the server, memory,
//! descriptors, connections. Another upstream and another client are not affected.

mod endless_frames;
mod over_tls;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_testkit::h2_client::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS,
    INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, PING, PRIORITY, PUSH_PROMISE, REFUSED_STREAM,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, head, literal,
};
use weir_testkit::h2_server::{answer_block, answer_head, h2_answer};
use weir_testkit::{
    ClientAnswer, H2Act, H2Plan, H2Request, H2Server, MockBehaviour, MockServer, RawClient,
};

use crate::harness::{Bystander, Weir, wait_until, wait_until_async, within_test_timeout};

/// Calls of the upstream under attack: some at once, and one after those.
const AT_ONCE: usize = 6;
const AFTER: usize = 1;
/// The bytes that weir may read on one connection of a server that writes without end: the buffers
/// of the sockets, and weir's own bound.
const MAX_TAKEN: usize = 12 << 20;
/// The bytes that weir may grow by.
const MAX_GROWN: usize = 64 << 20;
/// Additional descriptors: the connections of the callers, the bystander and the operators' pages,
/// and of the upstream.
const MAX_MORE: usize = 48;

/// weir in front of a hostile upstream at `/bad` and a good one at `/good`.
struct Http2Scene {
    bad: H2Server,
    _good: MockServer,
    weir: Weir,
}

impl Http2Scene {
    async fn new(plan: H2Plan) -> Self {
        Self::with(plan, "1s").await
    }

    /// Starts a scene with this idle timeout.
    async fn with(plan: H2Plan, idle: &str) -> Self {
        let (bad, mut upstream) = if over_tls::is_meant() {
            over_tls::start(plan).await
        } else {
            let bad = H2Server::start(&["t"], plan).await;
            let upstream = json!({ "url": bad.url(), "h2c": true });
            (bad, upstream)
        };
        let good = MockServer::modern()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        upstream["protocol"] = json!("modern");
        upstream["limits"] = json!({ "max_reply": "4MiB" });
        upstream["deadlines"] = json!({ "idle": idle, "hard": "20s" });
        let config = json!({
            "upstreams": { "bad": upstream, "good": { "url": good.url() } },
            "endpoints": { "/bad": { "upstream": "bad" }, "/good": { "upstream": "good" } },
        });
        let weir = tokio::task::block_in_place(|| Weir::with_config(config));
        Self {
            bad,
            _good: good,
            weir,
        }
    }

    fn client(&self, path: &str) -> RawClient {
        RawClient::new(&self.weir.url(path)).modern()
    }

    /// Calls the hostile upstream beside a good client of the good one; returns the answers to the
    /// first.
    async fn attacked(&self, name: &str, arguments: Value) -> Vec<ClientAnswer> {
        let before = descriptors(&self.weir);
        let bystander = Bystander::start_beside(&self.weir, self.client("/good"));
        bystander.wait_for_calls(4).await;
        let mut answers = Vec::new();
        for at_once in std::iter::once(AT_ONCE).chain([1; AFTER]) {
            let mut calls = JoinSet::new();
            for _ in 0..at_once {
                let (client, arguments) = (self.client("/bad"), arguments.clone());
                calls.spawn(async move { client.call("t", arguments).await });
            }
            for answer in
                within_test_timeout(&format!("answers beside {name}"), calls.join_all()).await
            {
                answers.push(answer.unwrap_or_else(|error| panic!("{name}: {error}")));
            }
        }
        let figures = bystander
            .finish(&format!(
                "an upstream over HTTP/2{}: {name}",
                over_tls::label()
            ))
            .await;
        figures.assert_none_refused();
        assert!(
            figures.grown <= MAX_GROWN,
            "{name}: {} MiB more",
            figures.grown >> 20
        );
        assert!(
            figures.descriptors <= before + MAX_MORE,
            "{name}: {} of {before} descriptors",
            figures.descriptors
        );
        let (taken, connections) = (self.bad.written(), self.bad.accepted());
        assert!(
            taken <= connections * MAX_TAKEN,
            "{name}: weir took {} MiB on {connections}",
            taken >> 20
        );
        let said = self.weir.process.output();
        assert!(!said.contains("panicked"), "{name}");
        assert!(!said.contains('\u{1b}'), "{name}: an escape in the log");
        assert!(
            tokio::task::block_in_place(|| self.weir.get_admin_page("/healthz"))
                .starts_with("HTTP/1.1 200"),
            "{name}"
        );
        answers
    }
}

fn descriptors(weir: &Weir) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", weir.process.id()))
        .unwrap()
        .count()
}

/// Asserts a clear error: HTTP 200, an error result or a JSON-RPC error, with a text of weir's own
/// alone.
fn failed(name: &str, answer: &ClientAnswer) {
    assert_eq!(answer.status, 200, "{name}: {:?}", answer.body);
    let last = answer.last();
    let text = match last.get("error") {
        Some(error) => &error["message"],
        None => {
            assert_eq!(last["result"]["isError"], true, "{name}: {last}");
            &last["result"]["content"][0]["text"]
        }
    };
    let text = text.as_str().unwrap_or_default();
    assert!(text.len() > 10 && text.len() < 400, "{name}: {text:?}");
    assert!(!text.chars().any(char::is_control), "{name}: {text:?}");
}

/// Runs one attack, in which every call fails; returns the scene.
async fn fails(name: &str, plan: H2Plan) -> Http2Scene {
    let scene = Http2Scene::new(plan).await;
    let answers = scene.attacked(name, json!({})).await;
    assert_eq!(answers.len(), AT_ONCE + AFTER);
    answers.iter().for_each(|answer| failed(name, answer));
    scene
}

fn write(bytes: Vec<u8>) -> H2Act {
    H2Act::Write(bytes.into())
}

fn raw(bytes: &'static [u8]) -> H2Act {
    H2Act::Write(bytes.into())
}

type Http2Attack = (
    &'static str,
    Box<dyn Fn(&H2Request) -> Vec<H2Act> + Send + Sync>,
);

/// Runs the attacks one after another.
async fn all_fail(attacks: Vec<Http2Attack>) {
    for (name, attack) in attacks {
        let scene = fails(name, H2Plan::on_calls(attack)).await;
        let most = 4 * (AT_ONCE + AFTER) + 8;
        assert!(
            scene.bad.accepted() <= most,
            "{name}: {} connections",
            scene.bad.accepted()
        );
        assert!(
            scene.bad.calls() <= 2 * (AT_ONCE + AFTER),
            "{name}: {} requests",
            scene.bad.calls()
        );
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// Returns a good result, as text.
fn result(request: &H2Request) -> String {
    json!({ "jsonrpc": "2.0", "id": request.id(), "result": { "resultType": "complete", "content": [] } }).to_string()
}

/// Returns heads without exactly one valid status.
fn malformed_statuses() -> Vec<Http2Attack> {
    vec![
        (
            "no status",
            Box::new(|request| {
                vec![write(head(
                    request.stream,
                    END_STREAM,
                    &block(&[("x", "y")]),
                ))]
            }),
        ),
        (
            "two statuses",
            Box::new(|request| {
                vec![write(head(
                    request.stream,
                    END_STREAM,
                    &block(&[(":status", "200"), (":status", "500")]),
                ))]
            }),
        ),
        (
            "the status 99",
            Box::new(|request| vec![write(answer_head(request.stream, "99", &[]))]),
        ),
        (
            "the status 2000",
            Box::new(|request| vec![write(answer_head(request.stream, "2000", &[]))]),
        ),
        (
            "the status 101",
            Box::new(|request| {
                vec![write(head(
                    request.stream,
                    END_STREAM,
                    &block(&[(":status", "101")]),
                ))]
            }),
        ),
        (
            "a status in letters",
            Box::new(|request| vec![write(answer_head(request.stream, "ok!", &[]))]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_breaks_the_protocol_is_a_clear_error() {
    all_fail(malformed_statuses()).await;
    all_fail(vec![
        (
            "a head of a mebibyte",
            Box::new(|request| {
                vec![write(answer_head(
                    request.stream,
                    "200",
                    &[("x", &"y".repeat(1 << 20))],
                ))]
            }),
        ),
        (
            "a bomb of headers",
            Box::new(|request| vec![write(bomb(request.stream))]),
        ),
        (
            "a table that grows",
            // A change of the table's size to 2^30, larger than weir allowed.
            Box::new(|request| {
                vec![write(head(
                    request.stream,
                    0,
                    &[0x3f, 0xe1, 0xff, 0xff, 0xff, 0x03, 0x88],
                ))]
            }),
        ),
        (
            "a header in capitals",
            Box::new(|request| vec![write(answer_head(request.stream, "200", &[("X-Y", "z")]))]),
        ),
        (
            "line ends in a header",
            Box::new(|request| {
                vec![write(answer_head(
                    request.stream,
                    "200",
                    &[("x", "y\r\nset-cookie: a=b")],
                ))]
            }),
        ),
        (
            "a connection header",
            Box::new(|request| {
                vec![write(answer_head(
                    request.stream,
                    "200",
                    &[("transfer-encoding", "chunked")],
                ))]
            }),
        ),
        (
            "a header block of noise",
            Box::new(|request| vec![write(head(request.stream, 0, &[0xff; 64]))]),
        ),
        (
            "an empty header block",
            Box::new(|request| vec![write(frame(HEADERS, END_HEADERS, request.stream, b""))]),
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_break_the_protocol_are_a_clear_error() {
    all_fail(vec![
        (
            "HEADERS for a stream that never was",
            Box::new(|_| {
                vec![write(answer_head(
                    9_999_999,
                    "200",
                    &[("content-type", "application/json")],
                ))]
            }),
        ),
        (
            "HEADERS for a stream of the server",
            Box::new(|_| vec![write(answer_head(2, "200", &[]))]),
        ),
        (
            "DATA for a stream that never was",
            Box::new(|_| vec![write(frame(DATA, 0, 9_999_999, b"{}"))]),
        ),
        (
            "DATA for the connection",
            Box::new(|_| vec![write(frame(DATA, 0, 0, b"{}"))]),
        ),
        (
            "a promise",
            Box::new(|request| {
                let promised = [
                    &[0, 0, 0, 2],
                    block(&[(":method", "GET"), (":path", "/")]).as_slice(),
                ]
                .concat();
                vec![write(frame(
                    PUSH_PROMISE,
                    END_HEADERS,
                    request.stream,
                    &promised,
                ))]
            }),
        ),
        (
            "a frame too large",
            Box::new(|request| vec![write(frame(DATA, 0, request.stream, &vec![b' '; 1 << 20]))]),
        ),
        (
            "a ping of a wrong size",
            Box::new(|_| vec![write(frame(PING, 0, 0, b"seven.."))]),
        ),
        (
            "settings of a wrong size",
            Box::new(|_| vec![write(frame(SETTINGS, 0, 0, b"seven.."))]),
        ),
        (
            "a window too large",
            Box::new(|_| {
                vec![write(
                    frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()).repeat(2),
                )]
            }),
        ),
        (
            "a window that grows by nothing",
            Box::new(|_| vec![write(frame(WINDOW_UPDATE, 0, 0, &[0; 4]))]),
        ),
        (
            "a continuation of nothing",
            Box::new(|request| {
                vec![write(frame(
                    CONTINUATION,
                    END_HEADERS,
                    request.stream,
                    b"\x88",
                ))]
            }),
        ),
        (
            "padding longer than the frame",
            Box::new(|request| vec![write(frame(DATA, 8, request.stream, b"\xff{}"))]),
        ),
        (
            "half of a frame",
            Box::new(|_| vec![raw(b"\x00\x10\x00\x00\x00"), H2Act::Close]),
        ),
        (
            "HTTP/1.1",
            Box::new(|_| vec![raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")]),
        ),
        ("nothing but noise", Box::new(|_| vec![raw(&[0xa5; 4096])])),
        ("a close", Box::new(|_| vec![H2Act::Close])),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_another_length_is_a_clear_error() {
    all_fail(vec![
        (
            "DATA before HEADERS",
            Box::new(|request| vec![write(frame(DATA, END_STREAM, request.stream, b"{}"))]),
        ),
        (
            "a length too short",
            Box::new(|request| {
                let head = answer_head(request.stream, "200", &[JSON, ("content-length", "5")]);
                vec![write(
                    [
                        head,
                        frame(DATA, END_STREAM, request.stream, result(request).as_bytes()),
                    ]
                    .concat(),
                )]
            }),
        ),
        (
            "a length too long",
            Box::new(|request| {
                let head = answer_head(request.stream, "200", &[JSON, ("content-length", "5000")]);
                vec![write(
                    [
                        head,
                        frame(DATA, END_STREAM, request.stream, result(request).as_bytes()),
                    ]
                    .concat(),
                )]
            }),
        ),
        (
            "two lengths",
            Box::new(|request| {
                let lengths = [JSON, ("content-length", "5"), ("content-length", "6")];
                let head = answer_head(request.stream, "200", &lengths);
                vec![write(
                    [
                        head,
                        frame(DATA, END_STREAM, request.stream, result(request).as_bytes()),
                    ]
                    .concat(),
                )]
            }),
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_answer_is_a_clear_error() {
    all_fail(vec![
        (
            "half of an answer",
            Box::new(|request| {
                let head = answer_head(request.stream, "200", &[JSON]);
                let whole = frame(DATA, END_STREAM, request.stream, result(request).as_bytes());
                vec![write([head, whole[..40].to_vec()].concat()), H2Act::Close]
            }),
        ),
        ("no answer", Box::new(|_| Vec::new())),
        (
            "no end of the stream",
            Box::new(|request| {
                let head = answer_head(request.stream, "200", &[JSON]);
                vec![write(
                    [
                        head,
                        frame(
                            DATA,
                            0,
                            request.stream,
                            result(request).as_bytes().split_last().unwrap().1,
                        ),
                    ]
                    .concat(),
                )]
            }),
        ),
        (
            "an answer by the byte",
            Box::new(|request| {
                let head = answer_head(request.stream, "200", &[JSON]);
                let byte = frame(DATA, 0, request.stream, b" ");
                vec![
                    write(head),
                    H2Act::Drip(byte.into(), Duration::from_millis(100)),
                ]
            }),
        ),
        (
            "events that are comments",
            Box::new(|request| {
                let head = answer_head(
                    request.stream,
                    "200",
                    &[("content-type", "text/event-stream")],
                );
                let comment = frame(DATA, 0, request.stream, b": still there\n\n");
                vec![
                    write(head),
                    H2Act::Drip(comment.into(), Duration::from_millis(100)),
                ]
            }),
        ),
        (
            "an answer of another type",
            Box::new(|request| {
                let head = answer_head(
                    request.stream,
                    "200",
                    &[("content-type", "text/html\u{1b}[2J")],
                );
                vec![write(
                    [
                        head,
                        frame(DATA, END_STREAM, request.stream, result(request).as_bytes()),
                    ]
                    .concat(),
                )]
            }),
        ),
        (
            "the answer of another",
            Box::new(|request| {
                let foreign =
                    json!({ "jsonrpc": "2.0", "id": 987_654_321, "result": { "content": [] } });
                vec![h2_answer(request.stream, 200, &foreign)]
            }),
        ),
        (
            "trailers before the end",
            Box::new(|request| {
                let head_and = answer_head(request.stream, "200", &[JSON]);
                let trailers = head(request.stream, 0, &block(&[("x", "y")]));
                vec![write(
                    [head_and, frame(DATA, 0, request.stream, b"{"), trailers].concat(),
                )]
            }),
        ),
    ])
    .await;
}

/// Returns a header of 4 KB that goes into the table, and is then named 16,000 times by a byte
/// each.
fn bomb(stream: u32) -> Vec<u8> {
    let mut block = vec![0x88];
    let mut entry = Vec::new();
    literal(&mut entry, "x", &"y".repeat(3900));
    // With indexing (RFC 7541, section 6.2.1).
    entry[0] = 0x40;
    block.extend(entry);
    block.extend([0xbe; 16_000]);
    head(stream, 0, &block)
}

fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        literal(&mut block, name, value);
    }
    block
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_end_is_cut_off_at_its_bound() {
    let scene = Http2Scene::new(H2Plan::on_calls(|request| {
        let head = answer_head(
            request.stream,
            "200",
            &[("content-type", "application/json")],
        );
        let begin = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":""#,
            request.id()
        );
        let first = frame(DATA, 0, request.stream, begin.as_bytes());
        vec![
            write([head, first].concat()),
            H2Act::Endless(frame(DATA, 0, request.stream, &[b'x'; 16 << 10]).into()),
        ]
    }))
    .await;
    let name = "an answer without end";
    let bystander = Bystander::start_beside(&scene.weir, scene.client("/good"));
    bystander.wait_for_calls(4).await;
    for _ in 0..3 {
        // The envelope with this call's id came first, so the answer streams: it is cut off.
        let broken = within_test_timeout(name, scene.client("/bad").call("t", json!({}))).await;
        if let Ok(answer) = broken {
            failed(name, &answer);
        }
    }
    let figures = bystander
        .finish(&format!(
            "an upstream over HTTP/2{}: {name}",
            over_tls::label()
        ))
        .await;
    figures.assert_none_refused();
    assert!(
        figures.grown <= MAX_GROWN,
        "{} MiB more",
        figures.grown >> 20
    );
    // weir ignores frames for a stream that was reset for a moment; then the connection ends.
    wait_until_async("the end of the connections", async || {
        (scene.bad.open() == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_hostile_stream_costs_no_other_call_of_the_same_server_more_than_its_connection() {
    // Every second call is answered correctly.
    let nth = std::sync::atomic::AtomicUsize::new(0);
    let script = move |request: &H2Request| {
        let odd = request.method() == "tools/call"
            && nth.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 2 == 1;
        odd.then(|| vec![write(frame(DATA, 0, request.stream, b"no head"))])
    };
    let plan = H2Plan {
        greeting: Vec::new(),
        script: Box::new(script),
    };
    let scene = Http2Scene::with(plan, "15s").await;
    let client = scene.client("/bad");
    for number in 0..20 {
        let answer = within_test_timeout("an answer", client.call("t", json!({})))
            .await
            .unwrap();
        if number % 2 == 0 {
            assert_eq!(answer.text(), "own", "call {number}: {}", answer.last());
        } else {
            failed("every second call", &answer);
        }
    }
}

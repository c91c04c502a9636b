//! Elicitation and sampling in the middle of a call, answered by a person at the terminal.

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_testkit::mock_server::{AnswerStep, MockBehaviour, MockTool};
use weir_wire::Revision;

use super::{at_terminal, interrupted_at_terminal, weir};
use crate::harness::{ForeignServer, Weir, peers_are_enabled};

fn form() -> Value {
    json!({
        "message": "Who\u{1b}[2J are you?",
        "mode": "form",
        "requestedSchema": { "type": "object", "properties": {
            "age": { "type": "integer", "minimum": 0 },
            "color": { "type": "string", "enum": ["red", "green"] },
            "name": { "type": "string", "title": "Name" },
        }, "required": ["age", "name"] },
    })
}

fn sampling() -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "A word?" } }], "maxTokens": 10 })
}

/// Starts a server that asks by a request in the middle of the call.
async fn legacy() -> MockServer {
    let ask = |method, params| {
        MockBehaviour::steps([
            AnswerStep::Ask { method, params },
            AnswerStep::Result(done()),
        ])
    };
    MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("form", ask("elicitation/create", form()))
        .tool("sample", ask("sampling/createMessage", sampling()))
        .start()
        .await
}

/// Starts a server that ends its answer with the question, and is called again with the answer.
async fn modern() -> MockServer {
    let asks = |method: &str, params: Value| {
        let question = json!({ "first": { "method": method, "params": params } });
        [
            MockBehaviour::input_required(question, Some("sealed")),
            MockBehaviour::result(done()),
        ]
    };
    MockServer::modern()
        .with(MockTool::new("form").does_in_turn(asks("elicitation/create", form())))
        .with(MockTool::new("sample").does_in_turn(asks("sampling/createMessage", sampling())))
        .start()
        .await
}

fn done() -> Value {
    json!({ "content": [{ "type": "text", "text": "done" }] })
}

/// Returns the answer that the server got: by a response of its client, or by the retry of the
/// call.
fn answer(server: &MockServer) -> Value {
    let retried = server
        .requests_of("tools/call")
        .last()
        .map(|call| call.message["params"]["inputResponses"]["first"].clone());
    let responses = server.answers();
    retried
        .filter(|answer| !answer.is_null())
        .or_else(|| Some(responses.last()?["result"].clone()))
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_is_filled_in_at_the_terminal() {
    for server in [legacy().await, modern().await] {
        // A wrong age is asked for again; the color is left out; Enter sends.
        let (code, shown) = at_terminal("", &["call", &server.url(), "form"], "old\n36\n\nAda\n\n");
        assert_eq!(code, Some(0), "{shown}");
        for words in [
            "The server asks: Who[2J are you?",
            "write a whole number",
            "1) red",
            "Name, text",
            "done",
        ] {
            assert!(shown.contains(words), "`{words}` in {shown}");
        }
        assert_eq!(
            answer(&server),
            json!({ "action": "accept", "content": { "age": 36, "name": "Ada" } }),
            "{shown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_is_declined_or_cancelled() {
    for (typed, action) in [("36\n\nAda\nn\n", "decline"), ("36\n\u{4}", "cancel")] {
        for server in [legacy().await, modern().await] {
            let (code, shown) = at_terminal("", &["call", &server.url(), "form"], typed);
            assert_eq!(code, Some(0), "{shown}");
            assert_eq!(answer(&server), json!({ "action": action }), "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sampling_request_is_answered_or_refused_at_the_terminal() {
    for server in [legacy().await, modern().await] {
        let (code, shown) = at_terminal("", &["call", &server.url(), "sample"], "two\nlines\n\n");
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains("user: A word?"), "{shown}");
        let answer = answer(&server);
        assert_eq!(
            (&answer["role"], &answer["content"]["text"]),
            (&json!("assistant"), &json!("two\nlines"))
        );
    }
    let server = legacy().await;
    let (_, shown) = at_terminal("", &["call", &server.url(), "sample"], "\n");
    assert_eq!(
        server.answers().last().unwrap()["error"]["code"],
        -1,
        "{shown}"
    );
    // The newest revision has no form for a refusal, so the call ends here.
    let server = modern().await;
    let (code, shown) = at_terminal("", &["call", &server.url(), "sample"], "\n");
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains("did not answer for a model"), "{shown}");
}

/// Without a terminal the command declares no capabilities. A server that asks all the same gets an
/// error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_terminal_nothing_is_declared_and_nothing_answered() {
    for server in [legacy().await, modern().await] {
        let said = weir(&["call", &server.url(), "form"]);
        for request in server.requests() {
            let text = request.message.to_string();
            assert!(
                !text.contains("\"elicitation\":{") && !text.contains("\"sampling\":{"),
                "{text}"
            );
        }
        match server.answers().last() {
            Some(refused) => assert_eq!(refused["error"]["code"], -32601, "{refused}"),
            None => assert!(
                said.code == Some(3) && said.err.contains("run the command at a terminal"),
                "{said:?}"
            ),
        }
    }
}

/// The command does not wait for a person that left, and the server gets no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_ends_a_question() {
    let server = legacy().await;
    let (code, _) = interrupted_at_terminal(
        "",
        &["call", &server.url(), "form"],
        &["age, whole number: "],
    );
    assert_eq!(code, Some(130));
    assert!(server.answers().is_empty());
}

/// The reader opens a page by hand, after seeing its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_shown_and_never_opened() {
    let page = json!({ "mode": "url", "message": "Log in", "url": "https://sso.example/x", "elicitationId": "e1" });
    let ask = MockBehaviour::steps([
        AnswerStep::Ask {
            method: "elicitation/create",
            params: page,
        },
        AnswerStep::Result(done()),
    ]);
    let server = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("page", ask)
        .start()
        .await;
    for (typed, action) in [("y\n", "accept"), ("\n", "decline"), ("\u{4}", "cancel")] {
        let (_, shown) = at_terminal("", &["call", &server.url(), "page"], typed);
        assert!(shown.contains("https://sso.example/x"), "{shown}");
        assert_eq!(
            server.answers().last().unwrap()["result"],
            json!({ "action": action }),
            "{shown}"
        );
    }
}

/// Servers of the SDKs of each era, also with weir between.
#[test]
fn questions_of_real_servers_are_answered() {
    if !peers_are_enabled() {
        return;
    }
    let (_everything, url) = ForeignServer::Everything.over_http();
    let (_asking, other) = ForeignServer::Asking.over_http();
    let weir_ = Weir::with_upstreams(json!({ "old": { "url": url }, "new": { "url": other } }));
    weir_.wait_until_listed("/mcp/old", &["echo"]);
    weir_.wait_until_listed("/mcp/new", &["greet"]);
    for url in [url, weir_.url("/mcp/old")] {
        let words = ["call", &url, "trigger-sampling-request", "prompt=a word"];
        let (code, shown) = at_terminal("", &words, "a typed text\n\n");
        assert!(code == Some(0) && shown.contains("a typed text"), "{shown}");
    }
    for url in [other, weir_.url("/mcp/new")] {
        let (code, shown) = at_terminal("", &["call", &url, "greet"], "Ada\n\n");
        assert!(code == Some(0) && shown.contains("Hello Ada"), "{shown}");
    }
}

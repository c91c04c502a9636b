//! Requests of servers in the middle of a call: sampling, elicitation, roots, in every pairing.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockServerBuilder, MockTool};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::pairing::{PairingTransport, PairingUpstreamConfig, UpstreamEra};
use super::support_report::FeatureSupport;
use crate::harness::{CheckedClient, WeirDeployment, within_test_timeout};

/// A server that asks, weir, and the revisions of both sides.
pub struct QuestionPairing {
    weir: WeirDeployment,
    pub mock_server: MockServer,
    pub client: Revision,
    /// The revision that weir speaks to the upstream for this client.
    pub upstream: Revision,
    pub transport: PairingTransport,
    _reached: PairingUpstreamConfig,
}

/// Returns the capabilities for every request that a server can make.
fn everything() -> Value {
    json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": { "listChanged": true } })
}

pub fn form() -> Value {
    form_with("Who are you?")
}

fn form_with(message: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    json!({ "message": message, "requestedSchema": schema })
}

fn prompt() -> Value {
    let message =
        json!({ "role": "user", "content": { "type": "text", "text": "What is 6 times 7?" } });
    json!({ "messages": [message], "maxTokens": 10, "includeContext": "allServers" })
}

/// Returns a sampling prompt with a tool, and the turn that follows its use.
fn with_tools(turn: usize) -> Value {
    let tool = json!({ "name": "times", "inputSchema": { "type": "object" } });
    let user =
        json!({ "role": "user", "content": { "type": "text", "text": "What is 6 times 7?" } });
    let mut messages = vec![user];
    if turn == 2 {
        messages.push(json!({ "role": "assistant", "content": [tool_use()] }));
        let result = json!({ "type": "tool_result", "toolUseId": "use-1", "content": [{ "type": "text", "text": "42" }] });
        messages.push(json!({ "role": "user", "content": [result] }));
    }
    json!({ "messages": messages, "maxTokens": 10, "tools": [tool], "toolChoice": { "mode": "auto" } })
}

fn tool_use() -> Value {
    json!({ "type": "tool_use", "id": "use-1", "name": "times", "input": { "a": 6, "b": 7 } })
}

/// Returns a client's correct answer.
fn answer(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" if params["mode"] == "url" => json!({ "action": "accept" }),
        "elicitation/create" => {
            json!({ "action": "accept", "content": { "name": params["message"] } })
        }
        "roots/list" => json!({ "roots": [{ "uri": "file:///work", "name": "work" }] }),
        _ if params.get("tools").is_some() && params["messages"].as_array().unwrap().len() == 1 => {
            json!({ "role": "assistant", "model": "m", "stopReason": "toolUse", "content": [tool_use()] })
        }
        _ => {
            json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "42" } })
        }
    }
}

impl QuestionPairing {
    pub async fn start(client: Revision, server: UpstreamEra, transport: PairingTransport) -> Self {
        let upstream = server.revision_for(client);
        let mock_server = mock_server(server.builder(), upstream).await;
        let reached = transport.reached(&mock_server).await;
        let mut server = reached.config.clone();
        if transport.is_single_stream() {
            // weir declares no client capabilities on a connection that all callers share.
            server["session"] = json!("principal");
        }
        let weir = WeirDeployment::start(json!({
            "upstreams": { "shop": server },
            "endpoints": { "/mcp": { "upstreams": ["shop"] }, "/shop": { "upstream": "shop" } },
        }))
        .await;
        Self {
            weir,
            mock_server,
            client,
            upstream,
            transport,
            _reached: reached,
        }
    }

    pub async fn able(&self, path: &str) -> CheckedClient {
        CheckedClient::with_capabilities(&self.weir.url(path), self.client, everything()).await
    }

    /// Reports if both revisions have it.
    pub fn has(&self, since: Revision) -> bool {
        self.client >= since && self.upstream >= since
    }
}

async fn mock_server(builder: MockServerBuilder, revision: Revision) -> MockServer {
    let url = json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/", "elicitationId": "own-1" });
    let tool = |name: &str, questions: &[(&'static str, Value)]| {
        MockTool::new(name).does_in_turn(asking(revision, questions))
    };
    let both = if revision.is_modern() {
        let requests = json!({
            "a": { "method": "elicitation/create", "params": form() },
            "b": { "method": "roots/list" },
        });
        MockTool::new("both").does_in_turn([
            MockBehaviour::input_required(requests, Some("s")),
            MockBehaviour::echo(),
        ])
    } else {
        let asked = |id: &str, method: &str, params: Value| {
            AnswerStep::Send(
                json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
                    .to_string(),
            )
        };
        let steps = [
            asked("both-1", "elicitation/create", form()),
            AnswerStep::Ask {
                method: "roots/list",
                params: json!({}),
            },
        ];
        MockTool::new("both").does(MockBehaviour::steps(
            steps.into_iter().chain([AnswerStep::Echo]),
        ))
    };
    let nothing = json!({ "resultType": "input_required" });
    let again = MockBehaviour::input_required(
        json!({ "q": { "method": "elicitation/create", "params": form() } }),
        Some("s"),
    );
    let cancelled = json!({ "requestId": "hasty-1", "reason": "never mind" });
    let hasty = MockBehaviour::steps([
        AnswerStep::Send(
            json!({ "jsonrpc": "2.0", "id": "hasty-1", "method": "elicitation/create", "params": form() }).to_string(),
        ),
        AnswerStep::Send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }).to_string()),
        AnswerStep::Echo,
    ]);
    let own = OWN.map(|name| own(revision, name));
    // A stream, not JSON: a server that answers by JSON sends no message before its answer.
    let beside = AnswerStep::AskOnGetStream {
        method: "roots/list",
        params: json!({}),
    };
    let beside = MockBehaviour::steps([beside, AnswerStep::Answer]).as_events();
    own.into_iter()
        .fold(builder, |builder, tool| builder.with(tool))
        .tool("nothing", MockBehaviour::result(nothing))
        .tool("again", again)
        .tool("beside", beside)
        .tool("hasty", hasty)
        .with(tool("declined", &[("elicitation/create", form())]))
        .with(tool("given_up", &[("elicitation/create", form())]))
        .with(tool("unsampled", &[("sampling/createMessage", prompt())]))
        .with_library()
        .with(tool("elicit", &[("elicitation/create", form())]))
        .with(tool("sample", &[("sampling/createMessage", prompt())]))
        .with(tool("roots", &[("roots/list", json!({}))]))
        .with(tool("visit", &[("elicitation/create", url)]))
        .with(tool(
            "turns",
            &[
                ("sampling/createMessage", with_tools(1)),
                ("sampling/createMessage", with_tools(2)),
            ],
        ))
        .tool(
            "sign_in",
            MockBehaviour::steps([AnswerStep::Error(sign_in())]),
        )
        .with(tool("unable", &[("sampling/createMessage", prompt())]))
        .with(both)
        .tools(1)
        .start()
        .await
}

/// Tools that each ask a question of their own, and return the answer if they can.
const OWN: [&str; 3] = ["own_0", "own_1", "own_2"];

fn own(revision: Revision, name: &str) -> MockTool {
    let params = form_with(name);
    if revision.is_modern() {
        let request = json!({ "question": { "method": "elicitation/create", "params": params } });
        return MockTool::new(name).does_in_turn([
            MockBehaviour::input_required(request, Some(name)),
            MockBehaviour::echo(),
        ]);
    }
    MockTool::new(name).does(MockBehaviour::steps([
        AnswerStep::Ask {
            method: "elicitation/create",
            params,
        },
        AnswerStep::Answer,
    ]))
}

/// Returns a tool that asks these one after another and then echoes.
fn asking(revision: Revision, questions: &[(&'static str, Value)]) -> Vec<MockBehaviour> {
    if !revision.is_modern() {
        let steps = questions.iter().map(|(method, params)| AnswerStep::Ask {
            method,
            params: params.clone(),
        });
        return vec![MockBehaviour::steps(steps.chain([AnswerStep::Echo]))];
    }
    let rounds = questions.iter().enumerate().map(|(nth, (method, params))| {
        let mut params = params.clone();
        params.as_object_mut().unwrap().remove("elicitationId");
        let request = json!({ "question": { "method": method, "params": params } });
        MockBehaviour::input_required(request, Some(&format!("state \"{nth}\" \u{1F980}")))
    });
    rounds.chain([MockBehaviour::echo()]).collect()
}

/// Makes a call and answers its questions; returns the questions, and the last message.
async fn converse(
    client: &CheckedClient,
    tool: &str,
    arguments: Value,
) -> (Vec<(String, Value)>, Value) {
    converse_about(
        client,
        "tools/call",
        json!({ "name": tool, "arguments": arguments }),
    )
    .await
}

/// Makes a request of any method and answers its questions.
pub async fn converse_about(
    client: &CheckedClient,
    method: &str,
    mut params: Value,
) -> (Vec<(String, Value)>, Value) {
    let mut asked = Vec::new();
    if !client.revision.is_modern() {
        let mut call = client.start(method, params).await;
        loop {
            let message = call.next().await.unwrap();
            let Some(method) = message["method"].as_str() else {
                return (asked, message);
            };
            if message.get("id").is_none() {
                asked.push((method.to_owned(), message["params"].clone()));
                continue;
            }
            let answer = answer(method, &message["params"]);
            asked.push((method.to_owned(), message["params"].clone()));
            let taken = client.raw().respond(&message["id"], answer).await.unwrap();
            assert_eq!((taken.status.as_u16(), taken.body.len()), (202, 0));
        }
    }
    loop {
        let message = client.ask(method, params.clone()).await.last().clone();
        let result = &message["result"];
        if result["resultType"] != "input_required" {
            return (asked, message);
        }
        assert!(
            result["inputRequests"].is_object() || result["requestState"].is_string(),
            "R167: {result}"
        );
        assert!(
            result.get("ttlMs").is_none() && result.get("cacheScope").is_none(),
            "R154: {result}"
        );
        let mut answers = json!({});
        for (key, request) in result["inputRequests"].as_object().unwrap() {
            let method = request["method"].as_str().unwrap();
            asked.push((method.to_owned(), request["params"].clone()));
            answers[key] = answer(method, &request["params"]);
        }
        params["inputResponses"] = answers;
        params["requestState"] = result["requestState"].clone();
    }
}

/// Returns the answers that the server got, in order.
fn answers_at_server(world: &QuestionPairing, tool: &str) -> Vec<Value> {
    let mock_server = &world.mock_server;
    if world.upstream.is_modern() {
        let calls = mock_server
            .requests_of("tools/call")
            .into_iter()
            .filter(|call| call.tool() == Some(tool));
        let answers =
            calls.filter_map(|call| call.message["params"].get("inputResponses").cloned());
        return answers.map(|answers| answers["question"].clone()).collect();
    }
    mock_server
        .answers()
        .iter()
        .map(|answer| answer["result"].clone())
        .collect()
}

/// A tool of the server, the method that it asks by, and the first revision that has this form of
/// it.
pub struct ServerQuestion {
    tool: &'static str,
    method: &'static str,
    since: Revision,
}

pub const ELICITATION: ServerQuestion = ServerQuestion {
    tool: "elicit",
    method: "elicitation/create",
    since: Revision::V2025_06_18,
};
pub const SAMPLING: ServerQuestion = ServerQuestion {
    tool: "sample",
    method: "sampling/createMessage",
    since: Revision::V2024_11_05,
};
pub const ROOTS: ServerQuestion = ServerQuestion {
    tool: "roots",
    method: "roots/list",
    since: Revision::V2024_11_05,
};

// Proves R168, R181, R182.
pub async fn server_question_reaches_the_client_and_its_answer_the_server(
    world: &QuestionPairing,
    question: &ServerQuestion,
) -> FeatureSupport {
    let ServerQuestion {
        tool,
        method,
        since,
    } = *question;
    if !world.has(since) {
        return server_question_unknown_to_the_revision_is_refused(world, tool, since).await;
    }
    let client = world.able("/mcp").await;
    let (asked, last) = converse(&client, &format!("shop__{tool}"), json!({ "n": 1 })).await;
    assert!(
        last["result"]["content"].is_array() && last["result"]["isError"] != true,
        "{last}"
    );
    let [(asked, with)] = &asked[..] else {
        panic!("{tool}: {asked:?}")
    };
    assert_eq!(asked, method);
    match method {
        "elicitation/create" => {
            assert_eq!(with["message"], "[shop] Who are you?");
            assert_eq!(with["requestedSchema"], form()["requestedSchema"]);
        }
        "sampling/createMessage" => assert_eq!(with["includeContext"], "none", "R190"),
        _ => {}
    }
    assert_eq!(
        answers_at_server(world, tool).last(),
        Some(&answer(method, with)),
        "{tool}"
    );
    if world.upstream.is_modern() {
        // R170, R171: the state unchanged, an id of its own, and the same arguments.
        let calls = world.mock_server.requests_of("tools/call");
        let calls: Vec<_> = calls
            .iter()
            .filter(|call| call.tool() == Some(tool))
            .collect();
        assert_eq!(
            calls[1].message["params"]["requestState"],
            "state \"0\" \u{1F980}"
        );
        assert_eq!(
            calls[1].message["params"]["arguments"],
            calls[0].message["params"]["arguments"]
        );
        // Each replica is a client of its own, and ids are unique within a client.
        if world.weir.processes() == 1 {
            assert_ne!(calls[1].message["id"], calls[0].message["id"]);
        }
    }
    FeatureSupport::Carried
}

/// A server asks a client whose revision does not have the request, although the client declared
/// every capability.
// Proves R182.
async fn server_question_unknown_to_the_revision_is_refused(
    world: &QuestionPairing,
    tool: &str,
    since: Revision,
) -> FeatureSupport {
    if world.upstream < since {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    let answers = world.mock_server.answers().len();
    let (asked, last) = converse(&client, tool, json!({ "n": 1 })).await;
    assert_eq!(asked, [], "{tool}: {last}");
    if world.upstream.is_modern() {
        // The call cannot go on without an answer, and the model reads the reason.
        assert_eq!(last["result"]["isError"], true, "{tool}: {last}");
        return FeatureSupport::Refused;
    }
    // The server gets an error that the client cannot be asked, and goes on.
    assert_eq!(
        last["result"]["content"][0]["text"], r#"{"n":1}"#,
        "{tool}: {last}"
    );
    let refused = world.mock_server.answers().split_off(answers);
    assert!(!refused.is_empty(), "{tool}: the server was answered");
    let codes: Vec<_> = refused
        .iter()
        .map(|answer| answer["error"]["code"].as_i64())
        .collect();
    assert!(
        codes
            .iter()
            .all(|code| matches!(code, Some(-32601 | -32602))),
        "{tool}: {refused:?}"
    );
    FeatureSupport::Refused
}

pub async fn sampling_with_tools_goes_on_for_turns(world: &QuestionPairing) -> FeatureSupport {
    let since = Revision::V2025_11_25;
    if !world.has(since) {
        return server_question_unknown_to_the_revision_is_refused(world, "turns", since).await;
    }
    let client = world.able("/shop").await;
    let (asked, last) = converse(&client, "turns", json!({ "n": 2 })).await;
    assert_eq!(last["result"]["content"][0]["text"], r#"{"n":2}"#, "{last}");
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[0].1["tools"], with_tools(1)["tools"]);
    assert_eq!(asked[1].1["messages"], with_tools(2)["messages"]);
    let heard = answers_at_server(world, "turns");
    assert!(
        heard
            .iter()
            .any(|answer| answer["content"] == json!([tool_use()])),
        "{heard:?}"
    );
    FeatureSupport::Carried
}

pub async fn several_questions_at_once_are_all_answered(world: &QuestionPairing) -> FeatureSupport {
    if !world.has(Revision::V2025_06_18) {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    let (mut asked, last) = converse(&client, "both", json!({ "n": 3 })).await;
    assert_eq!(last["result"]["content"][0]["text"], r#"{"n":3}"#, "{last}");
    asked.sort_by(|one, other| one.0.cmp(&other.0));
    let methods: Vec<_> = asked.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["elicitation/create", "roots/list"]);
    FeatureSupport::Carried
}

// Proves R186.
pub async fn a_url_goes_with_an_id_that_only_2025_11_25_has(
    world: &QuestionPairing,
) -> FeatureSupport {
    let since = Revision::V2025_11_25;
    if !world.has(since) {
        return server_question_unknown_to_the_revision_is_refused(world, "visit", since).await;
    }
    let client = world.able("/shop").await;
    let (asked, last) = converse(&client, "visit", json!({ "n": 4 })).await;
    assert_eq!(last["result"]["content"][0]["text"], r#"{"n":4}"#, "{last}");
    let (_, with) = &asked[0];
    assert_eq!(
        (with["mode"].as_str(), with["url"].as_str()),
        (Some("url"), Some("https://idp.example/"))
    );
    assert_eq!(
        with["elicitationId"].is_string(),
        !world.client.is_modern(),
        "{with}"
    );
    assert_ne!(with["elicitationId"], "own-1", "weir's own");
    FeatureSupport::Carried
}

/// Returns the error of a server of 2025-11-25 for a caller that has to sign in first.
fn sign_in() -> Value {
    let one = json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/", "elicitationId": "own-2" });
    json!({ "code": -32042, "message": "Not yet", "data": { "elicitations": [one] } })
}

// Proves R187, R188.
pub async fn required_url_elicitation_takes_the_form_of_the_revision(
    world: &QuestionPairing,
) -> FeatureSupport {
    if world.upstream != Revision::V2025_11_25 {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    let answer = client.call("sign_in", json!({})).await;
    if world.client.is_modern() {
        let request = &answer.result()["inputRequests"]["visit-1"];
        assert_eq!(
            request["params"],
            json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/" })
        );
        assert!(
            answer.result()["requestState"].is_string(),
            "{}",
            answer.last()
        );
        let unable = CheckedClient::open(&world.weir.url("/shop"), world.client).await;
        let refused = unable.call("sign_in", json!({})).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (400, -32021),
            "{}",
            refused.last()
        );
    } else if world.client == Revision::V2025_11_25 {
        let mut said = answer.error().clone();
        let name = said["data"]["elicitations"][0]["elicitationId"].take();
        assert!(
            name.as_str().is_some_and(|name| name.starts_with("weir-")),
            "R186: weir's own: {name}"
        );
        said["data"]["elicitations"][0]["elicitationId"] = json!("own-2");
        assert_eq!(said, sign_in());
        // A client that did not declare URL elicitation gets the URL as text.
        let unable = CheckedClient::open(&world.weir.url("/shop"), world.client).await;
        let told = unable.call("sign_in", json!({})).await;
        assert_eq!(told.result()["isError"], true, "{}", told.last());
        assert!(
            told.text().contains("https://idp.example/"),
            "{}",
            told.last()
        );
    } else {
        assert_eq!(answer.result()["isError"], true, "{}", answer.last());
        assert!(
            answer.text().contains("https://idp.example/"),
            "{}",
            answer.last()
        );
        return FeatureSupport::Refused;
    }
    FeatureSupport::Carried
}

// Proves E21.
pub async fn client_gets_no_question_without_the_declared_capability(
    world: &QuestionPairing,
) -> FeatureSupport {
    let able = json!({ "roots": {} });
    let client =
        CheckedClient::with_capabilities(&world.weir.url("/shop"), world.client, able).await;
    let (asked, last) = converse(&client, "unable", json!({ "n": 1 })).await;
    assert_eq!(asked, [], "{last}");
    if world.upstream.is_modern() {
        assert_eq!(last["result"]["isError"], true, "{last}");
    } else {
        // Declined, and the call goes on.
        assert_eq!(last["result"]["content"][0]["text"], r#"{"n":1}"#, "{last}");
        assert_eq!(
            world.mock_server.answers().last().unwrap()["error"]["code"],
            -32601
        );
    }
    FeatureSupport::Refused
}

// Proves R167, R180.
pub async fn a_server_that_asks_for_nothing_or_for_ever_is_not_followed(
    world: &QuestionPairing,
) -> FeatureSupport {
    if !world.upstream.is_modern() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    let (asked, last) = converse(&client, "nothing", json!({})).await;
    assert_eq!(
        (asked.len(), &last["result"]["isError"]),
        (0, &json!(true)),
        "R167: {last}"
    );
    assert_eq!(
        world.mock_server.executions("nothing"),
        1,
        "it is not asked again what it wants"
    );
    if world.client.is_modern() || !world.has(Revision::V2025_06_18) {
        // A modern client counts its rounds itself, and a legacy one cannot be asked.
        return FeatureSupport::Refused;
    }
    let (asked, last) = converse(&client, "again", json!({})).await;
    assert_eq!(
        (asked.len(), &last["result"]["isError"]),
        (16, &json!(true)),
        "R180: {last}"
    );
    assert_eq!(world.mock_server.executions("again"), 17);
    FeatureSupport::Refused
}

/// Returns the newest session in which the server was called.
fn session(world: &QuestionPairing) -> String {
    world
        .mock_server
        .requests_of("tools/call")
        .last()
        .and_then(|call| call.session())
        .unwrap()
        .to_owned()
}

// Proves R185.
pub async fn question_outside_of_calls_uses_the_clients_get_stream_or_is_refused(
    world: &QuestionPairing,
) -> FeatureSupport {
    if world.upstream.is_modern() {
        // The server has no channel for that.
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/mcp").await;
    // A call opens a session of the client's own; and the server can ask in it before the call is
    // over.
    world
        .mock_server
        .wait_until("weir listens", |mock_server| {
            mock_server.listeners() >= world.weir.processes()
        })
        .await;
    let mut stream = if world.client.is_modern() {
        None
    } else {
        Some(client.open_change_stream().await)
    };
    assert!(
        client
            .call("shop__tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    let session = session(world);
    let ask = |method: &str, params: &Value| {
        within_test_timeout(
            "its answer",
            world
                .mock_server
                .request_on_get_stream(&session, method, params),
        )
    };
    if let Some(stream) = &mut stream {
        let (answered, ()) = tokio::join!(ask("roots/list", &json!({})), async {
            let asked = stream.next().await.unwrap();
            assert_eq!(asked["method"], "roots/list", "{asked}");
            client
                .raw()
                .respond(&asked["id"], answer("roots/list", &Value::Null))
                .await
                .unwrap();
        });
        assert_eq!(
            answered.unwrap()["result"],
            answer("roots/list", &Value::Null)
        );
    }
    if world.client.is_modern() {
        let refused = ask("roots/list", &json!({})).await.unwrap();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        return FeatureSupport::Refused;
    }
    FeatureSupport::Carried
}

// Proves R182.
pub async fn question_beside_a_call_is_asked_within_the_call(
    world: &QuestionPairing,
) -> FeatureSupport {
    if world.upstream.is_modern() {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/mcp").await;
    // If weir opens the stream beside its calls, it does so before the first call.
    let (asked, last) = converse(&client, "shop__beside", json!({ "n": 1 })).await;
    let methods: Vec<_> = asked.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["roots/list"], "{last}");
    assert_eq!(
        last["result"]["content"][0]["text"],
        answer("roots/list", &Value::Null).to_string(),
        "{last}"
    );
    FeatureSupport::Carried
}

// Proves R172.
pub async fn questions_and_answers_of_parallel_calls_are_never_crossed(
    world: &QuestionPairing,
) -> FeatureSupport {
    if !world.has(Revision::V2025_06_18) {
        return FeatureSupport::NotInRevision;
    }
    let client = world.able("/shop").await;
    let [one, two, three] =
        OWN.map(|tool| Box::pin(converse(&client, tool, json!({ "of": tool }))));
    let (one, two, three) = tokio::join!(one, two, three);
    // Over a single stream a server does not name the call that it asks for: any of the client's
    // calls carries the question, and the server knows that.
    let one_line = world.transport.is_single_stream()
        && !world.upstream.is_modern()
        && !world.client.is_modern();
    for (tool, (asked, last)) in OWN.into_iter().zip([one, two, three]) {
        let messages: Vec<_> = asked.iter().map(|(_, with)| &with["message"]).collect();
        assert!(one_line || messages == [tool], "{messages:?}");
        assert!(
            last["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains(tool),
            "{last}"
        );
    }
    assert!(
        client
            .call("tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    let calls = world.mock_server.requests_of("tools/call");
    let of_rounds = ["requestState", "inputResponses"];
    let with: Vec<_> = calls
        .iter()
        .filter(|call| {
            of_rounds
                .iter()
                .any(|name| call.message["params"].get(name).is_some())
        })
        .collect();
    if !world.upstream.is_modern() {
        assert!(with.is_empty(), "it knows no such words: {with:?}");
        return FeatureSupport::Carried;
    }
    for tool in OWN {
        let [second] = with
            .iter()
            .filter(|call| call.tool() == Some(tool))
            .collect::<Vec<_>>()[..]
        else {
            panic!("{tool}: {with:?}")
        };
        let params = &second.message["params"];
        assert_eq!(
            (&params["requestState"], &params["arguments"]),
            (&json!(tool), &json!({ "of": tool }))
        );
        assert_eq!(
            params["inputResponses"]["question"]["content"],
            json!({ "name": tool })
        );
    }
    assert!(with.iter().all(|call| call.tool() != Some("tool_0000")));
    FeatureSupport::Carried
}

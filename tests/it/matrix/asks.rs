//! What servers ask in the middle of a call: sampling, elicitation, roots, in every pairing.

use serde_json::{Value, json};
use weir_testkit::mockup::{Step, Tool};
use weir_testkit::{Behaviour, MockStdio, Mockup};
use weir_wire::Revision;

use super::world::Transport;
use crate::harness::{Checked, Weir};

/// A server that asks, weir, and what both sides speak.
pub struct Asking {
    weir: Weir,
    mockup: Option<Mockup>,
    client: Revision,
    upstream: Revision,
}

/// Everything a client can be asked.
fn everything() -> Value {
    json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": { "listChanged": true } })
}

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    json!({ "message": "Who are you?", "requestedSchema": schema })
}

fn prompt() -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": "What is 6 times 7?" } });
    json!({ "messages": [message], "maxTokens": 10, "includeContext": "allServers" })
}

/// A prompt with a tool, and the turn that follows its use.
fn with_tools(turn: usize) -> Value {
    let tool = json!({ "name": "times", "inputSchema": { "type": "object" } });
    let user = json!({ "role": "user", "content": { "type": "text", "text": "What is 6 times 7?" } });
    let mut messages = vec![user];
    if turn == 2 {
        messages.push(json!({ "role": "assistant", "content": [tool_use()] }));
        let result =
            json!({ "type": "tool_result", "toolUseId": "use-1", "content": [{ "type": "text", "text": "42" }] });
        messages.push(json!({ "role": "user", "content": [result] }));
    }
    json!({ "messages": messages, "maxTokens": 10, "tools": [tool], "toolChoice": { "mode": "auto" } })
}

fn tool_use() -> Value {
    json!({ "type": "tool_use", "id": "use-1", "name": "times", "input": { "a": 6, "b": 7 } })
}

/// A client's honest answer.
fn answer(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" if params["mode"] == "url" => json!({ "action": "accept" }),
        "elicitation/create" => json!({ "action": "accept", "content": { "name": "Ada" } }),
        "roots/list" => json!({ "roots": [{ "uri": "file:///work", "name": "work" }] }),
        _ if params.get("tools").is_some() && params["messages"].as_array().unwrap().len() == 1 => {
            json!({ "role": "assistant", "model": "m", "stopReason": "toolUse", "content": [tool_use()] })
        }
        _ => json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "42" } }),
    }
}

impl Asking {
    pub async fn start(client: Revision, upstream: Revision, transport: Transport) -> Self {
        let (mockup, server) = match transport {
            Transport::Http => {
                let mockup = mockup(upstream).await;
                let url = mockup.url();
                (Some(mockup), json!({ "url": url }))
            }
            Transport::Stdio => {
                let child = if upstream.is_modern() { MockStdio::modern() } else { MockStdio::legacy(upstream) };
                let (command, args) = child.command();
                (None, json!({ "command": command, "args": args, "session": "principal" }))
            }
        };
        let weir = Weir::with(json!({
            "upstreams": { "shop": server },
            "endpoints": { "/mcp": { "upstreams": ["shop"] }, "/shop": { "upstream": "shop" } },
        }));
        Self { weir, mockup, client, upstream }
    }

    async fn able(&self, path: &str) -> Checked {
        Checked::with_capabilities(&self.weir.url(path), self.client, everything()).await
    }

    /// Calls a tool of the server's, whatever it takes to have it ask this.
    fn call(&self, tool: &str, method: &str, params: &Value) -> (String, Value) {
        match self.mockup {
            Some(_) => (tool.to_owned(), json!({ "n": 1 })),
            None => ("ask".to_owned(), json!({ "ask": method, "params": params })),
        }
    }

    /// Whether both sides have words for it.
    fn has(&self, since: Revision) -> bool {
        self.client >= since && self.upstream >= since
    }
}

async fn mockup(revision: Revision) -> Mockup {
    let builder = if revision.is_modern() { Mockup::modern() } else { Mockup::legacy(revision) };
    let url = json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/", "elicitationId": "own-1" });
    let tool =
        |name: &str, questions: &[(&'static str, Value)]| Tool::new(name).does_in_turn(asking(revision, questions));
    let both = if revision.is_modern() {
        let requests = json!({
            "a": { "method": "elicitation/create", "params": form() },
            "b": { "method": "roots/list" },
        });
        Tool::new("both").does_in_turn([Behaviour::input_required(requests, Some("s")), Behaviour::echo()])
    } else {
        let asked = |id: &str, method: &str, params: Value| {
            Step::Send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())
        };
        let steps =
            [asked("both-1", "elicitation/create", form()), Step::Ask { method: "roots/list", params: json!({}) }];
        Tool::new("both").does(Behaviour::steps(steps.into_iter().chain([Step::Echo])))
    };
    builder
        .with(tool("elicit", &[("elicitation/create", form())]))
        .with(tool("sample", &[("sampling/createMessage", prompt())]))
        .with(tool("roots", &[("roots/list", json!({}))]))
        .with(tool("visit", &[("elicitation/create", url)]))
        .with(tool("turns", &[("sampling/createMessage", with_tools(1)), ("sampling/createMessage", with_tools(2))]))
        .tool("sign_in", Behaviour::steps([Step::Error(sign_in())]))
        .with(tool("unable", &[("sampling/createMessage", prompt())]))
        .with(both)
        .tools(1)
        .start()
        .await
}

/// A tool that asks these one after another and then echoes.
fn asking(revision: Revision, questions: &[(&'static str, Value)]) -> Vec<Behaviour> {
    if !revision.is_modern() {
        let steps = questions.iter().map(|(method, params)| Step::Ask { method, params: params.clone() });
        return vec![Behaviour::steps(steps.chain([Step::Echo]))];
    }
    let rounds = questions.iter().enumerate().map(|(nth, (method, params))| {
        let mut params = params.clone();
        params.as_object_mut().unwrap().remove("elicitationId");
        let request = json!({ "question": { "method": method, "params": params } });
        Behaviour::input_required(request, Some(&format!("state \"{nth}\" \u{1F980}")))
    });
    rounds.chain([Behaviour::echo()]).collect()
}

/// Makes a call and answers what comes; gives what was asked, and the last message.
async fn converse(client: &Checked, tool: &str, arguments: Value) -> (Vec<(String, Value)>, Value) {
    let mut asked = Vec::new();
    let mut params = json!({ "name": tool, "arguments": arguments });
    if !client.revision.is_modern() {
        let mut call = client.start("tools/call", params).await;
        loop {
            let message = call.next().await.unwrap();
            let Some(method) = message["method"].as_str() else { return (asked, message) };
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
        let message = client.ask("tools/call", params.clone()).await.last().clone();
        let result = &message["result"];
        if result["resultType"] != "input_required" {
            return (asked, message);
        }
        assert!(result.get("ttlMs").is_none() && result.get("cacheScope").is_none(), "R154: {result}");
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

/// The answers that the server got, in order.
fn heard(world: &Asking, tool: &str, message: &Value) -> Vec<Value> {
    let Some(mockup) = &world.mockup else {
        let said: Value = serde_json::from_str(message["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        return vec![if world.upstream.is_modern() {
            said["answers"]["question"].clone()
        } else {
            said["result"].clone()
        }];
    };
    if world.upstream.is_modern() {
        let calls = mockup.requests_of("tools/call").into_iter().filter(|call| call.tool() == Some(tool));
        let answers = calls.filter_map(|call| call.message["params"].get("inputResponses").cloned());
        return answers.map(|answers| answers["question"].clone()).collect();
    }
    mockup.answers().iter().map(|answer| answer["result"].clone()).collect()
}

pub async fn r168_r181_r182_what_a_server_asks_reaches_the_client_and_the_answer_the_server(world: &Asking) {
    let client = world.able("/mcp").await;
    let questions = [
        ("elicit", "elicitation/create", form(), Revision::V2025_06_18),
        ("sample", "sampling/createMessage", prompt(), Revision::V2024_11_05),
        ("roots", "roots/list", json!({}), Revision::V2024_11_05),
    ];
    for (tool, method, params, since) in questions {
        if !world.has(since) {
            continue;
        }
        let (name, arguments) = world.call(tool, method, &params);
        let (asked, last) = converse(&client, &format!("shop__{name}"), arguments).await;
        assert!(last["result"]["content"].is_array() && last["result"]["isError"] != true, "{last}");
        let [(asked, with)] = &asked[..] else { panic!("{tool}: {asked:?}") };
        assert_eq!(asked, method);
        match method {
            "elicitation/create" => {
                assert_eq!(with["message"], "[shop] Who are you?");
                assert_eq!(with["requestedSchema"], form()["requestedSchema"]);
            }
            "sampling/createMessage" => assert_eq!(with["includeContext"], "none", "R190"),
            _ => {}
        }
        assert_eq!(heard(world, tool, &last).last(), Some(&answer(method, with)), "{tool}");
    }
    if let Some(mockup) = world.mockup.as_ref().filter(|_| world.upstream.is_modern()) {
        // R170, R171: the state as it was, an id of its own, and the very arguments.
        let calls = mockup.requests_of("tools/call");
        let calls: Vec<_> = calls.iter().filter(|call| call.tool() == Some("sample")).collect();
        assert_eq!(calls[1].message["params"]["requestState"], "state \"0\" \u{1F980}");
        assert_eq!(calls[1].message["params"]["arguments"], calls[0].message["params"]["arguments"]);
        assert_ne!(calls[1].message["id"], calls[0].message["id"]);
    }
}

pub async fn sampling_with_tools_goes_on_for_turns(world: &Asking) {
    if !world.has(Revision::V2025_11_25) || world.mockup.is_none() {
        return;
    }
    let client = world.able("/shop").await;
    let (asked, last) = converse(&client, "turns", json!({ "n": 2 })).await;
    assert_eq!(last["result"]["content"][0]["text"], r#"{"n":2}"#, "{last}");
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[0].1["tools"], with_tools(1)["tools"]);
    assert_eq!(asked[1].1["messages"], with_tools(2)["messages"]);
    let heard = heard(world, "turns", &last);
    assert!(heard.iter().any(|answer| answer["content"] == json!([tool_use()])), "{heard:?}");
}

pub async fn several_questions_at_once_are_all_answered(world: &Asking) {
    if !world.has(Revision::V2025_06_18) || world.mockup.is_none() {
        return;
    }
    let client = world.able("/shop").await;
    let (mut asked, last) = converse(&client, "both", json!({ "n": 3 })).await;
    assert_eq!(last["result"]["content"][0]["text"], r#"{"n":3}"#, "{last}");
    asked.sort_by(|one, other| one.0.cmp(&other.0));
    let methods: Vec<_> = asked.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["elicitation/create", "roots/list"]);
}

pub async fn r186_a_url_goes_with_an_id_that_only_2025_11_25_has(world: &Asking) {
    if !world.has(Revision::V2025_11_25) || world.mockup.is_none() {
        return;
    }
    let client = world.able("/shop").await;
    let (asked, last) = converse(&client, "visit", json!({ "n": 4 })).await;
    assert_eq!(last["result"]["content"][0]["text"], r#"{"n":4}"#, "{last}");
    let (_, with) = &asked[0];
    assert_eq!((with["mode"].as_str(), with["url"].as_str()), (Some("url"), Some("https://idp.example/")));
    assert_eq!(with["elicitationId"].is_string(), !world.client.is_modern(), "{with}");
    assert_ne!(with["elicitationId"], "own-1", "weir's own");
}

/// What a server of 2025-11-25 says to who has to sign in first.
fn sign_in() -> Value {
    let one = json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/", "elicitationId": "own-2" });
    json!({ "code": -32042, "message": "Not yet", "data": { "elicitations": [one] } })
}

pub async fn r187_r188_a_url_to_visit_first_is_told_in_the_words_of_the_revision(world: &Asking) {
    if world.upstream != Revision::V2025_11_25 || world.mockup.is_none() {
        return;
    }
    let client = world.able("/shop").await;
    let answer = client.call("sign_in", json!({})).await;
    if world.client.is_modern() {
        let request = &answer.result()["inputRequests"]["visit-1"];
        assert_eq!(request["params"], json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/" }));
        assert!(answer.result()["requestState"].is_string(), "{}", answer.last());
        let unable = Checked::open(&world.weir.url("/shop"), world.client).await;
        let refused = unable.call("sign_in", json!({})).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (400, -32021), "{}", refused.last());
    } else if world.client == Revision::V2025_11_25 {
        assert_eq!(answer.error(), &sign_in());
    } else {
        assert_eq!(answer.result()["isError"], true, "{}", answer.last());
        assert!(answer.text().contains("https://idp.example/"), "{}", answer.last());
    }
}

pub async fn e21_a_client_is_not_asked_what_it_did_not_declare(world: &Asking) {
    let able = json!({ "roots": {} });
    let client = Checked::with_capabilities(&world.weir.url("/shop"), world.client, able).await;
    let (name, arguments) = world.call("unable", "sampling/createMessage", &prompt());
    let (asked, last) = converse(&client, &name, arguments).await;
    assert_eq!(asked, [], "{last}");
    match &world.mockup {
        Some(mockup) if !world.upstream.is_modern() => {
            // Declined, and the call goes on.
            assert_eq!(last["result"]["content"][0]["text"], r#"{"n":1}"#, "{last}");
            assert_eq!(mockup.answers().last().unwrap()["error"]["code"], -32601);
        }
        None if !world.upstream.is_modern() => assert!(last.to_string().contains("-32601"), "{last}"),
        _ => assert_eq!(last["result"]["isError"], true, "{last}"),
    }
}

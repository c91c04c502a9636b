//! Clients whose requests mean one call to weir and another to a server that reads names without
//! regard to case, arguments that no checker can read, and states that weir never sealed.

use http::Method;
use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockServerBuilder, MockTool};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, RawClient};
use weir_wire::{Revision, meta};

use crate::harness::wait_until;
use crate::hostile_input::{RequestDraft, WeirWithUpstream, assert_refused, usual_tools};

/// A rule on arguments, and a hidden tool.
const RULES: &str = r#"
    permit(principal, action, resource);
    @id("no-prod")
    forbid(principal, action == Action::"call", resource)
    when { context.arguments.hasTag("/db/name") && context.arguments.getTag("/db/name") == "prod" };
    forbid(principal, action, resource) when { resource.name == "smuggled" };
"#;

/// Returns a modern call of `echo` with the id `i` as text, for the tests that spell it in another
/// way.
fn spelled(stage: &WeirWithUpstream, from: &str, to: &str) -> (http::HeaderMap, String) {
    let mut draft = stage.draft_call();
    draft.body["id"] = json!("i");
    let good = draft.body.to_string();
    let body = good.replacen(from, to, 1);
    assert_ne!(body, good, "there is no {from} in {good}");
    (draft.headers, body)
}

/// Returns the members of a request to the upstream, as a server reads them that ignores case.
fn folded(heard: &Value) -> Vec<String> {
    let Value::Object(members) = heard else {
        return Vec::new();
    };
    members
        .keys()
        .map(|key| weir_wire::case_folding::folded(key))
        .collect()
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_differ_from_known_ones_in_case_alone_are_32602_and_reach_no_upstream() {
    let mut stage = WeirWithUpstream::with_config(json!({ "policy": { "inline": RULES } })).await;
    let name = r#""name":"echo""#;
    let arguments = r#""arguments":{"#;
    let head = r#""method":"tools/call""#;
    for (from, to) in [
        // In the envelope.
        (head, r#""method":"tools/call","Method":"tools/list""#),
        (head, r#""method":"tools/call","METHOD":"x""#),
        (
            head,
            r#""Params":{"name":"smuggled"},"method":"tools/call""#,
        ),
        (
            head,
            "\"method\":\"tools/call\",\"param\u{17f}\":{\"name\":\"smuggled\"}",
        ),
        (head, r#""method":"tools/call","Id":7"#),
        (head, r#""method":"tools/call","JSONRPC":"1.0""#),
        (head, r#""method":"tools/call","\u0052esult":{}"#),
        (head, r#""Method":"tools/call""#),
        // In the params.
        (name, r#""name":"echo","Name":"smuggled""#),
        (name, r#""Name":"smuggled","name":"echo""#),
        (name, r#""name":"echo","\u004eame":"smuggled""#),
        (name, r#""name":"echo","na\u004de":"smuggled""#),
        (
            arguments,
            "\"argument\u{17f}\":{\"from\":\"evil\"},\"arguments\":{",
        ),
        (arguments, r#""ARGUMENTS":{"from":"evil"},"arguments":{"#),
        (arguments, r#""RequestState":"x","arguments":{"#),
        (arguments, r#""inputresponses":{},"arguments":{"#),
        (arguments, "\"tas\u{212a}\":{},\"arguments\":{"),
        (arguments, r#""URI":"x","arguments":{"#),
        (arguments, r#""_Meta":{"progressToken":1},"arguments":{"#),
        // In `_meta`.
        (r#""_meta":{"#, r#""_meta":{"ProgressToken":1,"#),
        (
            r#""_meta":{"#,
            r#""_meta":{"IO.modelcontextprotocol/protocolVersion":"2025-11-25","#,
        ),
        (
            r#""_meta":{"#,
            r#""_meta":{"io.modelcontextprotocol/\u0043lientInfo":{},"#,
        ),
        (r#""_meta":{"#, r#""_meta":{"TraceParent":"x","#),
    ] {
        let (headers, body) = spelled(&stage, from, to);
        let answer = stage.send(Method::POST, headers, body).await;
        assert_refused(to, &answer, 400, -32602, &json!("i"));
        stage.assert_still_serving(to).await;
    }
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_no_revision_knows_go_on_byte_for_byte() {
    let mut stage = WeirWithUpstream::new().await;
    for member in [
        r#""x-vendor":{"Name":"a","name":"b"}"#,
        r#""names":1"#,
        r#""n\u0061mes":[ 1 , 2.0 ]"#,
        r#""ｎame":1"#,
        "\"n\u{430}me\":1",
        "\"ur\u{131}\":1",
        "\"ur\u{130}\":1",
        r#""ref":{"Name":1}"#,
        r#""\ud800Name":1"#,
    ] {
        let (headers, body) = spelled(
            &stage,
            r#""name":"echo""#,
            &format!("{member},\"name\":\"echo\""),
        );
        let answer = stage.send(Method::POST, headers, body).await;
        assert_eq!(answer.status, 200, "{member}: {:?}", answer.body);
        let heard = stage.take_client_requests();
        assert_eq!(heard.len(), 1, "{member}");
        let sent = String::from_utf8_lossy(&heard[0].body).into_owned();
        assert!(sent.contains(member), "{member}: {sent}");
    }
    for key in [
        r#""com.example/ProgressToken":1"#,
        r#""progress_token":1"#,
        r#""UI":{}"#,
    ] {
        let (headers, body) = spelled(&stage, r#""_meta":{"#, &format!("\"_meta\":{{{key},"));
        assert_eq!(
            stage.send(Method::POST, headers, body).await.status,
            200,
            "{key}"
        );
        let heard = stage.take_client_requests();
        assert!(
            String::from_utf8_lossy(&heard[0].body).contains(key),
            "{key}"
        );
    }
    stage.assert_still_serving("vendors' members").await;
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn known_members_reach_the_upstream_under_their_exact_names() {
    let mut stage = WeirWithUpstream::new().await;
    let (headers, body) = spelled(&stage, r#""name":"echo""#, r#""n\u0061me":"\u0065cho""#);
    let body = body.replacen(r#""arguments":"#, r#""\u0061rguments":"#, 1);
    let answer = stage.send(Method::POST, headers, body).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let heard = stage.take_client_requests();
    let sent = String::from_utf8_lossy(&heard[0].body).into_owned();
    assert!(
        sent.contains(r#""name":"echo""#) && sent.contains(r#""arguments":{"#),
        "{sent}"
    );
    assert!(!sent.contains("\\u00"), "{sent}");
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_member_names_are_refused_in_all_legacy_revisions_and_batches() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        let body = r#"{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{"name":"echo","Name":"smuggled"}}"#;
        let answer = stage.post_as(&client, &[], body).await;
        assert_refused(&format!("{revision:?}"), &answer, 400, -32602, &json!("i"));
        let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"RequestId":1,"requestId":2}}"#;
        let answer = stage.post_as(&client, &[], note).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, -32602),
            "{revision:?}"
        );
        stage
            .assert_still_serving("a legacy client's letters")
            .await;
    }
    let client = stage.legacy_client(Revision::V2025_03_26).await;
    let items = r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","NAME":"smuggled"}},
        {"jsonrpc":"2.0","id":2,"Method":"tools/list","method":"ping"},{"jsonrpc":"2.0","id":3,"method":"ping"}]"#;
    let answer = stage.post_as(&client, &[], items).await;
    let to = |id: u64| {
        answer
            .messages
            .iter()
            .find(|message| message["id"] == id)
            .unwrap()
    };
    assert_eq!(
        (&to(1)["error"]["code"], &to(2)["error"]["code"]),
        (&json!(-32602), &json!(-32602))
    );
    assert_eq!(to(3)["result"], json!({}));
    stage.assert_still_serving("a batch").await;
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_completion_references_are_refused() {
    let upstream = usual_tools(MockServer::modern());
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    let reference = json!({ "ref": { "type": "ref/prompt", "name": "p", "Name": "hidden" }, "argument": { "name": "a", "value": "" } });
    for client in [
        stage.modern_client(),
        stage.legacy_client(Revision::V2025_11_25).await,
    ] {
        let answer = client
            .ask("completion/complete", reference.clone())
            .await
            .unwrap();
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, -32602),
            "{:?}",
            answer.body
        );
    }
    stage.assert_still_serving("a reference").await;
}

/// The extension that client and upstream share in the test below.
const OWN: &str = "com.example/stars";

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn extension_requests_are_checked_for_ambiguity_only_in_meta() {
    let about = json!({
        "resultType": "complete", "supportedVersions": [Revision::MODERN.as_str()], "ttlMs": 0, "cacheScope": "private",
        "capabilities": { "tools": {}, "extensions": { OWN: {} } },
    });
    let upstream = usual_tools(MockServer::modern())
        .with_rule("server/discover", MockBehaviour::result(about))
        .with_rule(
            "com.example/give",
            MockBehaviour::result(json!({ "resultType": "complete" })),
        );
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    let draft = |stage: &WeirWithUpstream, name: &str, value: Value| {
        let mut draft =
            stage.draft_request("com.example/give", json!({ "Name": 1, "name": 2, "n": 3 }));
        draft.meta().insert(
            meta::CLIENT_CAPABILITIES.to_owned(),
            json!({ "extensions": { OWN: {} } }),
        );
        draft.meta().insert(name.to_owned(), value);
        draft
    };
    let answer = draft(&stage, "own", json!(1)).post(&stage).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let heard = stage.take_client_requests();
    assert_eq!(
        (
            &heard[0].message["params"]["Name"],
            &heard[0].message["params"]["name"]
        ),
        (&json!(1), &json!(2))
    );
    let mut bad = draft(&stage, "ProgressToken", json!(1));
    bad.body["id"] = json!("i");
    assert_refused("_meta", &bad.post(&stage).await, 400, -32602, &json!("i"));
    stage.assert_still_serving("an extension").await;
}

/// Returns `echo`, and `write` with a schema that names properties on several levels.
fn named() -> MockServerBuilder {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "db": { "type": "object", "properties": { "name": { "type": "string" }, "NAME": { "type": "string" } } },
            "list": { "type": "array", "items": { "type": "object", "properties": { "task": {} } } },
        },
    });
    usual_tools(MockServer::modern()).with(MockTool::new("write").with("inputSchema", schema))
}

fn is_refused(answer: &ClientAnswer) -> bool {
    answer.last().get("error").is_some() || answer.result()["isError"] == true
}

async fn call(client: &RawClient, arguments: &str) -> ClientAnswer {
    let RequestDraft { headers, body } = RequestDraft::of(
        client,
        "tools/call",
        json!({ "name": "write", "arguments": "HERE" }),
    );
    let body = body.to_string().replacen("\"HERE\"", arguments, 1);
    client
        .send(Method::POST, headers, body)
        .await
        .unwrap()
        .finish()
        .await
        .unwrap()
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_differ_from_named_ones_in_case_alone_are_refused_where_they_are_checked() {
    let mut stage = WeirWithUpstream::with_upstream(named(), json!({})).await;
    for client in [
        stage.modern_client(),
        stage.legacy_client(Revision::V2025_06_18).await,
    ] {
        for arguments in [
            r#"{"path":"a","Path":"b"}"#,
            r#"{"\u0050ath":"b"}"#,
            r#"{"db":{"name":"x","Name":"prod"}}"#,
            r#"{"DB":{"name":"prod"}}"#,
            "{\"list\":[{\"task\":1},{\"ta\u{17f}\u{212a}\":2}]}",
        ] {
            let answer = call(&client, arguments).await;
            assert!(is_refused(&answer), "{arguments}: {:?}", answer.body);
            assert!(
                String::from_utf8_lossy(&answer.body).contains("case alone"),
                "{arguments}: {:?}",
                answer.body
            );
            stage.assert_still_serving(arguments).await;
        }
        for arguments in [
            r#"{"path":"a","db":{"name":"x","NAME":"y"},"list":[{"task":1,"Other":2}],"Free":{"PATH":1}}"#,
            "{\"path\":\"a\",\"l\u{131}st\":1}",
        ] {
            let answer = call(&client, arguments).await;
            assert!(!is_refused(&answer), "{arguments}: {:?}", answer.body);
            let heard = stage.take_client_requests();
            let sent = String::from_utf8_lossy(&heard[0].body).into_owned();
            assert!(
                sent.contains(&format!("\"arguments\":{arguments}")),
                "{sent}"
            );
        }
    }
    // Unchecked they pass: no decision depends on them.
    let mut stage =
        WeirWithUpstream::with_config(json!({ "validation": { "input": "off" } })).await;
    let answer = stage
        .modern_client()
        .call("echo", json!({ "Path": 1, "path": 2 }))
        .await
        .unwrap();
    assert!(!is_refused(&answer), "{:?}", answer.body);
    assert_eq!(
        folded(&stage.take_client_requests()[0].message["params"]["arguments"]),
        ["path", "path"]
    );
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_differ_from_those_of_a_rule_in_case_alone_are_refused() {
    // Without validation only the rule looks at the arguments. Names that the tool's own schema has
    // in both spellings are different arguments.
    let config = json!({ "policy": { "inline": RULES }, "validation": { "input": "off" } });
    let mut stage = WeirWithUpstream::with_upstream(named(), config).await;
    let client = stage.modern_client();
    for arguments in [
        r#"{"db":{"name":"prod"}}"#,
        r#"{"DB":{"name":"prod"}}"#,
        r#"{"db":{"nAme":"prod"}}"#,
        r#"{"db":{"name":"test","\u004eame":"prod"}}"#,
    ] {
        let answer = call(&client, arguments).await;
        assert!(is_refused(&answer), "{arguments}: {:?}", answer.body);
        stage.assert_still_serving(arguments).await;
    }
    for arguments in [
        r#"{"db":{"name":"test","NAME":"x"},"Path":"b","path":"a"}"#,
        r#"{"other":{"Name":"prod"}}"#,
    ] {
        let answer = call(&client, arguments).await;
        assert!(!is_refused(&answer), "{arguments}: {:?}", answer.body);
        stage.take_client_requests();
    }
    stage.assert_still_serving("rules").await;
}

// Proves B04.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_differ_from_mirrored_ones_in_case_alone_are_refused() {
    let schema = json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
    let upstream =
        usual_tools(MockServer::modern()).with(MockTool::new("write").with("inputSchema", schema));
    let mut stage =
        WeirWithUpstream::with_upstream(upstream, json!({ "validation": { "input": "off" } }))
            .await;
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    let answer = call(&client, r#"{"region":"eu","Region":"us"}"#).await;
    assert!(is_refused(&answer), "{:?}", answer.body);
    stage.assert_still_serving("a mirrored argument").await;
    let answer = call(&client, r#"{"region":"eu","Other":"us"}"#).await;
    assert!(!is_refused(&answer), "{:?}", answer.body);
    assert_eq!(
        stage.take_client_requests()[0].header("mcp-param-region"),
        Some("eu")
    );
}

// Proves B24.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_no_checker_can_read_are_32602_with_their_place() {
    let mut stage = WeirWithUpstream::with_upstream(named(), json!({})).await;
    for (arguments, place) in [
        (r#"{"path":5,"z":1e999}"#, "/z"),
        (r#"{"path":5,"z":[0,{"a/b":-1e999}]}"#, "/z/1/a~1b"),
        (r#"{"path":5,"z":"\ud800"}"#, "/z"),
        (r#"{"path":5,"z":{"\udc00":1}}"#, "/z/"),
    ] {
        for client in [
            stage.modern_client(),
            stage.legacy_client(Revision::V2025_11_25).await,
        ] {
            let answer = call(&client, arguments).await;
            assert_eq!(answer.code(), -32602, "{arguments}: {:?}", answer.body);
            assert!(
                answer.error()["message"].as_str().unwrap().contains(place),
                "{arguments}: {:?}",
                answer.body
            );
            stage.assert_still_serving(arguments).await;
        }
    }
}

// Proves B24.
#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_arguments_leads_past_the_schema() {
    let mut stage = WeirWithUpstream::with_upstream(named(), json!({})).await;
    let client = stage.modern_client();
    for count in [20_001, 60_000, 99_000] {
        let padding = vec!["0"; count].join(",");
        let bad = call(&client, &format!(r#"{{"path":5,"pad":[{padding}]}}"#)).await;
        assert!(is_refused(&bad), "{count}");
        stage.assert_still_serving("many arguments").await;
        let good = call(&client, &format!(r#"{{"path":"a","pad":[{padding}]}}"#)).await;
        assert!(!is_refused(&good), "{count}: {:?}", good.last());
        assert_eq!(stage.take_client_requests().len(), 1);
    }
    // Typed items are checked, too.
    let tasks = vec![r#"{"task":1}"#; 20_000].join(",");
    assert!(is_refused(
        &call(&client, &format!(r#"{{"path":5,"list":[{tasks}]}}"#)).await
    ));
    assert!(!is_refused(
        &call(&client, &format!(r#"{{"path":"a","list":[{tasks}]}}"#)).await
    ));
}

// Proves B23.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_cannot_be_used_refuses_only_where_the_operator_wrote_enforce() {
    let broken = || {
        let schema = json!({ "type": "object", "$ref": "https://example.com/schema.json" });
        usual_tools(MockServer::modern()).with(MockTool::new("write").with("inputSchema", schema))
    };
    let mut stage = WeirWithUpstream::with_upstream(broken(), json!({})).await;
    assert!(
        !is_refused(&call(&stage.modern_client(), r#"{"any":1}"#).await),
        "by default it is flagged and unchecked"
    );
    assert_eq!(stage.take_client_requests().len(), 1);
    assert!(
        stage
            .weir
            .metric("weir_validation_unchecked_total", &["foreign_reference"])
            >= 1.0
    );

    let mut stage =
        WeirWithUpstream::with_upstream(broken(), json!({ "validation": { "input": "enforce" } }))
            .await;
    let answer = call(&stage.modern_client(), r#"{"any":1}"#).await;
    assert!(is_refused(&answer), "{:?}", answer.body);
    assert!(
        String::from_utf8_lossy(&answer.body).contains("schema cannot be used"),
        "{:?}",
        answer.body
    );
    stage.assert_still_serving("a broken schema").await;
}

// Proves B24.
#[tokio::test(flavor = "multi_thread")]
async fn under_enforce_no_result_passes_that_no_checker_can_read() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let upstream = |content: &str| {
        let result =
            format!(r#"{{"resultType":"complete","content":[],"structuredContent":{content}}}"#);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":"$id","result":{result}}}"#);
        let tool = MockTool::new("write").with("outputSchema", schema.clone());
        usual_tools(MockServer::modern())
            .with(tool.does(MockBehaviour::steps([AnswerStep::Send(answer)])))
    };
    let zeros = vec!["0"; 100_001].join(",");
    for content in [
        r#"{"n":"x","z":1e999}"#,
        r#"{"n":"x","z":"\ud800"}"#,
        &format!(r#"{{"n":"x","list":[{zeros}]}}"#),
    ] {
        let shown: String = content.chars().take(40).collect();
        let stage = WeirWithUpstream::with_upstream(
            upstream(content),
            json!({ "validation": { "output": "enforce" } }),
        )
        .await;
        for client in [
            stage.modern_client(),
            stage.legacy_client(Revision::V2025_11_25).await,
        ] {
            let answer = call(&client, "{}").await;
            assert!(is_refused(&answer), "{shown}: {:?}", answer.status);
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(
                said.contains("cannot be checked against its output schema"),
                "{shown}: {said:.200}"
            );
        }
        // This client cannot read the other results either.
        if content.contains("list") {
            let stage = WeirWithUpstream::with_upstream(upstream(content), json!({})).await;
            assert!(
                !is_refused(&call(&stage.modern_client(), "{}").await),
                "{shown}: by default it passes"
            );
        }
    }
}

// Proves B06.
#[tokio::test(flavor = "multi_thread")]
async fn members_of_results_that_differ_in_case_alone_from_those_that_weir_writes_reach_no_client()
{
    let evil = concat!(
        r#""ResultType":"input_required","RequestState":"raw","INPUTREQUESTS":{"a":{}},"taskid":"t","_Meta":{"x":1},"#,
        "\"re\u{17f}ultType\":\"task\",\"tas\u{212a}Id\":\"t\",\"\\u0052EQUESTSTATE\":\"raw\",\"kept\":{\"ResultType\":1}"
    );
    // Small, and too large to be held for its type.
    for padding in [10, 100_000, 6_000_000] {
        let content = format!(r#"[{{"type":"text","text":"{}"}}]"#, "x".repeat(padding));
        for result in [
            format!(r#"{{{evil},"content":{content},"resultType":"complete"}}"#),
            format!(r#"{{"resultType":"complete","content":{content},{evil}}}"#),
        ] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":"$id","result":{result}}}"#);
            let tool =
                MockTool::new("write").does(MockBehaviour::steps([AnswerStep::Send(answer)]));
            let upstream = usual_tools(MockServer::modern()).with(tool);
            let stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
            for client in [
                stage.modern_client(),
                stage.legacy_client(Revision::V2025_11_25).await,
            ] {
                let answer = call(&client, "{}").await;
                assert_eq!(answer.status, 200, "{padding}");
                let result = &answer.last()["result"];
                let known = ["resultType", "_meta", "content", "kept"];
                let members: Vec<_> = result
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(String::as_str)
                    .collect();
                assert!(
                    members.iter().all(|name| known.contains(name)),
                    "{padding}: {members:?}"
                );
                assert_eq!(result["kept"], json!({ "ResultType": 1 }), "{padding}");
            }
        }
    }
}

// Proves B19.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_weir_did_not_seal_costs_no_more_than_its_bytes() {
    let mut stage = WeirWithUpstream::new().await;
    // Small objects, which take the most memory as a tree.
    let arguments = json!({ "list": vec![json!({ "a": 0 }); 29_000] });
    let send = async |state: &str| {
        let params = json!({ "name": "echo", "arguments": arguments, "requestState": state });
        stage.draft_request("tools/call", params).post(&stage).await
    };
    let warm = send("AAAA").await;
    assert_eq!(warm.code(), -32602, "{:?}", warm.body);
    let before = stage.weir.memory();
    for _ in 0..8 {
        let answer = send(&"A".repeat(400)).await;
        assert_eq!(answer.code(), -32602, "{:?}", answer.body);
    }
    let grown = stage.weir.peak_memory().saturating_sub(before);
    assert!(
        grown < 12 << 20,
        "grew by {} KiB for bodies of 233 KiB",
        grown >> 10
    );
    stage.assert_still_serving("forged states").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_nested_too_deeply_is_left_out_and_the_others_are_served() {
    // Also in a list that is larger than the part of a call's result that is kept whole.
    for (levels, padding) in [
        (70, 0),
        (300, 0),
        (5_000, 0),
        (70, 200_000),
        (5_000, 1 << 20),
    ] {
        let deep = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let much = "x".repeat(padding);
        let list = format!(
            r#"{{"jsonrpc":"2.0","id":"$id","result":{{"resultType":"complete","ttlMs":0,"cacheScope":"private","much":"{much}","tools":[{{"name":"deep","inputSchema":{{"type":"object","x":{deep}}}}},{{"name":"echo","inputSchema":{{"type":"object"}}}}]}}}}"#
        );
        let upstream = usual_tools(MockServer::modern())
            .with_rule("tools/list", MockBehaviour::steps([AnswerStep::Send(list)]));
        let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
        let names: Vec<_> = stage
            .modern_client()
            .list_tools()
            .await
            .unwrap()
            .iter()
            .map(|tool| tool["name"].clone())
            .collect();
        assert_eq!(names, ["echo"], "{levels} {padding}");
        wait_until(&format!("the log line of {levels} {padding}"), || {
            let said = stage.weir.process.output();
            (said.contains("invalid list item skipped") && said.contains("deep")).then_some(())
        });
        assert!(
            stage
                .weir
                .metric("weir_upstream_protocol_errors_total", &["bad_list_item"])
                >= 1.0,
            "{levels}"
        );
        assert!(
            stage
                .weir
                .get_admin_page("/")
                .contains("An item of its list was left out"),
            "{levels} {padding}"
        );
        stage.assert_still_serving("a deep tool").await;
    }
}

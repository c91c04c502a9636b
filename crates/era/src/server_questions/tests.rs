#![allow(clippy::unwrap_used, reason = "a test may panic")]
use serde_json::{Value, json};
use weir_core::CapabilityClass as C;
use weir_wire::{JsonLimits, Message};

use super::*;

fn question(method: Method, params: &Value) -> UpstreamQuestion {
    UpstreamQuestion {
        method,
        params: Bytes::from(params.to_string()),
    }
}

fn lowered(revision: Revision, question: &UpstreamQuestion) -> Result<Value, QuestionRefusal> {
    let id = RequestId::from_text("ask-1");
    let to = QuestionLowering {
        revision,
        id: &id,
        wants_progress: true,
        elicitation_id: "e-1",
    };
    lower(question, &to).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

fn request(text: &str) -> Request {
    match Message::parse(
        Bytes::copy_from_slice(text.as_bytes()),
        &JsonLimits::default(),
    )
    .unwrap()
    {
        Message::Request(request) => request,
        other @ (Message::Notification(_) | Message::Response(_)) => panic!("{other:?}"),
    }
}

// Proves R168.
#[test]
fn client_is_asked_only_in_declared_modes() {
    let may = |class: C, method: Method, params: &str| may_ask(class, method, params.as_bytes());
    let (sampling, elicit, roots) = (
        Method::SamplingCreateMessage,
        Method::ElicitationCreate,
        Method::RootsList,
    );
    for (class, method, params, expected) in [
        (C::SAMPLING, sampling, "{}", Ok(())),
        (C::SAMPLING, sampling, r#"{"tools":null}"#, Ok(())),
        (
            C::SAMPLING,
            sampling,
            r#"{"tools":[]}"#,
            Err(QuestionRefusal::UndeclaredMode),
        ),
        (
            C::SAMPLING,
            sampling,
            r#"{"toolChoice":{}}"#,
            Err(QuestionRefusal::UndeclaredMode),
        ),
        (C::SAMPLING_TOOLS, sampling, r#"{"tools":[]}"#, Ok(())),
        (C::ROOTS, sampling, "{}", Err(QuestionRefusal::Undeclared)),
        (C::ELICITATION_FORM, elicit, "{}", Ok(())),
        (C::ELICITATION_FORM, elicit, r#"{"mode":"form"}"#, Ok(())),
        (
            C::ELICITATION_FORM,
            elicit,
            r#"{"mode":"url","url":"https://a.example/"}"#,
            Err(QuestionRefusal::UndeclaredMode),
        ),
        (
            C::ELICITATION_URL,
            elicit,
            r#"{"mode":"url","url":"https://a.example/"}"#,
            Ok(()),
        ),
        (
            C::ELICITATION_URL,
            elicit,
            "{}",
            Err(QuestionRefusal::UndeclaredMode),
        ),
        (
            C::ELICITATION_FORM,
            elicit,
            r#"{"mode":"thought"}"#,
            Err(QuestionRefusal::UndeclaredMode),
        ),
        (C::BASE, elicit, "{}", Err(QuestionRefusal::Undeclared)),
        (C::ROOTS, roots, "{}", Ok(())),
        (C::SAMPLING, roots, "{}", Err(QuestionRefusal::Undeclared)),
        (
            C::ROOTS,
            Method::Ping,
            "{}",
            Err(QuestionRefusal::Undeclared),
        ),
    ] {
        assert_eq!(
            may(class, method, params),
            expected,
            "{class} {method:?} {params}"
        );
    }
}

// Proves R079.
#[test]
fn capability_class_is_cut_to_the_revision() {
    let all = crate::capability_forwarding::TO_MODERN;
    assert_eq!(
        cut_to_revision(Revision::V2024_11_05, all),
        C::SAMPLING.with(C::ROOTS)
    );
    assert_eq!(
        cut_to_revision(Revision::V2025_06_18, all),
        C::SAMPLING.with(C::ROOTS).with(C::ELICITATION_FORM)
    );
    assert_eq!(cut_to_revision(Revision::V2025_11_25, all), all);
}

// Proves R182.
#[test]
fn lifted_question_has_no_members_of_its_hop() {
    let text = r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"mode":"url","url":"https://a.example/","message":"m","elicitationId":"own","task":{"ttl":1},"_meta":{"progressToken":"p","x":1}}}"#;
    let lifted = lift(&request(text)).unwrap();
    assert_eq!(
        lifted.question.params,
        r#"{"mode":"url","url":"https://a.example/","message":"m","_meta":{"x":1}}"#
    );
    assert_eq!(
        (
            lifted.progress_token.as_deref(),
            lifted.elicitation_id.as_deref()
        ),
        (Some(&br#""p""#[..]), Some("own"))
    );
    assert_eq!(
        (lifted.id.echoed_number(), lifted.related_task),
        (Some(7), None)
    );
    let bare = lift(&request(
        r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#,
    ))
    .unwrap();
    assert_eq!(bare.question.params, "{}");
    assert!(lift(&request(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).is_none());
}

// Proves R181, R186.
#[test]
fn a_question_is_lowered_with_ids_of_the_clients_hop() {
    let url = question(
        Method::ElicitationCreate,
        &json!({"mode": "url", "url": "https://a.example/", "message": "m"}),
    );
    let asked = lowered(Revision::V2025_11_25, &url).unwrap();
    assert_eq!(
        (&asked["id"], &asked["params"]["elicitationId"]),
        (&json!("ask-1"), &json!("e-1"))
    );
    assert_eq!(asked["params"]["_meta"]["progressToken"], "ask-1");
}

// Proves R189.
#[test]
fn enums_that_2025_06_18_lacks_are_converted_or_not_asked() {
    let schema = |field: Value| json!({"message": "m", "mode": "form", "requestedSchema": {"type": "object", "properties": {"f": field}}});
    let titled = schema(
        json!({"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}),
    );
    let asked = lowered(
        Revision::V2025_06_18,
        &question(Method::ElicitationCreate, &titled),
    )
    .unwrap();
    let field = &asked["params"]["requestedSchema"]["properties"]["f"];
    assert_eq!(
        *field,
        json!({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]})
    );
    assert!(asked["params"].get("mode").is_none());
    let several = question(
        Method::ElicitationCreate,
        &schema(json!({"type": "array", "items": {"enum": ["a"]}})),
    );
    assert_eq!(
        lowered(Revision::V2025_06_18, &several).unwrap_err(),
        QuestionRefusal::NotInRevision
    );
    assert_eq!(
        QuestionRefusal::NotInRevision.answer(Method::ElicitationCreate),
        Ok(Bytes::from_static(br#"{"action":"cancel"}"#))
    );
    assert!(lowered(Revision::V2025_11_25, &several).is_ok());
}

#[test]
fn content_lists_become_single_blocks_where_a_revision_has_no_lists() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let messages = json!({"maxTokens": 1, "messages": [
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "user", "content": {"type": "audio", "data": "", "mimeType": "audio/wav"}}]});
    let asked = lowered(
        Revision::V2024_11_05,
        &question(Method::SamplingCreateMessage, &messages),
    )
    .unwrap();
    let asked = asked["params"]["messages"].as_array().unwrap().clone();
    assert_eq!((asked.len(), &asked[1]["content"]), (3, &text("b")));
    assert_eq!(asked[2]["content"]["type"], "text");
    let tools = json!({"maxTokens": 1, "messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "n", "input": {}}]}]});
    let tools = question(Method::SamplingCreateMessage, &tools);
    assert_eq!(
        lowered(Revision::V2025_06_18, &tools).unwrap_err(),
        QuestionRefusal::NotInRevision
    );

    let id = RequestId::from_text("x");
    let answer = Bytes::from(
        json!({"role": "assistant", "model": "m", "content": [text("a"), text("b")]}).to_string(),
    );
    let to = |revision| -> Value {
        let told = response(
            revision,
            &id,
            Method::SamplingCreateMessage,
            None,
            Ok(answer.clone()),
        );
        serde_json::from_slice::<Value>(&told).unwrap()["result"]["content"].clone()
    };
    assert_eq!(to(Revision::V2025_06_18), text("a\nb"));
    assert_eq!(to(Revision::V2025_11_25), json!([text("a"), text("b")]));

    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    let tool = json!({"type": "tool_use", "id": "1", "name": "t", "input": {}});
    let left_out = "[tool_use content was left out: this revision of the protocol has none]";
    for (blocks, block) in [
        (json!([image, text("a"), text("b")]), text("a\nb")),
        (json!([tool, image]), image.clone()),
        (json!([tool]), text(left_out)),
    ] {
        let answer = json!({"role": "assistant", "model": "m", "content": blocks}).to_string();
        let answered = Ok(Bytes::from(answer));
        let told = response(
            Revision::V2025_06_18,
            &id,
            Method::SamplingCreateMessage,
            None,
            answered,
        );
        let told: Value = serde_json::from_slice(&told).unwrap();
        assert_eq!(told["result"]["content"], block, "{blocks}");
    }
}

#[test]
fn audio_in_an_answer_becomes_text_for_servers_without_audio() {
    let id = RequestId::from_text("x");
    let audio = json!({"type": "audio", "data": "AA==", "mimeType": "audio/wav"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let answer = |revision, content: &Value| {
        let result = json!({"role": "assistant", "model": "m", "content": content, "x": 1});
        let response = response(
            revision,
            &id,
            Method::SamplingCreateMessage,
            None,
            Ok(Bytes::from(result.to_string())),
        );
        let response: Value = serde_json::from_slice(&response).unwrap();
        assert_eq!(response["result"]["x"], 1);
        response["result"]["content"].clone()
    };
    let notice = "[audio content was left out: this revision of the protocol has none]";
    let oldest = Revision::V2024_11_05;
    assert_eq!(answer(oldest, &audio), text(notice));
    assert_eq!(answer(oldest, &json!([audio])), text(notice));
    let both = json!([text("a"), audio]);
    assert_eq!(answer(oldest, &both), text(&format!("a\n{notice}")));
    for revision in [Revision::V2025_03_26, Revision::V2025_06_18] {
        assert_eq!(answer(revision, &audio), audio, "{revision}");
        assert_eq!(answer(revision, &json!([audio])), audio, "{revision}");
    }
    assert_eq!(answer(Revision::V2025_11_25, &audio), audio);
    assert_eq!(answer(Revision::V2025_11_25, &both), both);
}

#[test]
fn errors_of_clients_reach_legacy_servers_as_they_are() {
    let id = RequestId::from_text("x");
    let error = Bytes::from_static(br#"{"code":-1,"message":"User rejected","data":{"a":1}}"#);
    let told = response(
        Revision::NEWEST_LEGACY,
        &id,
        Method::SamplingCreateMessage,
        None,
        Err(error),
    );
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(
        told["error"],
        json!({"code": -1, "message": "User rejected", "data": {"a": 1}})
    );
}

#[test]
fn url_elicitation_requires_https_or_loopback() {
    let ask = |url: &str| {
        let params = format!(r#"{{"mode":"url","message":"m","url":{}}}"#, json!(url));
        may_ask(
            CapabilityClass::ELICITATION_URL,
            Method::ElicitationCreate,
            params.as_bytes(),
        )
    };
    for good in [
        "https://a.example/x",
        "HTTPS://a.example",
        "http://127.0.0.1:9/x",
        "http://[::1]:9",
        "http://localhost",
    ] {
        assert_eq!(ask(good), Ok(()), "{good}");
    }
    for bad in [
        "http://a.example/x",
        "http://localhost.example",
        "http://localhost@a.example/",
        "http://a.example\\@localhost/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://a.example/\u{e0053}\u{e0059}",
        "https://a.example/\u{1b}[2J",
        "https://a.example/b c",
        "",
    ] {
        assert_eq!(ask(bad), Err(QuestionRefusal::UnsafeUrl), "{bad}");
    }
    let data = br#"{"elicitations":[{"url":"http://a.example/","message":"no"},{"url":"https://a.example/","message":"yes"}]}"#;
    assert_eq!(url_elicitations(data).len(), 1);
}

/// "All requests, notifications, and responses related to a task MUST include the
/// `io.modelcontextprotocol/related-task` key" (2025-11-25, basic/utilities/tasks, "Associating
/// Task-Related Messages").
// Proves R232.
#[test]
fn answer_to_the_question_of_a_task_names_the_servers_task() {
    let text = r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"m","requestedSchema":{},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"own \"1\""},"x":1}}}"#;
    let lifted = lift(&request(text)).unwrap();
    let task = lifted.related_task.as_deref();
    assert_eq!(task, Some("own \"1\""));
    let asked: Value = serde_json::from_slice(&lifted.question.params).unwrap();
    assert_eq!(asked["_meta"], json!({ "x": 1 }));

    let given =
        json!({"action": "accept", "_meta": {"y": 2, meta::RELATED_TASK: {"taskId": "exposed"}}});
    let told = |task, outcome| -> Value {
        let method = Method::ElicitationCreate;
        let told = response(Revision::V2025_11_25, &lifted.id, method, task, outcome);
        serde_json::from_slice(&told).unwrap()
    };
    let answer = told(task, Ok(Bytes::from(given.to_string())));
    let related = json!({"y": 2, meta::RELATED_TASK: {"taskId": "own \"1\""}});
    assert_eq!(answer["result"]["_meta"], related);
    let bare = told(task, Ok(Bytes::from_static(br#"{"action":"decline"}"#)));
    assert_eq!(
        bare["result"]["_meta"],
        json!({meta::RELATED_TASK: {"taskId": "own \"1\""}})
    );
    let ordinary = told(None, Ok(Bytes::from_static(br#"{"action":"decline"}"#)));
    assert_eq!(ordinary["result"], json!({"action": "decline"}));

    let report = Bytes::from_static(br#"{"progressToken":"c","progress":1}"#);
    let report = progress_with_token(&report, &Bytes::from_static(b"9"), task).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["params"]["progressToken"], 9);
    assert_eq!(
        related_task::find(report["params"].to_string().as_bytes()).as_deref(),
        task
    );
}

#[test]
fn refused_url_of_a_required_visit_is_not_called_unnamed() {
    let text = |data: Value| {
        no_visit_text(&UpstreamError {
            code: error_code::URL_ELICITATION_REQUIRED,
            message: "m".into(),
            data: Some(data.to_string().into()),
        })
    };
    for url in ["http://example.com/", "javascript:alert(1)"] {
        let visit = json!({"mode": "url", "url": url, "message": "m", "elicitationId": "e"});
        let text = text(json!({ "elicitations": [visit] }));
        assert!(
            text.contains("weir refuses") && text.contains("https"),
            "{url}: {text}"
        );
    }
    for data in [
        json!({}),
        json!({"elicitations": []}),
        json!({"elicitations": [{"mode": "form"}]}),
    ] {
        assert!(text(data.clone()).contains("does not say which"), "{data}");
    }
}

#[test]
fn answer_of_another_shape_than_its_question_wants_is_an_error() {
    for (method, good, bad) in [
        (
            Method::ElicitationCreate,
            r#"{"action":"decline"}"#,
            r#"{"action":"maybe"}"#,
        ),
        (
            Method::SamplingCreateMessage,
            r#"{"role":"assistant","model":"m","content":{"type":"text","text":"a"}}"#,
            r#"{"action":"accept"}"#,
        ),
        (Method::RootsList, r#"{"roots":[]}"#, "5"),
    ] {
        let answered = |answer: &'static str| -> Value {
            let (id, answer) = (
                RequestId::from_text("1"),
                Bytes::from_static(answer.as_bytes()),
            );
            let lifted = lift_answer(method, &answer);
            let sent = response(Revision::V2025_11_25, &id, method, None, Ok(answer));
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            assert_eq!(lifted.is_ok(), sent["error"].is_null(), "{sent}");
            sent
        };
        assert!(answered(good)["result"].is_object());
        assert!(answered(bad)["error"].is_object());
    }
}

//! The headers of a modern request repeat values of its body. If they disagree, neither is believed
//! (R009 to R020, R026, R027, R045, B09 to B11, B13).

use serde_json::{Value, json};
use weir_testkit::{MockServer, mock_server::MockTool};
use weir_wire::{Revision, meta};

use super::raw_connection::send_and_read_all;
use super::request_draft::{assert_error, assert_refused, row};
use super::weir_with_upstream::usual_tools;
use super::{RefusalRow, RequestDraft, WeirWithUpstream};

/// Sets the tool's name in the body alone.
fn body_name(draft: &mut RequestDraft, name: &str) {
    draft.params().insert("name".to_owned(), json!(name));
}

// Proves B09, R009, R010.
#[tokio::test(flavor = "multi_thread")]
async fn the_version_header_is_there_and_agrees() {
    let mut stage = WeirWithUpstream::new().await;
    let rows: [RefusalRow; 9] = [
        row("r009: no version header", 400, -32020, |draft| {
            draft.remove_header("mcp-protocol-version")
        }),
        row("an empty version header", 400, -32020, |draft| {
            draft.set_header("mcp-protocol-version", "")
        }),
        row(
            "r010: the body has an unknown version",
            400,
            -32020,
            |draft| {
                draft
                    .meta()
                    .insert(meta::PROTOCOL_VERSION.to_owned(), json!("v999"));
            },
        ),
        row(
            "r010: the header has an unknown version",
            400,
            -32020,
            |draft| draft.set_header("mcp-protocol-version", "v999"),
        ),
        row("the header has a legacy version", 400, -32020, |draft| {
            draft.set_header("mcp-protocol-version", "2025-11-25")
        }),
        row("the body has a legacy version", 400, -32020, |draft| {
            draft
                .meta()
                .insert(meta::PROTOCOL_VERSION.to_owned(), json!("2025-11-25"));
        }),
        row("both have the same unknown version", 400, -32022, |draft| {
            draft.set_version("v999")
        }),
        row("both have the same legacy version", 400, -32022, |draft| {
            draft.set_version("2025-11-25")
        }),
        row("two different version headers", 400, -32020, |draft| {
            draft.add_header("mcp-protocol-version", "2025-11-25")
        }),
    ];
    stage.assert_refuses_calls(&rows).await;
    stage
        .assert_refuses_requests("server/discover", &json!({}), &rows)
        .await;
    stage
        .assert_refuses_requests("tools/list", &json!({}), &rows)
        .await;
}

// Proves R054, R055.
#[tokio::test(flavor = "multi_thread")]
async fn unsupported_version_error_lists_the_supported_versions() {
    let mut stage = WeirWithUpstream::new().await;
    let discovered = stage
        .modern_client()
        .ask("server/discover", json!({}))
        .await
        .unwrap();
    let known = discovered.result()["supportedVersions"]
        .as_array()
        .unwrap()
        .clone();
    assert!(known.contains(&json!("2026-07-28")), "{known:?}");
    for version in [
        "v999",
        "2027-01-01",
        "2025-11-25",
        "2026-07-28 ",
        "2026-7-28",
        "",
        "DRAFT-2026-v1",
    ] {
        let mut draft = stage.draft_call();
        draft.set_header("mcp-protocol-version", version);
        draft
            .meta()
            .insert(meta::PROTOCOL_VERSION.to_owned(), json!(version));
        let answer = draft.post(&stage).await;
        assert_eq!(answer.status, 400, "{version:?}: {:?}", answer.body);
        // Spaces around a header's value do not count, so the header and the body differ here; an
        // empty header is no header either.
        if version.ends_with(' ') || version.is_empty() {
            assert!(
                [-32020, -32022].contains(&answer.code()),
                "{version:?}: {:?}",
                answer.body
            );
        } else {
            assert_eq!(answer.code(), -32022, "{version:?}: {:?}", answer.body);
            let data = &answer.error()["data"];
            assert_eq!(data["requested"], version, "{data}");
            let supported = data["supported"].as_array().unwrap();
            assert_eq!(supported, &known, "{data}");
        }
        stage.assert_still_serving(version).await;
    }
}

// Proves B10, R011, R012, R014.
#[tokio::test(flavor = "multi_thread")]
async fn the_method_header_is_there_and_agrees() {
    let mut stage = WeirWithUpstream::new().await;
    let rows: [RefusalRow; 8] = [
        row("r011: no method header", 400, -32020, |draft| {
            draft.remove_header("mcp-method")
        }),
        row("an empty method header", 400, -32020, |draft| {
            draft.set_header("mcp-method", "")
        }),
        row("r012: another method", 400, -32020, |draft| {
            draft.set_header("mcp-method", "prompts/list")
        }),
        row("r014: upper case", 400, -32020, |draft| {
            draft.set_header("mcp-method", "TOOLS/CALL")
        }),
        row("a longer one", 400, -32020, |draft| {
            draft.set_header("mcp-method", "tools/call/x")
        }),
        row("a shorter one", 400, -32020, |draft| {
            draft.set_header("mcp-method", "tools")
        }),
        row("two different ones", 400, -32020, |draft| {
            draft.add_header("mcp-method", "tools/list")
        }),
        row("two in one", 400, -32020, |draft| {
            draft.set_header("mcp-method", "tools/call, tools/list")
        }),
    ];
    stage.assert_refuses_calls(&rows).await;
}

// Proves B10, R016, R017.
#[tokio::test(flavor = "multi_thread")]
async fn the_name_header_is_there_and_agrees() {
    let mut stage = WeirWithUpstream::new().await;
    let rows: [RefusalRow; 10] = [
        row("r016: no name header", 400, -32020, |draft| {
            draft.remove_header("mcp-name")
        }),
        row("an empty name header", 400, -32020, |draft| {
            draft.set_header("mcp-name", "")
        }),
        row("r017: another name", 400, -32020, |draft| {
            draft.set_header("mcp-name", "smuggled")
        }),
        row("another name in the body", 400, -32020, |draft| {
            body_name(draft, "smuggled")
        }),
        row("upper case", 400, -32020, |draft| {
            draft.set_header("mcp-name", "ECHO")
        }),
        row("two different ones", 400, -32020, |draft| {
            draft.add_header("mcp-name", "smuggled")
        }),
        row(
            "two different ones, the other first",
            400,
            -32020,
            |draft| {
                draft.set_header("mcp-name", "smuggled");
                draft.add_header("mcp-name", "echo");
            },
        ),
        row("an inner space", 400, -32020, |draft| {
            draft.set_header("mcp-name", "ec ho")
        }),
        row("bytes that are no ASCII", 400, -32020, |draft| {
            draft.set_header("mcp-name", "\u{e9}cho")
        }),
        row("more than 8 KiB", 400, -32020, |draft| {
            draft.set_header("mcp-name", &"n".repeat(9 << 10));
            body_name(draft, &"n".repeat(9 << 10));
        }),
    ];
    stage.assert_refuses_calls(&rows).await;
}

// Proves B10, B11.
#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_the_name_header_has_a_text_of_its_own() {
    let mut stage = WeirWithUpstream::new().await;
    let long = "n".repeat(9 << 10);
    for (header, text) in [
        (None, "missing or given twice"),
        (Some("\u{e9}cho"), "no visible ASCII"),
        (Some("e\tcho"), "differs from `params.name`"),
        (Some(long.as_str()), "longer than 8 KiB"),
        (Some("=?base64?SGVsbG8?="), "broken base64 form"),
        (Some("=?base64?/////w==?="), "no UTF-8"),
        (Some("ech"), "differs from `params.name`"),
    ] {
        let mut draft = stage.draft_call();
        draft.remove_header("mcp-name");
        header
            .iter()
            .for_each(|value| draft.set_header("mcp-name", value));
        let id = draft.body["id"].clone();
        let answer = draft.post(&stage).await;
        assert_refused(text, &answer, 400, -32020, &id);
        let said = answer.error()["message"].as_str().unwrap();
        assert!(
            said.starts_with("`Mcp-Name` ") && said.contains(text),
            "{said}"
        );
    }
    for (name, text) in [
        ("mcp-protocol-version", "`MCP-Protocol-Version` differs"),
        ("mcp-method", "`Mcp-Method` differs"),
    ] {
        let mut draft = stage.draft_call();
        draft.set_header(name, "\u{e9}");
        let answer = draft.post(&stage).await;
        let said = answer.error()["message"].as_str().unwrap();
        assert!(said.starts_with(text), "{said}");
    }
    stage.assert_still_serving("wrong names").await;
}

// Proves B10, R019.
#[tokio::test(flavor = "multi_thread")]
async fn broken_base64_is_400_32020() {
    let mut stage = WeirWithUpstream::new().await;
    let rows: [RefusalRow; 9] = [
        row("no padding", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?SGVsbG8?=");
            body_name(draft, "Hello");
        }),
        row("too much padding", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?SGVsbG8==?=");
            body_name(draft, "Hello");
        }),
        row("another alphabet", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?SGVs!!!?=");
            body_name(draft, "Hello");
        }),
        row("the URL alphabet", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?Pj4-Pz8_?=");
            body_name(draft, ">>>???");
        }),
        row("a space inside", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?SGVs bG8=?=");
            body_name(draft, "Hello");
        }),
        row("bits beyond the end", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?SGVsbG9=?=");
            body_name(draft, "Hello");
        }),
        row("no UTF-8", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?/////w==?=");
            body_name(draft, "\u{fffd}");
        }),
        row("another name in base64", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?c211Z2dsZWQ=?=")
        }),
        // Decoded once: the result is text, even if it looks like base64.
        row("base64 in base64", 400, -32020, |draft| {
            draft.set_header("mcp-name", "=?base64?PT9iYXNlNjQ/WldOb2J3PT0/PQ==?=")
        }),
    ];
    stage.assert_refuses_calls(&rows).await;
}

// Proves R018, R020.
#[tokio::test(flavor = "multi_thread")]
async fn base64_header_values_are_decoded_and_lookalikes_stay_literal() {
    let upstream = usual_tools(MockServer::modern())
        .with(MockTool::new("gr\u{fc}\u{df}e"))
        .with(MockTool::new(" spaced "));
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    for (header, name) in [
        ("=?base64?ZWNobw==?=", "echo"),
        ("=?base64?Z3LDvMOfZQ==?=", "gr\u{fc}\u{df}e"),
        ("=?base64?IHNwYWNlZCA=?=", " spaced "),
        ("  echo  ", "echo"),
        ("\techo\t", "echo"),
    ] {
        let mut draft = stage.draft_call();
        draft.set_header("mcp-name", header);
        body_name(&mut draft, name);
        let answer = draft.post(&stage).await;
        assert_eq!(
            answer.status, 200,
            "r015, r018: {header}: {:?}",
            answer.body
        );
        assert_eq!(
            stage
                .take_client_requests()
                .iter()
                .map(|call| call.tool())
                .collect::<Vec<_>>(),
            [Some(name)],
            "{header}"
        );
    }
    for literal in [
        "=?base64?ZWNobw==",
        "ZWNobw==?=",
        "=?BASE64?ZWNobw==?=",
        "=?Base64?ZWNobw==?=",
        "=?utf-8?B?ZWNobw==?=",
    ] {
        let mut draft = stage.draft_call();
        draft.set_header("mcp-name", literal);
        body_name(&mut draft, literal);
        let id = draft.body["id"].clone();
        let answer = draft.post(&stage).await;
        // Header and body agree; the tool is unknown.
        assert_eq!(answer.status, 200, "r020: {literal}: {:?}", answer.body);
        assert_error(literal, &answer, -32602, &id);
        stage.assert_still_serving(literal).await;
    }
}

// Proves R013, R015.
#[tokio::test(flavor = "multi_thread")]
async fn header_names_have_no_case_and_spaces_around_values_do_not_count() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) =
        super::raw_connection::modern_request_parts("tools/call", Some("echo"), "cased");
    let joined = lines.join("\r\n");
    for lines in [
        joined.to_lowercase(),
        joined
            .replace("MCP-Protocol-Version", "MCP-PROTOCOL-VERSION")
            .replace("Mcp-Method", "MCP-METHOD")
            .replace("Mcp-Name", "MCP-NAME"),
        joined.replace("Mcp-Name", "mCP-nAME"),
        joined.replace(": ", ":"),
        joined.replace(": ", ":   \t "),
        joined.replace("\r\n", " \t \r\n") + "   ",
    ] {
        let text = super::raw_connection::post(&stage, &[&lines, "Connection: close"], &body);
        let replies = send_and_read_all(&stage, text.as_bytes()).await;
        assert_eq!(
            replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
            [200],
            "{lines:?}: {replies:?}"
        );
        assert_eq!(stage.take_client_requests().len(), 1, "{lines:?}");
    }
    stage.assert_still_serving("cases").await;
}

// Proves B11.
#[tokio::test(flavor = "multi_thread")]
async fn control_characters_in_mirrored_headers_are_400() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) =
        super::raw_connection::modern_request_parts("tools/call", Some("echo"), "controlled");
    let joined = lines.join("\r\n");
    for bad in [
        "Mcp-Param-X: a\0b",
        "Mcp-Param-X: a\rb",
        "Mcp-Param-X: a\u{1}b",
        "Mcp-Param-X: a\u{7f}b",
        "Mcp-Name: e\0cho",
    ] {
        let text = super::raw_connection::post(&stage, &[&joined, bad, "Connection: close"], &body);
        let replies = send_and_read_all(&stage, text.as_bytes()).await;
        assert_eq!(
            replies.iter().map(|reply| reply.status).collect::<Vec<_>>(),
            [400],
            "{bad:?}: {replies:?}"
        );
        stage.assert_still_serving(bad).await;
    }
    // A line break ends the value. The rest is a header of its own, and an unknown header is
    // ignored (R025).
    let text = super::raw_connection::post(
        &stage,
        &[
            &joined,
            "Mcp-Param-X: a\r\nMcp-Param-Y: b",
            "Connection: close",
        ],
        &body,
    );
    assert_eq!(
        send_and_read_all(&stage, text.as_bytes()).await[0].status,
        200
    );
    assert_eq!(stage.take_client_requests().len(), 1);
}

// Proves B13, R026.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_malformed_meta_is_400_32602() {
    let mut stage = WeirWithUpstream::new().await;
    let rows: [RefusalRow; 10] = [
        row("no _meta", 400, -32602, |draft| {
            draft.params().remove("_meta");
        }),
        row("an empty _meta", 400, -32602, |draft| draft.meta().clear()),
        row("no params", 400, -32602, |draft| {
            draft.body.as_object_mut().unwrap().remove("params");
        }),
        row("a _meta that is a list", 400, -32602, |draft| {
            draft.params().insert("_meta".to_owned(), json!([]));
        }),
        row("a _meta that is null", 400, -32602, |draft| {
            draft.params().insert("_meta".to_owned(), Value::Null);
        }),
        row("no protocolVersion", 400, -32602, |draft| {
            draft.meta().remove(meta::PROTOCOL_VERSION);
        }),
        row("a protocolVersion that is a number", 400, -32602, |draft| {
            draft
                .meta()
                .insert(meta::PROTOCOL_VERSION.to_owned(), json!(20_260_728));
        }),
        row("no clientCapabilities", 400, -32602, |draft| {
            draft.meta().remove(meta::CLIENT_CAPABILITIES);
        }),
        row("clientCapabilities that are a list", 400, -32602, |draft| {
            draft
                .meta()
                .insert(meta::CLIENT_CAPABILITIES.to_owned(), json!([]));
        }),
        row("clientCapabilities that are null", 400, -32602, |draft| {
            draft
                .meta()
                .insert(meta::CLIENT_CAPABILITIES.to_owned(), Value::Null);
        }),
    ];
    stage.assert_refuses_calls(&rows).await;
    stage
        .assert_refuses_requests("server/discover", &json!({}), &rows)
        .await;
}

// Proves R027.
#[tokio::test(flavor = "multi_thread")]
async fn client_info_may_be_missing() {
    let mut stage = WeirWithUpstream::new().await;
    for method in ["server/discover", "tools/list"] {
        let mut draft = stage.draft_request(method, json!({}));
        draft.meta().remove(meta::CLIENT_INFO);
        assert_eq!(draft.post(&stage).await.status, 200, "{method}");
    }
    let mut draft = stage.draft_call();
    draft.meta().remove(meta::CLIENT_INFO);
    assert_eq!(draft.post(&stage).await.status, 200);
    assert_eq!(stage.take_client_requests().len(), 1);
}

/// Mirrored headers are ignored unless the version demands that they agree with the body.
// Proves R045.
#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_request_is_routed_by_its_body_alone() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        let client = client
            .with_header("mcp-name", "smuggled")
            .with_header("mcp-method", "prompts/list");
        let answer = client
            .call("echo", json!({ "in": "a session" }))
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{revision:?}: {:?}", answer.body);
        assert_eq!(
            stage
                .take_client_requests()
                .iter()
                .map(|call| call.tool())
                .collect::<Vec<_>>(),
            [Some("echo")],
            "{revision:?}"
        );
        stage.assert_still_serving(revision.as_str()).await;
    }
}

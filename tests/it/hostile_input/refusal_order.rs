//! A request that is wrong in two ways is refused for one of them in a fixed order. So a client
//! that mends one fault after another gets through, and a proxy that looks at the code can rely on
//! it.

use serde_json::{Value, json};
use weir_wire::meta;

use super::request_draft::{assert_refused, row};
use super::{RefusalRow, RequestDraft, WeirWithUpstream};

fn no_capabilities(draft: &mut RequestDraft) {
    draft.meta().remove(meta::CLIENT_CAPABILITIES);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_comes_before_the_shape_and_the_shape_before_the_headers() {
    let mut stage = WeirWithUpstream::new().await;
    let mut draft = stage.draft_call();
    draft.remove_header("mcp-protocol-version");
    draft.body["jsonrpc"] = json!("1.0");
    let bad_json = draft.body.to_string().replace("1.0", "1.0\u{1}");
    let answer = stage
        .send(http::Method::POST, draft.headers.clone(), bad_json)
        .await;
    assert_refused("all wrong", &answer, 400, -32700, &Value::Null);
    let id = draft.body["id"].clone();
    assert_refused(
        "well-formed now",
        &draft.post(&stage).await,
        400,
        -32600,
        &id,
    );
    stage.assert_still_serving("bad JSON").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envelope_faults_are_refused_in_fixed_order() {
    let mut stage = WeirWithUpstream::new().await;
    let rows: [RefusalRow; 13] = [
        row(
            "no version header and no capabilities",
            400,
            -32020,
            |draft| {
                draft.remove_header("mcp-protocol-version");
                no_capabilities(draft);
            },
        ),
        row(
            "no method header and no capabilities",
            400,
            -32020,
            |draft| {
                draft.remove_header("mcp-method");
                no_capabilities(draft);
            },
        ),
        row("no capabilities and two versions", 400, -32020, |draft| {
            draft.set_header("mcp-protocol-version", "v999");
            no_capabilities(draft);
        }),
        // A client of a later version learns which versions it can use.
        row(
            "one unknown version and no capabilities",
            400,
            -32022,
            |draft| {
                draft.set_version("v999");
                no_capabilities(draft);
            },
        ),
        row(
            "one unknown version and capabilities that are a list",
            400,
            -32022,
            |draft| {
                draft.set_version("v999");
                let none = json!([]);
                draft
                    .meta()
                    .insert(meta::CLIENT_CAPABILITIES.to_owned(), none);
            },
        ),
        row(
            "one unknown version and no method header",
            400,
            -32022,
            |draft| {
                draft.set_version("v999");
                draft.remove_header("mcp-method");
            },
        ),
        row("two versions, one unknown", 400, -32020, |draft| {
            draft.set_header("mcp-protocol-version", "v999")
        }),
        row(
            "one unknown version and another method",
            400,
            -32022,
            |draft| {
                draft.set_version("v999");
                draft.set_header("mcp-method", "tools/list");
            },
        ),
        row(
            "one unknown version and an unknown method",
            400,
            -32022,
            |draft| {
                draft.set_version("v999");
                draft.set_method("roots/list");
            },
        ),
        row("another method, both unknown", 400, -32020, |draft| {
            draft.set_method("roots/list");
            draft.set_header("mcp-method", "no/such/either");
        }),
        row("an unknown method and a wrong name", 404, -32601, |draft| {
            draft.set_method("roots/list");
            draft.set_header("mcp-name", "smuggled");
        }),
        row("another name, and no such tool", 400, -32020, |draft| {
            draft.set_header("mcp-name", "nobody");
            draft.params().insert("name".to_owned(), json!("no-one"));
        }),
        row("no name header, and no such tool", 400, -32020, |draft| {
            draft.remove_header("mcp-name");
            draft.params().insert("name".to_owned(), json!("no-one"));
        }),
    ];
    stage.assert_refuses_calls(&rows).await;
}

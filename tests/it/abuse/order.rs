//! A request that is wrong in two ways is refused for one of them in a fixed order. So a client
//! that mends one fault after another gets through, and a proxy that looks at the code can rely on
//! it.

use serde_json::{Value, json};
use weir_wire::meta;

use super::letter::{refused, row};
use super::{Letter, Row, Stage};

fn no_capabilities(letter: &mut Letter) {
    letter.meta().remove(meta::CLIENT_CAPABILITIES);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_comes_before_the_shape_and_the_shape_before_the_headers() {
    let mut stage = Stage::new().await;
    let mut letter = stage.call();
    letter.cut("mcp-protocol-version");
    letter.body["jsonrpc"] = json!("1.0");
    let bad_json = letter.body.to_string().replace("1.0", "1.0\u{1}");
    let answer = stage
        .send(http::Method::POST, letter.headers.clone(), bad_json)
        .await;
    refused("all wrong", &answer, 400, -32700, &Value::Null);
    let id = letter.body["id"].clone();
    refused(
        "well-formed now",
        &letter.post(&stage).await,
        400,
        -32600,
        &id,
    );
    stage.is_well("bad JSON").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envelope_faults_are_told_in_their_order() {
    let mut stage = Stage::new().await;
    let rows: [Row; 10] = [
        row(
            "no version header and no capabilities",
            400,
            -32020,
            |letter| {
                letter.cut("mcp-protocol-version");
                no_capabilities(letter);
            },
        ),
        row(
            "no method header and no capabilities",
            400,
            -32020,
            |letter| {
                letter.cut("mcp-method");
                no_capabilities(letter);
            },
        ),
        row("no capabilities and two versions", 400, -32602, |letter| {
            letter.set("mcp-protocol-version", "v999");
            no_capabilities(letter);
        }),
        row("two versions, one unknown", 400, -32020, |letter| {
            letter.set("mcp-protocol-version", "v999")
        }),
        row(
            "one unknown version and another method",
            400,
            -32022,
            |letter| {
                letter.claim("v999");
                letter.set("mcp-method", "tools/list");
            },
        ),
        row(
            "one unknown version and an unknown method",
            400,
            -32022,
            |letter| {
                letter.claim("v999");
                letter.rename("roots/list");
            },
        ),
        row("another method, both unknown", 400, -32020, |letter| {
            letter.rename("roots/list");
            letter.set("mcp-method", "no/such/either");
        }),
        row(
            "an unknown method and a wrong name",
            404,
            -32601,
            |letter| {
                letter.rename("roots/list");
                letter.set("mcp-name", "smuggled");
            },
        ),
        row("another name, and no such tool", 400, -32020, |letter| {
            letter.set("mcp-name", "nobody");
            letter.params().insert("name".to_owned(), json!("no-one"));
        }),
        row("no name header, and no such tool", 400, -32020, |letter| {
            letter.cut("mcp-name");
            letter.params().insert("name".to_owned(), json!("no-one"));
        }),
    ];
    stage.refuses(&rows).await;
}

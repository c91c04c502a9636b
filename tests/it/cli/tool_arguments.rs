//! The arguments of calls, and the output of results.

use serde_json::{Value, json};
use weir_testkit::mock_server::{MockBehaviour, MockTool};
use weir_testkit::{MockServer, TestFolder};

use super::{weir, weir_with_input};
use crate::harness::Weir;

fn tool() -> MockTool {
    let properties = json!({
        "text": { "type": "string", "description": "What to say" },
        "count": { "type": "integer", "default": 1 },
        "deep": { "type": "boolean" },
        "tags": { "type": "array", "items": { "type": "string" } },
    });
    let schema = json!({ "type": "object", "properties": properties, "required": ["text"], "additionalProperties": false });
    MockTool::new("say")
        .with("inputSchema", schema)
        .with("description", json!("Says something.\n\nSlowly."))
}

/// Calls the tool, an echo of its arguments; returns its answer.
fn called(words: &[&str], input: &str) -> Value {
    let said = weir_with_input(words, input);
    assert_eq!(said.code, Some(0), "{said:?}");
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_are_typed_by_the_schema_and_come_from_files_and_pipes() {
    let server = MockServer::dual().with(tool()).start().await;
    let url = server.url();
    let call =
        |words: &[&str], input: &str| called(&[&["call", &url, "say"], words].concat(), input);
    let expected = json!({ "text": "5", "count": 5, "deep": true, "tags": ["a", "b"] });
    assert_eq!(
        call(&["text=5", "count=5", "deep=true", "tags=a", "tags=b"], ""),
        expected
    );
    assert_eq!(call(&[r#"{"text": "x"}"#], ""), json!({ "text": "x" }));
    assert_eq!(
        call(&["-"], r#"{"text": "piped"}"#),
        json!({ "text": "piped" })
    );
    let folder = TestFolder::new("arguments");
    let file = folder.write("arguments.json", r#"{"text": "filed", "count": 1}"#);
    let named = format!("@{}", file.display());
    assert_eq!(
        call(&[&named, "count=2"], ""),
        json!({ "text": "filed", "count": 2 })
    );
    for (words, told) in [
        (
            &["count=many"][..],
            "`count` must be an integer, not `many`",
        ),
        (
            &["txet=x"],
            "the tool has no argument `txet`: did you mean `text`?",
        ),
        (&["@/nowhere/a.json"], "/nowhere/a.json cannot be read"),
    ] {
        let said = weir(&[&["call", &url, "say"], words].concat());
        assert!(said.code == Some(2) && said.err.contains(told), "{said:?}");
    }
    assert_eq!(
        server.executions("say"),
        4,
        "what is mistyped is not called"
    );
}

/// A tool that wants an argument also as a header could not be called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_are_repeated_as_headers_where_the_tool_asks_for_it() {
    let schema = json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
    let server = MockServer::modern()
        .with(MockTool::new("deploy").with("inputSchema", schema))
        .start()
        .await;
    let weir_ = Weir::with_upstreams(json!({ "one": { "url": server.url() } }));
    weir_.wait_until_listed("/mcp", &["one__deploy"]);
    let url = weir_.url("/mcp");
    for arguments in ["region=Köln", r#"{"region":"Köln"}"#] {
        assert_eq!(
            called(&["call", &url, "one__deploy", arguments], ""),
            json!({ "region": "Köln" })
        );
    }
    assert_eq!(server.executions("deploy"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_is_described_with_its_arguments_and_how_it_is_called() {
    let server = MockServer::dual().with(tool()).start().await;
    let said = weir(&["describe", &server.url(), "say"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for line in [
        "say\n\nSays something.\n\nSlowly.\n",
        "  count  integer           default 1\n",
        "  text   string, required  What to say\n",
        &format!("  weir call {} say text=...\n", server.url()),
    ] {
        assert!(said.out.contains(line), "`{line}` in {}", said.out);
    }
    let said = weir(&["describe", &server.url(), "say", "--json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&said.out).unwrap()["inputSchema"]["required"],
        json!(["text"])
    );
    let said = weir(&["describe", &server.url(), "sai"]);
    assert!(
        said.code == Some(3) && said.err.contains("did you mean `say`?"),
        "{said:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_audio_and_files_are_saved_where_out_says() {
    let content = json!([
        { "type": "text", "text": "two pictures" },
        { "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" },
        { "type": "audio", "mimeType": "audio/wav", "data": "UklGRg==" },
    ]);
    let server = MockServer::dual()
        .tool("many", MockBehaviour::result(json!({ "content": content })))
        .tool(
            "one",
            MockBehaviour::result(json!({ "content": [content[1].clone()] })),
        )
        .tool(
            "bad",
            MockBehaviour::result(
                json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": "?" }] }),
            ),
        )
        .start()
        .await;
    let (url, folder) = (server.url(), TestFolder::new("media"));
    let into = format!("{}/", folder.path().display());
    let said = weir(&["call", &url, "many", "--out", &into]);
    assert!(
        said.code == Some(0)
            && said
                .out
                .starts_with("two pictures\n[image image/png, 8 bytes]\n"),
        "{said:?}"
    );
    assert_eq!(
        std::fs::read(folder.file("many-1.png")).unwrap(),
        b"\x89PNG\r\n\x1a\n"
    );
    assert_eq!(std::fs::read(folder.file("many-1.wav")).unwrap(), b"RIFF");
    assert!(
        weir(&["call", &url, "many"])
            .err
            .contains("--out PATH saves")
    );
    let file = folder.file("picture.png").display().to_string();
    assert_eq!(weir(&["call", &url, "one", "--out", &file]).code, Some(0));
    assert_eq!(std::fs::read(&file).unwrap().len(), 8);
    for (tool, out, told) in [
        ("many", file.as_str(), "name a folder"),
        ("bad", into.as_str(), "not base64"),
        (
            "one",
            "/nowhere/at/all.png",
            "/nowhere/at/all.png cannot be written",
        ),
    ] {
        let said = weir(&["call", &url, tool, "--out", out]);
        assert!(said.code == Some(5) && said.err.contains(told), "{said:?}");
    }
}

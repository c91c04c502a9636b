//! Messages of the kit's own servers, checked against the official schemas if the environment has
//! them (`MCP_SCHEMAS`).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use serde_json::{Value, json};
use weir_testkit::{
    MessageRecorder, MessageSender, MockBehaviour, MockServer, ProtocolSchemas, RawClient,
    TestFolder,
};
use weir_wire::Revision;

/// A folder with a tiny schema for every revision, in the dialect that each one uses.
fn tiny_schemas(folder: &Path) -> ProtocolSchemas {
    for revision in Revision::ALL {
        let (home, dialect) = match revision >= Revision::V2025_11_25 {
            true => ("$defs", "https://json-schema.org/draft/2020-12/schema"),
            false => ("definitions", "http://json-schema.org/draft-07/schema#"),
        };
        let answer = if home == "$defs" {
            "JSONRPCResultResponse"
        } else {
            "JSONRPCResponse"
        };
        let result = json!({"type": "object", "properties": {"tools": {"type": "array"}}, "required": ["tools"]});
        let document = json!({
            "$schema": dialect,
            home: {answer: {"type": "object", "required": ["id", "result"]}, "ListToolsResult": result},
        });
        std::fs::write(
            folder.join(format!("{}.json", revision.as_str())),
            document.to_string(),
        )
        .unwrap();
    }
    ProtocolSchemas::load(folder)
}

#[test]
fn messages_are_held_against_the_definition_of_their_method() {
    let folder = TestFolder::new("schemas");
    let schemas = tiny_schemas(folder.path());
    for revision in Revision::ALL {
        let check =
            |message: Value| schemas.check(revision, MessageSender::Server, "tools/list", &message);
        assert_eq!(check(json!({"id": 1, "result": {"tools": []}})), Ok(()));
        assert!(
            check(json!({"id": 1, "result": {"tools": 7}}))
                .unwrap_err()
                .contains("/tools")
        );
        assert!(check(json!({"result": {"tools": []}})).is_err());
        assert!(
            check(json!({"id": 1, "method": "x"}))
                .unwrap_err()
                .contains("has no JSONRPCRequest")
        );
    }
}

#[tokio::test]
async fn mock_server_messages_obey_official_schemas() {
    let recorder = MessageRecorder::new();
    for revision in Revision::ALL {
        let mock_server = MockServer::dual()
            .tool("t", MockBehaviour::progress(2))
            .start()
            .await;
        let client = RawClient::new(&mock_server.url()).with_recorder(&recorder);
        let client = match revision.is_modern() {
            true => client.modern(),
            false => client.legacy(revision).initialize().await.unwrap(),
        };
        client.list_tools().await.unwrap();
        client
            .start_call("t", json!({"a": 1}), json!("t"))
            .await
            .unwrap()
            .finish()
            .await
            .unwrap();
        client.call("nobody", json!({})).await.unwrap();
        if revision.is_modern() {
            client.ask("server/discover", Value::Null).await.unwrap();
            let mut stream = client
                .listen(json!({"toolsListChanged": true}))
                .await
                .unwrap();
            stream.next_message().await.unwrap();
            mock_server.notify_list_changed();
            stream.next_message().await.unwrap();
        }
    }
    assert!(
        recorder.messages().len() > 25,
        "{}",
        recorder.messages().len()
    );
    if let Some(schemas) = ProtocolSchemas::from_environment() {
        assert_eq!(recorder.violations(&schemas), Vec::<String>::new());
        // The same messages without a required member of the schema do not pass.
        for mut seen in recorder
            .messages()
            .into_iter()
            .filter(|seen| seen.answered_method == "tools/list")
        {
            seen.message["result"]["tools"][0]
                .as_object_mut()
                .unwrap()
                .remove("inputSchema");
            let broken = MessageRecorder::new();
            broken.add(seen);
            assert_eq!(broken.violations(&schemas).len(), 1);
        }
    }
}

//! Lists and calls agree, in every revision.

use serde_json::json;
use weir_testkit::{ClientAnswer, RawClient};
use weir_wire::Revision;

use super::{WeirWithRules, is_made, names};
use crate::harness::wait_until_async;

/// Returns a client of each era with this key.
async fn clients(office: &WeirWithRules, key: &str) -> Vec<RawClient> {
    let bare = || RawClient::new(&office.weir.url("/mcp")).with_header("x-api-key", key);
    let mut clients = vec![bare().modern()];
    for revision in [
        Revision::V2024_11_05,
        Revision::V2025_03_26,
        Revision::V2025_06_18,
        Revision::V2025_11_25,
    ] {
        clients.push(bare().legacy(revision).initialize().await.unwrap());
    }
    clients
}

/// Returns an answer without the parts that differ between two calls of different names.
fn comparable_answer(answer: &ClientAnswer, name: &str) -> String {
    let mut message = answer.last().clone();
    message["id"] = json!(0);
    if let Some(data) = message["error"]["data"].as_object_mut() {
        data.remove("requestId");
    }
    format!(
        "{} {}",
        answer.status,
        message.to_string().replace(name, "NAME")
    )
}

// Proves C21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_tools_are_absent_from_lists_and_unknown_to_calls() {
    let office = WeirWithRules::with(json!({})).await;
    let [writer, reader] = office.machines();
    for client in clients(&office, &writer.key).await {
        let listed = names(&client.ask("tools/list", json!({})).await.unwrap());
        assert_eq!(listed, ["one__read", "one__write", "one__strict"]);
        for (tool, path) in [
            ("one__read", "/x"),
            ("one__write", "/tmp/x"),
            ("one__strict", "/x"),
        ] {
            assert!(
                is_made(&client.call(tool, json!({ "path": path })).await.unwrap()),
                "{tool}"
            );
        }
        let refused = client
            .call("one__write", json!({ "path": "/etc/x" }))
            .await
            .unwrap();
        assert!(
            !is_made(&refused)
                && refused
                    .last()
                    .to_string()
                    .contains("only /tmp may be written to")
        );
    }
    let before = office.upstream.total_executions();
    for client in clients(&office, &reader.key).await {
        assert_eq!(
            names(&client.ask("tools/list", json!({})).await.unwrap()),
            ["one__read"]
        );
        assert!(is_made(&client.call("one__read", json!({})).await.unwrap()));
        let nothing = client
            .call("one__nothing", json!({ "path": "/tmp/x" }))
            .await
            .unwrap();
        for unseen in [
            "one__write",
            "one__strict",
            "one__hidden",
            "one__wipe",
            "write",
            "one/write",
        ] {
            let answer = client
                .call(unseen, json!({ "path": "/tmp/x" }))
                .await
                .unwrap();
            assert_eq!(
                comparable_answer(&answer, unseen),
                comparable_answer(&nothing, "one__nothing"),
                "{unseen}"
            );
        }
    }
    assert_eq!(
        office.upstream.total_executions() - before,
        5,
        "the reads alone arrived"
    );
}

// Proves D13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_change_notifies_only_principals_with_a_changed_list() {
    let office = WeirWithRules::with(json!({})).await;
    let [writer, reader] = office.machines();
    let listen = async |key: &str| {
        let client = RawClient::new(&office.weir.url("/mcp"))
            .with_header("x-api-key", key)
            .modern();
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        let mut stream = client
            .request("subscriptions/listen", wanted)
            .await
            .unwrap();
        let first = stream.next_message().await.unwrap().unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        stream
    };
    let (mut of_writer, mut of_reader) = (listen(&writer.key).await, listen(&reader.key).await);
    // The writers lose a tool that the readers never saw.
    let mut config = office.config.clone();
    let changed = format!(
        "{}\nforbid(principal, action, resource == Tool::\"one/strict\");",
        super::RULES
    );
    config["policy"]["inline"] = json!(changed);
    office.weir.rewrite_config(config.clone());
    let heard = of_writer.next_message().await.unwrap().unwrap();
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert_eq!(office.listed(writer).await, ["one__read", "one__write"]);
    tokio::select! {
        biased;
        heard = of_reader.next_message() => panic!("it concerns the writers alone: {heard:?}"),
        () = std::future::ready(()) => {}
    }
    // Then the readers gain one: this is their first notification.
    let gained = format!(
        "{changed}\npermit(principal in Group::\"readers\", action, resource == Tool::\"one/write\");"
    );
    config["policy"]["inline"] = json!(gained);
    office.weir.rewrite_config(config);
    wait_until_async("the new rule", async || {
        (office.listed(reader).await.len() == 2).then_some(())
    })
    .await;
    let heard = of_reader.next_message().await.unwrap().unwrap();
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    // weir ends every stream, after all pending notifications.
    office.weir.process.signal("TERM");
    let rest = async |mut stream: weir_testkit::HttpExchange| {
        let mut changes = 0;
        while let Ok(Some(message)) = stream.next_message().await {
            changes += usize::from(message["method"] == "notifications/tools/list_changed");
        }
        changes
    };
    assert_eq!(
        (rest(of_writer).await, rest(of_reader).await),
        (0, 0),
        "nobody heard of anything else"
    );
}

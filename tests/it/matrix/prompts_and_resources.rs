//! Prompts, resources, templates and completion.

use serde_json::json;
use weir_testkit::{ClientAnswer, MockBehaviour};
use weir_wire::Revision;

use super::pairing::ScenarioPairing;
use super::support_report::FeatureSupport;

fn names(answer: &ClientAnswer, list: &str, key: &str) -> Vec<String> {
    let items = answer.result()[list]
        .as_array()
        .unwrap_or_else(|| panic!("{:?}", answer.last()));
    items
        .iter()
        .map(|item| item[key].as_str().unwrap().to_owned())
        .collect()
}

// Proves R128, R138.
pub async fn prompts_are_listed_got_and_completed_under_their_names(
    world: &ScenarioPairing,
) -> FeatureSupport {
    for (client, prefix) in [(world.client().await, "shop__"), (world.direct().await, "")] {
        let listed = client.ask("prompts/list", json!({})).await;
        assert_eq!(
            names(&listed, "prompts", "name"),
            [format!("{prefix}greet"), format!("{prefix}linked")]
        );
        assert_eq!(
            listed.result()["prompts"][0]["x-unknown"],
            1,
            "unknown members stay"
        );
        let params = json!({ "name": format!("{prefix}greet"), "arguments": { "who": "you" } });
        let got = client.ask("prompts/get", params).await;
        assert_eq!(
            got.result()["messages"][0]["content"]["text"],
            "Hello you",
            "{:?}",
            got.last()
        );
        let reference = json!({ "type": "ref/prompt", "name": format!("{prefix}greet") });
        let params = json!({ "ref": reference, "argument": { "name": "who", "value": "a" } });
        let completed = client.ask("completion/complete", params.clone()).await;
        assert_eq!(
            completed.result()["completion"]["values"],
            json!(["a1", "a2"]),
            "{:?}",
            completed.last()
        );
        // R137: `context`, the earlier choices, is of 2025-06-18 and later.
        let mut with = params;
        with["context"] = json!({ "arguments": { "other": "b" } });
        assert!(
            client
                .ask("completion/complete", with.clone())
                .await
                .result()
                .is_object()
        );
        let seen = world
            .mock_server
            .requests_of("completion/complete")
            .pop()
            .unwrap();
        let takes = world.upstream >= Revision::V2025_06_18;
        assert_eq!(
            seen.message["params"].get("context"),
            takes.then_some(&with["context"]),
            "R137"
        );
        // A server that does not complete, and reports it only now.
        let unknown = MockBehaviour::error(-32601, "no such method", json!({}));
        world.mock_server.add_rule(
            "completion/complete",
            1,
            if world.upstream.is_modern() {
                unknown.with_status(404)
            } else {
                unknown
            },
        );
        let none = client.ask("completion/complete", with).await;
        if prefix.is_empty() {
            // The only server of a path answers for itself.
            assert_eq!(none.code(), -32601, "{:?}", none.last());
        } else {
            assert_eq!(
                none.result()["completion"]["values"],
                json!([]),
                "{:?}",
                none.last()
            );
        }
    }
    FeatureSupport::Carried
}

// Proves R134, R138.
pub async fn resources_and_templates_are_listed_and_read_under_their_uris(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let (many, one) = (world.client().await, world.direct().await);
    let uris = |memo: &str, panel: &str, template: &str| {
        [memo.to_owned(), panel.to_owned(), template.to_owned()]
    };
    for (client, [memo, panel, template]) in [
        (
            many,
            uris("shop+memo:1", "ui://shop/panel/main", "shop+memo:{id}"),
        ),
        (one, uris("memo:1", "ui://panel/main", "memo:{id}")),
    ] {
        let listed = client.ask("resources/list", json!({})).await;
        assert_eq!(
            names(&listed, "resources", "uri"),
            [memo.clone(), panel.clone()]
        );
        assert_eq!(listed.result()["resources"][0]["x-unknown"], json!([1]));
        let templates = client.ask("resources/templates/list", json!({})).await;
        assert_eq!(
            names(&templates, "resourceTemplates", "uriTemplate"),
            std::slice::from_ref(&template)
        );
        // Also a resource that is in no list, by its template.
        for (uri, own) in [
            (memo.clone(), "memo:1"),
            (memo.replace('1', "77"), "memo:77"),
            (panel.clone(), "ui://panel/main"),
        ] {
            let read = client.ask("resources/read", json!({ "uri": uri })).await;
            let content = &read.result()["contents"][0];
            assert_eq!(content["text"], format!("of {own}"), "{:?}", read.last());
            assert_eq!(content["uri"], uri, "a client may ask for it again");
        }
        let prompt = if memo.starts_with("shop") {
            "shop__linked"
        } else {
            "linked"
        };
        let got = client.ask("prompts/get", json!({ "name": prompt })).await;
        assert_eq!(
            got.result()["messages"][0]["content"]["resource"]["uri"],
            memo,
            "{:?}",
            got.last()
        );
        // A single resource has no variable to complete.
        for (uri, values) in [(&template, json!(["71", "72"])), (&memo, json!([]))] {
            let reference = json!({ "type": "ref/resource", "uri": uri });
            let params = json!({ "ref": reference, "argument": { "name": "id", "value": "7" } });
            let completed = client.ask("completion/complete", params).await;
            assert_eq!(
                completed.result()["completion"]["values"],
                values,
                "{:?}",
                completed.last()
            );
        }
    }
    FeatureSupport::Carried
}

// Proves R124, R125, R126, R127.
pub async fn unknown_prompt_or_resource_gets_the_error_code_of_the_revision(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let mock_server = &world.mock_server;
    let client = world.client().await;
    let refused = client
        .ask("prompts/get", json!({ "name": "shop__nothing" }))
        .await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (200, -32602),
        "{:?}",
        refused.last()
    );
    let code = if world.client.is_modern() {
        -32602
    } else {
        -32002
    };
    for uri in ["nowhere:1", "other+memo:1"] {
        let refused = client.ask("resources/read", json!({ "uri": uri })).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (200, code),
            "{:?}",
            refused.last()
        );
        assert_eq!(refused.error()["data"]["uri"], uri);
    }
    assert_eq!(
        mock_server.requests_of("prompts/get").len(),
        4,
        "only those before"
    );
    assert!(
        mock_server
            .requests_of("resources/read")
            .iter()
            .all(|read| read.message["params"]["uri"] != "nowhere:1")
    );
    // A resource that only the server knows to be missing.
    let refused = client
        .ask("resources/read", json!({ "uri": "shop+gone:1" }))
        .await;
    let code = if world.upstream.is_modern() {
        -32602
    } else {
        code
    };
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (200, code),
        "{:?}",
        refused.last()
    );
    for bad in [
        json!({}),
        json!({ "ref": 5 }),
        json!({ "ref": { "type": "ref/odd" } }),
        json!({ "ref": { "type": "ref/prompt" } }),
    ] {
        let refused = client.ask("completion/complete", bad).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (200, -32602),
            "{:?}",
            refused.last()
        );
    }
    FeatureSupport::Carried
}

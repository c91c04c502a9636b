//! Operators with tokens of the authorization server: issued for the operators' listener, and with
//! the scope.

use serde_json::json;
use weir_testkit::RawClient;

use super::oauth_zoo::OauthZoo;
use crate::admin::{OperatorClient, body};
use crate::harness::peers_are_enabled;

// Proves R286.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_has_a_token_for_this_listener_with_the_scope_that_the_config_names() {
    if !peers_are_enabled() {
        return;
    }
    let town = OauthZoo::with(|config| {
        config["admin"] = json!({ "auth": { "oauth": { "scope": "admin" } } })
    });
    let token = |path: &str, scope: &str| {
        format!(
            "Bearer {}",
            town.idp.machine_token(&town.weir.url(path), scope)
        )
    };
    let with = |token: &str| OperatorClient::of(&town.weir).with("authorization", token);
    let (own, lacking) = (token("/admin", "admin"), token("/admin", "mcp"));

    // Views and changes, under the name of the token.
    let ops = with(&own);
    assert_eq!(
        ops.get_json("/admin/upstreams").await["upstreams"][0]["id"],
        "zoo"
    );
    assert_eq!(ops.get("/").await.status, 200);
    ops.change("/admin/upstreams/zoo/drain", json!({ "ttl": "1h" }))
        .await;
    let changes = ops.get_json("/admin/config").await["changes"].clone();
    assert_eq!(
        (&changes[0]["what"], &changes[0]["by"]),
        (&json!("drain"), &json!("machine"))
    );
    ops.change("/admin/upstreams/zoo/enable", json!({})).await;

    // Without the scope the operator is known but not allowed: the answer names the scope.
    let lacks = with(&lacking);
    let refused = [
        lacks.get("/admin/upstreams").await,
        lacks
            .try_change("/admin/upstreams/zoo/drain", &json!({}))
            .await,
    ];
    for refused in refused {
        assert_eq!(refused.status, 403, "{}", body(&refused));
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(
            challenge.starts_with("Bearer ") && challenge.contains(r#"error="insufficient_scope""#),
            "{challenge}"
        );
        assert!(challenge.contains(r#"scope="admin""#), "{challenge}");
    }

    // A token for the clients' listener is refused here, with any scope, and one for this listener
    // is refused there.
    for foreign in [
        token("/mcp", "mcp"),
        token("/mcp", "admin"),
        "Bearer nothing".to_owned(),
    ] {
        let refused = with(&foreign).get("/admin/upstreams").await;
        assert_eq!(refused.status, 401, "{}", body(&refused));
    }
    assert_eq!(
        OperatorClient::of(&town.weir)
            .get("/admin/upstreams")
            .await
            .status,
        401
    );
    for (token, status) in [(&own, 401), (&lacking, 401), (&token("/mcp", "mcp"), 200)] {
        let client = RawClient::new(&town.url())
            .modern()
            .with_header("authorization", token);
        let answer = client.ask("tools/list", json!({})).await.unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401);
    }
    assert_eq!(
        ops.get_json("/admin/config").await["changes"],
        json!([]),
        "nobody else changed anything"
    );
}

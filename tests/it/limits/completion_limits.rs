//! Completion: the same rates and the same visibility as the calls that it helps with
//! (server/utilities/completion, "Security").

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, MockServer};
use weir_wire::Revision;

use crate::harness::{CheckedClient, Weir};
use crate::tenant_isolation::TENANTS;

const RULES: &str = r#"
permit(principal, action, resource);
forbid(principal, action, resource) when { principal.scopes.contains("bob") && resource.native == "greet" };
forbid(principal, action, resource) when { principal.scopes.contains("bob") && resource.native like "memo:*" };
"#;

/// Completes for a prompt or a template of this name.
async fn complete(client: &CheckedClient, kind: &str, name: &str) -> ClientAnswer {
    let member = if kind == "ref/prompt" { "name" } else { "uri" };
    let reference = json!({ "type": kind, member: name });
    client
        .ask(
            "completion/complete",
            json!({ "ref": reference, "argument": { "name": "who", "value": "a" } }),
        )
        .await
}

/// Returns an error without the parts that differ between two names.
fn comparable_error(answer: &ClientAnswer, name: &str) -> (Value, String) {
    let error = answer.error();
    (
        error["code"].clone(),
        error["message"].as_str().unwrap().replace(name, "NAME"),
    )
}

// Proves R136.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_is_rate_limited_and_refused_for_hidden_items() {
    for revision in [
        Revision::MODERN,
        Revision::NEWEST_LEGACY,
        Revision::V2024_11_05,
    ] {
        let upstream = MockServer::modern().with_library().start().await;
        let weir = Weir::with_config(json!({
            "upstreams": { "one": { "url": upstream.url() } },
            "auth": { "mode": "required", "api_keys": TENANTS.each_ref().map(|tenant| tenant.api_key()) },
            "policy": { "inline": RULES },
            "rates": { "upstreams": { "one": { "rate": "3/h" } } },
        }));
        let url = weir.url("/mcp");
        let (ada, bob) = (
            TENANTS[0].client(&url, revision).await,
            TENANTS[1].client(&url, revision).await,
        );
        for (kind, hidden, nothing) in [
            ("ref/prompt", "one__greet", "one__nothing"),
            ("ref/resource", "one+memo:{id}", "one+nothing:{id}"),
        ] {
            let unseen = complete(&bob, kind, hidden).await;
            assert_eq!(unseen.code(), -32602, "{}", unseen.last());
            assert_eq!(
                comparable_error(&unseen, hidden),
                comparable_error(&complete(&bob, kind, nothing).await, nothing)
            );
        }
        assert_eq!(
            upstream.requests_of("completion/complete").len(),
            0,
            "what is hidden is not asked for"
        );
        for (kind, seen) in [
            ("ref/prompt", "one__greet"),
            ("ref/resource", "one+memo:{id}"),
            ("ref/prompt", "one__greet"),
        ] {
            let completed = complete(&ada, kind, seen).await;
            assert_eq!(
                completed.result()["completion"]["values"],
                json!(["a1", "a2"]),
                "{}",
                completed.last()
            );
        }
        let refused = complete(&ada, "ref/prompt", "one__greet").await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (200, 1005),
            "{}",
            refused.last()
        );
        let data = &refused.error()["data"];
        assert_eq!(
            (&data["limit"]["policy"], &data["limit"]["limit"]),
            (&json!("upstream:one"), &json!(3))
        );
        assert!(
            data["retryAfterMs"].as_u64().is_some_and(|wait| wait > 0),
            "{data}"
        );
        assert_eq!(
            upstream.requests_of("completion/complete").len(),
            3,
            "what was refused was not asked for"
        );
    }
}

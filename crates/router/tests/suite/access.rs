//! A cache hint grants no access, and private items of one principal reach no other.

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use weir_core::endpoint::NamePrefix;
use weir_core::{Failure, FailureKind, Payload, Reply, ReplyEnd};

use crate::calls::{RouterWorld, failure};
use crate::support::{CatalogWorld, GateRule, ScriptedUpstream, exposed, principal};

// Proves R164.
#[tokio::test(start_paused = true)]
async fn public_list_grants_no_call() {
    let fake = ScriptedUpstream::new("up", &["free", "denied", "hidden"]);
    fake.set(|script| script.hint = Some((60_000, true)));
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    for who in ["owner", "guest", "stranger"] {
        let page = world.world.page(&principal(who), None).await.unwrap();
        assert_eq!(
            (page.view.items.len(), page.public, page.ttl_ms),
            (3, true, 60_000),
            "{who} may keep it and pass it on"
        );
    }
    // The rules come while all clients hold a list without a trace of them.
    world.gate.rule("guest", "denied", GateRule::Denied);
    world.gate.rule("stranger", "hidden", GateRule::Hidden);
    for (who, listed) in [("owner", true), ("guest", true), ("stranger", false)] {
        let page = world.world.page(&principal(who), None).await.unwrap();
        assert_eq!(
            (exposed(&page.view).contains(&"up__hidden"), page.public),
            (listed, false),
            "{who}"
        );
    }
    let call = async |who: &str, tool: &str| world.call_by(who, json!({ "name": tool })).await;
    for tool in ["up__denied", "denied"] {
        assert_eq!(
            failure(call("guest", tool).await).kind(),
            &FailureKind::Denied
        );
    }
    assert_eq!(
        failure(call("stranger", "up__hidden").await).kind(),
        &FailureKind::InvalidParams
    );
    assert_eq!(
        ScriptedUpstream::count(&fake.calls),
        0,
        "no upstream heard of it"
    );
    for (who, tool) in [
        ("guest", "up__free"),
        ("owner", "up__denied"),
        ("owner", "up__hidden"),
    ] {
        assert!(
            matches!(call(who, tool).await, ReplyEnd::Complete(_)),
            "{who} {tool}"
        );
    }
}

// Proves R156.
#[tokio::test(start_paused = true)]
async fn private_pages_cursors_and_results_reach_no_other_principal() {
    let fake = ScriptedUpstream::new("up", &["a", "b", "c", "d"]);
    fake.set(|script| {
        script.hint = Some((60_000, false));
        script.answer = Box::new(|outbound| {
            let mark = json!({ "content": [], "made for": outbound.principal.to_string() });
            Reply::ended(ReplyEnd::Complete(Payload::Whole(Bytes::from(
                mark.to_string(),
            ))))
        });
    });
    let world = CatalogWorld::of(&[]);
    world.show(&[&fake], NamePrefix::Always, 2);
    let world = RouterWorld::of(world);
    let (alice, bob) = (principal("alice"), principal("bob"));
    let (first, own) = (
        world.world.page(&alice, None).await.unwrap(),
        world.world.page(&bob, None).await.unwrap(),
    );
    assert!(!first.public && !own.public, "nobody else may keep it");
    // Alice's cursor is refused for bob, and still valid for her.
    let cursor = first.next_cursor.unwrap();
    let refused = world.world.page(&bob, Some(&cursor)).await.unwrap_err();
    assert_eq!(refused.message(), Failure::bad_cursor().message());
    assert_eq!(
        world.world.page(&alice, Some(&cursor)).await.unwrap().range,
        2..4
    );
    // The same call by both at once is two calls, and each has the answer made for its own
    // principal.
    let names = ["alice", "bob"].into_iter().cycle().take(200);
    let calls = names.map(async |who| (who, world.call_by(who, json!({ "name": "up__a" })).await));
    for (who, answer) in join_all(calls).await {
        let ReplyEnd::Complete(Payload::Whole(bytes)) = answer else {
            panic!("{answer:?}")
        };
        let result: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(result["made for"], who);
    }
    assert_eq!(
        ScriptedUpstream::count(&fake.calls),
        200,
        "no answer was kept for the next who asked"
    );
}

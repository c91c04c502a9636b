//! Upstreams that a principal must not see, and calls of upstreams whose lists are not shown.

use std::sync::Arc;

use serde_json::json;
use weir_catalog::ClosingMode;
use weir_core::endpoint::NamePrefix;
use weir_core::failure::{FailureKind, UPSTREAM_DISABLED};
use weir_core::toolset::{NamePattern, Toolset};
use weir_core::upstream::Upstream;
use weir_core::{CapabilityClass, Endpoint, Failure};

use crate::calls::{RouterWorld, failure};
use crate::support::{CatalogWorld, GateRule, ScriptedUpstream, aggregate, endpoint, principal};

/// The ids of the upstreams that describe themselves to a principal.
async fn described(world: &CatalogWorld, who: &str) -> Vec<String> {
    let who = principal(who);
    let about = world
        .catalog
        .about(&endpoint(), CapabilityClass::BASE, &who);
    about.iter().map(|(id, _)| id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn hidden_and_disabled_upstreams_are_not_described() {
    let (a, b) = (
        ScriptedUpstream::new("a", &["x"]),
        ScriptedUpstream::new("b", &["y", "z"]),
    );
    let world = CatalogWorld::of(&[&a, &b]);
    world.settled().await;
    assert_eq!(described(&world, "bob").await, ["a", "b"]);
    world.gate.rule("bob", "y", GateRule::Hidden);
    assert_eq!(described(&world, "bob").await, ["a", "b"]);
    world.gate.rule("bob", "z", GateRule::Hidden);
    assert_eq!(described(&world, "bob").await, ["a"]);
    assert_eq!(described(&world, "alice").await, ["a", "b"]);
    // A prompt is reason enough.
    b.set(|script| script.prompts = Some(vec![crate::support::tool("p")]));
    b.cut();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(described(&world, "bob").await, ["a", "b"]);
    assert!(world.catalog.close(b.id(), ClosingMode::Disabled));
    for who in ["alice", "bob"] {
        assert_eq!(described(&world, who).await, ["a"], "{who}");
    }
    world.gate.forget();
    assert_eq!(described(&world, "alice").await, ["a"], "without rules");
}

/// The lists that an endpoint declares to a principal.
async fn declared(world: &CatalogWorld, who: &str) -> Vec<&'static str> {
    let who = principal(who);
    let class = CapabilityClass::BASE;
    let features = world.catalog.offered_features(&endpoint(), class, &who);
    let lists = [
        ("tools", features.tools),
        ("prompts", features.prompts),
        ("resources", features.resources),
        ("updates", features.subscribes),
    ];
    let lists = lists.into_iter().filter(|(_, has)| *has);
    lists.map(|(name, _)| name).collect()
}

#[tokio::test(start_paused = true)]
async fn features_of_hidden_upstreams_are_not_declared() {
    let (a, b) = (
        ScriptedUpstream::new("a", &["x"]),
        ScriptedUpstream::new("b", &["y"]),
    );
    b.set(|script| {
        script.prompts = Some(vec![crate::support::tool("p")]);
        script.subscribes = true;
    });
    let world = CatalogWorld::of(&[&a, &b]);
    world.settled().await;
    let (all, of_a) = (["tools", "prompts", "resources", "updates"], ["tools"]);
    assert_eq!(declared(&world, "bob").await, all);
    world.gate.rule("bob", "y", GateRule::Hidden);
    assert_eq!(declared(&world, "bob").await, all, "a prompt is visible");
    world.gate.rule("bob", "p", GateRule::Hidden);
    assert_eq!(declared(&world, "bob").await, of_a);
    assert_eq!(declared(&world, "alice").await, all);
    // A disabled server may come back during a session, for those that see it.
    assert!(world.catalog.close(b.id(), ClosingMode::Disabled));
    assert_eq!(declared(&world, "bob").await, of_a);
    for who in ["alice", "carol"] {
        assert_eq!(declared(&world, who).await, all, "{who}");
    }
    // So may one without any items.
    assert!(world.catalog.reopen(b.id()));
    b.set(|script| {
        script.tools.clear();
        script.prompts = Some(Vec::new());
    });
    b.cut();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(declared(&world, "bob").await, all);
}

#[tokio::test(start_paused = true)]
async fn features_that_further_scopes_would_show_are_declared() {
    let a = ScriptedUpstream::new("a", &["x"]);
    a.set(|script| script.prompts = Some(vec![crate::support::tool("p")]));
    let world = CatalogWorld::of(&[]);
    let all = aggregate(&["a"], NamePrefix::Always, 1000);
    let tools = Toolset {
        scopes: vec![(NamePattern::new("a__x"), vec!["admin".into()])],
        ..Toolset::default()
    };
    let all = Endpoint {
        tools: Some(Arc::new(tools)),
        ..Endpoint::clone(&all)
    };
    world.apply(vec![Arc::new(all)], &[&a]);
    world.settled().await;
    world.gate.rule("bob", "p", GateRule::Hidden);
    world.gate.rule("bob", "x", GateRule::Scope("admin"));
    assert_eq!(declared(&world, "bob").await, ["tools", "prompts"]);
    world.gate.forget();
    for item in ["p", "x"] {
        world.gate.rule("bob", item, GateRule::Hidden);
    }
    assert!(declared(&world, "bob").await.is_empty());
}

/// A router over `a`, which is absent, and `b`. `bob` does not see `a/secret`.
async fn desk_with_rule(fakes: &[&Arc<ScriptedUpstream>], tools: Toolset) -> RouterWorld {
    let world = CatalogWorld::of(&[]);
    let all = aggregate(&["a", "b"], NamePrefix::Always, 1000);
    let all = Endpoint {
        tools: Some(Arc::new(tools)),
        ..Endpoint::clone(&all)
    };
    world.apply(vec![Arc::new(all)], fakes);
    world.settled().await;
    world.gate.rule("bob", "secret", GateRule::Hidden);
    RouterWorld::of(world)
}

async fn refusal(world: &RouterWorld, who: &str, name: &str) -> Box<Failure> {
    failure(world.call_by(who, json!({ "name": name })).await)
}

fn is_unknown(failure: &Failure, name: &str) -> bool {
    failure.message() == Failure::unknown_tool(name).message()
}

#[tokio::test(start_paused = true)]
async fn rules_leave_callers_the_reason_for_an_absent_tool() {
    for is_pending in [false, true] {
        let a = ScriptedUpstream::new("a", &["open", "secret"]);
        let b = ScriptedUpstream::new("b", &["hello"]);
        a.set(|script| match is_pending {
            true => script.hang = true,
            false => script.refuse = true,
        });
        let tools = Toolset {
            exclude: vec![NamePattern::new("a/excluded")],
            aliases: vec![
                (NamePattern::new("a/open"), "reveal".into()),
                (NamePattern::new("a__secret"), "conceal".into()),
            ],
            ..Toolset::default()
        };
        let world = desk_with_rule(&[&a, &b], tools).await;
        for (who, name) in [
            ("bob", "a__other"),
            ("bob", "reveal"),
            ("alice", "a__secret"),
            ("alice", "conceal"),
        ] {
            let refused = refusal(&world, who, name).await;
            assert_eq!(refused.kind(), &FailureKind::Unavailable, "{who} {name}");
            assert!(refused.message().contains("cannot be reached"));
        }
        for (who, name) in [
            ("bob", "a__secret"),
            ("bob", "conceal"),
            ("alice", "a__excluded"),
            ("alice", "other"),
            ("alice", "b__other"),
            ("alice", "a__"),
        ] {
            let refused = refusal(&world, who, name).await;
            assert!(is_unknown(&refused, name), "{who} {name}: {refused:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_disabled_upstream_confirms_no_hidden_name() {
    let a = ScriptedUpstream::new("a", &["open", "secret", "excluded", "größe"]);
    let b = ScriptedUpstream::new("b", &["hello"]);
    let tools = Toolset {
        exclude: vec![NamePattern::new("a/excluded")],
        ..Toolset::default()
    };
    let world = desk_with_rule(&[&a, &b], tools).await;
    let odd = world.world.view();
    let odd = odd.items.iter().find(|item| &*item.tool.native == "größe");
    let odd = odd.unwrap().exposed.to_string();
    assert!(world.world.catalog.close(a.id(), ClosingMode::Disabled));
    for (who, name) in [
        ("bob", "a__open"),
        ("bob", "open"),
        ("bob", &odd),
        ("bob", "größe"),
        ("alice", "a__secret"),
        ("alice", "secret"),
    ] {
        let refused = refusal(&world, who, name).await;
        assert_eq!(refused.message(), UPSTREAM_DISABLED, "{who} {name}");
    }
    for (who, name) in [
        ("bob", "a__secret"),
        ("bob", "secret"),
        ("bob", "nothing"),
        ("alice", "a__excluded"),
        ("alice", "excluded"),
    ] {
        let refused = refusal(&world, who, name).await;
        assert!(is_unknown(&refused, name), "{who} {name}: {refused:?}");
    }
}

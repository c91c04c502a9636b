//! Names that mean an item of one upstream, also while no list shows it: no other upstream gets calls
//! of them.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_catalog::ClosingMode;
use weir_core::endpoint::NamePrefix;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::toolset::{NamePattern, Toolset};
use weir_core::upstream::{ListKind, Upstream};
use weir_core::{CapabilityClass, Endpoint, Reply};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked_by, end, raw};
use crate::support::{
    CatalogWorld, GateRule, ScriptedUpstream, aggregate, endpoint, exposed, id, principal,
    transparent,
};

/// The absence of upstream `b` from a client's lists.
#[derive(Clone, Copy, Debug)]
enum Absence {
    Down,
    Pending,
    Disabled,
    Hidden,
}

const ABSENCES: [Absence; 4] = [
    Absence::Down,
    Absence::Pending,
    Absence::Disabled,
    Absence::Hidden,
];

/// A router over these upstreams, with `gone` absent for the principal `bob`.
async fn desk_without(
    endpoints: Vec<Arc<Endpoint>>,
    fakes: &[&Arc<ScriptedUpstream>],
    gone: &Arc<ScriptedUpstream>,
    absence: Absence,
) -> RouterWorld {
    match absence {
        Absence::Down => gone.set(|script| script.refuse = true),
        Absence::Pending => gone.set(|script| script.hang = true),
        Absence::Disabled | Absence::Hidden => gone.set(|script| {
            script.refuse = false;
            script.hang = false;
        }),
    }
    let world = CatalogWorld::of(&[]);
    world.apply(endpoints, fakes);
    world.settled().await;
    match absence {
        Absence::Disabled => assert!(world.catalog.close(gone.id(), ClosingMode::Disabled)),
        Absence::Hidden => world.gate.rule("bob", "of-b", GateRule::Hidden),
        Absence::Down | Absence::Pending => {}
    }
    RouterWorld::of(world)
}

fn aliased(endpoint: &Endpoint, tool: &str, alias: &str) -> Arc<Endpoint> {
    let tools = Toolset {
        aliases: vec![(NamePattern::new(tool), Arc::from(alias))],
        ..Toolset::default()
    };
    Arc::new(Endpoint {
        tools: Some(Arc::new(tools)),
        ..endpoint.clone()
    })
}

async fn call(world: &RouterWorld, name: &str) -> ReplyEnd {
    world.call_by("bob", json!({ "name": name })).await
}

#[tokio::test(start_paused = true)]
async fn a_tool_named_like_one_of_another_upstream_gets_none_of_its_calls() {
    for prefix in [NamePrefix::Always, NamePrefix::None] {
        for absence in ABSENCES {
            let a = ScriptedUpstream::new("a", &["b__of-b", "plain"]);
            let b = ScriptedUpstream::new("b", &["of-b", "of-b"]);
            let endpoints = vec![aggregate(&["a", "b"], prefix, 1000)];
            let world = desk_without(endpoints, &[&a, &b], &b, absence).await;
            let case = format!("{prefix:?} {absence:?}");
            assert!(
                matches!(call(&world, "b__of-b").await, ReplyEnd::Failed(_)),
                "{case}"
            );
            assert_eq!(ScriptedUpstream::count(&a.calls), 0, "{case}");
            // The tool can be called by its name on the endpoint.
            assert!(
                exposed(&world.world.view()).contains(&"a__b__of-b"),
                "{case}"
            );
            for name in ["a__b__of-b", "plain"] {
                let answer = call(&world, name).await;
                assert!(
                    matches!(answer, ReplyEnd::Complete(_)),
                    "{case}: {answer:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_alias_is_reserved_while_its_tool_is_not_listed() {
    for prefix in [NamePrefix::Always, NamePrefix::None] {
        for absence in ABSENCES {
            let a = ScriptedUpstream::new("a", &["deploy", "plain"]);
            let b = ScriptedUpstream::new("b", &["of-b"]);
            let all = aggregate(&["a", "b"], prefix, 1000);
            let endpoints = vec![aliased(&all, "b/of-b", "deploy")];
            let world = desk_without(endpoints, &[&a, &b], &b, absence).await;
            let case = format!("{prefix:?} {absence:?}");
            assert!(
                matches!(call(&world, "deploy").await, ReplyEnd::Failed(_)),
                "{case}"
            );
            assert_eq!(ScriptedUpstream::count(&a.calls), 0, "{case}");
            let answer = call(&world, "a__deploy").await;
            assert!(
                matches!(answer, ReplyEnd::Complete(_)),
                "{case}: {answer:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_alias_takes_its_name_from_listed_tools_at_once() {
    let a = ScriptedUpstream::new("a", &["deploy"]);
    let b = ScriptedUpstream::new("b", &["other"]);
    let all = aggregate(&["a", "b"], NamePrefix::None, 1000);
    let world = CatalogWorld::of(&[]);
    world.apply(vec![all.clone()], &[&a, &b]);
    let before = world.settled().await;
    assert_eq!(exposed(&before), ["deploy", "other"]);
    // No tool has the alias yet.
    world.apply(vec![aliased(&all, "b/absent", "deploy")], &[&a, &b]);
    let after = world.view();
    assert_eq!(exposed(&after), ["a__deploy", "other"]);
    assert_ne!(before.version, after.version);
    // With a prefix, the tool whose name on the endpoint is an alias is left out, and reported.
    let prefixed = aggregate(&["a", "b"], NamePrefix::Always, 1000);
    world.apply(vec![aliased(&prefixed, "b/absent", "a__deploy")], &[&a, &b]);
    let view = world.view();
    assert_eq!(exposed(&view), ["b__other"]);
    let [lost] = &*view.collisions else {
        panic!("{:?}", view.collisions)
    };
    assert_eq!((&lost.kept, &lost.dropped), (&id("b"), &id("a")));
}

#[tokio::test(start_paused = true)]
async fn the_bare_name_of_a_hidden_tool_means_no_other_tool() {
    let a = ScriptedUpstream::new("a", &["search"]);
    let b = ScriptedUpstream::new("b", &["search"]);
    let world = CatalogWorld::of(&[]);
    world.show(&[&a, &b], NamePrefix::None, 1000);
    let whole = world.settled().await;
    assert_eq!(exposed(&whole), ["search", "b__search"]);
    let world = RouterWorld::of(world);
    world.gate.rule("bob", "a/search", GateRule::Hidden);
    let bob = principal("bob");
    let seen = world.world.catalog.visible_part(&endpoint(), whole, &bob);
    assert_eq!(exposed(&seen), ["b__search"]);
    assert!(matches!(call(&world, "search").await, ReplyEnd::Failed(_)));
    let answer = call(&world, "b__search").await;
    assert!(matches!(answer, ReplyEnd::Complete(_)));
    assert_eq!(ScriptedUpstream::count(&b.calls), 1);
}

#[tokio::test(start_paused = true)]
async fn a_listed_uri_like_one_of_another_upstream_gets_none_of_its_reads() {
    for prefix in [NamePrefix::Always, NamePrefix::None] {
        let a = ScriptedUpstream::new("a", &["t"]);
        let b = ScriptedUpstream::new("b", &["t"]);
        let uris = ["b+file:///notes/1", "ui://b/page", "memo:own"];
        a.set(|script| {
            script.has_resources = true;
            let resource = |uri: &str| raw(&json!({ "uri": uri, "name": "r" }));
            script.resources = uris.into_iter().map(resource).collect();
        });
        b.set(|script| script.has_resources = true);
        for fake in [&a, &b] {
            let name = fake.id().to_string();
            fake.set(|script| {
                script.answer = Box::new(move |_| {
                    let result = json!({ "contents": [], "by": name });
                    let payload = Payload::Whole(Bytes::from(result.to_string()));
                    Reply::ended(ReplyEnd::Complete(payload))
                });
            });
        }
        let world = CatalogWorld::of(&[]);
        world.show(&[&a, &b], prefix, 1000);
        world
            .catalog
            .settled_view(&endpoint(), ListKind::Resources, CapabilityClass::BASE)
            .await;
        let world = RouterWorld::of(world);
        for (uri, server) in [
            (uris[0], "b"),
            (uris[1], "b"),
            ("a+b+file:///notes/1", "a"),
            ("memo:own", "a"),
            ("a+memo:own", "a"),
        ] {
            let params = raw(&json!({ "uri": uri }));
            let call = asked_by("bob", &endpoint(), Method::ResourcesRead, params).await;
            let answer = end(world.router.call(call).await).await;
            let ReplyEnd::Complete(Payload::Whole(bytes)) = answer else {
                panic!("{prefix:?} {uri}: {answer:?}")
            };
            let result: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(result["by"], server, "{prefix:?} {uri}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_of_one_upstream_shows_and_finds_every_native_name() {
    let a = ScriptedUpstream::new("a", &["b__of-b"]);
    let b = ScriptedUpstream::new("b", &["of-b"]);
    let world = CatalogWorld::of(&[]);
    let (one, alone) = (transparent("a"), aggregate(&["a"], NamePrefix::Always, 10));
    world.apply(vec![one.clone(), alone], &[&a, &b]);
    world.settled().await;
    let class = CapabilityClass::BASE;
    let view = world.catalog.view(&one.id, ListKind::Tools, class).unwrap();
    assert!(view.find("b__of-b").item().is_some());
    let world = RouterWorld::of(world);
    assert!(matches!(
        call(&world, "b__of-b").await,
        ReplyEnd::Complete(_)
    ));
    let params = raw(&json!({ "name": "b__of-b" }));
    let direct = asked_by("bob", &one.id, Method::ToolsCall, params).await;
    let answer = end(world.router.call(direct).await).await;
    assert!(matches!(answer, ReplyEnd::Complete(_)));
}

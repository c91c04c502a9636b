//! Toolsets of an endpoint: selection, other names, other descriptions. All clients see the same of
//! it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_catalog::ListChange;
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::{NamePrefix, ToolRules};
use weir_core::toolset::{NamePattern, ToolHints, Toolset};
use weir_core::upstream::{ListKind, Upstream};
use weir_core::{CapabilityClass, Endpoint, FailureKind, ReplyEnd};

use crate::calls::{RouterWorld, failure, raw};
use crate::support::{
    CatalogWorld, ScriptedUpstream, aggregate, endpoint, exposed, principal, transparent,
};

fn patterns(texts: &[&str]) -> Vec<NamePattern> {
    texts.iter().map(|text| NamePattern::new(text)).collect()
}

fn named(pairs: &[(&str, &str)]) -> Vec<(NamePattern, Arc<str>)> {
    pairs
        .iter()
        .map(|(tool, text)| (NamePattern::new(tool), Arc::from(*text)))
        .collect()
}

fn with(endpoint: &Endpoint, tools: Toolset) -> Arc<Endpoint> {
    Arc::new(Endpoint {
        tools: Some(Arc::new(tools)),
        ..endpoint.clone()
    })
}

/// A world with an endpoint that shows this much of the upstreams.
async fn world(
    fakes: &[&Arc<ScriptedUpstream>],
    prefix: NamePrefix,
    tools: Toolset,
) -> CatalogWorld {
    let world = CatalogWorld::of(fakes);
    show(&world, fakes, prefix, tools);
    world.settled().await;
    world
}

fn show(
    world: &CatalogWorld,
    fakes: &[&Arc<ScriptedUpstream>],
    prefix: NamePrefix,
    tools: Toolset,
) {
    let ids: Vec<&str> = fakes.iter().map(|fake| fake.id().as_str()).collect();
    world.apply(vec![with(&aggregate(&ids, prefix, 1000), tools)], fakes);
}

// Proves R115.
#[tokio::test(start_paused = true)]
async fn unselected_tools_exist_for_no_client() {
    let (files, web) = (
        ScriptedUpstream::new("files", &["read", "write", "delete"]),
        ScriptedUpstream::new("web", &["read", "get"]),
    );
    let tools = Toolset {
        include: patterns(&["files__*", "web/get"]),
        exclude: patterns(&["*delete*"]),
        ..Toolset::default()
    };
    let world = world(&[&files, &web], NamePrefix::Always, tools).await;
    assert_eq!(
        exposed(&world.view()),
        ["files__read", "files__write", "web__get"]
    );
    let world = RouterWorld::of(world);
    for name in ["files__delete", "delete", "web__read"] {
        let refused = failure(world.call(json!({ "name": name })).await);
        assert_eq!(
            (refused.kind(), refused.message()),
            (
                &FailureKind::InvalidParams,
                &*format!("Unknown tool: {name}")
            )
        );
    }
    // The other `read` is no rival any more: it is not listed.
    assert!(matches!(
        world.call(json!({ "name": "read" })).await,
        ReplyEnd::Complete(_)
    ));
    assert_eq!(
        (
            ScriptedUpstream::count(&files.calls),
            ScriptedUpstream::count(&web.calls)
        ),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn unprefixed_tool_is_selected_by_its_upstream() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["read"]),
        ScriptedUpstream::new("two", &["read", "list"]),
    );
    let tools = Toolset {
        exclude: patterns(&["one/*"]),
        ..Toolset::default()
    };
    let world = world(&[&one, &two], NamePrefix::None, tools).await;
    assert_eq!(exposed(&world.view()), ["read", "list"]);
    assert_eq!(world.view().items[0].tool.upstream.as_str(), "two");
}

// Proves R111.
#[tokio::test(start_paused = true)]
async fn an_alias_is_its_tools_own_and_no_upstream_can_take_it() {
    let (sly, files) = (
        ScriptedUpstream::new("sly", &["search", "other"]),
        ScriptedUpstream::new("files", &["find", "read"]),
    );
    let tools = Toolset {
        aliases: named(&[("find", "search")]),
        ..Toolset::default()
    };
    let world = world(&[&sly, &files], NamePrefix::None, tools).await;
    assert_eq!(
        exposed(&world.view()),
        ["sly__search", "other", "search", "read"]
    );
    let world = RouterWorld::of(world);
    assert!(matches!(
        world.call(json!({ "name": "search" })).await,
        ReplyEnd::Complete(_)
    ));
    assert_eq!(
        (
            ScriptedUpstream::count(&sly.calls),
            ScriptedUpstream::count(&files.calls)
        ),
        (0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn alias_takes_precedence_and_the_colliding_tool_is_reported() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("two", &["b"]),
    );
    let tools = Toolset {
        aliases: named(&[("two__b", "one__a")]),
        ..Toolset::default()
    };
    let world = world(&[&one, &two], NamePrefix::Always, tools).await;
    let view = world.view();
    assert_eq!(exposed(&view), ["one__a"]);
    assert_eq!(view.items[0].tool.upstream.as_str(), "two");
    let lost = &view.collisions[0];
    assert_eq!(
        (lost.kept.as_str(), lost.dropped.as_str(), &*lost.native),
        ("two", "one", "a")
    );
}

fn value(item: &CatalogItem) -> Value {
    serde_json::from_slice(&item.tool.raw).unwrap()
}

// Proves R279.
#[tokio::test(start_paused = true)]
async fn overrides_reach_clients_and_rules_believe_the_operator_alone() {
    let fake = ScriptedUpstream::new("up", &[]);
    let said = json!({ "name": "wipe", "description": "harmless", "x-odd": 1, "inputSchema": { "type": "object" },
        "annotations": { "title": "Wipe", "readOnlyHint": true } });
    fake.set(|script| script.tools = vec![raw(&said), Bytes::from_static(b"{\"name\":\"b\"}")]);
    let says = ToolHints {
        read_only: Some(false),
        destructive: Some(true),
        ..ToolHints::default()
    };
    let tools = Toolset {
        descriptions: named(&[("up__wipe", "Deletes everything.")]),
        hints: vec![
            (
                NamePattern::new("*"),
                ToolHints {
                    open_world: Some(false),
                    ..ToolHints::default()
                },
            ),
            (NamePattern::new("up/w*"), says),
        ],
        ..Toolset::default()
    };
    let mut world = world(&[&fake], NamePrefix::Always, tools.clone()).await;
    let view = world.view();
    assert_eq!(
        value(&view.items[0]),
        json!({ "name": "wipe", "description": "Deletes everything.", "x-odd": 1,
        "inputSchema": { "type": "object" }, "annotations": { "title": "Wipe", "readOnlyHint": false,
        "destructiveHint": true, "openWorldHint": false } })
    );
    assert_eq!(
        value(&view.items[1]),
        json!({ "name": "b", "inputSchema": { "type": "object" }, "annotations": { "openWorldHint": false } })
    );
    let believed = ToolHints {
        open_world: Some(false),
        ..says
    };
    assert_eq!(view.items[0].terms.hints, believed);
    // Without the operator's hints no annotation is believed, unless the upstream is trusted.
    world.show(&[&fake], NamePrefix::Always, 1000);
    assert_eq!(world.view().items[0].terms.hints, ToolHints::default());
    assert_eq!(value(&world.view().items[0]), said);
    world.rules.trusted = true;
    world.show(&[&fake], NamePrefix::Always, 1000);
    assert_eq!(
        world.view().items[0].terms.hints,
        ToolHints {
            read_only: Some(true),
            ..ToolHints::default()
        }
    );
    show(&world, &[&fake], NamePrefix::Always, tools);
    assert_eq!(
        world.view().items[0].terms.hints,
        believed,
        "the operator's word is the last"
    );
}

#[tokio::test(start_paused = true)]
async fn scopes_of_upstream_and_endpoint_add_up() {
    let fake = ScriptedUpstream::new("up", &["a", "b"]);
    let mut world = CatalogWorld::of(&[]);
    world.rules.tools = vec![(
        "a".to_owned(),
        ToolRules {
            scopes: vec!["up".into()],
            ..ToolRules::default()
        },
    )];
    let tools = Toolset {
        scopes: vec![(NamePattern::new("up__*"), vec!["all".into(), "up".into()])],
        ..Toolset::default()
    };
    show(&world, &[&fake], NamePrefix::Always, tools);
    world.settled().await;
    let scopes = |at: usize| world.view().items[at].terms.scopes.join(" ");
    assert_eq!(
        (scopes(0), scopes(1)),
        ("all up".to_owned(), "all up".to_owned())
    );
    world.show(&[&fake], NamePrefix::Always, 1000);
    assert_eq!(
        world
            .view()
            .items
            .iter()
            .map(|item| item.terms.scopes.join(" "))
            .collect::<Vec<_>>(),
        ["up", ""]
    );
}

#[tokio::test(start_paused = true)]
async fn toolset_change_is_announced_only_on_its_endpoint() {
    let fake = ScriptedUpstream::new("up", &["a", "b"]);
    let world = CatalogWorld::of(&[]);
    let (all, alone) = (
        aggregate(&["up"], NamePrefix::Always, 1000),
        transparent("up"),
    );
    world.apply(vec![all.clone(), alone.clone()], &[&fake]);
    world.settled().await;
    let who = principal("alice");
    let watch = |id| {
        world
            .catalog
            .watch_list(id, CapabilityClass::BASE, ListKind::Tools, &who)
    };
    let (mut there, mut elsewhere) = (watch(&endpoint()), watch(&alone.id));
    let mut told = async || {
        poll_fn(|cx| {
            let mut moved = |watching: &mut weir_catalog::ViewWatch| {
                watching.poll_changed(cx) == Poll::Ready(ListChange::Changed)
            };
            Poll::Ready((moved(&mut there), moved(&mut elsewhere)))
        })
        .await
    };
    let narrow = Toolset {
        exclude: patterns(&["up__b"]),
        ..Toolset::default()
    };
    world.apply(vec![with(&all, narrow), alone.clone()], &[&fake]);
    assert_eq!(told().await, (true, false));
    // Descriptions that do not change the list are no news.
    let same = Toolset {
        exclude: patterns(&["*b"]),
        ..Toolset::default()
    };
    world.apply(vec![with(&all, same), alone.clone()], &[&fake]);
    assert_eq!(told().await, (false, false));
}

//! Lists that differ by the client's capabilities.

use std::time::Duration;
use weir_core::upstream::ListKind;

use weir_core::CapabilityClass;

use bytes::Bytes;
use serde_json::json;
use weir_core::endpoint::NamePrefix;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::{Call, Reply};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked_with, end, failure, raw};
use crate::support::{CatalogWorld, ScriptedUpstream, aggregate, endpoint, exposed, tool};

const FORM: CapabilityClass = CapabilityClass::ELICITATION_FORM;
const SESSIONS: CapabilityClass = CapabilityClass::SESSIONS;

fn asking() -> std::sync::Arc<ScriptedUpstream> {
    let fake = ScriptedUpstream::new("ask", &["a"]);
    fake.set(|script| {
        script.carries = FORM;
        script
            .for_class
            .push((FORM, bytes::Bytes::from_static(b"{\"name\":\"form\"}")));
    });
    fake
}

// Proves R161, R057.
#[tokio::test(start_paused = true)]
async fn capability_dependent_tools_are_listed_only_for_clients_with_that_capability() {
    let (fake, plain) = (asking(), ScriptedUpstream::new("plain", &["b"]));
    let world = CatalogWorld::of(&[&fake, &plain]);
    assert_eq!(exposed(&world.settled().await), ["ask__a", "plain__b"]);
    let asked = FORM.with(CapabilityClass::ROOTS);
    let view = world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, asked)
        .await;
    assert_eq!(exposed(&view), ["ask__a", "ask__form", "plain__b"]);
    assert_eq!(exposed(&world.view()), ["ask__a", "plain__b"]);
    // Only the one that carries the capability is watched once more.
    assert_eq!(
        (
            ScriptedUpstream::count(&fake.opened),
            ScriptedUpstream::count(&plain.opened)
        ),
        (2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn unused_capability_class_is_no_longer_watched() {
    let fake = asking();
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, FORM)
        .await;
    let stream = world.catalog.changes(&endpoint(), FORM, ListKind::Tools);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(
        world.catalog.status()[0].lists.len(),
        2,
        "an open stream keeps it"
    );
    drop(stream);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(world.catalog.status()[0].lists.len(), 1);
    let view = world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, FORM)
        .await;
    assert_eq!(view.items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_the_list_of_a_class_is_unknown_the_base_list_stands_in() {
    let fake = asking();
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    fake.set(|script| script.hang = true);
    let view = world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, FORM)
        .await;
    assert_eq!(
        (
            exposed(&view),
            view.missing[0].reason.as_str(),
            view.ttl_ms()
        ),
        (vec!["ask__a"], "pending", 0)
    );
}

#[tokio::test(start_paused = true)]
async fn at_most_sixteen_classes_of_an_upstream_are_watched() {
    let fake = ScriptedUpstream::new("all", &["a"]);
    fake.set(|script| script.carries = CapabilityClass::from_bits(u16::MAX));
    let world = CatalogWorld::of(&[&fake]);
    for bits in 0..128 {
        let view = world
            .catalog
            .settled_view(
                &endpoint(),
                ListKind::Tools,
                CapabilityClass::from_bits(bits),
            )
            .await;
        assert_eq!(exposed(&view), ["all__a"], "{bits}");
    }
    assert_eq!(world.catalog.status()[0].lists.len(), 16);
    assert_eq!(ScriptedUpstream::count(&fake.opened), 16);
}

/// An upstream that lists `a` to all clients in two definitions, and one more tool to clients with
/// sessions and to those without. A call's result is the class that it was made with.
pub(crate) fn listing_apart() -> std::sync::Arc<ScriptedUpstream> {
    let fake = ScriptedUpstream::new("both", &["a", "without"]);
    let wants_text =
        json!({ "name": "a", "inputSchema": { "type": "object", "required": ["text"] } });
    fake.set(|script| {
        script.carries = SESSIONS;
        script.in_sessions = Some(vec![Bytes::from(wants_text.to_string()), tool("with")]);
        script.answer = Box::new(|outbound| {
            let class = outbound.call.capabilities.class.to_string();
            Reply::ended(ReplyEnd::Complete(Payload::Whole(
                json!({ "content": [], "class": class }).to_string().into(),
            )))
        });
    });
    fake
}

/// Calls a tool for a client of this class.
pub(crate) async fn called(world: &RouterWorld, class: CapabilityClass, name: &str) -> ReplyEnd {
    let params = raw(&json!({ "name": name, "arguments": {} }));
    let change = |call: &mut Call| call.capabilities.class = class;
    let call = asked_with("somebody", &endpoint(), Method::ToolsCall, params, change).await;
    end(world.router.call(call).await).await
}

/// The class that a call was made with.
pub(crate) fn class_of(end: ReplyEnd) -> String {
    match end {
        ReplyEnd::Complete(Payload::Whole(result)) => {
            let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
            result["class"].as_str().unwrap().to_owned()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn sessionless_tools_are_listed_to_session_clients_and_called_without_a_session() {
    let fake = listing_apart();
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    assert_eq!(
        exposed(&world.world.settled().await),
        ["both__a", "both__without"]
    );
    let view = world
        .world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, SESSIONS)
        .await;
    assert_eq!(exposed(&view), ["both__a", "both__with", "both__without"]);
    assert_eq!(
        exposed(&world.world.view()),
        ["both__a", "both__without"],
        "the others' list is as it was"
    );
    assert_eq!(
        class_of(called(&world, SESSIONS, "both__with").await),
        "sessions"
    );
    assert_eq!(
        class_of(called(&world, SESSIONS.with(FORM), "both__without").await),
        "elicitation.form"
    );
    assert_eq!(
        class_of(called(&world, CapabilityClass::BASE, "both__a").await),
        "base"
    );
    let refused = failure(called(&world, SESSIONS, "both__a").await);
    assert_eq!(
        refused.reason(),
        "bad_arguments",
        "each is checked by its own definition"
    );
    assert_eq!(
        *failure(called(&world, CapabilityClass::BASE, "both__with").await).kind(),
        weir_core::FailureKind::InvalidParams
    );
}

#[tokio::test(start_paused = true)]
async fn session_client_list_follows_changes_of_the_sessionless_list() {
    let fake = listing_apart();
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    let before = world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, SESSIONS)
        .await;
    let again = world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, SESSIONS)
        .await;
    assert_eq!(before.version, again.version);
    fake.set_tools(&["a", "new"]);
    fake.tell();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, SESSIONS)
        .await;
    assert_eq!(exposed(&after), ["both__a", "both__with", "both__new"]);
    assert_ne!(before.version, after.version);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_lists_of_every_class() {
    let fake = asking();
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    let view = async || {
        world
            .catalog
            .settled_view(&endpoint(), ListKind::Tools, FORM)
            .await
    };
    assert_eq!(exposed(&view().await), ["ask__a", "ask__form"]);
    // The same upstream with other settings, which takes its time. Its revision is not known yet.
    let after = asking();
    after.set(|script| {
        script.hang = true;
        script.carries = CapabilityClass::BASE;
    });
    world.apply(
        vec![aggregate(&["ask"], NamePrefix::Always, 1000)],
        &[&after],
    );
    let shown = view().await;
    assert_eq!(exposed(&shown), ["ask__a", "ask__form"]);
    assert_eq!(shown.missing[0].reason.as_str(), "stale");
    after.set(|script| {
        script.hang = false;
        script.carries = FORM;
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let shown = view().await;
    assert_eq!(exposed(&shown), ["ask__a", "ask__form"]);
    assert!(shown.missing.is_empty());
    // A new class beside a stale base list is pending: it may have more.
    let again = asking();
    again.set(|script| {
        script.carries = FORM.with(CapabilityClass::ROOTS);
        script.page_delay = Duration::from_secs(30);
    });
    world.apply(
        vec![aggregate(&["ask"], NamePrefix::Always, 1000)],
        &[&again],
    );
    let roots = world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, CapabilityClass::ROOTS)
        .await;
    assert_eq!(exposed(&roots), ["ask__a"]);
    assert_eq!(roots.missing[0].reason.as_str(), "pending");
}

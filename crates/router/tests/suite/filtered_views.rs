//! Visibility per principal: lists, pages, names of calls and announcements follow one and the same
//! part.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use weir_catalog::{ListChange, ViewWatch};
use weir_core::CapabilityClass;
use weir_core::FailureKind;
use weir_core::endpoint::NamePrefix;
use weir_core::upstream::ListKind;
use weir_core::{Principal, ReplyEnd};

use crate::calls::{RouterWorld, failure};
use crate::support::{
    CatalogWorld, GateRule, ScriptedUpstream, aggregate, endpoint, exposed, principal, transparent,
};

fn three() -> (Arc<ScriptedUpstream>, CatalogWorld) {
    let fake = ScriptedUpstream::new("up", &["a", "b", "c"]);
    let world = CatalogWorld::of(&[&fake]);
    (fake, world)
}

async fn listed(world: &CatalogWorld, who: &Principal) -> Vec<String> {
    let page = world.page(who, None).await.unwrap();
    page.view.items[page.range]
        .iter()
        .map(|item| item.exposed.to_string())
        .collect()
}

// Proves C21, R115.
#[tokio::test(start_paused = true)]
async fn list_and_call_decisions_agree_for_each_principal() {
    let (fake, world) = three();
    world.gate.rule("bob", "b", GateRule::Hidden);
    world.gate.rule("bob", "c", GateRule::Scope("tools:c"));
    let (alice, bob) = (principal("alice"), principal("bob"));
    assert_eq!(listed(&world, &alice).await, ["up__a", "up__b", "up__c"]);
    assert_eq!(listed(&world, &bob).await, ["up__a"]);
    let world = RouterWorld::of(world);
    for name in ["up__b", "b"] {
        let hidden = failure(world.call_by("bob", json!({ "name": name })).await);
        let unknown = failure(world.call_by("bob", json!({ "name": "up__nothing" })).await);
        assert_eq!(hidden.kind(), unknown.kind());
        assert_eq!(
            hidden.message().replace(name, "up__nothing"),
            unknown.message(),
            "there is no telling them apart"
        );
    }
    let lacking = failure(world.call_by("bob", json!({ "name": "up__c" })).await);
    assert_eq!(
        lacking.kind(),
        &FailureKind::InsufficientScope(Arc::new(["tools:c".into()]))
    );
    assert_eq!(ScriptedUpstream::count(&fake.calls), 0);
    assert!(matches!(
        world.call_by("alice", json!({ "name": "up__b" })).await,
        ReplyEnd::Complete(_)
    ));
    assert!(matches!(
        world.call_by("bob", json!({ "name": "a" })).await,
        ReplyEnd::Complete(_)
    ));
    assert_eq!(ScriptedUpstream::count(&fake.calls), 2);
    assert_eq!(
        world.gate.refused(),
        [
            "invalid_params",
            "invalid_params",
            "invalid_params",
            "invalid_params",
            "insufficient_scope"
        ]
    );
}

// The status of the refusal is lost if its response has begun as a stream by then.
#[tokio::test(start_paused = true)]
async fn refusal_for_scopes_does_not_wait_for_lists() {
    let (fake, world) = three();
    let slow = ScriptedUpstream::new("slow", &["d"]);
    slow.set(|script| script.page_delay = Duration::from_secs(60));
    world.show(&[&fake, &slow], NamePrefix::Always, 1000);
    world.gate.rule("bob", "b", GateRule::Hidden);
    world.gate.rule("bob", "c", GateRule::Scope("tools:c"));
    world.rest().await;
    let world = RouterWorld::of(world);
    let took = async |tool: &str| {
        let began = Instant::now();
        let refused = failure(world.call_by("bob", json!({ "name": tool })).await);
        (refused.kind().clone(), began.elapsed())
    };
    let (lacking, of_scopes) = took("up__c").await;
    assert_eq!(
        lacking,
        FailureKind::InsufficientScope(Arc::new(["tools:c".into()]))
    );
    assert_eq!(of_scopes, Duration::ZERO);
    let (_, of_hidden) = took("up__b").await;
    assert!(of_hidden > Duration::ZERO, "it looks like an unknown one");
}

#[tokio::test(start_paused = true)]
async fn equal_parts_are_one_version_and_hidden_upstreams_leave_no_trace() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("two", &["b"]),
    );
    let world = CatalogWorld::of(&[&one, &two]);
    world.settled().await;
    for who in ["bob", "eve"] {
        world.gate.rule(who, "b", GateRule::Hidden);
    }
    two.set(|script| script.refuse = true);
    two.cut();
    world.rest().await;
    let seen = async |name: &str| {
        world
            .catalog
            .visible_view(
                &endpoint(),
                ListKind::Tools,
                CapabilityClass::BASE,
                &principal(name),
            )
            .unwrap()
    };
    let (alice, bob, eve) = (seen("alice").await, seen("bob").await, seen("eve").await);
    assert_eq!(exposed(&bob), ["one__a"]);
    assert_eq!(bob.version, eve.version);
    assert_ne!(bob.version, alice.version);
    assert_eq!(
        (alice.missing.len(), bob.missing.len()),
        (1, 0),
        "bob sees nothing of the lost one"
    );
    assert!(!bob.public);
}

#[tokio::test(start_paused = true)]
async fn cursor_is_valid_while_its_owners_view_is_unchanged() {
    let fake = ScriptedUpstream::new("up", &["a", "b", "c", "d"]);
    let world = CatalogWorld::of(&[&fake]);
    world.show(&[&fake], NamePrefix::Always, 1);
    world.gate.rule("bob", "b", GateRule::Hidden);
    let bob = principal("bob");
    let first = world.page(&bob, None).await.unwrap();
    let cursor = first.next_cursor.unwrap();
    let second = world.page(&bob, Some(&cursor)).await.unwrap();
    assert_eq!(&*second.view.items[second.range][0].exposed, "up__c");
    // Another list of the upstream's: the cursor still leads to the rest of the list it came from.
    fake.set_tools(&["z"]);
    fake.tell();
    world.rest().await;
    let second = world.page(&bob, Some(&cursor)).await.unwrap();
    assert_eq!(&*second.view.items[second.range][0].exposed, "up__c");
    world.gate.rule("bob", "c", GateRule::Hidden);
    assert_eq!(
        world.page(&bob, Some(&cursor)).await.unwrap_err().kind(),
        &FailureKind::InvalidParams
    );
}

async fn told(watching: &mut ViewWatch) -> Option<ListChange> {
    poll_fn(|cx| match watching.poll_changed(cx) {
        Poll::Ready(change) => Poll::Ready(Some(change)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn only_clients_with_a_changed_list_are_notified() {
    let (fake, world) = three();
    world.settled().await;
    world.gate.rule("bob", "c", GateRule::Hidden);
    let (alice, bob) = (principal("alice"), principal("bob"));
    let watch = |who: &Principal| {
        world
            .catalog
            .watch_list(&endpoint(), CapabilityClass::BASE, ListKind::Tools, who)
    };
    let (mut alice, mut bob) = (watch(&alice), watch(&bob));
    assert_eq!((told(&mut alice).await, told(&mut bob).await), (None, None));
    fake.set_tools(&["a", "b"]);
    fake.tell();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(
        (told(&mut alice).await, told(&mut bob).await),
        (Some(ListChange::Changed), None)
    );
    // A change of the rules counts.
    world.gate.rule("bob", "b", GateRule::Hidden);
    world.catalog.announce_rule_change();
    assert_eq!(
        (told(&mut alice).await, told(&mut bob).await),
        (None, Some(ListChange::Changed))
    );
    world.gate.forget();
    world.catalog.announce_rule_change();
    assert_eq!(
        (told(&mut alice).await, told(&mut bob).await),
        (None, Some(ListChange::Changed))
    );
    world.catalog.announce_rule_change();
    assert_eq!((told(&mut alice).await, told(&mut bob).await), (None, None));
}

#[tokio::test(start_paused = true)]
async fn resumed_watch_is_compared_with_the_list_at_its_first_poll() {
    let (fake, world) = three();
    let alice = principal("alice");
    let watch = || {
        world
            .catalog
            .watch_list(&endpoint(), CapabilityClass::BASE, ListKind::Tools, &alice)
    };
    // Nothing was walked yet.
    let (mut same, mut other) = (watch(), watch());
    let empty = same.last();
    world.settled().await;
    let settled = watch().last();
    assert_ne!(settled, empty);
    same.resume_from(settled);
    other.resume_from(empty);
    assert_eq!(
        (told(&mut same).await, told(&mut other).await),
        (None, Some(ListChange::Changed))
    );
    assert_eq!((same.last(), other.last()), (settled, settled));
    fake.set_tools(&["a"]);
    fake.tell();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(told(&mut same).await, Some(ListChange::Changed));
}

#[tokio::test(start_paused = true)]
async fn refusals_are_on_record_and_never_reach_the_upstream() {
    let (fake, world) = three();
    world.gate.rule("bob", "a", GateRule::Denied);
    let world = RouterWorld::of(world);
    assert_eq!(
        failure(world.call_by("bob", json!({ "name": "a" })).await).kind(),
        &FailureKind::Denied
    );
    assert_eq!(
        (world.gate.refused(), world.gate.outcomes().len()),
        (vec!["denied"], 0)
    );
    *world.gate.closed.lock() = true;
    assert_eq!(
        failure(world.call_by("alice", json!({ "name": "a" })).await).kind(),
        &FailureKind::Overloaded
    );
    assert_eq!(
        failure(world.call_by("alice", json!({ "name": "x" })).await).kind(),
        &FailureKind::Overloaded
    );
    assert_eq!(ScriptedUpstream::count(&fake.calls), 0);
}

// Proves F12.
#[tokio::test(start_paused = true)]
async fn call_waits_for_a_permit_and_returns_it() {
    let (fake, world) = three();
    let queue = Arc::new(tokio::sync::Semaphore::new(0));
    world.gate.rule("bob", "a", GateRule::Queue(queue.clone()));
    let world = Arc::new(RouterWorld::of(world));
    let waiting = tokio::spawn({
        let world = world.clone();
        async move { world.call_by("bob", json!({ "name": "a" })).await }
    });
    world.world.rest().await;
    assert_eq!(ScriptedUpstream::count(&fake.calls), 0);
    queue.add_permits(1);
    assert!(matches!(waiting.await.unwrap(), ReplyEnd::Complete(_)));
    assert_eq!(queue.available_permits(), 1, "the place is free again");
}

#[tokio::test(start_paused = true)]
async fn notification_without_a_change_reaches_clients_that_see_the_whole_list() {
    let fake = ScriptedUpstream::new("up", &["a", "b"]);
    let world = CatalogWorld::empty(weir_catalog::CatalogSettings::default());
    let own = transparent("up");
    world.apply(
        vec![own.clone(), aggregate(&["up"], NamePrefix::Always, 1000)],
        &[&fake],
    );
    world.gate.rule("bob", "b", GateRule::Hidden);
    world
        .catalog
        .settled_view(&own.id, ListKind::Tools, CapabilityClass::BASE)
        .await;
    world.settled().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let watch = async |endpoint, name| {
        world.catalog.watch_list(
            endpoint,
            CapabilityClass::BASE,
            ListKind::Tools,
            &principal(name),
        )
    };
    let (aggregating, transparent) = (endpoint(), own.id.clone());
    let mut watches = [
        watch(&transparent, "alice").await,
        watch(&transparent, "bob").await,
        watch(&aggregating, "alice").await,
    ];
    let walks = ScriptedUpstream::count(&fake.walks);
    for round in 1..=2 {
        fake.tell();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(
            ScriptedUpstream::count(&fake.walks) > walks,
            "the list is read first"
        );
        let [all, part, aggregate] = &mut watches;
        assert_eq!(told(all).await, Some(ListChange::Changed), "{round}");
        assert_eq!(
            (told(all).await, told(part).await, told(aggregate).await),
            (None, None, None),
            "{round}"
        );
    }
    for _ in 0..1000 {
        fake.tell();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut heard = 0;
    for _ in 0..300 {
        heard += usize::from(told(&mut watches[0]).await.is_some());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((1..=5).contains(&heard), "one in a window: {heard}");
}

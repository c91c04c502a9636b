//! Updates of single resources: the clients that receive them, and the subscriptions at the
//! upstream.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::json;
use weir_catalog::{ResourceSubscription, UpdateInbox};
use weir_core::endpoint::{EndpointMode, NamePrefix, PageSize};
use weir_core::names::{EndpointId, ToolNaming};
use weir_core::reply::Reply;
use weir_core::{Endpoint, Failure, FailureKind};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked_by, raw};
use crate::support::{CatalogWorld, GateRule, ScriptedUpstream, endpoint, id, transparent};

/// A client that receives updates, with its subscriptions.
struct SubscribedClient {
    world: Arc<RouterWorld>,
    who: &'static str,
    at: EndpointId,
    inbox: UpdateInbox,
    held: Vec<ResourceSubscription>,
}

impl SubscribedClient {
    fn new(world: &Arc<RouterWorld>, who: &'static str) -> Self {
        Self {
            world: world.clone(),
            who,
            at: endpoint(),
            inbox: UpdateInbox::default(),
            held: Vec::new(),
        }
    }

    async fn subscribe(&mut self, uri: &str) -> Result<(), Failure> {
        let params = raw(&json!({ "uri": uri }));
        let call = asked_by(self.who, &self.at, Method::ResourcesSubscribe, params).await;
        self.held
            .push(self.world.router.subscribe(call, &self.inbox).await?);
        Ok(())
    }

    /// The updates that wait for it once all tasks have run.
    async fn told(&self) -> Vec<String> {
        self.world.world.rest().await;
        let mut cx = Context::from_waker(Waker::noop());
        let reader = self.inbox.open_reader();
        let next = || match reader.poll_updated(&mut cx) {
            Poll::Ready(uri) => Some(uri.to_string()),
            Poll::Pending => None,
        };
        std::iter::from_fn(next).collect()
    }
}

/// An upstream that sends updates, behind an aggregating and a transparent endpoint.
async fn world() -> (Arc<ScriptedUpstream>, Arc<RouterWorld>) {
    world_with(&[]).await
}

/// The same, with these resources in its list.
async fn world_with(resources: &[&str]) -> (Arc<ScriptedUpstream>, Arc<RouterWorld>) {
    let fake = ScriptedUpstream::new("up", &[]);
    fake.set(|script| {
        script.subscribes = true;
        let listed = resources.iter();
        let listed = listed.map(|uri| raw(&json!({ "uri": uri, "name": "memo" })));
        script.resources = listed.collect();
    });
    let world = CatalogWorld::of(&[]);
    let many = Endpoint {
        id: endpoint(),
        mode: EndpointMode::Aggregate {
            upstreams: vec![id("up")],
            naming: ToolNaming::default(),
            prefix: NamePrefix::Always,
        },
        page: PageSize::default(),
        deadlines: None,
        clean: true,
        tools: None,
    };
    world.apply(vec![Arc::new(many), transparent("up")], &[&fake]);
    world.settled().await;
    (fake, Arc::new(RouterWorld::of(world)))
}

// Proves R205.
#[tokio::test(start_paused = true)]
async fn clients_share_one_upstream_subscription_and_get_updates_under_exposed_uris() {
    let (fake, world) = world().await;
    let (mut one, mut two) = (
        SubscribedClient::new(&world, "one"),
        SubscribedClient::new(&world, "two"),
    );
    two.at = EndpointId::new("/mcp/up");
    one.subscribe("up+memo:1").await.unwrap();
    two.subscribe("memo:1").await.unwrap();
    two.subscribe("memo:2").await.unwrap();
    assert_eq!(
        *fake.lines.asked.lock(),
        [vec!["memo:1"], vec!["memo:1", "memo:2"]]
    );
    for uri in ["memo:1", "memo:2", "memo:1", "memo:3"] {
        fake.lines.update(uri);
    }
    assert_eq!(one.told().await, ["up+memo:1"]);
    assert_eq!(
        two.told().await,
        ["memo:1", "memo:2"],
        "only what it subscribed to, each once"
    );
    two.held.clear();
    world.world.rest().await;
    assert_eq!(fake.lines.wanted(), ["memo:1"]);
    fake.lines.update("memo:1");
    assert_eq!((one.told().await.len(), two.told().await.len()), (1, 0));
    one.held.clear();
    world.world.rest().await;
    assert_eq!(fake.lines.wanted(), [""; 0], "nobody is left");
    one.subscribe("up+memo:1").await.unwrap();
    assert_eq!(
        *fake.lines.opened.lock(),
        2,
        "the line was closed in between"
    );
}

#[tokio::test(start_paused = true)]
async fn updates_have_the_uri_that_the_client_subscribed_to() {
    let (fake, world) = world_with(&["memo:1"]).await;
    let (mut native, mut both) = (
        SubscribedClient::new(&world, "one"),
        SubscribedClient::new(&world, "two"),
    );
    native.subscribe("memo:1").await.unwrap();
    both.subscribe("up+memo:1").await.unwrap();
    both.subscribe("memo:1").await.unwrap();
    for _ in 0..3 {
        fake.lines.update("memo:1");
        assert_eq!(native.told().await, ["memo:1"]);
        assert_eq!(both.told().await, ["up+memo:1", "memo:1"]);
    }
    both.held.pop();
    fake.lines.update("memo:1");
    assert_eq!(both.told().await, ["up+memo:1"]);
}

/// weir subscribes in its own account, which may read what a caller may not.
#[tokio::test(start_paused = true)]
async fn caller_subscribes_only_to_what_the_server_lets_it_read() {
    let (fake, world) = world().await;
    fake.set(|script| {
        script.uses_callers_accounts = true;
        let usual = std::mem::replace(&mut script.answer, Box::new(|_| unreachable!()));
        script.answer = Box::new(move |outbound| {
            assert_eq!(outbound.call.method, Method::ResourcesRead);
            let caller = outbound.principal.to_string();
            if &*outbound.native == "memo:1" && !caller.contains("one") {
                return Reply::ended(Failure::invalid_params("Resource not found"));
            }
            usual(outbound)
        });
    });
    let (mut one, mut two) = (
        SubscribedClient::new(&world, "one"),
        SubscribedClient::new(&world, "two"),
    );
    one.subscribe("up+memo:1").await.unwrap();
    let refused = two.subscribe("up+memo:1").await.unwrap_err();
    assert_eq!(refused.to_string(), "Resource not found");
    two.subscribe("up+memo:2").await.unwrap();
    for uri in ["memo:1", "memo:2"] {
        fake.lines.update(uri);
    }
    assert_eq!(one.told().await, ["up+memo:1"]);
    assert_eq!(two.told().await, ["up+memo:2"]);
}

#[tokio::test(start_paused = true)]
async fn slow_subscription_delays_no_update_of_others() {
    let (fake, world) = world().await;
    let mut one = SubscribedClient::new(&world, "one");
    let mut two = SubscribedClient::new(&world, "two");
    one.subscribe("up+memo:1").await.unwrap();
    *fake.lines.hangs.lock() = true;
    let updated = async {
        world.world.rest().await;
        assert_eq!(fake.lines.wanted(), ["memo:1", "memo:2"]);
        fake.lines.update("memo:1");
        assert_eq!(one.told().await, ["up+memo:1"]);
    };
    tokio::select! {
        biased;
        subscribed = two.subscribe("up+memo:2") => panic!("no answer is due: {subscribed:?}"),
        () = updated => {}
    }
}

#[tokio::test(start_paused = true)]
async fn client_waits_for_consent_as_long_as_the_server_may_take() {
    let (fake, world) = world().await;
    let mut client = SubscribedClient::new(&world, "one");
    *fake.lines.consent_delay.lock() = Duration::from_secs(25);
    let refused = client.subscribe("up+memo:1").await.unwrap_err();
    assert_eq!(*refused.kind(), FailureKind::TimedOut);
    // The operator gives the server more time.
    fake.set(|script| script.own_request_time = Duration::from_secs(60));
    client.subscribe("up+memo:2").await.unwrap();
    fake.lines.update("memo:2");
    assert_eq!(client.told().await, ["up+memo:2"]);
}

// Proves R205.
#[tokio::test(start_paused = true)]
async fn update_of_a_part_has_its_own_name() {
    let (fake, world) = world().await;
    let mut client = SubscribedClient::new(&world, "one");
    client.subscribe("up+memo:a").await.unwrap();
    client.subscribe("up+memo:b").await.unwrap();
    fake.lines.update("memo:a/1");
    fake.lines.update("memo:ab");
    assert_eq!(
        client.told().await,
        ["up+memo:a/1"],
        "`memo:ab` is no part of `memo:a`"
    );
    world.gate.rule("one", "memo:b/secret", GateRule::Hidden);
    fake.lines.update("memo:b/secret");
    assert_eq!(
        client.told().await,
        ["up+memo:b"],
        "a part that it may not see is the whole"
    );
}

// Proves R205.
#[tokio::test(start_paused = true)]
async fn hidden_resource_is_never_announced() {
    let (fake, world) = world().await;
    let (mut guest, mut owner) = (
        SubscribedClient::new(&world, "guest"),
        SubscribedClient::new(&world, "owner"),
    );
    world.gate.rule("guest", "memo:hidden", GateRule::Hidden);
    world.gate.rule("guest", "memo:denied", GateRule::Denied);
    let refused = guest.subscribe("up+memo:hidden").await.unwrap_err();
    assert!(
        matches!(refused.kind(), FailureKind::UnknownResource(_)),
        "{refused:?}"
    );
    assert_eq!(
        guest.subscribe("up+memo:denied").await.unwrap_err().kind(),
        &FailureKind::Denied
    );
    assert_eq!(
        *fake.lines.opened.lock(),
        0,
        "the upstream heard of nothing"
    );
    guest.subscribe("up+memo:1").await.unwrap();
    owner.subscribe("up+memo:1").await.unwrap();
    // The rules have changed since it subscribed.
    world.gate.rule("guest", "memo:1", GateRule::Hidden);
    fake.lines.update("memo:1");
    assert_eq!((guest.told().await.len(), owner.told().await.len()), (0, 1));
    assert_eq!(world.gate.refused().len(), 2);
    assert_eq!(world.gate.outcomes(), ["complete"; 2]);
}

// Proves R197.
#[tokio::test(start_paused = true)]
async fn refused_resource_subscription_leaves_other_subscriptions_active() {
    let (fake, world) = world().await;
    fake.lines.refuses.lock().push("memo:no");
    let mut client = SubscribedClient::new(&world, "one");
    client.subscribe("up+memo:yes").await.unwrap();
    assert_eq!(
        client.subscribe("up+memo:no").await.unwrap_err().kind(),
        &FailureKind::InvalidParams
    );
    world.world.rest().await;
    assert_eq!(fake.lines.wanted(), ["memo:yes"]);
    fake.lines.update("memo:yes");
    assert_eq!(client.told().await, ["up+memo:yes"]);
    let silent = ScriptedUpstream::new("mute", &[]);
    silent.set(|script| script.has_resources = true);
    let world = Arc::new(RouterWorld::of(CatalogWorld::of(&[&silent])));
    world.world.settled().await;
    assert!(!world.world.catalog.subscribes(&endpoint()));
    let refused = SubscribedClient::new(&world, "one")
        .subscribe("mute+memo:1")
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), &FailureKind::InvalidParams);
}

// Proves R204.
#[tokio::test(start_paused = true)]
async fn lost_stream_is_reopened_and_all_resources_are_announced() {
    let (fake, world) = world().await;
    let mut client = SubscribedClient::new(&world, "one");
    client.subscribe("up+memo:1").await.unwrap();
    client.subscribe("up+memo:2").await.unwrap();
    fake.lines.cut();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        (*fake.lines.opened.lock(), fake.lines.wanted().len()),
        (2, 2)
    );
    let mut told = client.told().await;
    told.sort();
    assert_eq!(
        told,
        ["up+memo:1", "up+memo:2"],
        "what happened in between nobody knows"
    );
    fake.lines.update("memo:2");
    assert_eq!(client.told().await, ["up+memo:2"]);
}

#[tokio::test(start_paused = true)]
async fn resource_refused_after_a_lost_stream_is_asked_for_until_it_is_granted() {
    let (fake, world) = world().await;
    let mut client = SubscribedClient::new(&world, "one");
    client.subscribe("up+memo:1").await.unwrap();
    client.subscribe("up+memo:2").await.unwrap();
    fake.lines.refuses.lock().push("memo:1");
    fake.lines.cut();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        client.told().await,
        ["up+memo:2"],
        "no update is announced for the refused one"
    );
    let asked = fake.lines.asked.lock().len();
    assert!((60..600).contains(&asked), "asked {asked} times in an hour");
    fake.lines.refuses.lock().clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(client.told().await, ["up+memo:1"], "it was away");
    assert_eq!(*fake.lines.opened.lock(), 2, "the refusal closed no stream");
    let asked = fake.lines.asked.lock().len();
    fake.lines.update("memo:1");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(client.told().await, ["up+memo:1"]);
    assert_eq!(fake.lines.asked.lock().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn resource_refused_beside_a_new_one_is_asked_for_again() {
    let (fake, world) = world().await;
    let (mut one, mut two) = (
        SubscribedClient::new(&world, "one"),
        SubscribedClient::new(&world, "two"),
    );
    one.subscribe("up+memo:1").await.unwrap();
    fake.lines.refuses.lock().push("memo:1");
    two.subscribe("up+memo:2").await.unwrap();
    assert_eq!(one.told().await, [""; 0]);
    fake.lines.refuses.lock().clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(one.told().await, ["up+memo:1"]);
    assert_eq!(two.told().await, [""; 0], "its subscription was never lost");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_outlive_a_reload_of_the_upstream() {
    let (old, world) = world().await;
    let mut client = SubscribedClient::new(&world, "one");
    client.subscribe("up+memo:1").await.unwrap();
    let new = ScriptedUpstream::new("up", &[]);
    new.set(|script| script.subscribes = true);
    world.world.show(&[&new], NamePrefix::Always, 1000);
    old.lines.cut();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(new.lines.wanted(), ["memo:1"]);
    client.told().await;
    old.lines.update("memo:1");
    assert_eq!(client.told().await, [""; 0]);
    new.lines.update("memo:1");
    assert_eq!(client.told().await, ["up+memo:1"]);
}

//! Lists that a server does not give while it gives its other lists.

use std::sync::Arc;
use std::time::Duration;

use weir_catalog::{CatalogSettings, View};
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;

use crate::support::{
    CatalogWorld, ScriptedListFault, ScriptedUpstream, endpoint, exposed, tool, transparent,
};

fn missing(view: &Arc<View>) -> Vec<(&str, &str)> {
    let missing = view.missing.iter();
    missing
        .map(|missing| (missing.upstream.as_str(), missing.reason.as_str()))
        .collect()
}

fn prompts(world: &CatalogWorld) -> Arc<View> {
    world
        .catalog
        .view(&endpoint(), ListKind::Prompts, CapabilityClass::BASE)
        .unwrap()
}

/// A server with a tool and a prompt.
fn with_prompt() -> Arc<ScriptedUpstream> {
    let fake = ScriptedUpstream::new("up", &["a"]);
    fake.set(|script| script.prompts = Some(vec![tool("p")]));
    fake
}

fn break_prompts(fake: &ScriptedUpstream, fault: Option<ScriptedListFault>) {
    let faults = fault.map(|fault| (ListKind::Prompts, fault));
    fake.set(|script| script.list_faults = faults.into_iter().collect());
}

#[tokio::test(start_paused = true)]
async fn an_undeclared_list_that_fails_leaves_the_declared_ones_alone() {
    let faults = [
        ScriptedListFault::Code(-32603),
        ScriptedListFault::Code(-32600),
        ScriptedListFault::Code(-32000),
        ScriptedListFault::Silence,
        ScriptedListFault::Lost,
    ];
    for fault in faults {
        let fake = ScriptedUpstream::new("up", &["a"]);
        break_prompts(&fake, Some(fault));
        let world = CatalogWorld::empty(CatalogSettings::default());
        let alone = transparent("up");
        let path = alone.id.clone();
        let all = crate::support::aggregate(&["up"], weir_core::endpoint::NamePrefix::Always, 1000);
        world.apply(vec![all, alone], &[&fake]);
        world.settled().await;
        let class = CapabilityClass::BASE;
        let asked = world
            .catalog
            .offers_undeclared(&path, ListKind::Prompts, class);
        assert!(!asked.await, "{fault:?}");
        // The list of another replica, an operator, and changes have the lists walked again.
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            fake.tell();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let view = world.view();
        assert_eq!(
            (exposed(&view), missing(&view)),
            (vec!["up__a"], vec![]),
            "{fault:?}"
        );
        // The next client does not wait for a server that did not answer.
        let asked = world
            .catalog
            .offers_undeclared(&path, ListKind::Prompts, class);
        assert!(!asked.await, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_takes_no_other_list_away() {
    for fault in [ScriptedListFault::Code(-32603), ScriptedListFault::Silence] {
        let fake = with_prompt();
        break_prompts(&fake, Some(fault));
        let world = CatalogWorld::of(&[&fake]);
        let view = world.settled().await;
        assert_eq!(
            (exposed(&view), missing(&view)),
            (vec!["up__a"], vec![]),
            "{fault:?}"
        );
        tokio::time::sleep(Duration::from_secs(90)).await;
        let view = prompts(&world);
        assert_eq!(
            (exposed(&view), missing(&view)),
            (vec![], vec![("up", "down")]),
            "{fault:?}"
        );
        assert!(missing(&world.view()).is_empty(), "{fault:?}");
        let status = world.catalog.status();
        let error = status[0].lists[0].error.as_deref().unwrap();
        assert!(error.starts_with("list of prompts: "), "{error}");
        assert_eq!(status[0].lists[0].state.as_str(), "fresh");
        // The list comes back by itself.
        break_prompts(&fake, None);
        tokio::time::sleep(Duration::from_secs(1200)).await;
        let view = prompts(&world);
        assert_eq!(
            (exposed(&view), missing(&view)),
            (vec!["up__p"], vec![]),
            "{fault:?}"
        );
        assert!(world.catalog.status()[0].lists[0].error.is_none());
    }
}

// Proves E13.
#[tokio::test(start_paused = true)]
async fn limited_list_takes_no_other_away_and_is_asked_for_after_the_requested_pause() {
    let pause = Duration::from_secs(100);
    for fault in [
        ScriptedListFault::Limited(pause),
        ScriptedListFault::Busy(pause),
    ] {
        let fake = with_prompt();
        break_prompts(&fake, Some(fault));
        let world = CatalogWorld::of(&[&fake]);
        assert_eq!(exposed(&world.settled().await), ["up__a"], "{fault:?}");
        break_prompts(&fake, None);
        tokio::time::sleep(pause * 9 / 10).await;
        assert!(exposed(&prompts(&world)).is_empty(), "{fault:?}");
        tokio::time::sleep(pause).await;
        assert_eq!(exposed(&prompts(&world)), ["up__p"], "{fault:?}");
        assert_eq!(ScriptedUpstream::count(&fake.opened), 1, "{fault:?}");
    }
}

// Proves E13.
#[tokio::test(start_paused = true)]
async fn server_that_limits_all_lists_is_left_alone_for_the_requested_pause() {
    let pause = Duration::from_secs(140);
    let fake = ScriptedUpstream::new("up", &["a"]);
    let limited = (ListKind::Tools, ScriptedListFault::Limited(pause));
    fake.set(|script| script.list_faults = vec![limited]);
    let world = CatalogWorld::of(&[&fake]);
    assert_eq!(missing(&world.settled().await), [("up", "down")]);
    fake.set(|script| script.list_faults.clear());
    tokio::time::sleep(pause * 9 / 10).await;
    assert_eq!(ScriptedUpstream::count(&fake.opened), 1);
    tokio::time::sleep(pause / 5).await;
    assert_eq!(exposed(&world.view()), ["up__a"]);
}

// Proves E13.
#[tokio::test(start_paused = true)]
async fn server_that_is_back_before_its_requested_pause_ends_keeps_its_items() {
    let hour = Duration::from_secs(3600);
    for fault in [
        ScriptedListFault::Limited(hour),
        ScriptedListFault::Busy(hour),
    ] {
        let fake = ScriptedUpstream::new("up", &["a"]);
        let world = CatalogWorld::of(&[&fake]);
        world.settled().await;
        fake.set(|script| script.list_faults = vec![(ListKind::Tools, fault)]);
        fake.tell();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(missing(&world.view()), [("up", "stale")], "{fault:?}");
        fake.set(|script| script.list_faults.clear());
        // The grace.
        tokio::time::sleep(Duration::from_secs(300)).await;
        let view = world.view();
        assert_eq!(
            (exposed(&view), missing(&view)),
            (vec!["up__a"], vec![]),
            "{fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn items_of_a_list_that_fails_go_between_two_attempts_at_the_end_of_the_grace() {
    for is_lost in [false, true] {
        let fake = with_prompt();
        let world = CatalogWorld::of(&[&fake]);
        world.settled().await;
        // The attempts are 140 s apart.
        let pause = Duration::from_secs(140);
        break_prompts(&fake, Some(ScriptedListFault::Limited(pause)));
        fake.tell();
        tokio::time::sleep(Duration::from_secs(290)).await;
        let view = prompts(&world);
        assert_eq!(
            (exposed(&view), missing(&view)),
            (vec!["up__p"], vec![("up", "stale")])
        );
        if is_lost {
            fake.set(|script| script.refuse = true);
            fake.cut();
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(exposed(&prompts(&world)).is_empty(), "{is_lost}");
        assert_eq!(exposed(&world.view()), ["up__a"], "{is_lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn items_of_a_list_that_fails_stay_for_the_grace() {
    let fake = with_prompt();
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    assert_eq!(exposed(&prompts(&world)), ["up__p"]);
    break_prompts(&fake, Some(ScriptedListFault::Code(-32603)));
    fake.set_tools(&["a", "b"]);
    fake.tell();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(exposed(&world.view()), ["up__a", "up__b"]);
    let view = prompts(&world);
    assert_eq!(
        (exposed(&view), missing(&view), view.ttl_ms()),
        (vec!["up__p"], vec![("up", "stale")], 0)
    );
    tokio::time::sleep(Duration::from_secs(300)).await;
    let view = prompts(&world);
    assert_eq!(
        (exposed(&view), missing(&view)),
        (vec![], vec![("up", "down")])
    );
    assert_eq!(ScriptedUpstream::count(&fake.opened), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_without_an_answer_holds_up_no_change_of_another() {
    let fake = with_prompt();
    break_prompts(&fake, Some(ScriptedListFault::Silence));
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    // The walk after the start has given the list up.
    tokio::time::sleep(Duration::from_secs(70)).await;
    for at in 0..20 {
        let name = format!("t{at}");
        fake.set_tools(&[&name]);
        fake.tell();
        tokio::time::sleep(Duration::from_secs(5)).await;
        // Now and then the list is asked for again; the tools of that walk come first.
        if exposed(&world.view()) != [format!("up__{name}")] {
            tokio::time::sleep(Duration::from_secs(65)).await;
        }
        assert_eq!(exposed(&world.view()), [format!("up__{name}")]);
    }
    assert_eq!(ScriptedUpstream::count(&fake.opened), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_gives_no_list_is_down_as_a_whole() {
    let fake = with_prompt();
    fake.set(|script| {
        script.list_faults = vec![
            (ListKind::Tools, ScriptedListFault::Code(-32603)),
            (ListKind::Prompts, ScriptedListFault::Code(-32603)),
        ];
    });
    let world = CatalogWorld::of(&[&fake]);
    assert_eq!(missing(&world.settled().await), [("up", "down")]);
    assert_eq!(missing(&prompts(&world)), [("up", "down")]);
    // Tools without an answer leave the prompts.
    fake.set(|script| script.list_faults = vec![(ListKind::Tools, ScriptedListFault::Silence)]);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(exposed(&prompts(&world)), ["up__p"]);
    assert_eq!(missing(&world.view()), [("up", "down")]);
    assert_eq!(world.catalog.status()[0].lists[0].state.as_str(), "down");
}

#[tokio::test(start_paused = true)]
async fn list_that_is_unknown_for_a_while_is_kept_and_asked_for_again() {
    let fake = with_prompt();
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    break_prompts(&fake, Some(ScriptedListFault::Code(-32601)));
    fake.tell();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let view = prompts(&world);
    assert_eq!(
        (exposed(&view), missing(&view)),
        (vec!["up__p"], vec![("up", "stale")])
    );
    break_prompts(&fake, None);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(missing(&prompts(&world)).is_empty());
}

#[tokio::test(start_paused = true)]
async fn declared_list_that_is_unknown_at_first_is_found_without_a_notification() {
    let fake = with_prompt();
    break_prompts(&fake, Some(ScriptedListFault::Code(-32601)));
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    let view = prompts(&world);
    assert_eq!((exposed(&view), missing(&view)), (vec![], vec![]));
    break_prompts(&fake, None);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(exposed(&prompts(&world)), ["up__p"]);
}

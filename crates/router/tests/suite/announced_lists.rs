//! Lists that another replica announced.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_catalog::{CatalogSettings, ListChange};
use weir_core::endpoint::NamePrefix;

use crate::support::{CatalogWorld, ScriptedAnnouncements, ScriptedUpstream, exposed, principal};

/// The longest time that a list request waits.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A catalog over one upstream with the tool `a`, after its first walk and its pause.
async fn replica() -> (
    CatalogWorld,
    Arc<ScriptedUpstream>,
    Arc<ScriptedAnnouncements>,
) {
    let fake = ScriptedUpstream::new("one", &["a"]);
    let announcements = Arc::<ScriptedAnnouncements>::default();
    let settings = CatalogSettings::default();
    let world = CatalogWorld::announcing(settings, Some(announcements.clone()));
    world.show(&[&fake], NamePrefix::Always, 1000);
    world.settled().await;
    // The next walk may begin at once.
    tokio::time::sleep(Duration::from_secs(10)).await;
    (world, fake, announcements)
}

fn walks(fake: &ScriptedUpstream) -> usize {
    ScriptedUpstream::count(&fake.walks)
}

#[tokio::test(start_paused = true)]
async fn list_waits_for_the_walk_for_an_announcement() {
    let (world, fake, announcements) = replica().await;
    assert_eq!(announcements.made().len(), 1, "of the first walk");
    fake.set(|script| script.page_delay = Duration::from_millis(500));
    fake.set_tools(&["a", "b"]);
    announcements.announce_others("one", 1, 0);
    world.rest().await;
    let began = Instant::now();
    assert_eq!(exposed(&world.settled().await), ["one__a", "one__b"]);
    assert!(began.elapsed() < MAX_WAIT);
    assert_eq!(walks(&fake), 2);
    let made = announcements.made();
    assert_eq!((made.len(), made[1].hops), (2, 1), "it is news for others");
    // Nothing is behind any more.
    let began = Instant::now();
    world.settled().await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn list_waits_while_a_message_is_followed() {
    let (world, fake, announcements) = replica().await;
    fake.set_tools(&["a", "b"]);
    announcements.set_looking(true);
    let looking = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        announcements.announce_others("one", 1, 0);
        announcements.set_looking(false);
    };
    let ((), view) = tokio::join!(looking, world.settled());
    assert_eq!(exposed(&view), ["one__a", "one__b"]);
}

#[tokio::test(start_paused = true)]
async fn slow_walk_gives_the_older_list_and_one_change_at_its_end() {
    let (world, fake, announcements) = replica().await;
    let mut changes = world.changes();
    fake.set(|script| script.page_delay = Duration::from_secs(5));
    fake.set_tools(&["a", "b"]);
    announcements.announce_others("one", 1, 0);
    world.rest().await;
    let began = Instant::now();
    let page = world.page(&principal("p"), None).await.unwrap();
    assert_eq!(exposed(&page.view), ["one__a"]);
    assert_eq!(page.ttl_ms, 0, "it is not to be kept");
    assert!(began.elapsed() <= MAX_WAIT);
    // The time is over for those that come later.
    let began = Instant::now();
    world.settled().await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(changes.changed().await, ListChange::Changed);
    assert_eq!(exposed(&world.settled().await), ["one__a", "one__b"]);
    let more = tokio::time::timeout(Duration::from_secs(60), changes.changed()).await;
    assert!(more.is_err(), "one change alone");
}

#[tokio::test(start_paused = true)]
async fn each_announcement_is_followed_by_one_walk_whatever_it_finds() {
    let (world, fake, announcements) = replica().await;
    let own = announcements.made();
    for version in 1..5 {
        announcements.announce_others("one", version, 0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(walks(&fake), 1 + usize::try_from(version).unwrap());
    }
    // The same version, and lists that are there already, need none.
    announcements.announce_others("one", 4, 0);
    announcements.announce_as("one", 5, own[0]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(walks(&fake), 5);
    // It keeps its own lists, which are no news.
    assert_eq!(exposed(&world.view()), ["one__a"]);
    assert_eq!(announcements.made(), own);
    assert!(world.view().ttl_ms() > 0, "they may be kept");
}

#[tokio::test(start_paused = true)]
async fn chain_of_announcements_ends() {
    let (_world, fake, announcements) = replica().await;
    for (version, tool) in [(1, "b"), (2, "c")] {
        fake.set_tools(&[tool]);
        announcements.announce_others("one", version, 1);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(walks(&fake), 3);
    assert_eq!(
        announcements.made().len(),
        1,
        "results of a chain are its end"
    );
    // A change that the server reports to this replica begins another one.
    fake.set_tools(&["d"]);
    fake.tell();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let made = announcements.made();
    assert_eq!((made.len(), made[1].hops), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn unreachable_upstream_delays_lists_until_the_first_attempt_has_failed() {
    let (world, fake, announcements) = replica().await;
    fake.set(|script| script.refuse = true);
    for version in 1..3 {
        announcements.announce_others("one", version, 0);
        world.rest().await;
        let began = Instant::now();
        assert_eq!(exposed(&world.settled().await), ["one__a"]);
        assert!(began.elapsed() < MAX_WAIT);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    fake.set(|script| script.refuse = false);
    fake.set_tools(&["a", "b"]);
    announcements.announce_others("one", 3, 0);
    world.rest().await;
    assert_eq!(exposed(&world.settled().await), ["one__a", "one__b"]);
}

#[tokio::test(start_paused = true)]
async fn clients_are_notified_once_more_if_another_replica_was_late() {
    let (world, fake, announcements) = replica().await;
    let mut changes = world.changes();
    for (is_late, tools) in [(true, ["a", "b"]), (false, ["a", "c"])] {
        let confirm = announcements.confirm_next_later();
        fake.set_tools(&tools);
        fake.tell();
        assert_eq!(changes.changed().await, ListChange::Changed);
        confirm.send(is_late).unwrap();
        let more = tokio::time::timeout(Duration::from_secs(60), changes.changed()).await;
        assert_eq!(more.is_ok(), is_late, "{more:?}");
    }
    assert_eq!(walks(&fake), 3, "no walk is made for that");
}

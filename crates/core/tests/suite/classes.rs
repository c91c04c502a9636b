//! Lists that differ by what a client can be asked for.

use std::time::Duration;
use weir_core::upstream::ListKind;

use weir_core::CapabilityClass;

use crate::support::{Fake, World, endpoint, exposed};

const FORM: CapabilityClass = CapabilityClass::ELICITATION_FORM;

fn asking() -> std::sync::Arc<Fake> {
    let fake = Fake::new("ask", &["a"]);
    fake.set(|script| {
        script.carries = FORM;
        script.for_class.push((FORM, bytes::Bytes::from_static(b"{\"name\":\"form\"}")));
    });
    fake
}

#[tokio::test(start_paused = true)]
async fn r161_r057_a_client_sees_what_its_capabilities_bring_and_others_do_not() {
    let (fake, plain) = (asking(), Fake::new("plain", &["b"]));
    let world = World::of(&[&fake, &plain]);
    assert_eq!(exposed(&world.settled().await), ["ask__a", "plain__b"]);
    let asked = FORM.with(CapabilityClass::ROOTS);
    let view = world.catalog.settled(&endpoint(), ListKind::Tools, asked).await;
    assert_eq!(exposed(&view), ["ask__a", "ask__form", "plain__b"]);
    assert_eq!(exposed(&world.view()), ["ask__a", "plain__b"]);
    // Only the one that carries the capability is watched once more.
    assert_eq!((Fake::count(&fake.opened), Fake::count(&plain.opened)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_class_nobody_asks_for_any_more_is_not_watched_any_more() {
    let fake = asking();
    let world = World::of(&[&fake]);
    world.settled().await;
    world.catalog.settled(&endpoint(), ListKind::Tools, FORM).await;
    let stream = world.catalog.changes(&endpoint(), FORM, ListKind::Tools);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(world.catalog.status()[0].lists.len(), 2, "an open stream keeps it");
    drop(stream);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(world.catalog.status()[0].lists.len(), 1);
    let view = world.catalog.settled(&endpoint(), ListKind::Tools, FORM).await;
    assert_eq!(view.items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_the_list_of_a_class_is_unknown_the_base_list_stands_in() {
    let fake = asking();
    let world = World::of(&[&fake]);
    world.settled().await;
    fake.set(|script| script.hang = true);
    let view = world.catalog.settled(&endpoint(), ListKind::Tools, FORM).await;
    assert_eq!((exposed(&view), view.missing[0].reason, view.ttl_ms()), (vec!["ask__a"], "pending", 0));
}

#[tokio::test(start_paused = true)]
async fn at_most_sixteen_classes_of_an_upstream_are_watched() {
    let fake = Fake::new("all", &["a"]);
    fake.set(|script| script.carries = CapabilityClass::from_bits(u16::MAX));
    let world = World::of(&[&fake]);
    for bits in 0..128 {
        let view = world.catalog.settled(&endpoint(), ListKind::Tools, CapabilityClass::from_bits(bits)).await;
        assert_eq!(exposed(&view), ["all__a"], "{bits}");
    }
    assert_eq!(world.catalog.status()[0].lists.len(), 16);
    assert_eq!(Fake::count(&fake.opened), 16);
}

//! Sessions without a DELETE: their state goes when they expire, however many expire at once.

use std::time::Duration;

use weir_core::EndpointId;
use weir_core::port::{Evidence, RecordKey};
use weir_core::upstream::ClientSessionChange;

use crate::test_front::{TestFront, settings};
use crate::test_ports::NameVerifier;

// Proves D08.
#[tokio::test]
async fn upstreams_are_notified_of_every_expired_session_however_many_at_once() {
    const SESSIONS: u32 = 5000;
    let endpoint = EndpointId::new("/mcp");
    let evidence = Evidence::none([127, 0, 0, 1].into(), &endpoint);
    let principal = weir_core::authenticate(&NameVerifier { anonymous: true }, &evidence)
        .await
        .unwrap()
        .into_parts()
        .principal;
    let key = |number: u32| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        RecordKey {
            principal: principal.clone(),
            id,
        }
    };
    // The first search for expired sessions is made at the start. Other tasks of the runtime run
    // beside it.
    let world =
        TestFront::with_expired_sessions(settings(), (0..SESSIONS).map(key).collect()).await;
    for _ in 0..1000 {
        // A session that expired here may go on at another replica.
        if world.upstream.count_ended(ClientSessionChange::EndedHere) == SESSIONS as usize {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let heard = world.upstream.count_ended(ClientSessionChange::EndedHere);
    panic!("{heard} of {SESSIONS} ends were heard");
}

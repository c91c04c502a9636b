#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use weir_core::failure::FailureKind;
use weir_seal::SealerKey;
use weir_testkit::FixedRandom;

use super::*;

fn sealer() -> Sealer {
    Sealer::new(vec![SealerKey::new(1, &[9; 32])])
}

fn who(subject: &str) -> Principal {
    Principal::owner(Some(("i", subject)))
}

fn cursor() -> Cursor {
    Cursor {
        version: ContentVersion([3; 16]),
        class: CapabilityClass::ROOTS,
        position: 1000,
        list: 42,
    }
}

// Proves R147, B16.
#[test]
fn cursor_opens_only_for_its_principal_endpoint_and_view() {
    let (alice, bob) = (who("alice"), who("bob"));
    let (here, there) = (EndpointId::new("/mcp"), EndpointId::new("/mcp/files"));
    let scope = CursorScope {
        principal: &alice,
        endpoint: &here,
        audience: Some(Audience([5; 16])),
        kind: ListKind::Tools,
    };
    let text = cursor().seal(&sealer(), &FixedRandom(7), &scope);
    assert_eq!(Cursor::open(&sealer(), &scope, &text).unwrap(), cursor());
    for other in [
        CursorScope {
            principal: &bob,
            ..scope
        },
        CursorScope {
            endpoint: &there,
            ..scope
        },
        CursorScope {
            audience: Some(Audience([6; 16])),
            ..scope
        },
    ] {
        let refused = Cursor::open(&sealer(), &other, &text).unwrap_err();
        assert_eq!(refused.kind(), &FailureKind::InvalidParams);
        assert_eq!(refused.message(), Failure::bad_cursor().message());
    }
}

// Proves B16.
#[test]
fn texts_that_are_no_cursors_are_refused_alike() {
    let alice = who("alice");
    let here = EndpointId::new("/mcp");
    let scope = CursorScope {
        principal: &alice,
        endpoint: &here,
        audience: None,
        kind: ListKind::Tools,
    };
    let good = cursor().seal(&sealer(), &FixedRandom(7), &scope);
    let long = "A".repeat(10_000);
    let foreign = sealer().seal(&FixedRandom(7), b"another purpose", &[1; LENGTH]);
    let short = sealer().seal(&FixedRandom(7), &scope.purpose(), &[1; LENGTH - 1]);
    let newer = sealer().seal(&FixedRandom(7), &scope.purpose(), &[2; LENGTH]);
    for bad in [
        "",
        "next",
        "1",
        &long,
        &foreign,
        &short,
        &newer,
        &good[..good.len() - 1],
        &good[1..],
        &format!("{good}="),
    ] {
        let refused = Cursor::open(&sealer(), &scope, bad).unwrap_err();
        assert_eq!(refused.message(), Failure::bad_cursor().message(), "{bad}");
    }
}

// Proves R149.
#[test]
fn a_cursor_of_another_replica_with_the_same_key_opens() {
    let alice = who("alice");
    let here = EndpointId::new("/mcp");
    let scope = CursorScope {
        principal: &alice,
        endpoint: &here,
        audience: None,
        kind: ListKind::Tools,
    };
    let text = cursor().seal(
        &Sealer::new(vec![
            SealerKey::new(2, &[8; 32]),
            SealerKey::new(1, &[9; 32]),
        ]),
        &FixedRandom(7),
        &scope,
    );
    assert!(Cursor::open(&sealer(), &scope, &text).is_err());
    let both = Sealer::new(vec![
        SealerKey::new(1, &[9; 32]),
        SealerKey::new(2, &[8; 32]),
    ]);
    assert_eq!(Cursor::open(&both, &scope, &text).unwrap(), cursor());
}

proptest! {
    // Proves B16.
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_changed_bit_is_refused(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let alice = who("alice");
        let here = EndpointId::new("/mcp");
        let scope = CursorScope { principal: &alice, endpoint: &here, audience: None, kind: ListKind::Tools };
        let mut bytes = cursor().seal(&sealer(), &FixedRandom(7), &scope).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(text) = String::from_utf8(bytes) {
            prop_assert!(Cursor::open(&sealer(), &scope, &text).is_err());
        }
    }
}

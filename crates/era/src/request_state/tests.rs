#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;

use super::*;
use crate::server_questions::UrlElicitation;

#[derive(Debug)]
struct CountingBytesRandom;

impl Random for CountingBytesRandom {
    fn fill(&self, buffer: &mut [u8]) {
        buffer
            .iter_mut()
            .zip(0u8..)
            .for_each(|(byte, nth)| *byte = nth);
    }
}

fn principal(name: &str) -> Principal {
    Principal::owner(Some(("issuer", name)))
}

/// A fixture that seals a state for a call with some arguments, and opens it for a call with
/// others.
struct SealingFixture {
    sealer: Sealer,
    principal: Principal,
    endpoint: EndpointId,
}

impl SealingFixture {
    fn new() -> Self {
        Self {
            sealer: Sealer::ephemeral(&CountingBytesRandom),
            principal: principal("one"),
            endpoint: EndpointId::new("/mcp"),
        }
    }

    fn binding<'a>(&'a self, arguments: Option<&'a str>) -> RequestStateBinding<'a> {
        let Self {
            principal,
            endpoint,
            ..
        } = self;
        RequestStateBinding {
            principal,
            endpoint,
            method: "tools/call",
            name: "t".into(),
            arguments: arguments.map(|text| Bytes::copy_from_slice(text.as_bytes())),
        }
    }

    fn seal(&self, arguments: Option<&str>) -> String {
        let origin = SealedResume::of(CallResumption::Upstream("theirs".to_owned()));
        seal(
            &self.sealer,
            &CountingBytesRandom,
            &self.binding(arguments),
            &origin,
            UNIX_EPOCH + Duration::from_secs(100),
        )
    }

    fn opens(&self, state: &str, arguments: Option<&str>) -> bool {
        let opened = open(
            &self.sealer,
            &self.binding(arguments),
            state,
            UNIX_EPOCH + Duration::from_secs(99),
        );
        opened.is_ok_and(|origin| origin.resume == CallResumption::Upstream("theirs".to_owned()))
    }
}

/// Bytes of arguments that were read while `work` was done.
#[test]
fn visits_of_a_call_that_is_made_again_come_back() {
    let world = SealingFixture::new();
    let visit = |url: &str, id: Option<&str>| {
        VisitedUrl::of(&UrlElicitation {
            message: String::new(),
            url: url.to_owned(),
            id: id.map(str::to_owned),
        })
    };
    let visits = UrlVisits {
        accepted: vec![visit("https://a.example/", Some("a"))],
        asked: vec![
            visit("https://b.example/", None),
            visit("https://c.example/", Some("c")),
        ],
    };
    for visits in [visits, UrlVisits::default()] {
        let origin = SealedResume {
            visits,
            ..SealedResume::of(CallResumption::Again)
        };
        let (binding, end) = (world.binding(None), UNIX_EPOCH + Duration::from_secs(100));
        let state = seal(&world.sealer, &CountingBytesRandom, &binding, &origin, end);
        let opened = open(&world.sealer, &binding, &state, UNIX_EPOCH).unwrap();
        assert_eq!(opened, origin);
    }
    let one = visit("https://a.example/", Some("a"));
    assert!(one.is_same(&visit("https://a.example/", Some("b"))));
    assert!(one.is_same(&visit("https://a.example/?state=2", Some("a"))));
    assert!(!one.is_same(&visit("https://b.example/", Some("b"))));
    assert!(!visit("https://a.example/", None).is_same(&visit("https://b.example/", None)));
    assert!(one.is_named("a") && !one.is_named("b"));
}

fn read(work: impl FnOnce()) -> usize {
    let before = digest::READ.get();
    work();
    digest::READ.get() - before
}

// Proves B19.
#[test]
fn arguments_are_not_read_before_the_seal_is_opened() {
    let fixture = SealingFixture::new();
    let long = format!("{{\"a\":[{}1]}}", "{\"a\":1},".repeat(20_000));
    let state = fixture.seal(Some(&long));
    for forged in [
        "",
        "AAAA",
        &"A".repeat(300),
        &state[1..],
        &format!("{state}A"),
    ] {
        assert_eq!(
            read(|| assert!(!fixture.opens(forged, Some(&long)))),
            0,
            "{forged:.20}"
        );
    }
    let other = SealingFixture {
        principal: principal("two"),
        ..SealingFixture::new()
    };
    assert_eq!(
        read(|| assert!(!other.opens(&state, Some(&long)))),
        0,
        "a state of somebody else"
    );
    let late = UNIX_EPOCH + Duration::from_secs(100);
    assert_eq!(
        read(|| assert!(
            open(&fixture.sealer, &fixture.binding(Some(&long)), &state, late).is_err()
        )),
        0,
        "too late"
    );
    assert_eq!(
        read(|| assert!(fixture.opens(&state, Some(&long)))),
        long.len()
    );
}

// Proves B19.
#[test]
fn request_state_is_bound_to_the_value_of_its_arguments() {
    let fixture = SealingFixture::new();
    let given = r#"{"b":[1,{"x":null,"y":"\u00e9"}],"a":1.5}"#;
    let state = fixture.seal(Some(given));
    for same in [
        given,
        r#" { "a" : 15e-1, "b" : [ 1, {"y":"é", "\u0078":null} ] } "#,
    ] {
        assert!(fixture.opens(&state, Some(same)), "{same}");
    }
    for other in [
        r#"{"b":[1,{"x":null,"y":"e"}],"a":1.5}"#,
        r#"{"b":[{"x":null,"y":"é"},1],"a":1.5}"#,
        r#"{"b":[1,{"x":null,"y":"é"}]}"#,
        r#"{"b":[1],"x":null,"y":"é","a":1.5}"#,
        r#"{"b":[1,[{"x":null,"y":"é"}]],"a":1.5}"#,
        r#"{"b":["1",{"x":null,"y":"é"}],"a":1.5}"#,
        r#"{"b":[1,{"x":false,"y":"é"}],"a":1.5}"#,
        "{}",
    ] {
        assert!(!fixture.opens(&state, Some(other)), "{other}");
    }
    assert!(!fixture.opens(&state, None));
    assert!(
        fixture.opens(&fixture.seal(None), Some("{ }"))
            && fixture.opens(&fixture.seal(Some("{}")), None)
    );
    for odd in [r#"{"a":1e999}"#, r#"{"a":"\ud800"}"#] {
        assert!(
            fixture.opens(&fixture.seal(Some(odd)), Some(odd))
                && !fixture.opens(&fixture.seal(Some(odd)), Some("{}"))
        );
    }
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(Into::into),
        "[a-c]{0,2}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            prop::collection::btree_map("[a-c]{0,2}", inner, 0..3)
                .prop_map(|map| { serde_json::Value::Object(map.into_iter().collect()) }),
        ]
    })
}

proptest! {
    // Proves B19.
    #[test]
    fn digests_are_equal_exactly_for_equal_values(one in value(), other in value()) {
        let of = |text: String| digest::of(text.as_bytes());
        let (text, others) = (one.to_string(), other.to_string());
        prop_assert_eq!(of(text.clone()) == of(others.clone()), text == others);
        prop_assert_eq!(of(text), of(serde_json::to_string_pretty(&one).unwrap()));
    }
}

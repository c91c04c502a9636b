//! Measures the cost of validation: left out by default, run by `cargo xtask prove` on a release
//! build.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement reads the clock, prints its figures, and may panic"
)]

use std::time::{Duration, Instant};

use serde_json::json;

use super::super::*;
use super::{doubling, letters};

/// Numbers that look random and are the same in every run.
struct BombRandom(u64);

impl BombRandom {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A schema that is made to be costly, often close to the bound.
fn bomb(random: &mut BombRandom) -> Value {
    let group = random.of(&["allOf", "anyOf", "oneOf"]);
    match random.below(9) {
        0 => doubling(random.below(40), group),
        1 => {
            let branches =
                vec![json!({ "properties": { "a": { "$ref": "#" } } }); 1 + random.below(4)];
            json!({ group: branches })
        }
        2 => {
            let mut schema = json!({ "type": "object" });
            for _ in 0..random.below(20) {
                schema = json!({ group: [schema], "unevaluatedProperties": random.below(2) == 0, "properties": { "a": true } });
            }
            schema
        }
        3 => {
            json!({ "enum": (0..random.below(6_000)).map(|at| format!("value {at}")).collect::<Vec<_>>() })
        }
        4 => {
            let patterns = [
                "^(a+)+$",
                "(a|aa)+b",
                "(a*)*c",
                "[a-z]{1,50}d",
                "(?:a?){30}a{30}",
                "[ab]*a[ab]{14}c$|x",
                "[ab]*a[ab]{2000}c$|x",
            ];
            let all =
                (0..1 + random.below(300)).map(|_| json!({ "pattern": random.of(&patterns) }));
            let all: Vec<Value> = all.collect();
            let names: serde_json::Map<String, Value> = (0..random.below(60))
                .map(|at| (format!("{}|{at}", random.of(&patterns)), json!(true)))
                .collect();
            json!({ "additionalProperties": { group: all }, "propertyNames": { group: all[..1] }, "patternProperties": names })
        }
        5 => {
            json!({ "properties": { "list": { "uniqueItems": true, "contains": doubling(random.below(10), group) } } })
        }
        6 => {
            let inner = (0..random.below(14)).fold(
                json!({ "type": "string" }),
                |inner, _| json!({ group: [inner, inner] }),
            );
            json!({ "additionalProperties": inner })
        }
        7 => {
            // About as many steps for every value as are allowed for each.
            let all: Vec<Value> = (0..random.below(40))
                .map(|at| json!({ "not": { "const": at + 1 } }))
                .collect();
            json!({ "items": { group: all }, "additionalProperties": { group: all } })
        }
        _ => {
            let names = (0..random.below(1_500)).map(|at| {
                (
                    format!("k{at}"),
                    json!({ "type": "integer", "minimum": at }),
                )
            });
            let all: serde_json::Map<String, Value> = names.collect();
            json!({ "properties": all, "patternProperties": { "^k[0-9]+$": { "$ref": "#/properties/k1" } } })
        }
    }
}

/// Values that make the schemas above work hard.
fn values() -> Vec<Vec<u8>> {
    let deep = (0..60).fold(json!(1), |inner, _| json!({ "a": inner }));
    let wide: serde_json::Map<String, Value> = (0..2_000)
        .map(|at| (format!("k{at}"), json!("a".repeat(40))))
        .collect();
    let list: Vec<Value> = (0..4_000).map(|at| json!(at)).collect();
    let named = json!({ (letters(60_000)): letters(60_000) });
    let long = json!({ "k1": "a".repeat(100_000), "list": list });
    // The most keys and values that are checked at all: the most steps that one validation may
    // have.
    let items = json!(vec![0; JsonLimits::DEFAULT_TOKENS as usize - 1]);
    let members: serde_json::Map<String, Value> = (0..JsonLimits::DEFAULT_TOKENS / 2 - 1)
        .map(|at| (format!("k{at}"), json!("a")))
        .collect();
    let all = [
        json!("a"),
        deep,
        Value::Object(wide),
        named,
        long,
        items,
        Value::Object(members),
    ];
    all.iter()
        .map(|value| value.to_string().into_bytes())
        .collect()
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let done = work();
    (done, begun.elapsed())
}

/// The costliest accepted schema costs a call no more than a few times as much as the largest
/// honest one, and refusing a bomb is cheap.
// Proves B23, R121.
#[test]
#[ignore = "measures time"]
fn t11_no_schema_that_is_taken_is_dear() {
    let honest: serde_json::Map<String, Value> = (0..1_500)
        .map(|at| {
            (
                format!("k{at}"),
                json!({ "type": "string", "maxLength": 99 }),
            )
        })
        .collect();
    let honest =
        CompiledSchema::compile(json!({ "properties": honest }).to_string().as_bytes()).unwrap();
    let values = values();
    let ordinary = values
        .iter()
        .map(|value| timed(|| verdict(&honest, value)).1)
        .max()
        .unwrap();
    let (mut random, mut taken, mut checked) = (BombRandom(11), 0, 0);
    let (mut refusing, mut checking) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..10_000 {
        let text = bomb(&mut random).to_string();
        let (schema, took) = timed(|| CompiledSchema::compile(text.as_bytes()));
        let Ok(schema) = schema else {
            refusing = refusing.max(took);
            continue;
        };
        taken += 1;
        let value = &values[random.below(values.len())];
        // The shortest of three: other work of the machine must not count.
        let took = (0..3)
            .map(|_| timed(|| verdict(&schema, value)))
            .min_by_key(|(_, took)| *took)
            .unwrap();
        checked += usize::from(took.0 != SchemaVerdict::Unknown);
        if took.1 > checking {
            checking = took.1;
            let shown: String = text.chars().take(100).collect();
            println!(
                "{:?} for {} bytes under {} bytes: {shown}",
                took.1,
                value.len(),
                text.len()
            );
        }
    }
    assert!(
        values
            .iter()
            .all(|value| verdict(&honest, value) != SchemaVerdict::Unknown),
        "each is within the bound"
    );
    println!("of 10,000 bombs {taken} were taken, {checked} of them checked a value");
    println!(
        "dearest refusal {refusing:?}, dearest check {checking:?}, a large honest schema {ordinary:?}"
    );
    assert!((1..10_000).contains(&taken) && checked > 0);
    assert!(
        checking < ordinary * 20 + Duration::from_millis(20),
        "{checking:?} against {ordinary:?}"
    );
}

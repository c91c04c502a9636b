#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod prove;

use serde_json::json;

use super::*;

fn compile(schema: &Value) -> Result<CompiledSchema, UnusableSchema> {
    CompiledSchema::compile(schema.to_string().as_bytes())
}

fn holds(schema: &Value, value: &Value) -> SchemaVerdict {
    verdict(&compile(schema).unwrap(), value.to_string().as_bytes())
}

fn is_fit(schema: &Value, value: &Value) -> bool {
    match holds(schema, value) {
        SchemaVerdict::Fits => true,
        SchemaVerdict::Fails(_) => false,
        SchemaVerdict::Unreadable(place) => panic!("not readable: {place}"),
        SchemaVerdict::Unknown => panic!("not affordable: {schema}"),
    }
}

/// `depth` definitions, each of them twice a reference to the next one, by `keyword`.
pub(super) fn doubling(depth: usize, keyword: &str) -> Value {
    let mut defs = serde_json::Map::new();
    for at in 0..depth {
        let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
        defs.insert(format!("d{at}"), json!({ keyword: [next, next] }));
    }
    defs.insert(format!("d{depth}"), json!({ "type": "string" }));
    json!({ "$defs": defs, "$ref": "#/$defs/d0" })
}

// Proves R122.
#[test]
fn without_a_dialect_a_schema_is_2020_12_and_an_unknown_one_is_not_used() {
    // Only 2019-09 and later know `dependentRequired`; only up to draft 7 `dependencies` counts.
    let schema =
        json!({ "dependentRequired": { "a": ["b"] }, "prefixItems": [{ "type": "string" }] });
    assert!(!is_fit(&schema, &json!({ "a": 1 })));
    assert!(!is_fit(&schema, &json!([1])));
    let old = |dialect: &str| json!({ "$schema": dialect, "dependentRequired": { "a": ["b"] } });
    assert!(is_fit(
        &old("http://json-schema.org/draft-07/schema#"),
        &json!({ "a": 1 })
    ));
    let draft4 = json!({ "$schema": "http://json-schema.org/draft-04/schema#", "maximum": 5, "exclusiveMaximum": true });
    assert!(!is_fit(&draft4, &json!(5)) && is_fit(&draft4, &json!(4)));
    for unknown in [
        json!("http://json-schema.org/draft-03/schema#"),
        json!("https://example.com/mine"),
    ] {
        assert_eq!(
            compile(&json!({ "$schema": unknown })).unwrap_err(),
            UnusableSchema::Dialect
        );
    }
    assert_eq!(
        compile(&json!({ "$schema": 5 })).unwrap_err(),
        UnusableSchema::Invalid
    );
}

#[test]
fn formats_are_checked_in_no_dialect() {
    for dialect in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        let schema = json!({ "$schema": dialect, "type": "string", "format": "date-time" });
        assert!(
            is_fit(&schema, &json!("2024-01-01T10:00:00")),
            "{dialect}: servers differ in this"
        );
        assert!(!is_fit(&schema, &json!(5)));
    }
}

// Proves R120, B23.
#[test]
fn foreign_schema_references_are_never_fetched() {
    for target in [
        "http://127.0.0.1:1/schema.json",
        "https://example.com/s#/a",
        "file:///etc/passwd",
        "other.json",
        "//example.com/x",
        "urn:a:b",
    ] {
        for schema in [
            json!({ "$ref": target }),
            json!({ "properties": { "a": { "$dynamicRef": target } } }),
        ] {
            assert_eq!(
                compile(&schema).unwrap_err(),
                UnusableSchema::ForeignReference,
                "{schema}"
            );
        }
    }
}

#[test]
fn a_reference_to_the_schema_of_schemas_permits_anything() {
    for target in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "http://json-schema.org/draft-07/schema#/definitions/nonNegativeInteger",
    ] {
        let schema =
            json!({ "properties": { "a": { "$ref": target }, "b": { "type": "string" } } });
        assert!(is_fit(&schema, &json!({ "a": { "type": 5 } })), "{target}");
        assert!(!is_fit(&schema, &json!({ "b": 5 })), "{target}");
        let listed = SchemaCache::default().of(schema.to_string().as_bytes());
        assert!(!listed.is_for_clients(), "{target}");
        // Here it would refuse more.
        let chosen = json!({ "oneOf": [{ "$ref": target }, { "type": "string" }] });
        let why = compile(&chosen).unwrap_err();
        assert_eq!(why, UnusableSchema::ForeignReference, "{target}");
    }
}

#[test]
fn nullable_beside_a_type_permits_null() {
    let schema = json!({ "properties": {
        "a": { "type": "string", "nullable": true, "enum": ["x"] },
        "b": { "type": "string", "nullable": false },
    } });
    for (value, fits) in [
        (json!({ "a": null }), true),
        (json!({ "a": "x" }), true),
        (json!({ "a": "y" }), false),
        (json!({ "a": 5 }), false),
        (json!({ "b": null }), false),
    ] {
        assert_eq!(is_fit(&schema, &value), fits, "{value}");
    }
}

// Proves B23.
#[test]
fn references_within_the_schema_are_followed() {
    let by_pointer =
        json!({ "$defs": { "a b/c": { "type": "string" } }, "$ref": "#/$defs/a%20b~1c" });
    let by_anchor =
        json!({ "$defs": { "x": { "$anchor": "here", "type": "string" } }, "$ref": "#here" });
    let by_id = json!({ "$id": "https://example.com/s", "$defs": { "x": { "type": "string" } }, "$ref": "https://example.com/s#/$defs/x" });
    let elsewhere =
        json!({ "components": { "x": { "type": "string" } }, "$ref": "#/components/x" });
    for schema in [by_pointer, by_anchor, by_id, elsewhere] {
        assert!(
            is_fit(&schema, &json!("s")) && !is_fit(&schema, &json!(1)),
            "{schema}"
        );
    }
    // Names of generic types, which are no text of a URI.
    for name in [
        "Page[Item]",
        "List<Foo>",
        "Map[K, V]",
        "a b",
        "é",
        "Map{K}",
        "A|B",
        "A^B",
        "A`1",
        "A\\B",
        "A#B",
        "\"A\"",
    ] {
        let schema =
            json!({ "$defs": { name: { "type": "string" } }, "$ref": format!("#/$defs/{name}") });
        assert!(
            is_fit(&schema, &json!("s")) && !is_fit(&schema, &json!(1)),
            "{schema}"
        );
        assert!(
            SchemaCache::default()
                .of(schema.to_string().as_bytes())
                .is_for_clients()
        );
    }
    for broken in ["#/$defs/none", "#none", "#/$defs/%zz"] {
        assert_eq!(
            compile(&json!({ "$ref": broken })).unwrap_err(),
            UnusableSchema::BrokenReference
        );
    }
    let inner_id = json!({ "$defs": { "x": { "$id": "https://example.com/x" } } });
    assert_eq!(
        compile(&inner_id).unwrap_err(),
        UnusableSchema::BrokenReference
    );
    // A property may have any name.
    let named = json!({ "properties": { "$id": { "type": "string" }, "id": { "type": "string" }, "$ref": { "type": "string" } } });
    assert!(
        is_fit(&named, &json!({ "$id": "a", "id": "b", "$ref": "c" }))
            && !is_fit(&named, &json!({ "$ref": 1 }))
    );
}

// Proves B23, R121.
#[test]
fn schemas_that_expand_without_bound_are_not_used() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        assert_eq!(
            compile(&doubling(26, keyword)).unwrap_err(),
            UnusableSchema::TooManyExpansions
        );
        assert_eq!(
            compile(&doubling(60, keyword)).unwrap_err(),
            UnusableSchema::TooManyExpansions
        );
        assert!(compile(&doubling(8, keyword)).is_ok());
    }
    for circle in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "not": { "$ref": "#/$defs/a" } } } }),
        json!({ "$dynamicAnchor": "me", "if": { "$dynamicRef": "#me" } }),
    ] {
        assert_eq!(
            compile(&circle).unwrap_err(),
            UnusableSchema::EndlessReference,
            "{circle}"
        );
    }
}

// Proves B23.
#[test]
fn t11_mismatches_are_reported_for_few_alternatives_only() {
    for keyword in ["anyOf", "oneOf"] {
        let SchemaVerdict::Fails(few) = holds(&doubling(2, keyword), &json!(1)) else {
            panic!("it fits")
        };
        assert!(few[0].expected.contains(keyword), "{few:?}");
        let SchemaVerdict::Fails(many) = holds(&doubling(8, keyword), &json!(1)) else {
            panic!("it fits")
        };
        assert_eq!(many.len(), 1);
        assert!(
            many[0].expected.contains("too many alternatives"),
            "{many:?}"
        );
    }
    // Without alternatives the errors come one by one, however many there are.
    let SchemaVerdict::Fails(all) = holds(&doubling(8, "allOf"), &json!(1)) else {
        panic!("it fits")
    };
    assert_eq!(all.len(), 5, "{all:?}");
    // An honest schema with alternatives far from the mismatch: many values, but not below the
    // alternatives.
    let honest = json!({
        "properties": { "kind": { "anyOf": [{ "type": "string" }, { "type": "null" }] } },
        "additionalProperties": { "type": "integer" },
    });
    let value: serde_json::Map<String, Value> = (0..1_000)
        .map(|at| (format!("k{at}"), json!("no")))
        .collect();
    let SchemaVerdict::Fails(found) = holds(&honest, &Value::Object(value)) else {
        panic!("it fits")
    };
    assert!(
        found
            .iter()
            .all(|mismatch| mismatch.pointer.starts_with("/k")),
        "{found:?}"
    );
}

// Proves B23.
#[test]
fn large_deep_and_wide_schemas_are_not_used() {
    let long = json!({ "description": "x".repeat(300 << 10) });
    assert_eq!(compile(&long).unwrap_err(), UnusableSchema::TooLong);
    let wide: Vec<usize> = (0..20_000).collect();
    assert_eq!(
        compile(&json!({ "enum": wide })).unwrap_err(),
        UnusableSchema::TooManyNodes
    );
    let deep = |levels: usize| {
        (0..levels).fold(
            json!({ "type": "string" }),
            |inner, _| json!({ "allOf": [inner] }),
        )
    };
    assert_eq!(compile(&deep(33)).unwrap_err(), UnusableSchema::TooDeep);
    assert!(compile(&deep(31)).is_ok());
    assert_eq!(compile(&deep(60)).unwrap_err(), UnusableSchema::TooDeep);
    let chain = |length: usize| {
        let mut defs: serde_json::Map<String, Value> = (1..length)
            .map(|at| {
                (
                    format!("d{at}"),
                    json!({ "$ref": format!("#/$defs/d{}", at + 1) }),
                )
            })
            .collect();
        defs.insert(format!("d{length}"), json!({ "type": "string" }));
        json!({ "$defs": defs, "$ref": "#/$defs/d1" })
    };
    assert!(compile(&chain(127)).is_ok());
    let too_long = compile(&chain(130)).unwrap_err();
    assert!(too_long.to_string().contains("chain of more than 128"));
    assert_eq!(
        CompiledSchema::compile(
            format!("{}1{}", "[".repeat(90_000), "]".repeat(90_000)).as_bytes()
        )
        .unwrap_err(),
        UnusableSchema::TooDeep
    );
    for invalid in [
        json!({ "type": "strnig" }),
        json!(5),
        json!({ "required": "a" }),
    ] {
        assert_eq!(
            compile(&invalid).unwrap_err(),
            UnusableSchema::Invalid,
            "{invalid}"
        );
    }
    assert_eq!(
        CompiledSchema::compile(b"{").unwrap_err(),
        UnusableSchema::Invalid
    );
}

// Proves B23.
#[test]
fn a_recursive_schema_is_used_as_long_as_the_value_makes_it_affordable() {
    let tree = json!({ "type": "object", "properties": { "kids": { "type": "array", "items": { "$ref": "#" } } }, "required": ["kids"] });
    let leaf = json!({ "kids": [] });
    assert!(is_fit(
        &tree,
        &json!({ "kids": [leaf, { "kids": [leaf] }] })
    ));
    assert!(!is_fit(&tree, &json!({ "kids": [{ "kids": [{}] }] })));
    // Twice itself at every level of the value: 2^60 steps for 300 bytes.
    let branching = json!({ "allOf": [
        { "properties": { "a": { "$ref": "#" } } },
        { "properties": { "a": { "$ref": "#" } } },
    ]});
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert_eq!(holds(&branching, &nested(60)), SchemaVerdict::Unknown);
    assert_eq!(holds(&branching, &nested(5)), SchemaVerdict::Fits);
}

// Proves B23.
#[test]
fn unevaluated_members_multiply_and_are_counted_so() {
    let mut schema = json!({ "type": "object" });
    for _ in 0..12 {
        schema = json!({ "allOf": [schema], "unevaluatedProperties": false, "properties": { "a": true } });
    }
    let value: serde_json::Map<String, Value> =
        (0..20).map(|at| (format!("k{at}"), json!(1))).collect();
    assert_eq!(
        holds(&schema, &Value::Object(value)),
        SchemaVerdict::Unknown
    );
    assert!(is_fit(
        &json!({ "properties": { "a": true }, "unevaluatedProperties": false }),
        &json!({ "a": 1 })
    ));
    assert!(!is_fit(
        &json!({ "properties": { "a": true }, "unevaluatedProperties": false }),
        &json!({ "b": 1 })
    ));
}

// Proves B23.
#[test]
fn a_large_value_under_a_plain_schema_is_counted_before_it_is_checked() {
    let schema = json!({ "items": { "type": "integer", "minimum": 0 } });
    let list = |count: usize| Value::Array((0..count).map(|at| json!(at)).collect());
    assert!(is_fit(&schema, &list(1000)));
    assert_eq!(holds(&schema, &list(100_000)), SchemaVerdict::Unknown);
}

// Proves B23.
#[test]
fn patterns_run_on_a_linear_engine() {
    let evil = json!({ "pattern": "^(a+)+$" });
    assert!(!is_fit(&evil, &json!(format!("{}!", "a".repeat(5000)))));
    for (refused, why) in [
        ("(a)\\1", UnusableSchema::Pattern),
        ("(?=a)b", UnusableSchema::Pattern),
        ("(?:a{1,100000}){1,1000}", UnusableSchema::Pattern),
        ("(", UnusableSchema::PatternSyntax),
    ] {
        for schema in [
            json!({ "pattern": refused }),
            json!({ "patternProperties": { refused: true } }),
        ] {
            assert_eq!(compile(&schema).unwrap_err(), why, "{schema}");
        }
    }
}

/// Letters `a` and `b` in an order without rule.
pub(super) fn letters(count: usize) -> String {
    let mut state = 88_172_645_463_325_252_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state >> 40 & 1 == 0 { 'a' } else { 'b' }
    };
    (0..count).map(next).collect()
}

// Proves B23.
#[test]
fn dear_patterns_are_not_matched_with_long_texts_and_names() {
    let dear = |at: usize| format!("[ab]*a[ab]{{14}}c$|x{at}");
    let all: Vec<Value> = (0..60).map(|at| json!({ "pattern": dear(at) })).collect();
    let map: serde_json::Map<String, Value> = (0..60).map(|at| (dear(at), json!({}))).collect();
    let long = letters(60_000);
    let named = json!({ (long.clone()): 1 });
    let text = json!([long]);
    let list = json!(vec![letters(63); 1_000]);
    for (schema, value) in [
        (json!({ "patternProperties": map }), &named),
        (json!({ "propertyNames": { "anyOf": all } }), &named),
        (json!({ "propertyNames": { "pattern": dear(0) } }), &named),
        (json!({ "items": { "anyOf": all } }), &text),
        (json!({ "items": { "pattern": dear(0) } }), &text),
        (json!({ "items": { "pattern": dear(0) } }), &list),
    ] {
        assert_eq!(holds(&schema, value), SchemaVerdict::Unknown, "{schema}");
    }
    let plain = json!({ "allOf": vec![json!({ "properties": { "a": true } }); 30] });
    assert_eq!(holds(&plain, &named), SchemaVerdict::Unknown);
    // Short texts are matched.
    assert!(!is_fit(
        &json!({ "propertyNames": { "pattern": dear(0) } }),
        &json!({ "ab": 1 })
    ));
    assert!(is_fit(&json!({ "pattern": dear(0) }), &json!("ax0")));
}

// Proves B23, B24.
#[test]
fn usual_patterns_are_matched_with_long_texts_and_lists() {
    let base64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";
    let file = json!({ "properties": { "data": { "pattern": base64 } }, "patternProperties": { "^x-": {} } });
    assert!(is_fit(&file, &json!({ "data": "AAAA".repeat(100_000) })));
    assert!(!is_fit(
        &file,
        &json!({ "data": "AAA".repeat(100_000) + "!" })
    ));
    let id = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
    let ids = json!({ "items": { "pattern": id, "maxLength": 36 } });
    let one = "01234567-89ab-cdef-0123-456789abcdef";
    assert!(is_fit(&ids, &json!(vec![one; 20_000])));
}

// Proves B23.
#[test]
fn the_patterns_of_a_schema_are_bounded_together() {
    let all: Vec<Value> = (0..400)
        .map(|at| json!({ "pattern": format!("^.{{1,{}}}$", 300 + at) }))
        .collect();
    assert_eq!(
        compile(&json!({ "anyOf": all })).unwrap_err(),
        UnusableSchema::Pattern
    );
    // Equal ones are compiled once.
    assert!(compile(&json!({ "anyOf": vec![all[0].clone(); 400] })).is_ok());
}

// Proves B24.
#[test]
fn schema_mismatches_name_pointers_and_never_long_values() {
    let schema =
        json!({ "properties": { "a": { "type": "integer" } }, "additionalProperties": false });
    let secret = "secret".repeat(50);
    let SchemaVerdict::Fails(found) = holds(&schema, &json!({ "a": secret, (secret.clone()): 1 }))
    else {
        panic!("it fits")
    };
    for mismatch in &found {
        let text = mismatch.to_string();
        assert!(text.chars().count() <= 64 + 160 + 4, "{text}");
    }
    assert!(
        found
            .iter()
            .any(|mismatch| mismatch.pointer == "/a" && mismatch.expected.contains("integer"))
    );
    assert!(
        !found
            .iter()
            .any(|mismatch| mismatch.pointer == "/a" && mismatch.expected.contains("secret"))
    );
}

// Proves B24, B03, B06.
#[test]
fn a_value_with_a_key_twice_is_refused_and_one_beyond_the_numbers_is_unreadable() {
    let schema = compile(&json!({ "type": "object" })).unwrap();
    assert!(matches!(
        verdict(&schema, br#"{"a":{"b":1,"b":2}}"#),
        SchemaVerdict::Fails(_)
    ));
    let number = "a number is beyond the range of a double: send one that fits";
    assert_eq!(
        verdict(&schema, b"{\"a\":1e999}"),
        SchemaVerdict::Unreadable(Mismatch::at("/a", number))
    );
}

// Proves B02.
#[test]
fn a_value_of_as_many_parts_as_a_request_may_have_is_checked_and_one_of_more_is_not_made_a_tree() {
    let schema = compile(&json!({})).unwrap();
    let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1)).into_bytes();
    assert_eq!(verdict(&schema, &list(99_999)), SchemaVerdict::Fits);
    assert_eq!(verdict(&schema, &list(100_000)), SchemaVerdict::Unknown);
    let many = json!({ "uniqueItems": true });
    assert!(is_fit(
        &many,
        &Value::Array((0..5000).map(|at| json!(at)).collect())
    ));
    assert!(!is_fit(&many, &json!([1, 2, 1])));
}

/// Schemas of zod 4 require the members that its parser fills in.
#[test]
fn required_member_with_a_default_may_be_absent() {
    let schema = json!({
        "properties": { "level": { "enum": ["info", "error"], "default": "info" }, "path": {} },
        "required": ["level", "path"],
    });
    assert!(is_fit(&schema, &json!({ "path": "a" })));
    assert!(!is_fit(&schema, &json!({ "level": "info" })));
    assert!(!is_fit(&schema, &json!({ "path": "a", "level": "loud" })));
}

// Proves B24, B23.
#[test]
fn long_lists_do_not_evade_a_plain_schema() {
    let row = json!({
        "type": "object",
        "properties": { "id": { "type": "integer" }, "name": { "anyOf": [{ "type": "string" }, { "type": "null" }] } },
        "required": ["id"],
        "additionalProperties": false,
    });
    let schema = json!({ "properties": { "path": { "type": "string" }, "rows": { "type": "array", "items": row } } });
    for count in [10, 5_000, 18_000] {
        let rows = vec![json!({ "id": 1, "name": null }); count];
        assert!(
            is_fit(&schema, &json!({ "path": "a", "rows": rows })),
            "{count}"
        );
        assert!(
            !is_fit(&schema, &json!({ "path": 5, "rows": rows })),
            "{count}"
        );
    }
}

/// The place of a property that differs in case alone from one that the schema names.
fn variant(schema: &Value, arguments: &Value) -> Option<String> {
    match verdict_of_arguments(&compile(schema).unwrap(), arguments.to_string().as_bytes()) {
        SchemaVerdict::Fits => None,
        SchemaVerdict::Fails(found)
            if found.len() == 1 && found[0].expected.contains("case alone") =>
        {
            Some(found[0].pointer.clone())
        }
        other @ (SchemaVerdict::Fails(_)
        | SchemaVerdict::Unreadable(_)
        | SchemaVerdict::Unknown) => {
            panic!("{other:?}")
        }
    }
}

// Proves B04.
#[test]
fn properties_that_differ_from_named_ones_in_case_alone_do_not_match() {
    let file = json!({ "properties": { "path": { "type": "string" } } });
    let schema = json!({
        "properties": {
            "path": {}, "task": {}, "both": {}, "Both": {}, "\u{e9}t\u{e9}": {},
            "file": file, "list": { "items": file }, "tuple": { "prefixItems": [{}, file] },
            "free": { "type": "object" }, "map": { "additionalProperties": file }, "later": { "$ref": "#/$defs/later" },
        },
        "required": ["only"],
        "allOf": [{ "properties": { "inner": {} } }, { "if": { "required": ["kind"] }, "then": { "properties": { "Path": {} } } }],
        "dependentRequired": { "dep": ["on"] },
        "patternProperties": { "^x-": file },
        "$defs": { "later": { "properties": { "down": { "$ref": "#/$defs/later" }, "name": {} } } },
    });
    for (arguments, place) in [
        (json!({ "only": 1, "PATH": 1 }), Some("/PATH")),
        (
            json!({ "only": 1, "ta\u{17f}\u{212a}": 1 }),
            Some("/ta\u{17f}\u{212a}"),
        ),
        (
            json!({ "only": 1, "\u{c9}t\u{e9}": 1 }),
            Some("/\u{c9}t\u{e9}"),
        ),
        (json!({ "Only": 1, "only": 1 }), Some("/Only")),
        (json!({ "only": 1, "Inner": 1 }), Some("/Inner")),
        (json!({ "only": 1, "Dep": 1 }), Some("/Dep")),
        (json!({ "only": 1, "ON": 1 }), Some("/ON")),
        (
            json!({ "only": 1, "file": { "Path": "a" } }),
            Some("/file/Path"),
        ),
        (
            json!({ "only": 1, "list": [{ "path": "a" }, { "pAth": "a" }] }),
            Some("/list/1/pAth"),
        ),
        (
            json!({ "only": 1, "tuple": [{ "Path": 1 }, { "Path": "a" }] }),
            Some("/tuple/1/Path"),
        ),
        (
            json!({ "only": 1, "map": { "Any/": { "Path": "a" } } }),
            Some("/map/Any~1/Path"),
        ),
        (
            json!({ "only": 1, "x-one": { "Path": "a" } }),
            Some("/x-one/Path"),
        ),
        (
            json!({ "only": 1, "later": { "down": { "down": { "Name": 1 } } } }),
            Some("/later/down/down/Name"),
        ),
        // These are named themselves, in another part of the schema, or have no similar name.
        (
            json!({ "only": 1, "Path": 1, "both": 1, "Both": 2, "kind": 1 }),
            None,
        ),
        (
            json!({ "only": 1, "free": { "PATH": 1, "path": 2 }, "Other": 1, "path ": 1, "p\u{e4}th": 1 }),
            None,
        ),
        (
            json!({ "only": 1, "l\u{131}st": 1, "dep": 1, "on": 1 }),
            None,
        ),
    ] {
        assert_eq!(
            variant(&schema, &arguments).as_deref(),
            place,
            "{arguments}"
        );
        let checked = verdict(&compile(&schema).unwrap(), arguments.to_string().as_bytes());
        assert_eq!(
            checked,
            SchemaVerdict::Fits,
            "a result may have any names: {arguments}"
        );
    }
}

// Proves B04.
#[test]
fn the_schema_says_which_arguments_it_names() {
    let schema = compile(&json!({
        "properties": { "a": { "properties": { "b": {} } }, "list": { "items": { "properties": { "c": {} } } } },
        "required": ["r"],
    }))
    .unwrap();
    for named in [&["a"][..], &["r"], &["a", "b"], &["list", "0", "c"]] {
        assert!(schema.names(named), "{named:?}");
    }
    for other in [
        &[][..],
        &["A"],
        &["b"],
        &["a", "c"],
        &["list", "0"],
        &["list", "c"],
    ] {
        assert!(!schema.names(other), "{other:?}");
    }
}

// Proves B01, B23.
#[test]
fn deep_values_under_recursive_schemas_do_not_exhaust_the_stack() {
    let defs = json!({ "a": { "$ref": "#/$defs/b" }, "b": { "allOf": [{ "$ref": "#/$defs/c" }] }, "c": { "properties": { "n": { "$ref": "#/$defs/a" } } } });
    let schema = json!({ "$defs": defs, "$ref": "#/$defs/a" });
    for levels in [10, 30, 60] {
        let value = (0..levels).fold(json!(1), |inner, _| json!({ "n": inner }));
        // A worker's stack is no larger than this.
        let (schema, value) = (schema.clone(), value);
        let run = move || {
            matches!(
                holds(&schema, &value),
                SchemaVerdict::Fits | SchemaVerdict::Unknown
            )
        };
        let thread = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(run)
            .unwrap();
        assert!(thread.join().unwrap());
    }
}

/// The verdicts are those of ajv with the options of the TypeScript SDK, except for schemas that
/// break their dialect, which other validators refuse.
#[test]
fn only_schemas_that_validators_of_clients_compile_are_for_clients() {
    let cache = SchemaCache::default();
    let is_for_clients = |schema: &str| cache.of(schema.as_bytes()).is_for_clients();
    for good in [
        r##"{"type":"object","properties":{"id":{"$ref":"#/$defs/a"},"nullable":{"type":"string","nullable":true},"$id":{}},"$defs":{"a":{}}}"##,
        r##"{"type":"object","properties":{"tree":{"$ref":"#"}}}"##,
        r#"{"type":"object","properties":{"a":{"pattern":"^[\\w.-]+$","format":"unknown"}}}"#,
        r#"{"properties":{"a":{"type":["string","null"],"nullable":true},"b":{"type":"string","nullable":false}}}"#,
        r#"{"properties":{"a":{"format":"date","formatMinimum":"2020-01-01"}}}"#,
        r#"{"properties":{"formatMinimum":{"$anchor":"a"},"nullable":{"$anchor":"b"}}}"#,
        // Valid, but not for weir.
        r#"{"type":"object","properties":{"a":{"pattern":"^(?!x)y"}}}"#,
        r#"{"$schema":"https://x.example/dialect","type":"object"}"#,
    ] {
        assert!(is_for_clients(good), "{good}");
    }
    let long = format!(r#"{{"description":"{}"}}"#, "x".repeat(300 << 10));
    assert!(is_for_clients(&long), "valid and too long for weir");
    for bad in [
        r#"{"properties":{"a":{"$ref":"https://x.example/b"}}}"#,
        r##"{"properties":{"a":{"$ref":"#/$defs/none"}}}"##,
        r##"{"$anchor":"b","properties":{"a":{"$ref":"#b"}}}"##,
        r#"{"properties":{"a":{"type":"text"}}}"#,
        r#"{"properties":{"a":{"minimum":0,"exclusiveMinimum":true}}}"#,
        r#"{"properties":{"a":{"pattern":"(?P<y>a)"}}}"#,
        r#"{"properties":{"a":{"pattern":"\\@"}}}"#,
        r#"{"properties":{"a":{"pattern":"(?>a)"}}}"#,
        r#"{"patternProperties":{"\\A":{}}}"#,
        r#"{"properties":{"a":{"pattern":"^\\p{Han}+$"}}}"#,
        r#"{"patternProperties":{"^\\p{Alnum}$":{}}}"#,
        r#"{"properties":{"a":{"nullable":true}}}"#,
        r#"{"properties":{"a":{"type":"null","nullable":false}}}"#,
        r#"{"properties":{"a":{"type":["string","null"],"nullable":false}}}"#,
        r#"{"properties":{"a":{"type":"string","nullable":"yes"}}}"#,
        r#"{"properties":{"a":{"formatMinimum":"2020-01-01"}}}"#,
        r#"{"properties":{"a":{"format":"email","formatExclusiveMaximum":"b"}}}"#,
        r#"{"properties":{"a":{"format":"date","formatMaximum":5}}}"#,
        r#"{"$defs":{"a":{"$anchor":"x"},"b":{"$dynamicAnchor":"x"}}}"#,
        r#"{"id":"https://x.example/a"}"#,
        r#"{"$id":"https://x.example/a"}"#,
        r#"{"properties":{"a":{"$id":"https://x.example/a"}}}"#,
        r#"{"enum":[]}"#,
    ] {
        assert!(!is_for_clients(bad), "{bad}");
    }
}

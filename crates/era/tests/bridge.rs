//! Lower after lift keeps the meaning of a call, for all pairs of revisions: the client's members
//! arrive, value by value, and members of one hop do not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use weir_core::call::{InputMode, RequestName};
use weir_core::{Call, CapabilityClass, EndpointId};
use weir_era::lift::{self, LiftedRequest};
use weir_era::lower::{self, SenderMeta};
use weir_wire::Revision;
use weir_wire::case_folding::equal_folded;
use weir_wire::method::Method;
use weir_wire::params::{NAMES, Params};

fn call(lifted: LiftedRequest) -> Call {
    Call {
        capabilities: lifted.capabilities,
        wants_progress: lifted.progress_token.is_some(),
        log_messages: lifted.log_messages,
        input_mode: InputMode::Rounds,
        trace: lifted.trace,
        ..Call::new(
            EndpointId::new("/mcp"),
            Method::ToolsCall,
            lifted.params,
            RequestName::from_bits(1),
        )
    }
}

/// JSON of any shape, not too deep.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[a-zA-Z$./_é]{0,12}", json_value(), 0..5)
        .prop_map(|map| map.into_iter().collect())
}

/// The members that weir writes itself in `params`, in place of any that the client sent.
const OWN: [&str; 5] = ["name", "_meta", "requestState", "inputResponses", "task"];

fn params_of(
    name: &str,
    arguments: &Map<String, Value>,
    more: &Map<String, Value>,
    meta: &Map<String, Value>,
) -> Value {
    let mut params: Map<String, Value> = more
        .iter()
        .filter(|(key, _)| {
            !OWN.contains(&key.as_str())
                && !NAMES
                    .iter()
                    .any(|name| *name != *key && equal_folded(name, key))
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    params.insert("name".into(), json!(name));
    params.insert("arguments".into(), Value::Object(arguments.clone()));
    params.insert("_meta".into(), Value::Object(meta.clone()));
    Value::Object(params)
}

fn parse(params: &Value) -> Params {
    Params::parse(Some(&Bytes::from(params.to_string()))).unwrap()
}

/// All members but the name and weir's own keys in `_meta` have the same value.
fn same_meaning(lowered: &Bytes, sent: &Value, native: &str) -> Result<(), TestCaseError> {
    let lowered: Value = serde_json::from_slice(lowered).unwrap();
    prop_assert_eq!(&lowered["method"], "tools/call");
    let mut params = lowered["params"].as_object().unwrap().clone();
    let mut before = sent.as_object().unwrap().clone();
    prop_assert_eq!(params.remove("name"), Some(json!(native)));
    before.remove("name");
    let (meta, sent_meta) = (
        params.remove("_meta").unwrap(),
        before.remove("_meta").unwrap(),
    );
    prop_assert_eq!(params, before);
    for (key, value) in sent_meta.as_object().unwrap() {
        if !weir_wire::meta::is_owned_by_weir(key) {
            prop_assert_eq!(&meta[key], value, "{}", key);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // Proves R119, B06.
    #[test]
    fn lower_after_lift_keeps_the_meaning(
        (name, native) in ("[a-z_]{1,20}", "\\PC{1,20}"),
        arguments in object(),
        more in object(),
        mut meta in object(),
        (modern_client, wants_progress) in any::<(bool, bool)>(),
    ) {
        meta.retain(|key, _| !weir_wire::meta::is_owned_by_weir(key));
        if wants_progress {
            meta.insert("progressToken".into(), json!("the client's own"));
        }
        if modern_client {
            meta.insert(weir_wire::meta::PROTOCOL_VERSION.into(), json!("2026-07-28"));
            meta.insert(weir_wire::meta::CLIENT_CAPABILITIES.into(), json!({}));
        }
        let sent = params_of(&name, &arguments, &more, &meta);
        let params = parse(&sent);
        let lifted = if modern_client {
            lift::modern(params).unwrap()
        } else {
            lift::legacy(params, None, CapabilityClass::BASE).unwrap()
        };
        let call = call(lifted);
        let sender = SenderMeta { revision: Revision::MODERN, client_info: b"{}", capabilities: b"{}", log_messages: call.log_messages };
        let modern = lower::modern_call(7, &call, &native, &sender);
        same_meaning(&modern, &sent, &native)?;
        let legacy = lower::legacy_call(7, &call, &native, Revision::NEWEST_LEGACY);
        same_meaning(&legacy, &sent, &native)?;
        for lowered in [modern, legacy] {
            let lowered: Value = serde_json::from_slice(&lowered).unwrap();
            let token = &lowered["params"]["_meta"]["progressToken"];
            // Every hop mints its own token: the client's never goes on.
            prop_assert_eq!(token.is_null(), !wants_progress);
            prop_assert_ne!(token, "the client's own");
        }
        let legacy_meta: Value = serde_json::from_slice(&lower::legacy_call(7, &call, &native, Revision::NEWEST_LEGACY)).unwrap();
        let keys = legacy_meta["params"]["_meta"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        prop_assert!(!keys.iter().any(|key| key.starts_with("io.modelcontextprotocol/")), "{:?}", keys);
    }
}

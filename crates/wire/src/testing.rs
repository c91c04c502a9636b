//! Random JSON for the property tests: texts, not trees, so that white space, escapes and spelling
//! vary too.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

/// White space between tokens.
fn gap() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t ")].prop_map(String::from)
}

/// A string, spelled plainly or with every character escaped.
pub(crate) fn text() -> impl Strategy<Value = String> {
    (any::<String>(), prop::bool::weighted(0.2)).prop_map(|(text, escaped)| spell(&text, escaped))
}

/// `text` as a JSON string.
pub(crate) fn spell(text: &str, escaped: bool) -> String {
    if !escaped {
        return serde_json::to_string(text).expect("a string is JSON");
    }
    let units: String = text
        .encode_utf16()
        .map(|unit| format!("\\u{unit:04X}"))
        .collect();
    format!("\"{units}\"")
}

/// Any JSON value, without duplicate keys.
pub(crate) fn value() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON has finite numbers", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        Just("-0.0E+10".to_owned()),
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        number,
        text()
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let array = (vec((gap(), inner.clone(), gap()), 0..6), gap()).prop_map(|(items, end)| {
            let items: Vec<_> = items
                .into_iter()
                .map(|(before, item, after)| before + &item + &after)
                .collect();
            format!("[{}{end}]", items.join(","))
        });
        let object = vec((any::<String>(), inner), 0..6).prop_flat_map(|members| {
            let members = members
                .into_iter()
                .enumerate()
                .map(|(index, (key, value))| (format!("{index}{key}"), value));
            object(members.collect())
        });
        prop_oneof![array, object]
    })
}

/// An object of these members in this order, with random white space and spelling of the keys.
pub(crate) fn object(members: Vec<(String, String)>) -> impl Strategy<Value = String> {
    let len = members.len();
    (
        vec((gap(), prop::bool::weighted(0.2), gap(), gap(), gap()), len),
        gap(),
    )
        .prop_map(move |(styles, end)| {
            let members = members.iter().zip(styles).map(
                |((key, value), (before, escaped, colon, start, after))| {
                    format!(
                        "{before}{}{colon}:{start}{value}{after}",
                        spell(key, escaped)
                    )
                },
            );
            format!("{{{}{end}}}", members.collect::<Vec<_>>().join(","))
        })
}

/// An object whose keys are drawn from `names`, each at most once, in random order, among others.
pub(crate) fn object_of(
    names: &'static [&'static str],
    values: BoxedStrategy<String>,
) -> impl Strategy<Value = String> {
    let known = prop::sample::subsequence(names, 0..=names.len()).prop_shuffle();
    known.prop_flat_map(move |names| {
        let len = names.len();
        (Just(names), vec(values.clone(), len)).prop_flat_map(|(names, values)| {
            object(names.into_iter().map(String::from).zip(values).collect())
        })
    })
}

/// Cuts `raw` into pieces at these places.
pub(crate) fn cut(raw: &Bytes, cuts: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut places: Vec<usize> = cuts
        .iter()
        .map(|cut| cut.index(raw.len() + 1))
        .chain([0, raw.len()])
        .collect();
    places.sort_unstable();
    places
        .windows(2)
        .map(|pair| raw.slice(pair[0]..pair[1]))
        .collect()
}

/// Places for [`cut`].
pub(crate) fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    vec(any::<prop::sample::Index>(), 0..12)
}

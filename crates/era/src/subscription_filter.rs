//! The filter of `subscriptions/listen`: the resources and tasks that it names.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use weir_wire::scan;

use crate::render::RESOURCE_SUBSCRIPTIONS;

/// The resources that a listen's filter names, each once, at most `most`; `None` if they are no
/// strings.
#[must_use]
pub fn resources_of_filter(filter: &Bytes, most: usize) -> Option<Vec<Arc<str>>> {
    strings_of_filter(filter, RESOURCE_SUBSCRIPTIONS, most)
}

/// The strings of an array in a filter, each once, at most `most`; `None` if the member is not such
/// an array.
#[must_use]
pub fn strings_of_filter(filter: &Bytes, member: &str, most: usize) -> Option<Vec<Arc<str>>> {
    let Some(range) = scan::find(filter, member) else {
        return Some(Vec::new());
    };
    let list = &filter[range];
    if list == b"null" {
        return Some(Vec::new());
    }
    let texts = list.starts_with(b"[").then(|| scan::elements(list))?;
    let texts: Option<Vec<Arc<str>>> = texts
        .map(|at| scan::string(&list[at]).map(Arc::from))
        .collect();
    let mut known = HashSet::new();
    Some(
        texts?
            .into_iter()
            .filter(|uri| known.insert(uri.clone()))
            .take(most)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R197.
    #[test]
    fn a_filter_names_resources_as_strings_each_once() {
        let of = |text: &'static str| resources_of_filter(&Bytes::from_static(text.as_bytes()), 2);
        let texts = |uris: &[&str]| {
            Some(
                uris.iter()
                    .map(|uri| Arc::from(*uri))
                    .collect::<Vec<Arc<str>>>(),
            )
        };
        assert_eq!(of("{}"), texts(&[]));
        assert_eq!(of(r#"{"resourceSubscriptions":null}"#), texts(&[]));
        assert_eq!(
            of(r#"{"resourceSubscriptions":["a:1","a\u003a1","b","c"]}"#),
            texts(&["a:1", "b"])
        );
        for bad in [
            r#"{"resourceSubscriptions":"a"}"#,
            r#"{"resourceSubscriptions":[1]}"#,
            r#"{"resourceSubscriptions":{}}"#,
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}

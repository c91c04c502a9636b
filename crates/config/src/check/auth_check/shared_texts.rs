//! Texts of the config as the settings share them.

use std::sync::Arc;

/// Returns the texts, which many requests then share. Empty if there are none.
pub(super) fn arcs(texts: Option<&Vec<String>>) -> Vec<Arc<str>> {
    texts
        .into_iter()
        .flatten()
        .map(|text| text.as_str().into())
        .collect()
}

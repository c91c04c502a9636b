//! Texts of the config as the settings share them.

use std::sync::Arc;

use weir_config_file::config_report::{ConfigPath, ConfigReport};

use crate::check::toolsets_check::{is_scope, no_scope};

/// Returns the texts, which many requests then share. Empty if there are none.
pub(super) fn shared(texts: Option<&Vec<String>>) -> Vec<Arc<str>> {
    texts
        .into_iter()
        .flatten()
        .map(|text| text.as_str().into())
        .collect()
}

/// Returns the scopes that callers have. Some servers have scopes with a `*` in their names.
pub(super) fn scopes(
    texts: Option<&Vec<String>>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<Arc<str>> {
    for (n, text) in texts.into_iter().flatten().enumerate() {
        if !is_scope(text) {
            report.add(no_scope(path.key(n)));
        }
    }
    shared(texts)
}

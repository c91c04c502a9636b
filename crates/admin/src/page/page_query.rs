//! The query of a page.

use std::collections::HashMap;

use url::form_urlencoded;

/// The seconds between two reloads of a page that may be asked for.
const REFRESH: std::ops::RangeInclusive<u32> = 2..=3600;

/// The query of a page.
pub(super) struct PageQuery {
    /// The seconds until the page reloads itself.
    pub(super) refresh: Option<u32>,
    /// The path of the endpoint to connect to.
    pub endpoint: Option<String>,
}

impl PageQuery {
    /// Reads a query. Invalid values are ignored.
    pub(crate) fn of(query: Option<&str>) -> Self {
        let query: HashMap<_, _> =
            form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect();
        let refresh = query
            .get("refresh")
            .and_then(|seconds| seconds.parse().ok());
        let endpoint = query.get("endpoint").map(|path| path.to_string());
        Self {
            refresh: refresh.filter(|seconds| REFRESH.contains(seconds)),
            endpoint,
        }
    }
}

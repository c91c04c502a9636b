//! The names of the `_meta` keys weir reads, writes or keeps to itself.
//!
//! [`crate::params::Meta`] is the typed view of a `_meta` object. This module has the names, and
//! the rule for the keys that belong to one hop.

use crate::case_folding;

/// The modern revision of this request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Name and version of the client (optional, self-reported).
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Capabilities of the client for this request.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The least severe log message the client wants for this request.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Name and version of the server, on results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The JSON-RPC id of the `subscriptions/listen` a message belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The task a message belongs to (2025-11-25).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The token that progress notifications name.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// W3C trace context.
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace state.
pub const TRACESTATE: &str = "tracestate";
/// W3C baggage.
pub const BAGGAGE: &str = "baggage";
/// The upstreams that are missing, stale or truncated in this response.
pub const WEIR_UPSTREAMS: &str = "dev.weir/upstreams";
/// The error object of a failure that weir reports inside an `isError` result.
pub const WEIR_ERROR: &str = "dev.weir/error";
/// The count of hidden characters that weir removed from a result.
pub const WEIR_CLEANED: &str = "dev.weir/cleaned";

const OWNED_PREFIXES: [&str; 2] = ["io.modelcontextprotocol/", "dev.weir/"];
const OWNED_KEYS: [&str; 4] = [PROGRESS_TOKEN, TRACEPARENT, TRACESTATE, BAGGAGE];

/// Reports if this key describes one hop, so that weir removes it and sets its own:
/// `io.modelcontextprotocol/*`, `progressToken`, the trace keys and `dev.weir/*`. All other keys
/// pass as they are.
#[must_use]
pub fn is_owned_by_weir(key: &str) -> bool {
    OWNED_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) || OWNED_KEYS.contains(&key)
}

/// The keys of one hop that some revision or weir defines.
const NAMES: [&str; 14] = [
    PROTOCOL_VERSION,
    CLIENT_INFO,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    RELATED_TASK,
    PROGRESS_TOKEN,
    TRACEPARENT,
    TRACESTATE,
    BAGGAGE,
    WEIR_UPSTREAMS,
    WEIR_ERROR,
    WEIR_CLEANED,
];

/// The key of one hop, or the prefix of such keys, that `key` differs from in case alone
/// ([`crate::case_folding`]). A server without regard to case would take it for a key that weir
/// sets itself.
pub(crate) fn case_variant_of_owned(key: &str) -> Option<&'static str> {
    let name = NAMES
        .into_iter()
        .find(|name| *name != key && case_folding::equal_folded(name, key));
    name.or_else(|| {
        OWNED_PREFIXES.into_iter().find(|prefix| {
            let end = key
                .char_indices()
                .map(|(at, _)| at)
                .chain([key.len()])
                .nth(prefix.len());
            let head = end.map_or("", |end| &key[..end]);
            head != *prefix && case_folding::equal_folded(prefix, head)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_hop_are_ours_and_vendor_keys_are_not() {
        assert!(NAMES.into_iter().all(is_owned_by_weir));
        for key in [
            "ui",
            "com.example/x",
            "progresstoken",
            "Traceparent",
            "io.modelcontextprotocol",
            "dev.weird/x",
            "",
        ] {
            assert!(!is_owned_by_weir(key), "{key}");
        }
    }

    #[test]
    fn case_variants_of_owned_keys_are_detected() {
        for name in NAMES {
            assert_eq!(case_variant_of_owned(name), None, "{name}");
            assert_eq!(
                case_variant_of_owned(&name.to_uppercase()),
                Some(name),
                "{name}"
            );
            assert_eq!(
                case_variant_of_owned(&name.replace('s', "\u{17f}")),
                name.contains('s').then_some(name),
                "{name}"
            );
            assert_eq!(
                case_variant_of_owned(&name.replace('k', "\u{212a}")),
                name.contains('k').then_some(name),
                "{name}"
            );
            assert_eq!(
                case_variant_of_owned(&name.replace('i', "\u{131}")),
                None,
                "{name}: a dotless i is another letter"
            );
            assert_eq!(
                case_variant_of_owned(&format!("{}x", name.to_uppercase())),
                {
                    OWNED_PREFIXES
                        .into_iter()
                        .find(|prefix| name.starts_with(prefix))
                }
            );
        }
        assert_eq!(
            case_variant_of_owned("IO.modelcontextprotocol/new"),
            Some("io.modelcontextprotocol/")
        );
        assert_eq!(case_variant_of_owned("dev.weir/anything"), None);
        for other in [
            "",
            "ui",
            "com.example/ProgressToken",
            "Dev.weir",
            "dev.weiR\u{301}/x",
            "progress_token",
        ] {
            assert_eq!(case_variant_of_owned(other), None, "{other}");
        }
    }
}

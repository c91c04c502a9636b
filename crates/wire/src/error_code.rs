//! The error codes: the numbers of the member `error.code`.
//!
//! This is the one table of them, so a number never appears twice in the code base. It holds no
//! rule about the sender of a code; the bridge has those rules.

/// The bytes are not JSON (JSON-RPC 2.0).
pub const PARSE_ERROR: i64 = -32700;
/// The JSON is not a JSON-RPC message of MCP (JSON-RPC 2.0).
pub const INVALID_REQUEST: i64 = -32600;
/// Unknown method, or one behind a capability that was not offered.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Unknown tool, bad cursor, missing argument, missing modern `_meta`.
pub const INVALID_PARAMS: i64 = -32602;
/// An internal error of the answering side.
pub const INTERNAL_ERROR: i64 = -32603;

/// A mirrored header is missing, malformed or differs from the body (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The client did not declare a capability that this request needs (2026-07-28).
pub const MISSING_REQUIRED_CLIENT_CAPABILITY: i64 = -32021;
/// The protocol version of the request is not served here (2026-07-28).
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// The resource does not exist: legacy revisions only, modern peers get [`INVALID_PARAMS`].
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// The user must visit a URL first: 2025-11-25 only.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// The user refused a sampling request: prose of the legacy revisions only.
pub const USER_REJECTED: i64 = -1;

/// weir: a deadline passed; weir sent a cancellation to the upstream.
pub const TIMED_OUT: i64 = 1001;
/// weir: the upstream cannot be reached or is switched off; no tool ran.
pub const UNAVAILABLE: i64 = 1002;
/// weir: the upstream's answer breaks the protocol.
pub const BAD_ANSWER: i64 = 1003;
/// weir: the connection or its owner died during the call; the tool may have run.
pub const RESULT_UNKNOWN: i64 = 1004;
/// weir: a rate, size or count limit was reached.
pub const LIMIT: i64 = 1005;
/// weir: too many requests are in flight at this moment.
pub const BUSY: i64 = 1006;
/// weir: a rule denies it to this principal.
pub const DENIED: i64 = 1007;

/// Reports if 2026-07-28 lets a peer send this code: inside -32020..=-32099 only the three that it
/// defines, and never the two retired legacy ones.
#[must_use]
pub const fn is_allowed_to_modern(code: i64) -> bool {
    match code {
        HEADER_MISMATCH | MISSING_REQUIRED_CLIENT_CAPABILITY | UNSUPPORTED_PROTOCOL_VERSION => true,
        RESOURCE_NOT_FOUND => false,
        _ => !(code <= -32020 && code >= -32099),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R049.
    #[test]
    fn undefined_codes_of_the_reserved_band_are_not_for_modern_peers() {
        for code in -32099..=-32020 {
            assert_eq!(
                is_allowed_to_modern(code),
                (-32022..=-32020).contains(&code),
                "{code}"
            );
        }
        assert!(!is_allowed_to_modern(RESOURCE_NOT_FOUND));
        for code in [
            PARSE_ERROR,
            INVALID_REQUEST,
            METHOD_NOT_FOUND,
            INVALID_PARAMS,
            INTERNAL_ERROR,
            -32000,
            -32019,
            -32100,
            7,
            BUSY,
            DENIED,
        ] {
            assert!(is_allowed_to_modern(code), "{code}");
        }
    }

    #[test]
    fn own_codes_stay_out_of_the_json_rpc_band() {
        for code in [
            TIMED_OUT,
            UNAVAILABLE,
            BAD_ANSWER,
            RESULT_UNKNOWN,
            LIMIT,
            BUSY,
            DENIED,
        ] {
            assert!(!(-32768..=-32000).contains(&code));
        }
    }
}

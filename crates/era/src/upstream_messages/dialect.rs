//! The codec of one server, once its revision is known: the place where the codecs of the server
//! side branch on the revision.

use bytes::Bytes;
use weir_core::call::{Call, LogMessages};
use weir_core::upstream::{DeclaredExtension, ListPage};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_wire::method::Method;
use weir_wire::{Revision, scan};

use crate::capability_forwarding;
use crate::lower::{self, SenderMeta};
use crate::server_questions;
use crate::upstream_messages::message_filter::MessageFilter;
use crate::upstream_messages::{ResultType, parse_result_type, read_result_type};

/// The declarations about the client in a request to a server.
#[derive(Clone, Copy, Debug)]
pub struct ClientDeclaration<'a> {
    /// The questions that the client may be asked.
    pub class: CapabilityClass,
    /// The `Implementation` object that names the client to the server.
    pub client_info: &'a [u8],
    /// The extensions of the server; the client's settings are forwarded for these alone.
    pub extensions: &'a [DeclaredExtension],
    /// The log messages that the server is asked for, from [`RevisionDialect::requested_logs`].
    pub log_messages: LogMessages,
}

/// A server's revision, with the message forms that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevisionDialect(Revision);

impl RevisionDialect {
    /// The codec for a server of this revision.
    #[must_use]
    pub const fn new(revision: Revision) -> Self {
        Self(revision)
    }

    /// The revision.
    #[must_use]
    pub const fn revision(self) -> Revision {
        self.0
    }

    /// The part of a client's class that is forwarded to this server.
    #[must_use]
    pub const fn forwarded_class(self) -> CapabilityClass {
        if self.0.is_modern() {
            capability_forwarding::TO_MODERN.with(capability_forwarding::EXTENSIONS)
        } else {
            capability_forwarding::TO_LEGACY
        }
    }

    /// A call in this server's form.
    #[must_use]
    pub fn call(self, id: u64, call: &Call, native: &str, client: ClientDeclaration<'_>) -> Bytes {
        if self.0.is_modern() {
            let capabilities = capability_forwarding::to_modern(
                client.class,
                call.capabilities.raw.as_deref(),
                client.extensions,
            );
            let sender = self.sender(client, &capabilities);
            lower::modern_call(id, call, native, &sender)
        } else {
            lower::legacy_call(id, call, native, self.0)
        }
    }

    /// The log messages that a call asks this server for, for a client that wants `wanted`.
    /// `declares_logging` is true for a server with the `logging` capability.
    ///
    /// A server of 2026-07-28 has no choice of its own: without a level in the request it sends no
    /// message. weir makes the choice in its stead.
    #[must_use]
    pub const fn requested_logs(self, wanted: LogMessages, declares_logging: bool) -> LogMessages {
        match wanted {
            LogMessages::ServerChoice if self.0.is_modern() && declares_logging => {
                LogMessages::From(LogMessages::CHOSEN_LEVEL)
            }
            LogMessages::ServerChoice if self.0.is_modern() => LogMessages::None,
            LogMessages::None | LogMessages::ServerChoice | LogMessages::From(_) => wanted,
        }
    }

    /// Any other request in this server's form.
    #[must_use]
    pub fn request(
        self,
        id: u64,
        method: Method,
        members: &[(&str, &[u8])],
        client: ClientDeclaration<'_>,
    ) -> Bytes {
        if self.0.is_modern() {
            let capabilities =
                capability_forwarding::to_modern(client.class, None, client.extensions);
            let sender = self.sender(client, &capabilities);
            lower::modern_request(id, method, members, &sender)
        } else {
            lower::legacy_request(id, method, members)
        }
    }

    /// The message filter of a request.
    #[must_use]
    pub fn message_filter(self, id: u64, progress: bool, logs: LogMessages) -> MessageFilter {
        if self.0.is_modern() {
            MessageFilter::modern(id, progress, logs)
        } else {
            MessageFilter::legacy(id, progress, logs)
        }
    }

    /// The type of a result.
    #[must_use]
    pub fn read_result_type(self, result: &[u8]) -> ResultType {
        if self.has_result_type() {
            read_result_type(result)
        } else {
            ResultType::Complete
        }
    }

    /// The type of a result with this `resultType`.
    #[must_use]
    pub fn parse_result_type(self, result_type: Option<&[u8]>) -> ResultType {
        if self.has_result_type() {
            parse_result_type(result_type)
        } else {
            ResultType::Complete
        }
    }

    /// True if results state their type.
    #[must_use]
    pub const fn has_result_type(self) -> bool {
        self.0.is_modern()
    }

    /// True if tasks have the form of the extension: a state has the result or the questions, and
    /// `tasks/update` answers them. In 2025-11-25 `tasks/result` is the request for both.
    #[must_use]
    pub const fn has_task_extension(self) -> bool {
        self.0.is_modern()
    }

    /// True if each tool declares its support of tasks, and a call asks for one (2025-11-25). With
    /// the extension of 2026-07-28 any call of a client that takes tasks may become one.
    pub const fn tools_declare_tasks(self) -> bool {
        !self.0.is_modern()
    }

    /// True if a client that declared `class` can be asked all the questions of an `input_required`
    /// result.
    #[must_use]
    pub fn may_ask(self, class: CapabilityClass, result: &[u8]) -> bool {
        let Some(requests) = scan::find(result, "inputRequests") else {
            return true;
        };
        let requests = &result[requests];
        scan::members(requests).all(|member| {
            let request = &requests[member.value];
            let method =
                scan::find(request, "method").and_then(|range| scan::string(&request[range]));
            let params = scan::find(request, "params").map_or(&b"{}"[..], |range| &request[range]);
            let method = method.and_then(|method| Method::parse(&method));
            method.is_some_and(|method| server_questions::may_ask(class, method, params).is_ok())
        })
    }

    /// True if an `input_required` result states how its call continues: by answers, or by the
    /// server's own state (2026-07-28, basic/patterns/mrtr).
    #[must_use]
    pub fn can_continue(self, result: &[u8]) -> bool {
        let member = |name: &str| {
            scan::find(result, name)
                .map(|range| result[range][0])
                .filter(|begin| *begin != b'n')
        };
        let is = |name: &str, expected: u8| member(name).map(|begin| begin == expected);
        match (is("inputRequests", b'{'), is("requestState", b'"')) {
            (None, None) => false,
            (requests, state) => requests.unwrap_or(true) && state.unwrap_or(true),
        }
    }

    /// Reads one page of a list. Cache hints count only if the revision has them.
    ///
    /// # Errors
    /// `BadAnswer` if there is no list in it.
    pub fn page(self, result: &Bytes, member: &str) -> Result<ListPage, Failure> {
        let Some(items) =
            scan::find(result, member).filter(|range| result[range.clone()].starts_with(b"["))
        else {
            return Err(Failure::new(
                FailureKind::BadAnswer,
                "The upstream's list has no items",
            ));
        };
        let next_cursor = scan::find(result, "nextCursor").map(|range| &result[range]);
        let next_cursor = next_cursor.filter(|cursor| scan::trim(cursor) != b"null");
        if next_cursor.is_some_and(|cursor| scan::string(cursor).is_none()) {
            // The list would end here, and a part never stands for the whole.
            return Err(Failure::new(
                FailureKind::BadAnswer,
                "The upstream's cursor of the next page is not a string",
            ));
        }
        let list = result.slice(items);
        let text =
            |name: &str| scan::find(result, name).and_then(|range| scan::string(&result[range]));
        let hinted = self.0.is_modern();
        let ttl = scan::find(result, "ttlMs").and_then(|range| scan::integer(&result[range]));
        Ok(ListPage {
            items: scan::elements(&list)
                .map(|range| list.slice(range))
                .collect(),
            next_cursor: next_cursor.and_then(scan::string).map(Into::into),
            ttl_ms: ttl
                .filter(|_| hinted)
                .and_then(|ttl| u64::try_from(ttl).ok())
                .unwrap_or(0),
            hinted,
            public: hinted && text("cacheScope").as_deref() == Some("public"),
        })
    }

    const fn sender<'a>(
        self,
        client: ClientDeclaration<'a>,
        capabilities: &'a [u8],
    ) -> SenderMeta<'a> {
        SenderMeta {
            revision: self.0,
            client_info: client.client_info,
            capabilities,
            log_messages: client.log_messages,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_wire::LogLevel;

    use super::*;

    const MODERN: RevisionDialect = RevisionDialect::new(Revision::MODERN);
    const LEGACY: RevisionDialect = RevisionDialect::new(Revision::NEWEST_LEGACY);

    #[test]
    fn cursor_that_is_no_string_fails_the_page_and_null_is_none() {
        let page = |cursor: &str| {
            let text = format!(r#"{{"tools":[],"nextCursor":{cursor}}}"#);
            LEGACY.page(&Bytes::from(text), "tools")
        };
        assert_eq!(page("null").unwrap().next_cursor, None);
        for cursor in ["5", "{}", "false"] {
            let failure = page(cursor).unwrap_err();
            assert_eq!(failure.kind(), &FailureKind::BadAnswer, "{cursor}");
        }
    }

    // Proves R145, R146.
    #[test]
    fn cursors_pass_as_they_are_and_the_empty_one_is_a_cursor() {
        let page = |text: &'static str| {
            LEGACY
                .page(&Bytes::from_static(text.as_bytes()), "tools")
                .unwrap()
        };
        assert_eq!(
            page(r#"{"tools":[],"nextCursor":""}"#)
                .next_cursor
                .as_deref(),
            Some("")
        );
        assert_eq!(
            page(r#"{"tools":[],"nextCursor":"a\u0020+/="}"#)
                .next_cursor
                .as_deref(),
            Some("a +/=")
        );
        assert_eq!(page(r#"{"tools":[],"nextCursor":null}"#).next_cursor, None);
        let items = page(r#"{"tools":[{"a":1}, {"b" :2}]}"#).items;
        assert_eq!(items, [r#"{"a":1}"#, r#"{"b" :2}"#]);
        assert!(LEGACY.page(&Bytes::from_static(b"{}"), "tools").is_err());
        assert!(
            LEGACY
                .page(&Bytes::from_static(br#"{"tools":{}}"#), "tools")
                .is_err()
        );
    }

    #[test]
    fn cache_hints_are_read_from_modern_servers_alone() {
        let result = Bytes::from_static(br#"{"tools":[],"ttlMs":500,"cacheScope":"public"}"#);
        let page = MODERN.page(&result, "tools").unwrap();
        assert_eq!((page.ttl_ms, page.hinted, page.public), (500, true, true));
        let page = LEGACY.page(&result, "tools").unwrap();
        assert_eq!((page.ttl_ms, page.hinted, page.public), (0, false, false));
        let negative = Bytes::from_static(br#"{"tools":[],"ttlMs":-5}"#);
        assert_eq!(MODERN.page(&negative, "tools").unwrap().ttl_ms, 0);
    }

    // Proves R167.
    #[test]
    fn a_result_that_wants_input_says_which_or_how_the_call_goes_on() {
        for (text, expected) in [
            (r#"{"resultType":"input_required"}"#, false),
            (r#"{"inputRequests":null,"requestState":null}"#, false),
            (r#"{"inputRequests":[]}"#, false),
            (r#"{"inputRequests":{},"requestState":5}"#, false),
            (r#"{"inputRequests":{"a":{}}}"#, true),
            (r#"{"inputRequests":null,"requestState":"s"}"#, true),
            (r#"{"inputRequests":{},"requestState":""}"#, true),
        ] {
            assert_eq!(MODERN.can_continue(text.as_bytes()), expected, "{text}");
        }
    }

    // Proves R079.
    #[test]
    fn server_may_request_only_declared_client_capabilities() {
        let ask = |method: &str| {
            format!(r#"{{"inputRequests":{{"a":{{"method":"{method}","params":{{}}}}}}}}"#)
        };
        let by_url = br#"{"inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","url":"https://a.example/"}}}}"#;
        assert!(!MODERN.may_ask(CapabilityClass::ELICITATION_FORM, by_url));
        assert!(MODERN.may_ask(CapabilityClass::ELICITATION_URL, by_url));
        assert!(MODERN.may_ask(CapabilityClass::ROOTS, ask("roots/list").as_bytes()));
        assert!(!MODERN.may_ask(CapabilityClass::BASE, ask("roots/list").as_bytes()));
        assert!(!MODERN.may_ask(CapabilityClass::ROOTS, ask("elicitation/create").as_bytes()));
        assert!(!MODERN.may_ask(capability_forwarding::TO_MODERN, ask("x/y").as_bytes()));
        assert!(
            MODERN.may_ask(CapabilityClass::BASE, br#"{"requestState":"s"}"#),
            "asks nothing, only to come again"
        );
    }

    #[test]
    fn weir_chooses_the_level_at_a_modern_server_with_logging() {
        let choice = LogMessages::ServerChoice;
        let info = LogMessages::From(LogLevel::Info);
        assert_eq!(MODERN.requested_logs(choice, true), info);
        assert_eq!(MODERN.requested_logs(choice, false), LogMessages::None);
        assert_eq!(LEGACY.requested_logs(choice, true), choice);
        for wanted in [LogMessages::None, LogMessages::From(LogLevel::Debug)] {
            for declares_logging in [true, false] {
                assert_eq!(MODERN.requested_logs(wanted, declares_logging), wanted);
            }
        }
    }

    #[test]
    fn only_modern_servers_have_result_types() {
        for (result, modern) in [
            (r#"{"resultType":"odd"}"#, ResultType::Unknown),
            (r#"{"resultType": "task" }"#, ResultType::Task),
            ("{}", ResultType::Complete),
        ] {
            assert_eq!(MODERN.read_result_type(result.as_bytes()), modern);
            assert_eq!(
                LEGACY.read_result_type(result.as_bytes()),
                ResultType::Complete
            );
        }
        assert_eq!(
            MODERN.parse_result_type(Some(br#" "input_required""#)),
            ResultType::InputRequired
        );
        assert_eq!(
            LEGACY.parse_result_type(Some(br#""input_required""#)),
            ResultType::Complete
        );
    }
}

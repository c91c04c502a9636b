//! The table of every method and notification of every revision.
//!
//! A row has the revisions that define the name in each direction, and the params member that the
//! `Mcp-Name` header mirrors. The table has no semantics of a method.

use std::fmt;

use crate::case_folding;
use crate::revision::Revision;

/// The method of a request that no revision defines, such as one of an extension. Its own name is
/// in the table, but exists in no revision.
pub const EXTENSION_METHOD: Method = Method::Extension;

/// The longest name of such a method, in bytes: names are kept in records and labels.
const MAX_EXTENSION_NAME: usize = 128;

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a client to a server.
    ClientToServer,
    /// From a server to a client.
    ServerToClient,
}

/// The params member that `Mcp-Name` repeats (2026-07-28, Standard headers; tasks: SEP-2663).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameSource {
    /// The method has no `Mcp-Name`.
    None,
    /// `params.name`.
    Name,
    /// `params.uri`.
    Uri,
    /// `params.taskId`.
    TaskId,
}

impl NameSource {
    /// The member's key in `params`, absent without an `Mcp-Name`.
    #[must_use]
    pub const fn member(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Name => Some("name"),
            Self::Uri => Some("uri"),
            Self::TaskId => Some("taskId"),
        }
    }
}

/// First and last revision of a method in one direction.
type RevisionSpan = Option<(Revision, Revision)>;

const R24: Revision = Revision::V2024_11_05;
const R25J: Revision = Revision::V2025_06_18;
const R25N: Revision = Revision::V2025_11_25;
const R26: Revision = Revision::V2026_07_28;
const ALWAYS: RevisionSpan = Some((R24, R26));
const LEGACY: RevisionSpan = Some((R24, R25N));
const TASKS_2025: RevisionSpan = Some((R25N, R25N));
const MODERN: RevisionSpan = Some((R26, R26));
const NEVER: RevisionSpan = None;

macro_rules! methods {
    ($($variant:ident = $name:literal, $up:expr, $down:expr;)*) => {
        /// A method or notification that some revision defines.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Method {
            /// Every method, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the method of exactly this name.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }

            /// The name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            const fn spans(self) -> (RevisionSpan, RevisionSpan) {
                match self { $(Self::$variant => ($up, $down),)* }
            }
        }
    };
}

methods! {
    Initialize = "initialize", LEGACY, NEVER;
    Initialized = "notifications/initialized", LEGACY, NEVER;
    Discover = "server/discover", MODERN, NEVER;
    Ping = "ping", LEGACY, LEGACY;
    ToolsList = "tools/list", ALWAYS, NEVER;
    ToolsCall = "tools/call", ALWAYS, NEVER;
    ResourcesList = "resources/list", ALWAYS, NEVER;
    ResourcesTemplatesList = "resources/templates/list", ALWAYS, NEVER;
    ResourcesRead = "resources/read", ALWAYS, NEVER;
    ResourcesSubscribe = "resources/subscribe", LEGACY, NEVER;
    ResourcesUnsubscribe = "resources/unsubscribe", LEGACY, NEVER;
    PromptsList = "prompts/list", ALWAYS, NEVER;
    PromptsGet = "prompts/get", ALWAYS, NEVER;
    CompletionComplete = "completion/complete", ALWAYS, NEVER;
    LoggingSetLevel = "logging/setLevel", LEGACY, NEVER;
    SubscriptionsListen = "subscriptions/listen", MODERN, NEVER;
    TasksGet = "tasks/get", Some((R25N, R26)), TASKS_2025;
    TasksResult = "tasks/result", TASKS_2025, TASKS_2025;
    TasksList = "tasks/list", TASKS_2025, TASKS_2025;
    TasksCancel = "tasks/cancel", Some((R25N, R26)), TASKS_2025;
    TasksUpdate = "tasks/update", MODERN, NEVER;
    SamplingCreateMessage = "sampling/createMessage", NEVER, LEGACY;
    ElicitationCreate = "elicitation/create", NEVER, Some((R25J, R25N));
    RootsList = "roots/list", NEVER, LEGACY;
    RootsListChanged = "notifications/roots/list_changed", LEGACY, NEVER;
    Cancelled = "notifications/cancelled", ALWAYS, ALWAYS;
    Progress = "notifications/progress", LEGACY, ALWAYS;
    LogMessage = "notifications/message", NEVER, ALWAYS;
    ToolsListChanged = "notifications/tools/list_changed", NEVER, ALWAYS;
    PromptsListChanged = "notifications/prompts/list_changed", NEVER, ALWAYS;
    ResourcesListChanged = "notifications/resources/list_changed", NEVER, ALWAYS;
    ResourcesUpdated = "notifications/resources/updated", NEVER, ALWAYS;
    SubscriptionsAcknowledged = "notifications/subscriptions/acknowledged", NEVER, MODERN;
    ElicitationComplete = "notifications/elicitation/complete", NEVER, TASKS_2025;
    TasksStatus = "notifications/tasks/status", TASKS_2025, TASKS_2025;
    Tasks = "notifications/tasks", NEVER, MODERN;
    Extension = "dev.weir/extension", NEVER, NEVER;
}

impl Method {
    /// Reports if the name is one of a notification: no id, no response.
    #[must_use]
    pub fn is_notification(self) -> bool {
        self.as_str().starts_with("notifications/")
    }

    /// Reports if `revision` defines this as a message of its own in `direction`. Messages that
    /// 2026-07-28 only embeds in `inputRequests` (sampling, elicitation, roots) do not exist there;
    /// methods of the tasks extension do.
    #[must_use]
    pub fn exists_in(self, revision: Revision, direction: Direction) -> bool {
        let (up, down) = self.spans();
        let span = match direction {
            Direction::ClientToServer => up,
            Direction::ServerToClient => down,
        };
        span.is_some_and(|(first, last)| (first..=last).contains(&revision))
    }

    /// Returns the params member that `Mcp-Name` mirrors.
    #[must_use]
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "few of the 38 methods have a name"
    )]
    pub const fn name_header(self) -> NameSource {
        match self {
            Self::ToolsCall | Self::PromptsGet => NameSource::Name,
            Self::ResourcesRead => NameSource::Uri,
            Self::TasksGet | Self::TasksUpdate | Self::TasksCancel => NameSource::TaskId,
            _ => NameSource::None,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A method's name as a peer sent it: known, or kept as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MethodName {
    /// Some revision defines it.
    Known(Method),
    /// A method that no revision defines; the unescaped text.
    Unknown(Box<str>),
}

impl MethodName {
    /// Looks the name up in the table.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Method::parse(name).map_or_else(|| Self::Unknown(name.into()), Self::Known)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(method) => method.as_str(),
            Self::Unknown(name) => name,
        }
    }

    /// The method, if some revision defines it.
    #[must_use]
    pub const fn known(&self) -> Option<Method> {
        match self {
            Self::Known(method) => Some(*method),
            Self::Unknown(_) => None,
        }
    }

    /// Returns the name if no revision defines it and it may be sent to an upstream: up to 128
    /// visible ASCII characters, and not a name of the table in other letters. An upstream that
    /// matches methods without regard to case would take `Tasks/get` for `tasks/get`.
    #[must_use]
    pub fn extension_name(&self) -> Option<&str> {
        let Self::Unknown(name) = self else {
            return None;
        };
        let is_plain = (1..=MAX_EXTENSION_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        let is_variant = || {
            Method::ALL
                .iter()
                .any(|method| case_folding::equal_folded(method.as_str(), name))
        };
        (is_plain && !is_variant()).then_some(name)
    }
}

impl From<Method> for MethodName {
    fn from(method: Method) -> Self {
        Self::Known(method)
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_case_matters() {
        for &method in Method::ALL {
            assert_eq!(Method::parse(method.as_str()), Some(method));
            assert_eq!(
                Method::parse(&method.as_str().to_uppercase()),
                None,
                "r014: {method}"
            );
        }
        assert_eq!(MethodName::new("nope/x").known(), None);
    }

    #[test]
    fn extension_methods_must_not_be_case_variants() {
        for &method in Method::ALL {
            assert_eq!(
                MethodName::new(method.as_str()).extension_name(),
                None,
                "{method}"
            );
            assert_eq!(
                MethodName::new(&method.as_str().to_uppercase()).extension_name(),
                None,
                "{method}"
            );
        }
        let long = "x".repeat(MAX_EXTENSION_NAME);
        for name in ["acme/stars", "tools/calls", "$/x", "rpc.x", &long] {
            assert_eq!(MethodName::new(name).extension_name(), Some(name));
        }
        let longer = format!("{long}x");
        for name in [
            "",
            " ",
            "a b",
            "tools/call ",
            "a\n",
            "a\u{e4}",
            "ta\u{17f}ks/get",
            &longer,
        ] {
            assert_eq!(MethodName::new(name).extension_name(), None, "{name:?}");
        }
    }

    // Proves R029.
    #[test]
    fn removed_methods_do_not_exist_in_2026() {
        let removed = [
            "initialize",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "tasks/list",
            "tasks/result",
        ];
        for name in removed {
            let method = Method::parse(name).expect("the table has it");
            assert!(
                !method.exists_in(Revision::V2026_07_28, Direction::ClientToServer),
                "{name}"
            );
            assert!(
                method.exists_in(Revision::V2025_11_25, Direction::ClientToServer),
                "{name}"
            );
        }
    }

    // Proves R040.
    #[test]
    fn no_request_from_a_server_exists_in_2026() {
        for &method in Method::ALL {
            let down = method.exists_in(Revision::V2026_07_28, Direction::ServerToClient);
            assert!(!down || method.is_notification(), "{method}");
        }
    }

    // Proves R016.
    #[test]
    fn mcp_name_mirrors_these_members() {
        let with: Vec<_> = Method::ALL
            .iter()
            .filter_map(|m| m.name_header().member().map(|member| (m.as_str(), member)))
            .collect();
        assert_eq!(
            with,
            [
                ("tools/call", "name"),
                ("resources/read", "uri"),
                ("prompts/get", "name"),
                ("tasks/get", "taskId"),
                ("tasks/cancel", "taskId"),
                ("tasks/update", "taskId"),
            ]
        );
    }
}

//! The table of every method and notification of every revision.
//!
//! A row is the name. Beside it, the table knows the params member that the `Mcp-Name` header
//! mirrors, and no other semantics of a method.

use std::fmt;

use crate::case_folding;

/// The longest name of a method that no revision defines, in bytes: records and labels keep it.
const MAX_EXTENSION_NAME: usize = 128;

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

macro_rules! methods {
    ($($variant:ident = $name:literal;)*) => {
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
        }
    };
}

methods! {
    Initialize = "initialize";
    Initialized = "notifications/initialized";
    Discover = "server/discover";
    Ping = "ping";
    ToolsList = "tools/list";
    ToolsCall = "tools/call";
    ResourcesList = "resources/list";
    ResourcesTemplatesList = "resources/templates/list";
    ResourcesRead = "resources/read";
    ResourcesSubscribe = "resources/subscribe";
    ResourcesUnsubscribe = "resources/unsubscribe";
    PromptsList = "prompts/list";
    PromptsGet = "prompts/get";
    CompletionComplete = "completion/complete";
    LoggingSetLevel = "logging/setLevel";
    SubscriptionsListen = "subscriptions/listen";
    TasksGet = "tasks/get";
    TasksResult = "tasks/result";
    TasksList = "tasks/list";
    TasksCancel = "tasks/cancel";
    TasksUpdate = "tasks/update";
    SamplingCreateMessage = "sampling/createMessage";
    ElicitationCreate = "elicitation/create";
    RootsList = "roots/list";
    RootsListChanged = "notifications/roots/list_changed";
    Cancelled = "notifications/cancelled";
    Progress = "notifications/progress";
    LogMessage = "notifications/message";
    ToolsListChanged = "notifications/tools/list_changed";
    PromptsListChanged = "notifications/prompts/list_changed";
    ResourcesListChanged = "notifications/resources/list_changed";
    ResourcesUpdated = "notifications/resources/updated";
    SubscriptionsAcknowledged = "notifications/subscriptions/acknowledged";
    ElicitationComplete = "notifications/elicitation/complete";
    TasksStatus = "notifications/tasks/status";
    Tasks = "notifications/tasks";
    // Any method that no revision defines, such as one of an extension. No revision has this name.
    Extension = "dev.weir/extension";
}

impl Method {
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

    /// Reports if it is a request of the tasks extension about one task.
    #[must_use]
    pub const fn is_about_task(self) -> bool {
        matches!(self, Self::TasksGet | Self::TasksUpdate | Self::TasksCancel)
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

//! The lists that a server may have.

use weir_wire::method::Method;

/// The lists a server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
}

impl ListKind {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// A word for metrics and logs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resource_templates",
        }
    }

    /// The method that lists it.
    #[must_use]
    pub const fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::ResourcesTemplatesList,
        }
    }

    /// The method that uses one of its items.
    #[must_use]
    pub const fn used_by(self) -> Method {
        match self {
            Self::Tools => Method::ToolsCall,
            Self::Prompts => Method::PromptsGet,
            Self::Resources | Self::Templates => Method::ResourcesRead,
        }
    }

    /// The attribute for an item's name in metrics and traces (semantic conventions for MCP). URIs
    /// have none: their number has no bound.
    #[must_use]
    pub const fn name_attribute(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some("gen_ai.tool.name"),
            Self::Prompts => Some("gen_ai.prompt.name"),
            Self::Resources | Self::Templates => None,
        }
    }

    /// The member of a list's result that holds the items.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an item that identifies it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

/// A set of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListKinds(u8);

impl ListKinds {
    /// The same with one more.
    #[must_use]
    pub const fn with(self, kind: ListKind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// True if the kind is in the set.
    #[must_use]
    pub const fn has(self, kind: ListKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// The lists that are not in the set.
    #[must_use]
    pub fn others(self) -> Self {
        ListKind::ALL
            .into_iter()
            .filter(|kind| !self.has(*kind))
            .collect()
    }

    /// The same without one.
    #[must_use]
    pub const fn without(self, kind: ListKind) -> Self {
        Self(self.0 & !(1 << kind as u8))
    }

    /// The lists that are in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The lists that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<ListKind> for ListKinds {
    fn from_iter<I: IntoIterator<Item = ListKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::default(), Self::with)
    }
}

//! The protocol revisions, and the features of each.
//!
//! Code asks a revision about a feature by name, never by comparing dates, so that a new revision
//! is one new row here. The choice of a peer's revision is made elsewhere.

use std::fmt;

/// A published revision of MCP, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05: HTTP+SSE, the first.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, batches.
    V2025_03_26,
    /// 2025-06-18: structured content, elicitation, the version header.
    V2025_06_18,
    /// 2025-11-25: tasks, URL elicitation; the last with sessions.
    V2025_11_25,
    /// 2026-07-28: no session, all context in each request.
    V2026_07_28,
}

/// An era of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// 2026-07-28 and later.
    Modern,
    /// The revisions before, with sessions.
    Legacy,
}

impl Era {
    /// The word for it in metrics and for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// The revisions that open a session with `initialize`, oldest first.
    pub const LEGACY: [Self; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];
    /// The version offered to an `initialize` for an unknown version.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;
    /// The revision without sessions.
    pub const MODERN: Self = Self::V2026_07_28;

    /// Returns the revision with exactly this date.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == text)
    }

    /// The date as it stands on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The era that it belongs to.
    #[must_use]
    pub const fn era(self) -> Era {
        match self.is_modern() {
            true => Era::Modern,
            false => Era::Legacy,
        }
    }

    /// Reports if each request carries version and capabilities in `_meta`, without a session.
    #[must_use]
    pub const fn is_modern(self) -> bool {
        matches!(self, Self::V2026_07_28)
    }

    /// Reports if a body may be a JSON array of messages (2025-03-26 alone).
    #[must_use]
    pub const fn has_batches(self) -> bool {
        matches!(self, Self::V2025_03_26)
    }

    /// Reports if events have ids, by which a client resumes a stream (2025-03-26 to 2025-11-25).
    #[must_use]
    pub const fn has_event_ids(self) -> bool {
        self.at_least(Self::V2025_03_26) && !self.is_modern()
    }

    /// Reports if clients send `MCP-Protocol-Version` (2025-06-18 and later).
    #[must_use]
    pub const fn has_version_header(self) -> bool {
        self.at_least(Self::V2025_06_18)
    }

    /// Reports if results carry `structuredContent` and tools `outputSchema` (2025-06-18 and
    /// later).
    #[must_use]
    pub const fn has_structured_content(self) -> bool {
        self.at_least(Self::V2025_06_18)
    }

    /// Reports if `structuredContent` may be any JSON value and not only an object (2026-07-28).
    #[must_use]
    pub const fn has_any_structured_content(self) -> bool {
        self.is_modern()
    }

    /// Reports if content may be of type `audio` (2025-03-26 and later).
    #[must_use]
    pub const fn has_audio(self) -> bool {
        self.at_least(Self::V2025_03_26)
    }

    /// Reports if content may be of type `resource_link` (2025-06-18 and later).
    #[must_use]
    pub const fn has_resource_link(self) -> bool {
        self.at_least(Self::V2025_06_18)
    }

    /// Reports if tools have `execution.taskSupport` (2025-11-25 alone).
    #[must_use]
    pub const fn has_execution(self) -> bool {
        matches!(self, Self::V2025_11_25)
    }

    /// Reports if clients ask for tasks by a parameter of their calls (2025-11-25 alone; later they
    /// are an extension).
    #[must_use]
    pub const fn has_task_param(self) -> bool {
        matches!(self, Self::V2025_11_25)
    }

    /// Reports if servers declare `completions` (2025-03-26 and later).
    #[must_use]
    pub const fn has_completions_capability(self) -> bool {
        self.at_least(Self::V2025_03_26)
    }

    /// Reports if `elicitation/create` exists in some form (2025-06-18 and later).
    #[must_use]
    pub const fn has_elicitation(self) -> bool {
        self.at_least(Self::V2025_06_18)
    }

    /// Reports if elicitation has modes, `url` among them (2025-11-25 and later).
    #[must_use]
    pub const fn has_elicitation_modes(self) -> bool {
        self.at_least(Self::V2025_11_25)
    }

    /// Reports if sampling has tools, and messages of several content blocks (2025-11-25 and
    /// later).
    #[must_use]
    pub const fn has_sampling_tools(self) -> bool {
        self.at_least(Self::V2025_11_25)
    }

    /// Reports if bad tool arguments are an `isError` result that the model can read, and not
    /// -32602 (2025-11-25 and later).
    #[must_use]
    pub const fn has_tool_error_for_bad_arguments(self) -> bool {
        self.at_least(Self::V2025_11_25)
    }

    /// Reports if a stream opens with an empty event that has an id, and may be polled (2025-11-25
    /// alone).
    #[must_use]
    pub const fn has_stream_polling(self) -> bool {
        matches!(self, Self::V2025_11_25)
    }

    /// Reports if an error to an unreadable request leaves `id` out instead of sending null
    /// (2025-11-25 and later).
    #[must_use]
    pub const fn has_optional_error_id(self) -> bool {
        self.at_least(Self::V2025_11_25)
    }

    /// Reports if results carry `resultType` (2026-07-28).
    #[must_use]
    pub const fn has_result_type(self) -> bool {
        self.is_modern()
    }

    /// Reports if list and read results carry `ttlMs` and `cacheScope` (2026-07-28).
    #[must_use]
    pub const fn has_cache_hints(self) -> bool {
        self.is_modern()
    }

    const fn at_least(self, other: Self) -> bool {
        self as u8 >= other as u8
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_revisions_parse() {
        for revision in Revision::ALL {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
        }
        for text in [
            "",
            "2026-07-28 ",
            "2024-10-07",
            "v999",
            "2026-07-29",
            "2026-7-28",
        ] {
            assert_eq!(Revision::parse(text), None, "{text}");
        }
    }

    #[test]
    fn order_is_by_age_and_one_is_modern() {
        assert!(Revision::ALL.is_sorted());
        assert_eq!(
            Revision::ALL
                .into_iter()
                .filter(|revision| revision.is_modern())
                .collect::<Vec<_>>(),
            [Revision::MODERN]
        );
        assert_eq!(Revision::LEGACY.last(), Some(&Revision::NEWEST_LEGACY));
    }

    // Proves R032.
    #[test]
    fn batches_belong_to_one_revision() {
        let with: Vec<_> = Revision::ALL
            .into_iter()
            .filter(|revision| revision.has_batches())
            .collect();
        assert_eq!(with, [Revision::V2025_03_26]);
    }
}

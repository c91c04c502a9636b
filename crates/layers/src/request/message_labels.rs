//! The labels of a message in metrics and spans.

use weir_wire::Era;

/// The method and the era of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageLabels {
    /// The method of the message, or else that of its HTTP request: one of a fixed set of words.
    pub method: &'static str,
    /// Absent if the era was not decided.
    pub era: Option<Era>,
}

impl MessageLabels {
    /// The labels of a request that was not decoded.
    pub(crate) const NONE: Self = Self {
        method: "none",
        era: None,
    };

    /// The labels of a message of this era.
    pub const fn of(era: Era, method: &'static str) -> Self {
        Self {
            method,
            era: Some(era),
        }
    }

    /// The label of the era.
    pub(crate) fn era_label(self) -> &'static str {
        self.era.map_or("none", Era::as_str)
    }
}

//! The refusal of a JSON text.

/// The reasons to refuse a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanErrorKind {
    /// Not UTF-8.
    #[error("the text is not valid UTF-8")]
    NotUtf8,
    /// Begins with a byte order mark.
    #[error("the text begins with a byte order mark: send JSON without it")]
    ByteOrderMark,
    /// A byte that the grammar does not allow here.
    #[error("the JSON is malformed: unexpected character")]
    Unexpected,
    /// The text stops in the middle of a value.
    #[error("the JSON is incomplete: it ends in the middle of a value")]
    UnexpectedEnd,
    /// More text follows the value.
    #[error("more text follows the JSON value: send exactly one")]
    TrailingBytes,
    /// A raw control character inside a string.
    #[error("a string holds a raw control character: escape it")]
    ControlCharacter,
    /// An escape that JSON does not have.
    #[error("a string holds an escape that JSON does not have")]
    BadEscape,
    /// A number that JSON does not have.
    #[error("a number is malformed")]
    BadNumber,
    /// A number longer than the limit.
    #[error("a number has too many digits")]
    NumberTooLong,
    /// Nested deeper than the limit.
    #[error("the JSON is nested too deeply: flatten it")]
    TooDeep,
    /// More keys and values than the limit.
    #[error("the JSON has too many keys and values: send less at once")]
    TooManyTokens,
    /// The same key twice in one object.
    #[error("an object has the same key twice: send each key once")]
    DuplicateKey,
}

impl ScanErrorKind {
    /// Reports if the text is JSON, so that the fault is a limit of weir (-32600) and not a syntax
    /// error (-32700). A number with too many digits counts as a syntax error: it may be malformed
    /// behind them.
    #[must_use]
    pub const fn is_json(self) -> bool {
        matches!(
            self,
            Self::TooDeep | Self::TooManyTokens | Self::DuplicateKey
        )
    }
}

/// A refused text: the reason and the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at byte {offset})")]
pub struct ScanError {
    /// The reason.
    pub kind: ScanErrorKind,
    /// Byte offset of the first offending byte.
    pub offset: u64,
}

//! Schemas that cannot be used.

/// The obstacle to using a schema for validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// Longer than 256 KiB.
    #[error("the schema is longer than 256 KiB")]
    TooLong,
    /// More than 5,000 values.
    #[error("the schema has more than 5,000 values")]
    TooManyNodes,
    /// Nested too deeply, or a chain of references is too long.
    #[error(
        "the schema is nested more than 32 schemas deep, or has a chain of more than 128 references"
    )]
    TooDeep,
    /// One value would be validated against more than 10,000 schemas.
    #[error("its references expand to more than 10,000 schemas for one value")]
    TooManyExpansions,
    /// A reference leads back to itself without going into the value.
    #[error("a reference leads back to itself")]
    EndlessReference,
    /// A reference leads out of the schema. No reference is fetched.
    #[error("a reference leads out of the schema, and nothing is fetched")]
    ForeignReference,
    /// A reference leads nowhere, or the schema has parts with ids of their own.
    #[error("a reference cannot be followed")]
    BrokenReference,
    /// `$schema` names a dialect weir does not know.
    #[error("its dialect is not known")]
    Dialect,
    /// A pattern is none of the linear engine, or the patterns are too large together.
    #[error(
        "a pattern needs lookaround or a back reference, or is too large for the linear engine"
    )]
    Pattern,
    /// A pattern is no regular expression of ECMA-262, nor one of the linear engine.
    #[error("a pattern is not a regular expression of ECMA-262")]
    PatternSyntax,
    /// Not a valid schema.
    #[error("it is not a valid schema")]
    Invalid,
}

impl UnusableSchema {
    /// True if no validator could use the schema; false if it is valid, but breaks a limit of weir
    /// or is in a dialect that weir does not have.
    #[must_use]
    pub(crate) fn is_fault_of_schema(self) -> bool {
        match self {
            Self::EndlessReference
            | Self::ForeignReference
            | Self::BrokenReference
            | Self::PatternSyntax
            | Self::Invalid => true,
            Self::TooLong
            | Self::TooManyNodes
            | Self::TooDeep
            | Self::TooManyExpansions
            | Self::Dialect
            | Self::Pattern => false,
        }
    }

    /// A word for metrics, one of a fixed set.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::TooManyNodes => "too_many_nodes",
            Self::TooDeep => "too_deep",
            Self::TooManyExpansions => "too_many_expansions",
            Self::EndlessReference => "endless_reference",
            Self::ForeignReference => "foreign_reference",
            Self::BrokenReference => "broken_reference",
            Self::Dialect => "dialect",
            Self::Pattern => "pattern",
            Self::PatternSyntax => "pattern_syntax",
            Self::Invalid => "invalid",
        }
    }
}

//! A requirement set of the suite, and the era of its server.

use clap::ValueEnum;

/// One requirement set with the era of its server.
#[derive(Clone, Copy)]
pub(super) struct SuiteLeg {
    pub(super) revision: &'static str,
    /// The name in the file of expected failures.
    pub(super) name: &'static str,
    /// The era of the server behind weir.
    pub(super) behind: FixtureEra,
}

impl SuiteLeg {
    /// Returns a set in front of a server of this era.
    pub(super) const fn of(revision: &'static str, name: &'static str, behind: FixtureEra) -> Self {
        Self {
            revision,
            name,
            behind,
        }
    }
}

/// The eras of the fixture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FixtureEra {
    /// Both, on one path: the suite's own demand.
    #[default]
    Both,
    Modern,
    Legacy,
}

impl FixtureEra {
    /// The value in the fixture's command line.
    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }
}

//! The files of `include`, and the version of each that is served.

use std::path::Path as FilePath;

use weir_config_file::config_report::{ConfigReport, Severity};
use weir_core::toolset::NamePattern;

/// The most errors of one file that operators are shown. The log has all of them.
const MAX_ERRORS: usize = 10;

/// A team's file, and the version of it that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamFile {
    /// Its name in the folder, such as `red.yaml`.
    pub name: String,
    /// The version of it that is served.
    pub version: TeamFileVersion,
    /// Its errors, with file, line and hint. Empty if the current version is served.
    pub errors: Vec<String>,
    /// The paths that answer 503, because no version of the file is served.
    pub unserved: Vec<NamePattern>,
}

/// The version of a team's file that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamFileVersion {
    /// The current version.
    Current,
    /// The last version without errors that this process read.
    LastGood,
    /// No version: this process never read one without errors.
    Absent,
}

impl TeamFileVersion {
    /// The versions of a file with errors.
    pub const FAULTY: [Self; 2] = [Self::LastGood, Self::Absent];

    /// Returns the name in metrics and the admin API.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::LastGood => "last_good",
            Self::Absent => "nothing",
        }
    }
}

impl TeamFile {
    /// Creates the state of a file that was read.
    pub fn new(file: &FilePath, serves: TeamFileVersion, report: &ConfigReport) -> Self {
        let name = file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let errors = match serves {
            TeamFileVersion::Current => Vec::new(),
            TeamFileVersion::LastGood | TeamFileVersion::Absent => report
                .problems()
                .iter()
                .filter(|problem| problem.severity == Severity::Error)
                .take(MAX_ERRORS)
                .map(ToString::to_string)
                .collect(),
        };
        Self {
            name,
            version: serves,
            errors,
            unserved: Vec::new(),
        }
    }

    /// Reports if the file has errors.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        self.version != TeamFileVersion::Current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_are_not_served_as_they_stand_are_faulty() {
        let labels = TeamFileVersion::FAULTY.map(TeamFileVersion::label);
        assert_eq!(labels, ["last_good", "nothing"]);
        let file = |serves| {
            TeamFile::new(
                FilePath::new("teams/red.yaml"),
                serves,
                &ConfigReport::default(),
            )
        };
        assert!(!file(TeamFileVersion::Current).is_faulty());
        assert!(
            TeamFileVersion::FAULTY
                .into_iter()
                .all(|serves| file(serves).is_faulty())
        );
        assert_eq!(file(TeamFileVersion::Current).name, "red.yaml");
    }
}

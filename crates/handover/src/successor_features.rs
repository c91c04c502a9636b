//! The features of a successor, by the line in which it says that it serves.

const SERVING_SESSIONS: &str = "serving sessions";
const SERVING_SESSIONS_AND_TASKS: &str = "serving sessions tasks";
const SERVING_ALL: &str = "serving sessions tasks requests";

/// The features that a process has as a successor, or a predecessor has for its successor. A process
/// of an older release lacks some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SuccessorFeatures {
    /// Kept tasks move.
    pub(super) tasks: bool,
    /// Requests of the predecessor's clients go on to the successor.
    pub(super) requests: bool,
}

impl SuccessorFeatures {
    /// The line of a successor that takes the sessions, and what goes beside them.
    pub(super) const fn line(self) -> &'static str {
        match self {
            Self {
                tasks: true,
                requests: true,
            } => SERVING_ALL,
            Self { tasks: true, .. } => SERVING_SESSIONS_AND_TASKS,
            Self { tasks: false, .. } => SERVING_SESSIONS,
        }
    }

    /// The features that this line names. `None` if it is not that of a successor that takes the
    /// sessions.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let flags = [(false, false), (true, false), (true, true)];
        let mut all = flags
            .into_iter()
            .map(|(tasks, requests)| Self { tasks, requests });
        all.find(|features| features.line() == line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_takes_what_its_line_names() {
        let features = |tasks, requests| Some(SuccessorFeatures { tasks, requests });
        let lines = [
            ("serving sessions", features(false, false)),
            ("serving sessions tasks", features(true, false)),
            ("serving sessions tasks requests", features(true, true)),
            ("serving", None),
            ("serving sessions tasks requests more", None),
        ];
        for (line, expected) in lines {
            let read = SuccessorFeatures::of_line(line);
            assert_eq!(read, expected, "{line}");
            assert!(read.is_none_or(|read| read.line() == line), "{line}");
        }
    }
}

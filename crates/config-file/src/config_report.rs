//! Problems of a config: the file, line and path of each, a message for its author, and a hint.

use std::fmt;

use weir_text::plain;

/// The path of a value: keys and list positions from the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigPath(Vec<String>);

impl ConfigPath {
    /// The whole document.
    pub fn root() -> Self {
        Self::default()
    }

    /// True for the whole document.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// A path of keys that need no escape, such as `auth.mode`.
    pub fn at(dotted: &str) -> Self {
        Self(dotted.split('.').map(str::to_owned).collect())
    }

    /// Returns the path with one more segment.
    #[must_use]
    pub fn key(&self, segment: impl fmt::Display) -> Self {
        let mut path = self.clone();
        path.0.push(segment.to_string());
        path
    }

    /// Returns the first `n` segments.
    pub fn first(&self, n: usize) -> Self {
        Self(self.0[..n].to_vec())
    }

    /// Returns the keys and list positions, from the root.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns the number of segments.
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    /// Reports if the path is `other` or below it.
    pub fn starts_with(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for ConfigPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, segment) in self.0.iter().enumerate() {
            let plain = segment
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-/".contains(&b));
            match (n, plain) {
                (0, true) => f.write_str(segment)?,
                (_, true) => write!(f, ".{segment}")?,
                (0, false) => write!(f, "{segment:?}")?,
                (_, false) => write!(f, ".{segment:?}")?,
            }
        }
        Ok(())
    }
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The config cannot be used.
    Error,
    /// The config is usable, but probably not as its author wants.
    Warning,
    /// The config is usable, with an effect that its author may not expect.
    Note,
}

/// One problem of a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The severity.
    pub severity: Severity,
    /// The file, as it was named. Empty for a text that did not come from a file.
    pub file: String,
    /// The line in the file, from 1. Absent if the problem concerns the whole file.
    pub line: Option<u32>,
    /// The path of the value.
    pub path: ConfigPath,
    /// The error, warning or note.
    pub message: String,
    /// The suggested remedy.
    pub hint: Option<String>,
}

impl ConfigProblem {
    /// An error about the value at `path`.
    pub fn error(path: ConfigPath, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: String::new(),
            line: None,
            path,
            message: message.into(),
            hint: None,
        }
    }

    /// A warning about the value at `path`.
    pub fn warning(path: ConfigPath, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(path, message)
        }
    }

    /// A remark about the value at `path`.
    pub fn note(path: ConfigPath, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Note,
            ..Self::error(path, message)
        }
    }

    /// Adds the suggested remedy.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ConfigProblem {
    /// Control characters of the file's text are escaped, so that it cannot steer a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        if !self.file.is_empty() {
            f.write_str(&plain(&self.file))?;
            f.write_str(":")?;
        }
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if !self.file.is_empty() || self.line.is_some() {
            f.write_str(" ")?;
        }
        write!(f, "{severity}: ")?;
        if !self.path.is_root() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&plain(&self.message))?;
        if let Some(hint) = &self.hint {
            write!(f, " ({})", plain(hint))?;
        }
        Ok(())
    }
}

/// All problems of a config, in the order of its files and lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigReport {
    problems: Vec<ConfigProblem>,
}

impl ConfigReport {
    /// Returns all problems.
    #[must_use]
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// True if the config cannot be used.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.severity == Severity::Error)
    }

    /// Reports if there is an error at or below `path`, so that "it is missing" would add no
    /// information.
    pub fn has_error_under(&self, path: &ConfigPath) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.severity == Severity::Error && problem.path.starts_with(path))
    }

    /// Adds a problem.
    pub fn add(&mut self, problem: ConfigProblem) {
        self.problems.push(problem);
    }

    /// Appends the problems of another report.
    pub fn append(&mut self, mut other: Self) {
        self.problems.append(&mut other.problems);
    }

    /// Sets the line of every problem that has no file yet, from its path.
    pub fn set_lines(&mut self, line_of: impl Fn(&ConfigPath) -> u32) {
        for problem in &mut self.problems {
            if problem.file.is_empty() && !problem.path.is_root() && problem.line.is_none() {
                problem.line = Some(line_of(&problem.path)).filter(|&line| line > 0);
            }
        }
    }

    /// Replaces paths in the tree by paths in the file. The longest alias of a path counts.
    pub fn apply_aliases(&mut self, aliases: &[(ConfigPath, ConfigPath)]) {
        for problem in &mut self.problems {
            let fitting = aliases
                .iter()
                .filter(|(from, _)| problem.path.starts_with(from));
            if let Some((from, to)) = fitting.max_by_key(|(from, _)| from.depth()) {
                let rest = problem
                    .path
                    .segments()
                    .skip(from.depth())
                    .map(str::to_owned)
                    .collect::<Vec<_>>();
                problem.path = rest
                    .iter()
                    .fold(to.clone(), |path, segment| path.key(segment));
            }
        }
    }

    /// Sets line and file of every problem that has no file yet. Then sorts by file and line.
    pub fn set_file(&mut self, file: &str, line_of: impl Fn(&ConfigPath) -> u32) {
        self.set_lines(line_of);
        for problem in self
            .problems
            .iter_mut()
            .filter(|problem| problem.file.is_empty())
        {
            file.clone_into(&mut problem.file);
        }
        self.problems
            .sort_by(|a, b| (&a.file, a.line, &a.path).cmp(&(&b.file, b.line, &b.path)));
    }
}

impl fmt::Display for ConfigReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigReport {}

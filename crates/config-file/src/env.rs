//! Fills in `${NAME}` and `${file:PATH}` in a config's values, from the environment and from files,
//! before any check. The servers of other programs may also have those programs' forms, such as
//! `${env:NAME}` and `${input:ID}`.

pub mod reference;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path as FilePath, PathBuf};

use crate::config_files::{self, FilesFingerprint};
use crate::config_report::{ConfigPath, ConfigReport};
use crate::config_tree::{ConfigNode, NodeValue};
pub use reference::{EnvReference, ReferenceError, ReferenceSyntax, WORKSPACE, is_variable};
use reference::{ReferenceLookup, expand};

/// The lookup of environment variables. Tests pass their own.
pub type Environment<'a> = &'a (dyn Fn(&str) -> Option<String> + Send + Sync);

/// The values of other programs' references that are not environment variables.
#[derive(Debug, Default)]
pub struct ReferenceValues {
    /// The folder of the project that the file belongs to.
    pub project: Option<PathBuf>,
    /// The values of `${input:ID}`, or the reason for a missing one.
    pub answers: HashMap<String, Result<String, ReferenceError>>,
}

/// Fills in every `${NAME}` and `${file:PATH}` in the tree's texts. An unset variable is an error,
/// unless the text has a default (`${NAME:-default}`). `$${` stands for `${`. Returns the files
/// that were named, each read once.
pub fn fill_in(
    node: &mut ConfigNode,
    environment: Environment<'_>,
    values: &ReferenceValues,
    report: &mut ConfigReport,
) -> SecretFiles {
    let files = RefCell::new(SecretFiles::default());
    let lookup = |reference: EnvReference<'_>| match reference {
        EnvReference::File(file) => files
            .borrow_mut()
            .get(file)
            .map_err(|why| ReferenceError::File(file.to_owned(), why)),
        EnvReference::Input(id) => values
            .answers
            .get(id)
            .cloned()
            .unwrap_or_else(|| Err(ReferenceError::NoInput(id.to_owned()))),
        EnvReference::Workspace => workspace(environment, values),
        EnvReference::WorkspaceName => workspace(environment, values).map(|folder| {
            FilePath::new(&folder)
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        }),
        EnvReference::Separator => Ok(std::path::MAIN_SEPARATOR.to_string()),
        EnvReference::Variable { name, default } => {
            let value = environment(name).or_else(|| default.map(str::to_owned));
            value.ok_or_else(|| ReferenceError::Unset(name.to_owned()))
        }
    };
    fill_all(node, &lookup, report);
    files.into_inner()
}

fn workspace(
    environment: Environment<'_>,
    values: &ReferenceValues,
) -> Result<String, ReferenceError> {
    let project = || {
        values
            .project
            .as_ref()
            .and_then(|folder| folder.to_str())
            .map(str::to_owned)
    };
    environment(WORKSPACE)
        .or_else(project)
        .ok_or(ReferenceError::NoWorkspace)
}

/// The files of `${file:PATH}`, each with its text.
#[derive(Debug, Default)]
pub struct SecretFiles(BTreeMap<PathBuf, Result<String, String>>);

impl SecretFiles {
    fn get(&mut self, file: &str) -> Result<String, String> {
        self.0
            .entry(PathBuf::from(file))
            .or_insert_with(|| secret_file(file))
            .clone()
    }

    /// Reads the same files again.
    pub fn reread(&self) -> Self {
        let read = |file: &PathBuf| {
            (
                file.clone(),
                file.to_str()
                    .map_or_else(|| Err(String::new()), secret_file),
            )
        };
        Self(self.0.keys().map(read).collect())
    }

    /// Returns the paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &FilePath> {
        self.0
            .keys()
            .filter(|file| file.is_absolute())
            .map(PathBuf::as_path)
    }

    /// Adds their paths and texts to a fingerprint.
    pub fn add_to(&self, fingerprint: &mut FilesFingerprint) {
        for (file, text) in &self.0 {
            fingerprint.add_bytes(file.as_os_str().as_encoded_bytes());
            fingerprint.add_bytes(text.as_ref().unwrap_or_else(|why| why).as_bytes());
        }
    }
}

/// The variables that a team's file may name.
pub struct GrantedVariables<'a> {
    /// Reports if a variable is granted.
    pub contains: &'a dyn Fn(&str) -> bool,
    /// The path of the right in the main file.
    pub right: ConfigPath,
}

impl fmt::Debug for GrantedVariables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantedVariables")
            .field("right", &self.right)
            .finish_non_exhaustive()
    }
}

/// Fills in the references of a team's file. A variable without a grant is not looked up, and no
/// file is read.
pub fn fill_in_granted(
    node: &mut ConfigNode,
    granted: &GrantedVariables<'_>,
    environment: Environment<'_>,
    report: &mut ConfigReport,
) {
    let lookup = |reference: EnvReference<'_>| {
        let (name, default) = match reference {
            EnvReference::Variable { name, default } => (name, default),
            EnvReference::Separator => return Ok(std::path::MAIN_SEPARATOR.to_string()),
            EnvReference::File(_) => return Err(ReferenceError::FileOfTeam),
            EnvReference::Input(_) | EnvReference::Workspace | EnvReference::WorkspaceName => {
                return Err(ReferenceError::OfMainFile);
            }
        };
        if !(granted.contains)(name) {
            return Err(ReferenceError::NotGranted(
                name.to_owned(),
                granted.right.clone(),
            ));
        }
        environment(name)
            .or_else(|| default.map(str::to_owned))
            .ok_or_else(|| ReferenceError::Unset(name.to_owned()))
    };
    fill_all(node, &lookup, report);
}

/// Returns the secret in a file, without the newline at its end.
fn secret_file(file: &str) -> Result<String, String> {
    let file = FilePath::new(file);
    if !file.is_absolute() {
        return Err("is not an absolute path".to_owned());
    }
    let text = config_files::read(file).map_err(|problem| problem.message)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Fills in a whole tree. Equal failures of a reference become one error, at the first place in the
/// tree.
fn fill_all(node: &mut ConfigNode, lookup: ReferenceLookup<'_>, report: &mut ConfigReport) {
    let mut failed = Vec::new();
    fill(
        node,
        &ConfigPath::root(),
        ReferenceSyntax::Own,
        lookup,
        &mut failed,
    );
    while !failed.is_empty() {
        let (error, path) = failed.remove(0);
        let (same, others) = failed
            .into_iter()
            .partition::<Vec<_>, _>(|(other, _)| *other == error);
        failed = others;
        let mut problem = error.into_problem(&path);
        if !same.is_empty() {
            let places: Vec<String> = same.iter().map(|(_, path)| path.to_string()).collect();
            problem.message = format!("{}, here and in {}", problem.message, places.join(", "));
        }
        report.add(problem);
    }
}

/// References without a value, with their paths.
type FailedReferences = Vec<(ReferenceError, ConfigPath)>;

fn fill(
    node: &mut ConfigNode,
    path: &ConfigPath,
    dialect: ReferenceSyntax,
    lookup: ReferenceLookup<'_>,
    failed: &mut FailedReferences,
) {
    match &mut node.value {
        NodeValue::Text(text) if text.text.contains("${") => {
            match expand(&text.text, dialect, lookup) {
                Ok((filled, from_env)) => {
                    text.text = filled;
                    text.from_env = from_env;
                }
                Err(error) => {
                    failed.push((error, path.clone()));
                    // Its value is unknown, so it gets no further message.
                    node.value = NodeValue::Unset;
                }
            }
        }
        NodeValue::List(items) => {
            for (n, item) in items.iter_mut().enumerate() {
                fill(item, &path.key(n), dialect, lookup, failed);
            }
        }
        NodeValue::Map(entries) => {
            for (key, entry) in entries {
                // Servers of other programs use those programs' references.
                let dialect = if path.is_root() && key == "mcpServers" {
                    ReferenceSyntax::Servers
                } else {
                    dialect
                };
                fill(entry, &path.key(key), dialect, lookup, failed);
            }
        }
        NodeValue::Null
        | NodeValue::Unset
        | NodeValue::Bool(_)
        | NodeValue::Integer(_)
        | NodeValue::Float(_)
        | NodeValue::Text(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_may_be_in_a_plain_file() {
        let file = std::env::temp_dir().join(format!("weir-secret-{}", std::process::id()));
        std::fs::write(&file, "a b\r\n").expect("a file can be written");
        let found = secret_file(&file.display().to_string());
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(found, Ok("a b".to_owned()));
        for (file, why) in [
            ("secret", "is not an absolute path"),
            ("/dev/zero", "is not a regular file"),
            ("/nowhere/at/all", "cannot be read"),
        ] {
            assert!(
                secret_file(file).is_err_and(|said| said.contains(why)),
                "{file}"
            );
        }
    }
}

//! The grammar of `${...}`.

use crate::config_report::{ConfigPath, ConfigProblem};

/// The variable for `${workspaceFolder}`.
pub const WORKSPACE: &str = "WEIR_WORKSPACE_FOLDER";

/// The lookup of a reference's value.
pub(crate) type ReferenceLookup<'a> =
    &'a dyn Fn(EnvReference<'_>) -> Result<String, ReferenceError>;

/// The set of references that a text may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceSyntax {
    /// weir's own: `${NAME}`, `${NAME:-default}`, `${file:PATH}`.
    Own,
    /// weir's own, and those of other programs' servers: `${env:NAME}`, `${input:ID}`,
    /// `${userHome}`, `${workspaceFolder}` and others.
    Servers,
}

/// A source that `${...}` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvReference<'a> {
    /// An environment variable, with the text to use if it is not set.
    Variable {
        /// The name of the variable.
        name: &'a str,
        /// The text to use if it is not set.
        default: Option<&'a str>,
    },
    /// A file with a secret.
    File(&'a str),
    /// An entry of the file's `inputs`.
    Input(&'a str),
    /// The folder of the project.
    Workspace,
    /// The last part of the project's folder.
    WorkspaceName,
    /// The path separator.
    Separator,
}

impl<'a> EnvReference<'a> {
    fn parse(inside: &'a str, dialect: ReferenceSyntax) -> Result<Self, ReferenceError> {
        if let Some(file) = inside.strip_prefix("file:") {
            return Ok(Self::File(file));
        }
        let inside = match (dialect, inside) {
            (ReferenceSyntax::Servers, "userHome") => {
                return Ok(Self::Variable {
                    name: "HOME",
                    default: None,
                });
            }
            (ReferenceSyntax::Servers, "workspaceFolder") => return Ok(Self::Workspace),
            (ReferenceSyntax::Servers, "workspaceFolderBasename") => {
                return Ok(Self::WorkspaceName);
            }
            (ReferenceSyntax::Servers, "pathSeparator" | "/") => return Ok(Self::Separator),
            (ReferenceSyntax::Servers, _) => match inside.strip_prefix("input:") {
                Some(id) => return Ok(Self::Input(id)),
                None => inside.strip_prefix("env:").unwrap_or(inside),
            },
            (ReferenceSyntax::Own, _) => inside,
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        // A reference ends at the first `}`, so the rest of such a default would be lost.
        if default.is_some_and(|default| default.contains("${")) {
            return Err(ReferenceError::Nested(name.chars().take(40).collect()));
        }
        if is_variable(name) {
            return Ok(Self::Variable { name, default });
        }
        Err(ReferenceError::Name(inside.chars().take(40).collect()))
    }
}

/// Reports if an environment variable may have this name.
pub fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The reason why a reference has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceError {
    /// The variable of this name is not set.
    Unset(String),
    /// The name, and the path in the main file that could grant it.
    NotGranted(String, ConfigPath),
    /// The file, and the reason for the failure.
    File(String, String),
    /// A file in a team's file, which may name none.
    FileOfTeam,
    /// Another reference that teams' files may not have.
    OfMainFile,
    /// No project is known for the workspace folder.
    NoWorkspace,
    /// No input has this id.
    NoInput(String),
    /// An input has no value: its id, its variable, and the reason.
    Unanswered(String, String, &'static str),
    /// The name of a variable is not valid.
    Name(String),
    /// The default of the variable of this name has a reference.
    Nested(String),
    /// The reference has no closing brace.
    Open,
}

impl ReferenceError {
    /// Converts the error to a problem at a path of the config.
    pub fn into_problem(self, path: &ConfigPath) -> ConfigProblem {
        let path = path.clone();
        match self {
            Self::Unset(name) => {
                ConfigProblem::error(path, format!("environment variable {name} is not set"))
                    .hint("set it where weir starts, or write $${ for a plain ${")
            }
            Self::NotGranted(name, place) => ConfigProblem::error(
                path,
                format!("{name} is a variable that the main file does not grant to this file"),
            )
            .hint(format!(
                "see {place} in the main file, or write $${{ for a plain ${{"
            )),
            Self::File(file, why) => {
                ConfigProblem::error(path, format!("`${{file:{file}}}` {why}"))
                    .hint("write the absolute path of a file that weir's user can read")
            }
            Self::FileOfTeam => {
                ConfigProblem::error(path, "`${file:..}` is for the main file alone")
                    .hint("write ${NAME} with a granted variable")
            }
            Self::OfMainFile => {
                ConfigProblem::error(path, "this reference is for the main file alone")
                    .hint("write ${NAME} with a granted variable")
            }
            Self::NoWorkspace => ConfigProblem::error(
                path,
                "`${workspaceFolder}` is the folder that an editor has open, and weir has none",
            )
            .hint(format!(
                "set {} where weir starts, or write the path",
                WORKSPACE
            )),
            Self::NoInput(id) => {
                ConfigProblem::error(path, format!("no entry of `inputs` has the id `{id}`")).hint(
                    "write ${NAME} for an environment variable; files of VS Code have `inputs`",
                )
            }
            Self::Unanswered(id, variable, why) => {
                ConfigProblem::error(path, format!("`${{input:{id}}}` has no value: {why}")).hint(
                    format!("set the environment variable {variable} where weir starts"),
                )
            }
            Self::Name(name) => ConfigProblem::error(
                path,
                format!("`${{{name}}}` is not the name of an environment variable"),
            )
            .hint("write ${NAME} with letters, digits and _, or $${ for a plain ${"),
            Self::Nested(name) => ConfigProblem::error(
                path,
                format!("the default in `${{{name}:-..}}` has a reference itself"),
            )
            .hint("write a text as the default, or set the variable where weir starts"),
            Self::Open => ConfigProblem::error(path, "`${` without its `}`")
                .hint("write ${NAME}, or $${ for a plain ${"),
        }
    }
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPiece<'a> {
    /// Text that stands for itself.
    Plain(&'a str),
    /// A reference.
    Reference(EnvReference<'a>),
}

/// Splits a text into its parts.
///
/// # Errors
/// A reference is malformed.
pub fn pieces(text: &str, dialect: ReferenceSyntax) -> Result<Vec<TextPiece<'_>>, ReferenceError> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            all.extend([TextPiece::Plain(escaped), TextPiece::Plain("${")]);
            rest = after;
            continue;
        }
        let (inside, after) = after.split_once('}').ok_or(ReferenceError::Open)?;
        all.extend([
            TextPiece::Plain(before),
            TextPiece::Reference(EnvReference::parse(inside, dialect)?),
        ]);
        rest = after;
    }
    all.push(TextPiece::Plain(rest));
    all.retain(|piece| *piece != TextPiece::Plain(""));
    Ok(all)
}

/// Returns the text with the values of its references. The flag is true if it had any.
pub(crate) fn expand(
    text: &str,
    dialect: ReferenceSyntax,
    lookup: ReferenceLookup<'_>,
) -> Result<(String, bool), ReferenceError> {
    let mut filled = String::with_capacity(text.len());
    let mut from_env = false;
    for piece in pieces(text, dialect)? {
        match piece {
            TextPiece::Plain(text) => filled.push_str(text),
            TextPiece::Reference(reference) => {
                filled.push_str(&lookup(reference)?);
                from_env = true;
            }
        }
    }
    Ok((filled, from_env))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(reference: EnvReference<'_>) -> Result<String, ReferenceError> {
        match reference {
            EnvReference::Variable { name: "HOME_1", .. } => Ok("/root/${X}".to_owned()),
            EnvReference::Variable { name, default } => default
                .map(str::to_owned)
                .ok_or_else(|| ReferenceError::Unset(name.to_owned())),
            EnvReference::File(file) => Ok(format!("in {file}")),
            EnvReference::Input(_)
            | EnvReference::Workspace
            | EnvReference::WorkspaceName
            | EnvReference::Separator => Ok(format!("<{reference:?}>")),
        }
    }

    #[test]
    fn variables_are_filled_in_once_and_escapes_stay() {
        let filled = |text: &str| expand(text, ReferenceSyntax::Own, &set);
        assert_eq!(filled("plain $5 {x}"), Ok(("plain $5 {x}".into(), false)));
        assert_eq!(
            filled("a${HOME_1}b${HOME_1}"),
            Ok(("a/root/${X}b/root/${X}".into(), true))
        );
        assert_eq!(filled("$${HOME_1}"), Ok(("${HOME_1}".into(), false)));
        assert_eq!(
            filled("${NOT_SET}"),
            Err(ReferenceError::Unset("NOT_SET".into()))
        );
        assert_eq!(
            filled("${NOT_SET:-a:-b}${HOME_1:-x}"),
            Ok(("a:-b/root/${X}".into(), true))
        );
        assert_eq!(filled("${NOT_SET:-}"), Ok((String::new(), true)));
        assert_eq!(
            filled("${input:key}"),
            Err(ReferenceError::Name("input:key".into()))
        );
        assert_eq!(
            filled("${env:HOME_1}"),
            Err(ReferenceError::Name("env:HOME_1".into()))
        );
        assert_eq!(
            filled("x${file:/run/a b}y"),
            Ok(("xin /run/a by".into(), true))
        );
        assert_eq!(filled("${}"), Err(ReferenceError::Name(String::new())));
        assert_eq!(filled("x${HOME_1"), Err(ReferenceError::Open));
        assert_eq!(
            filled("${NOT_SET:-${HOME_1}}"),
            Err(ReferenceError::Nested("NOT_SET".into()))
        );
    }

    #[test]
    fn servers_of_other_programs_have_those_programs_references() {
        let filled =
            |text: &str| expand(text, ReferenceSyntax::Servers, &set).map(|(text, _)| text);
        assert_eq!(filled("${env:HOME_1}"), Ok("/root/${X}".into()));
        assert_eq!(filled("${env:NOT_SET:-x}"), Ok("x".into()));
        assert_eq!(
            filled("${userHome}"),
            Err(ReferenceError::Unset("HOME".into()))
        );
        assert_eq!(filled("${input:a-b}"), Ok("<Input(\"a-b\")>".into()));
        assert_eq!(
            filled("${workspaceFolder}${/}x"),
            Ok("<Workspace><Separator>x".into())
        );
        assert_eq!(
            filled("${command:pick}"),
            Err(ReferenceError::Name("command:pick".into()))
        );
    }
}

//! The grammar of `${...}`.

use super::super::report::{Path, Problem};
use super::Lookup;

/// The references that a text may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// weir's own: `${NAME}`, `${NAME:-default}`, `${file:PATH}`.
    Own,
    /// Those of other programs' servers, too: `${env:NAME}`, `${input:ID}`, `${userHome}`, `${workspaceFolder}` and others.
    Servers,
}

/// A source that `${...}` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference<'a> {
    /// An environment variable, and the text where it is not set.
    Variable {
        /// Its name.
        name: &'a str,
        /// The text that stands for it where it is not set.
        default: Option<&'a str>,
    },
    /// A file with a secret.
    File(&'a str),
    /// An input of the file.
    Input(&'a str),
    /// The folder of the project.
    Workspace,
    /// The last part of that.
    WorkspaceName,
    /// The separator of folders.
    Separator,
}

impl<'a> Reference<'a> {
    fn parse(inside: &'a str, dialect: Dialect) -> Result<Self, Bad> {
        if let Some(file) = inside.strip_prefix("file:") {
            return Ok(Self::File(file));
        }
        let inside = match (dialect, inside) {
            (Dialect::Servers, "userHome") => return Ok(Self::Variable { name: "HOME", default: None }),
            (Dialect::Servers, "workspaceFolder") => return Ok(Self::Workspace),
            (Dialect::Servers, "workspaceFolderBasename") => return Ok(Self::WorkspaceName),
            (Dialect::Servers, "pathSeparator" | "/") => return Ok(Self::Separator),
            (Dialect::Servers, _) => match inside.strip_prefix("input:") {
                Some(id) => return Ok(Self::Input(id)),
                None => inside.strip_prefix("env:").unwrap_or(inside),
            },
            (Dialect::Own, _) => inside,
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if is_variable(name) {
            return Ok(Self::Variable { name, default });
        }
        Err(Bad::Name(inside.chars().take(40).collect()))
    }
}

/// Returns true for a name that an environment variable may have.
pub(crate) fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The reason why a reference has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    Unset(String),
    /// The name, and the place in the main file that could grant it.
    NotGranted(String, Path),
    /// The file, and why it has no secret.
    File(String, String),
    FileOfTeam,
    /// Another reference that teams' files do not have.
    OfMainFile,
    NoWorkspace,
    /// No input has this id.
    NoInput(String),
    /// An input has no value: its id, its variable, and the reason.
    Unanswered(String, String, &'static str),
    Name(String),
    Open,
}

impl Bad {
    /// The error at a place of the config.
    pub(crate) fn into_problem(self, path: &Path) -> Problem {
        let path = path.clone();
        match self {
            Self::Unset(name) => Problem::error(path, format!("environment variable {name} is not set"))
                .hint("set it where weir starts, or write $${ for a plain ${"),
            Self::NotGranted(name, place) => {
                Problem::error(path, format!("{name} is a variable that the main file does not grant to this one"))
                    .hint(format!("see {place} in the main file, or write $${{ for a plain ${{"))
            }
            Self::File(file, why) => Problem::error(path, format!("`${{file:{file}}}` {why}"))
                .hint("write the absolute path of a file that weir's user can read"),
            Self::FileOfTeam => Problem::error(path, "`${file:..}` is for the main file alone")
                .hint("write ${NAME} with a granted variable"),
            Self::OfMainFile => Problem::error(path, "this reference is for the main file alone")
                .hint("write ${NAME} with a granted variable"),
            Self::NoWorkspace => {
                Problem::error(path, "`${workspaceFolder}` is the folder that an editor has open, and weir has none")
                    .hint(format!("set {} where weir starts, or write the path", super::WORKSPACE))
            }
            Self::NoInput(id) => Problem::error(path, format!("no entry of `inputs` has the id `{id}`"))
                .hint("add it to `inputs`, or write ${NAME} for an environment variable"),
            Self::Unanswered(id, variable, why) => {
                Problem::error(path, format!("`${{input:{id}}}` has no value: {why}"))
                    .hint(format!("set the environment variable {variable} where weir starts"))
            }
            Self::Name(name) => Problem::error(path, format!("`${{{name}}}` names no environment variable"))
                .hint("write ${NAME} with letters, digits and _, or $${ for a plain ${"),
            Self::Open => Problem::error(path, "`${` without its `}`").hint("write ${NAME}, or $${ for a plain ${"),
        }
    }
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Text that stands for itself.
    Plain(&'a str),
    /// A reference.
    Reference(Reference<'a>),
}

/// The parts of a text.
///
/// # Errors
/// A reference is no reference.
pub(crate) fn pieces(text: &str, dialect: Dialect) -> Result<Vec<Piece<'_>>, Bad> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            all.extend([Piece::Plain(escaped), Piece::Plain("${")]);
            rest = after;
            continue;
        }
        let (inside, after) = after.split_once('}').ok_or(Bad::Open)?;
        all.extend([Piece::Plain(before), Piece::Reference(Reference::parse(inside, dialect)?)]);
        rest = after;
    }
    all.push(Piece::Plain(rest));
    all.retain(|piece| *piece != Piece::Plain(""));
    Ok(all)
}

/// The text with the values of its references; the flag is true if it had any.
pub(super) fn expand(text: &str, dialect: Dialect, lookup: Lookup<'_>) -> Result<(String, bool), Bad> {
    let mut filled = String::with_capacity(text.len());
    let mut from_env = false;
    for piece in pieces(text, dialect)? {
        match piece {
            Piece::Plain(text) => filled.push_str(text),
            Piece::Reference(reference) => {
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

    fn set(reference: Reference<'_>) -> Result<String, Bad> {
        match reference {
            Reference::Variable { name: "HOME_1", .. } => Ok("/root/${X}".to_owned()),
            Reference::Variable { name, default } => {
                default.map(str::to_owned).ok_or_else(|| Bad::Unset(name.to_owned()))
            }
            Reference::File(file) => Ok(format!("in {file}")),
            other => Ok(format!("<{other:?}>")),
        }
    }

    #[test]
    fn variables_are_filled_in_once_and_escapes_stay() {
        let filled = |text: &str| expand(text, Dialect::Own, &set);
        assert_eq!(filled("plain $5 {x}"), Ok(("plain $5 {x}".into(), false)));
        assert_eq!(filled("a${HOME_1}b${HOME_1}"), Ok(("a/root/${X}b/root/${X}".into(), true)));
        assert_eq!(filled("$${HOME_1}"), Ok(("${HOME_1}".into(), false)));
        assert_eq!(filled("${NOT_SET}"), Err(Bad::Unset("NOT_SET".into())));
        assert_eq!(filled("${NOT_SET:-a:-b}${HOME_1:-x}"), Ok(("a:-b/root/${X}".into(), true)));
        assert_eq!(filled("${NOT_SET:-}"), Ok((String::new(), true)));
        assert_eq!(filled("${input:key}"), Err(Bad::Name("input:key".into())));
        assert_eq!(filled("${env:HOME_1}"), Err(Bad::Name("env:HOME_1".into())));
        assert_eq!(filled("x${file:/run/a b}y"), Ok(("xin /run/a by".into(), true)));
        assert_eq!(filled("${}"), Err(Bad::Name(String::new())));
        assert_eq!(filled("x${HOME_1"), Err(Bad::Open));
    }

    #[test]
    fn servers_of_other_programs_have_those_programs_references() {
        let filled = |text: &str| expand(text, Dialect::Servers, &set).map(|(text, _)| text);
        assert_eq!(filled("${env:HOME_1}"), Ok("/root/${X}".into()));
        assert_eq!(filled("${env:NOT_SET:-x}"), Ok("x".into()));
        assert_eq!(filled("${userHome}"), Err(Bad::Unset("HOME".into())));
        assert_eq!(filled("${input:a-b}"), Ok("<Input(\"a-b\")>".into()));
        assert_eq!(filled("${workspaceFolder}${/}x"), Ok("<Workspace><Separator>x".into()));
        assert_eq!(filled("${command:pick}"), Err(Bad::Name("command:pick".into())));
    }
}

//! `${NAME}` and `${file:PATH}` in a config's values: filled in from the environment and from files, before anything is checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};

use super::check::TeamGrant;
use super::files::{self, Fingerprint};
use super::report::{Path, Problem, Report};
use super::tree::{Node, Value};

/// Where variables come from; tests bring their own.
pub type Environment<'a> = &'a (dyn Fn(&str) -> Option<String> + Send + Sync);

/// Fills in every `${NAME}` and `${file:PATH}` of the tree's texts. A variable that is not set is an error; `$${` stands for `${`. Gives
/// the files that were named, each of which was read once.
pub(crate) fn fill_in(node: &mut Node, path: &Path, environment: Environment<'_>, report: &mut Report) -> SecretFiles {
    let files = RefCell::new(SecretFiles::default());
    let lookup = |reference: Reference<'_>| match reference {
        Reference::Variable(name) => environment(name).ok_or_else(|| Bad::Unset(name.to_owned())),
        Reference::File(file) => files.borrow_mut().get(file).map_err(|why| Bad::File(file.to_owned(), why)),
    };
    fill(node, path, &lookup, report);
    files.into_inner()
}

/// The files of `${file:PATH}`, and what each said.
#[derive(Debug, Default)]
pub(crate) struct SecretFiles(BTreeMap<PathBuf, Result<String, String>>);

impl SecretFiles {
    fn get(&mut self, file: &str) -> Result<String, String> {
        self.0.entry(PathBuf::from(file)).or_insert_with(|| secret_file(file)).clone()
    }

    /// What the same files say now.
    pub(crate) fn read_again(&self) -> Self {
        let read = |file: &PathBuf| (file.clone(), file.to_str().map_or_else(|| Err(String::new()), secret_file));
        Self(self.0.keys().map(read).collect())
    }

    /// The files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &FilePath> {
        self.0.keys().filter(|file| file.is_absolute()).map(PathBuf::as_path)
    }

    /// Adds what they say to a fingerprint.
    pub(crate) fn say(&self, said: &mut Fingerprint) {
        for (file, text) in &self.0 {
            said.part(file.as_os_str().as_encoded_bytes());
            said.part(text.as_ref().unwrap_or_else(|why| why).as_bytes());
        }
    }
}

/// The same for a team's file: a variable that is not granted is not looked up, whether it is set or not, and no file is.
pub(crate) fn fill_in_granted(node: &mut Node, grant: &TeamGrant, environment: Environment<'_>, report: &mut Report) {
    let lookup = |reference: Reference<'_>| {
        let Reference::Variable(name) = reference else { return Err(Bad::FileOfTeam) };
        if !grant.has_variable(name) {
            return Err(Bad::NotGranted(name.to_owned(), grant.place("env")));
        }
        environment(name).ok_or_else(|| Bad::Unset(name.to_owned()))
    };
    fill(node, &Path::root(), &lookup, report);
}

/// The secret in a file, without the newline at its end.
fn secret_file(file: &str) -> Result<String, String> {
    let file = FilePath::new(file);
    if !file.is_absolute() {
        return Err("is no absolute path".to_owned());
    }
    // A pipe would be waited for.
    if file.metadata().is_ok_and(|found| !found.is_file()) {
        return Err("is no plain file".to_owned());
    }
    let text = files::read(file).map_err(|problem| problem.message)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// A source that `${...}` names.
#[derive(Clone, Copy)]
enum Reference<'a> {
    Variable(&'a str),
    File(&'a str),
}

impl<'a> Reference<'a> {
    fn parse(name: &'a str) -> Result<Self, Bad> {
        if let Some(file) = name.strip_prefix("file:") {
            return Ok(Self::File(file));
        }
        let mut bytes = name.bytes();
        let legal = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
        legal.then_some(Self::Variable(name)).ok_or_else(|| Bad::Name(name.chars().take(40).collect()))
    }
}

type Lookup<'a> = &'a dyn Fn(Reference<'_>) -> Result<String, Bad>;

fn fill(node: &mut Node, path: &Path, lookup: Lookup<'_>, report: &mut Report) {
    match &mut node.value {
        Value::Text(text) if text.text.contains("${") => match expand(&text.text, lookup) {
            Ok((filled, from_env)) => {
                text.text = filled;
                text.from_env = from_env;
            }
            Err(problem) => {
                report.add(problem.into_problem(path));
                // What is to come of it is unknown, so nothing more is said about it.
                node.value = Value::Unset;
            }
        },
        Value::List(items) => {
            for (n, item) in items.iter_mut().enumerate() {
                fill(item, &path.key(n), lookup, report);
            }
        }
        Value::Map(entries) => {
            for (key, entry) in entries {
                fill(entry, &path.key(key), lookup, report);
            }
        }
        _ => {}
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Bad {
    Unset(String),
    /// The name, and the place in the main file that could grant it.
    NotGranted(String, Path),
    /// The file, and why it has no secret.
    File(String, String),
    FileOfTeam,
    Name(String),
    Open,
}

impl Bad {
    fn into_problem(self, path: &Path) -> Problem {
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
            Self::Name(name) => Problem::error(path, format!("`${{{name}}}` names no environment variable"))
                .hint("write ${NAME} with letters, digits and _, or $${ for a plain ${"),
            Self::Open => Problem::error(path, "`${` without its `}`").hint("write ${NAME}, or $${ for a plain ${"),
        }
    }
}

fn expand(text: &str, lookup: Lookup<'_>) -> Result<(String, bool), Bad> {
    let mut filled = String::with_capacity(text.len());
    let mut from_env = false;
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            filled.push_str(escaped);
            filled.push_str("${");
            rest = after;
            continue;
        }
        filled.push_str(before);
        let (name, after) = after.split_once('}').ok_or(Bad::Open)?;
        filled.push_str(&lookup(Reference::parse(name)?)?);
        from_env = true;
        rest = after;
    }
    filled.push_str(rest);
    Ok((filled, from_env))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(reference: Reference<'_>) -> Result<String, Bad> {
        match reference {
            Reference::Variable("HOME_1") => Ok("/root/${X}".to_owned()),
            Reference::Variable(name) => Err(Bad::Unset(name.to_owned())),
            Reference::File(file) => Ok(format!("in {file}")),
        }
    }

    #[test]
    fn variables_are_filled_in_once_and_escapes_stay() {
        let filled = |text: &str| expand(text, &set);
        assert_eq!(filled("plain $5 {x}"), Ok(("plain $5 {x}".into(), false)));
        assert_eq!(filled("a${HOME_1}b${HOME_1}"), Ok(("a/root/${X}b/root/${X}".into(), true)));
        assert_eq!(filled("$${HOME_1}"), Ok(("${HOME_1}".into(), false)));
        assert_eq!(filled("${NOT_SET}"), Err(Bad::Unset("NOT_SET".into())));
        assert_eq!(filled("${input:key}"), Err(Bad::Name("input:key".into())));
        assert_eq!(filled("x${file:/run/a b}y"), Ok(("xin /run/a by".into(), true)));
        assert_eq!(filled("${}"), Err(Bad::Name(String::new())));
        assert_eq!(filled("x${HOME_1"), Err(Bad::Open));
    }

    #[test]
    fn a_secret_may_be_in_a_plain_file() {
        let file = std::env::temp_dir().join(format!("weir-secret-{}", std::process::id()));
        std::fs::write(&file, "a b\r\n").expect("a file can be written");
        let found = secret_file(&file.display().to_string());
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(found, Ok("a b".to_owned()));
        for (file, why) in
            [("secret", "no absolute path"), ("/dev/zero", "no plain file"), ("/nowhere/at/all", "cannot be read")]
        {
            assert!(secret_file(file).is_err_and(|said| said.contains(why)), "{file}");
        }
    }
}

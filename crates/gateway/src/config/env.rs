//! `${NAME}` in a config's values: filled in from the environment, before anything is checked.

use super::check::TeamGrant;
use super::report::{Path, Problem, Report};
use super::tree::{Node, Value};

/// Where variables come from; tests bring their own.
pub type Environment<'a> = &'a (dyn Fn(&str) -> Option<String> + Send + Sync);

/// Fills in every `${NAME}` of the tree's texts. A variable that is not set is an error; `$${` stands for `${`.
pub(crate) fn fill_in(node: &mut Node, path: &Path, environment: Environment<'_>, report: &mut Report) {
    fill(node, path, &|name| environment(name).ok_or_else(|| Bad::Unset(name.to_owned())), report);
}

/// The same for a team's file: a variable that is not granted is not looked up, whether it is set or not.
pub(crate) fn fill_in_granted(node: &mut Node, grant: &TeamGrant, environment: Environment<'_>, report: &mut Report) {
    let lookup = |name: &str| {
        if !grant.has_variable(name) {
            return Err(Bad::NotGranted(name.to_owned(), grant.place("env")));
        }
        environment(name).ok_or_else(|| Bad::Unset(name.to_owned()))
    };
    fill(node, &Path::root(), &lookup, report);
}

type Lookup<'a> = &'a dyn Fn(&str) -> Result<String, Bad>;

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
                node.value = Value::Null;
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
        let mut bytes = name.bytes();
        let legal = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !legal {
            return Err(Bad::Name(name.chars().take(40).collect()));
        }
        filled.push_str(&lookup(name)?);
        from_env = true;
        rest = after;
    }
    filled.push_str(rest);
    Ok((filled, from_env))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str) -> Result<String, Bad> {
        if name == "HOME_1" { Ok("/root/${X}".to_owned()) } else { Err(Bad::Unset(name.to_owned())) }
    }

    #[test]
    fn variables_are_filled_in_once_and_escapes_stay() {
        let filled = |text: &str| expand(text, &set);
        assert_eq!(filled("plain $5 {x}"), Ok(("plain $5 {x}".into(), false)));
        assert_eq!(filled("a${HOME_1}b${HOME_1}"), Ok(("a/root/${X}b/root/${X}".into(), true)));
        assert_eq!(filled("$${HOME_1}"), Ok(("${HOME_1}".into(), false)));
        assert_eq!(filled("${NOT_SET}"), Err(Bad::Unset("NOT_SET".into())));
        assert_eq!(filled("${input:key}"), Err(Bad::Name("input:key".into())));
        assert_eq!(filled("${}"), Err(Bad::Name(String::new())));
        assert_eq!(filled("x${HOME_1"), Err(Bad::Open));
    }
}

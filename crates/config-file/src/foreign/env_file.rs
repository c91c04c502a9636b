//! `envFile`: a file of environment variables for one server, in the syntax of dotenv.

use std::path::Path as FilePath;

use crate::config_files::{self, ReadFiles};
use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use crate::config_tree::{ConfigNode, NodeText, NodeValue};
use crate::foreign::server_normalizer::ENV_FILE;
use crate::foreign::server_origin::CONTAINERS;

/// Reads the variable files that servers name, and adds the variables to their `env`. Variables
/// that `env` has already take precedence. Relative paths start at `folder`. Returns the text of
/// each file.
pub fn read_all(tree: &mut ConfigNode, folder: &FilePath, report: &mut ConfigReport) -> ReadFiles {
    let mut texts = ReadFiles::new();
    let NodeValue::Map(sections) = &mut tree.value else {
        return texts;
    };
    let servers = sections.iter_mut().filter(|(key, _)| key == CONTAINERS[0]);
    for (name, server) in servers.flat_map(|(_, servers)| {
        if let NodeValue::Map(servers) = &mut servers.value {
            servers.as_mut_slice()
        } else {
            &mut []
        }
    }) {
        let NodeValue::Map(keys) = &mut server.value else {
            continue;
        };
        let Some(at) = keys.iter().position(|(key, _)| key == ENV_FILE) else {
            continue;
        };
        let (_, node) = keys.remove(at);
        let path = ConfigPath::at(CONTAINERS[0]).key(&*name).key(ENV_FILE);
        let NodeValue::Text(NodeText { text, .. }) = &node.value else {
            if !matches!(node.value, NodeValue::Unset) {
                let problem = ConfigProblem::error(
                    path,
                    format!("expected the path of a file, found {}", node.kind()),
                );
                report.add(ConfigProblem {
                    line: Some(node.line),
                    ..problem
                });
            }
            continue;
        };
        let file = folder.join(text);
        let read = texts
            .entry(file.clone())
            .or_insert_with(|| config_files::read(&file));
        match read.as_ref().map(|read| parse(read)) {
            Ok(Ok(variables)) => add(keys, variables, node.line),
            Ok(Err((line, message))) => {
                let problem = ConfigProblem::error(ConfigPath::root(), message)
                    .hint("write NAME=value, one on each line");
                report.add(ConfigProblem {
                    line: Some(line),
                    file: file.display().to_string(),
                    ..problem
                });
            }
            Err(problem) => {
                let message = format!("{} {}", file.display(), problem.message);
                let problem =
                    ConfigProblem::error(path, message).hint("create the file, or remove the key");
                report.add(ConfigProblem {
                    line: Some(node.line),
                    ..problem
                });
            }
        }
    }
    texts
}

/// Adds variables to the `env` of a server.
fn add(keys: &mut Vec<(String, ConfigNode)>, variables: Vec<(String, String)>, line: u32) {
    if !keys.iter().any(|(key, _)| key == "env") {
        keys.push((
            "env".to_owned(),
            ConfigNode {
                line,
                value: NodeValue::Map(Vec::new()),
            },
        ));
    }
    let env = keys.iter_mut().find(|(key, _)| key == "env");
    let Some((
        _,
        ConfigNode {
            value: NodeValue::Map(env),
            ..
        },
    )) = env
    else {
        return;
    };
    for (name, text) in variables {
        if !env.iter().any(|(other, _)| *other == name) {
            // Marked as from the environment, so that no message repeats it.
            env.push((
                name,
                ConfigNode {
                    line,
                    value: NodeValue::Text(NodeText {
                        text,
                        from_env: true,
                    }),
                },
            ));
        }
    }
}

/// Parses the variables of a file: `NAME=value` or `export NAME=value` on each line, with comments
/// and quotes. The last one of a name counts.
///
/// # Errors
/// The number of a line that is not a variable, and the reason.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, (u32, String)> {
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim_start_matches('\u{feff}');
    let mut line = 1;
    while !rest.is_empty() {
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let trimmed = first.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            (rest, line) = (after, line + 1);
            continue;
        }
        let Some((name, value)) = rest
            .split_once('=')
            .filter(|(name, _)| !name.contains('\n'))
        else {
            return Err((line, "a variable name is missing before `=`".to_owned()));
        };
        let name = name.trim();
        let name = name.strip_prefix("export ").unwrap_or(name).trim();
        if !is_name(name) {
            return Err((line, "a variable name is missing before `=`".to_owned()));
        }
        let (value, after) = self::value(value)
            .ok_or_else(|| (line, format!("the quote of {name} is not closed")))?;
        line += u32::try_from(rest[..rest.len() - after.len()].matches('\n').count())
            .unwrap_or(u32::MAX);
        rest = after;
        variables.retain(|(other, _)| other != name);
        variables.push((name.to_owned(), value));
    }
    Ok(variables)
}

/// Reports if a variable of a file may have this name. Programs may want names that shells refuse.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    !name.is_empty() && name.bytes().all(is_part)
}

/// Parses the value at the beginning of a text. Returns it with the text after its line, or `None`
/// if a quote is not closed.
fn value(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start_matches([' ', '\t']);
    let Some(quote) = text
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\'' | '`'))
    else {
        let (line, after) = text.split_once('\n').unwrap_or((text, ""));
        let end = line
            .find(" #")
            .or_else(|| line.starts_with('#').then_some(0))
            .unwrap_or(line.len());
        return Some((line[..end].trim().to_owned(), after));
    };
    let mut value = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            // The rest of the line is a comment.
            let after = &text[1 + at + 1..];
            return Some((value, after.split_once('\n').map_or("", |(_, after)| after)));
        }
        // Only double quotes have escapes.
        if c == '\\' && quote == '"' {
            match chars.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                other @ ('"' | '\\' | '$') => value.push(other),
                other => value.extend(['\\', other]),
            }
        } else {
            value.push(c);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_with_comments_and_quotes() {
        let text = "# first\n\nA=1\nexport B = two words # said\nC='$x #y'\nD=\"a\\nb \\\"c\\\"\" # d\nE=\"one\ntwo\"\nF=\nA=2\r\nG=a#b\nspring.port-1=8";
        let wanted = [
            ("B", "two words"),
            ("C", "$x #y"),
            ("D", "a\nb \"c\""),
            ("E", "one\ntwo"),
            ("F", ""),
            ("A", "2"),
            ("G", "a#b"),
            ("spring.port-1", "8"),
        ];
        assert_eq!(
            parse(text),
            Ok(wanted
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec())
        );
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn bad_line_is_reported_with_number() {
        for (text, line, words) in [
            ("A=1\nnothing\nB=2", 2, "a variable name is missing"),
            ("A=\"x\ny\"\n=1", 3, "a variable name is missing"),
            ("A=1\n\n B='x", 3, "quote of B"),
            ("A B=2", 1, "a variable name is missing"),
        ] {
            let (found, message) = parse(text).expect_err(text);
            assert_eq!(found, line, "{text:?}");
            assert!(message.contains(words), "{message}");
        }
    }
}

//! Finds credentials by name in an argument that has several words: the command line of a shell, or
//! JSON text.
//!
//! weir replaces references before it starts a program. A credential is therefore replaced at its
//! place, inside its own quotes, so that a shell reads the same words as before. This is no parser
//! of shells: a value that a shell would put together from parts stays as it is, and is reported.

use std::ops::Range;

use crate::import::credentials::{
    FoundCredential, holds_credential, is_name, is_scheme, looks_secret, split_credential,
    url_credentials,
};

/// Options whose argument is one name with its value.
const VALUE_OPTIONS: [&str; 4] = ["-e", "--env", "-H", "--header"];
/// Quotes, also those within the double quotes of a shell.
const QUOTES: [&str; 3] = ["\\\"", "\"", "'"];

/// Reports if an argument has several words. `before` is the argument before it. A name with one
/// value has not, whatever the value.
pub(crate) fn has_words(before: Option<&str>, argument: &str) -> bool {
    let begins_with_name = |separators: &[char]| {
        let name = argument.split(separators).next().unwrap_or_default();
        name.len() < argument.len() && is_name(name)
    };
    let option = argument
        .split_once('=')
        .map(|(name, _)| name)
        .filter(|name| name.starts_with('-') && is_name(name));
    let is_value = match before {
        Some(before) if VALUE_OPTIONS.contains(&before) => begins_with_name(&['=', ':']),
        Some(before) => before.starts_with('-') && is_name(before) && holds_credential(before),
        None => false,
    };
    let is_option =
        option.is_some_and(|name| VALUE_OPTIONS.contains(&name) || holds_credential(name));
    let header = argument.split_once(':').map(|(name, _)| name);
    let is_header = header.is_some_and(|name| is_name(name) && holds_credential(name));
    let is_one = is_value || is_option || is_header;
    !is_one && (argument.contains(char::is_whitespace) || argument.contains("\":"))
}

/// Returns the credentials in an argument of several words, from left to right. A place lies outside
/// all references, or contains whole ones.
pub(crate) fn line_credentials(line: &str) -> Vec<FoundCredential> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(word) = next_name(line, at) {
        at = word.end;
        let own = match named_value(line, &word) {
            Some(named) => vec![named],
            None => unnamed(line, word.start),
        };
        if let Some(last) = own.last() {
            at = last.place.end;
        }
        found.extend(own);
    }
    found
}

/// Returns the place of the next name outside references, from an index on. The name of a variable
/// of a shell (`$NAME`) is none.
fn next_name(line: &str, from: usize) -> Option<Range<usize>> {
    let mut at = from;
    while let Some(next) = line[at..].chars().next() {
        let rest = &line[at..];
        if rest.starts_with("${") {
            at += rest.find('}')? + 1;
        } else if is_name_character(next) {
            let end = rest
                .find(|c| !is_name_character(c))
                .map_or(line.len(), |length| at + length);
            if !line[..at].ends_with('$') {
                return Some(at..end);
            }
            at = end;
        } else {
            at += next.len_utf8();
        }
    }
    None
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Returns the credential that stands under a name.
fn named_value(line: &str, word: &Range<usize>) -> Option<FoundCredential> {
    let name = &line[word.clone()];
    let start = word.end + value_offset(line, word)?;
    let value = LineValue::read(line, word.start, start);
    let text = &line[value.place.clone()];
    let (before, credential) = split_credential(name, text)?;
    // A shell has the value, not the line.
    let is_of_shell = credential.starts_with(['$', '`']) && !credential.starts_with("${");
    if is_of_shell && !value.is_literal {
        return None;
    }
    let start = value.place.start + before.len();
    Some(FoundCredential {
        name: name.to_owned(),
        place: start..if value.is_whole {
            value.place.end
        } else {
            line.len()
        },
        is_replaceable: value.is_whole,
    })
}

/// Returns the length of the separator between a name and its value: `NAME=value`, `Name: value`,
/// `"name": "value"`, `--name value`.
fn value_offset(line: &str, word: &Range<usize>) -> Option<usize> {
    let rest = &line[word.end..];
    let until_value = |after: &str| {
        let value = after.trim_start();
        (!value.is_empty()).then_some(rest.len() - value.len())
    };
    if let Some(after) = rest.strip_prefix('=') {
        return (!after.is_empty()).then_some(1);
    }
    if let Some(after) = rest.strip_prefix(':') {
        return until_value(after);
    }
    if line[word.clone()].starts_with('-') && rest.starts_with(char::is_whitespace) {
        return until_value(rest).filter(|offset| !rest[*offset..].starts_with('-'));
    }
    let quote = QUOTES.iter().find(|quote| rest.starts_with(**quote))?;
    if !line[..word.start].ends_with(quote) {
        return None;
    }
    let after = rest[quote.len()..].trim_start();
    // Other values of JSON than texts are no credentials.
    until_value(after.strip_prefix(':')?).filter(|offset| rest[*offset..].starts_with(*quote))
}

/// A value in a line.
struct LineValue {
    place: Range<usize>,
    /// True if it is in single quotes, in which a shell replaces nothing.
    is_literal: bool,
    /// True if the value is at its place as it is; false if a shell puts it together from parts.
    is_whole: bool,
}

impl LineValue {
    /// Reads the value that begins at `start`, of the name that begins at `name`.
    fn read(line: &str, name: usize, start: usize) -> Self {
        let text = &line[start..];
        let enclosing = enclosing_quote(&line[..start]);
        for quote in QUOTES {
            // A quote that ends here encloses the name, too: the value is empty.
            let opens = enclosing.is_none_or(|open| !quote.starts_with(open));
            let Some(inside) = text.strip_prefix(quote).filter(|_| opens) else {
                continue;
            };
            let begin = start + quote.len();
            let Some(length) = inside.find(quote) else {
                return Self::open(begin..line.len());
            };
            let is_literal = quote == "'" && enclosing.is_none();
            let after = &inside[length + quote.len()..];
            return Self {
                place: begin..begin + length,
                is_literal,
                is_whole: is_plain_text(&inside[..length], is_literal)
                    && ends_word(after, enclosing),
            };
        }
        // `'Authorization: Bearer x'`: the quotes enclose the name and the value.
        if let Some(quote) = enclosing
            && line[..name].ends_with(quote)
            && let Some(length) = text.find(quote)
            && text[..length].contains(char::is_whitespace)
        {
            // A shell within the quotes would end the value of `NAME=` earlier.
            let is_header = line[name..start].contains(':');
            let is_literal = quote == '\'';
            return Self {
                place: start..start + length,
                is_literal,
                is_whole: is_header && is_plain_text(&text[..length], is_literal),
            };
        }
        let mut length = word_length(text);
        if is_scheme(&text[..length])
            && let Some(next) = text[length..].strip_prefix(' ')
        {
            length += 1 + word_length(next);
        }
        Self {
            place: start..start + length,
            is_literal: false,
            is_whole: is_plain_text(&text[..length], false)
                && ends_word(&text[length..], enclosing),
        }
    }

    fn open(place: Range<usize>) -> Self {
        Self {
            place,
            is_literal: false,
            is_whole: false,
        }
    }
}

/// Returns the length of the unquoted word at the beginning of a text. White space in a reference
/// does not end it.
fn word_length(text: &str) -> usize {
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        match rest.strip_prefix("${").and_then(|inside| inside.find('}')) {
            Some(length) => at += length + "${}".len(),
            None if next.is_whitespace() || ";&|<>()\"'`\\".contains(next) => break,
            None => at += next.len_utf8(),
        }
    }
    at
}

/// Reports if a shell takes a text as it is. References of weir do not count.
fn is_plain_text(text: &str, is_literal: bool) -> bool {
    is_literal || !text.replace("${", "").contains(['\\', '`', '$'])
}

/// Reports if a word of a line ends before this text.
fn ends_word(after: &str, enclosing: Option<char>) -> bool {
    after.chars().next().is_none_or(|next| {
        next.is_whitespace() || ";&|<>),]}".contains(next) || enclosing == Some(next)
    })
}

/// Returns the quote that is open at the end of a text.
fn enclosing_quote(text: &str) -> Option<char> {
    let mut open = None;
    let mut characters = text.chars();
    while let Some(next) = characters.next() {
        if open == Some(next) {
            open = None;
        } else if next == '\\' && open != Some('\'') {
            characters.next();
        } else if open.is_none() && matches!(next, '"' | '\'') {
            open = Some(next);
        }
    }
    open
}

/// Returns the credentials of a word by their form: those of a URL, or the word itself.
fn unnamed(line: &str, start: usize) -> Vec<FoundCredential> {
    let word = &line[start..start + word_length(&line[start..])];
    let found = |(name, place): (String, Range<usize>)| FoundCredential {
        name,
        place: start + place.start..start + place.end,
        is_replaceable: true,
    };
    if word.contains("://") {
        return url_credentials(word).into_iter().map(found).collect();
    }
    let whole = looks_secret(word).then(|| ("arg".to_owned(), 0..word.len()));
    whole.into_iter().map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line with each credential in braces; one that cannot be replaced in brackets.
    fn marked(line: &str) -> String {
        let (mut marked, mut at) = (String::new(), 0);
        for found in line_credentials(line) {
            let (open, close) = if found.is_replaceable {
                ("{{", "}}")
            } else {
                ("[[", "]]")
            };
            marked.extend([
                &line[at..found.place.start],
                open,
                &line[found.place.clone()],
                close,
            ]);
            at = found.place.end;
        }
        marked + &line[at..]
    }

    #[test]
    fn credentials_are_found_at_their_place_in_a_line() {
        for line in [
            "API_KEY={{hunter2hunter2}} node x.js",
            "cd /srv/x && API_KEY={{hunter2hunter2}} node index.js",
            "export API_KEY='{{hunter2 hunter2}}'; exec node index.js --token {{abcdef}}",
            "export API_KEY=\"{{hunter2 hunter2}}\" PORT=\"8080\"",
            "npx -y srv --api-key {{abcdefgh12345}}",
            "--token {{abcdefgh}}",
            "npx srv --token={{abcdefgh}} --port 80",
            r#"{"apiKey":"{{abcdef12345}}","port":8080}"#,
            r#"{ "auth" : { "token": "{{a b}}" } }"#,
            r#"run --config "{\"apiKey\":\"{{abcdef}}\"}" now"#,
            "curl -H 'Authorization: Bearer {{x}}' https://a.example",
            "curl -H \"X-Api-Key: {{a b}}\" https://a.example",
            "curl -H Authorization:{{x}}; ls",
            "srv --header Authorization: Bearer {{x}} --verbose",
            "env 'API_KEY={{x}}' node x.js",
            "psql postgres://me:{{hunter2}}@db/x -c 'select 1'",
            "curl \"https://a.example/mcp?token={{x}}&a=1\"",
            "login {{ghp_16C7e42F292c6912E7710c838347Ae178B4a}}",
            "$env:API_KEY='{{x}}'; node x.js",
            "API_KEY={{${KEY:-a b}}} node",
            "API_KEY='{{$x}}' node",
        ] {
            let plain = line.replace("{{", "").replace("}}", "");
            assert_eq!(marked(&plain), line);
        }
    }

    #[test]
    fn value_in_parts_is_found_and_not_replaced() {
        for line in [
            r"API_KEY=[[a\ b node x.js]]",
            "API_KEY=[[a\"b c\"d node x.js]]",
            "API_KEY=\"[[a$b\" node x.js]]",
            "API_KEY='[[a'\"b\" node x.js]]",
            "API_KEY='[[abc node x.js]]",
            "sh -c 'API_KEY=[[abc node x.js']]",
            "API_KEY=[[a`b` node]]",
        ] {
            let plain = line.replace("[[", "").replace("]]", "");
            assert_eq!(marked(&plain), line);
        }
    }

    #[test]
    fn lines_without_credentials_stay() {
        for line in [
            "cd /srv/x && node index.js --port 8080 --keyboard us",
            "API_KEY=$(cat /run/key) node x.js",
            "API_KEY=`cat /run/key` node x.js",
            "TOKEN=$TOKEN node x.js --token \"$TOKEN\"",
            "TOKEN= node x.js",
            "node x.js --token --verbose",
            "node x.js --token-file /etc/tok --max-tokens 4096",
            "node x.js --key /etc/key",
            r#"{"port":8080,"path":"/srv/x"}"#,
            "[ -z \"$API_KEY\" ] && exit 1",
            "docker run -e API_KEY image",
            "it's \"half",
        ] {
            assert_eq!(marked(line), line);
        }
    }

    #[test]
    fn name_with_one_value_is_no_line() {
        for (before, argument) in [
            (Some("-e"), "PASSWORD=two words"),
            (Some("--header"), "X-Team: a b"),
            (Some("--password"), "two words"),
            (None, "--password=two words"),
            (None, "--env=PASSWORD=two words"),
            (None, "Authorization: Basic two words"),
            (None, "--port=80"),
        ] {
            assert!(!has_words(before, argument), "{argument}");
        }
        for (before, argument) in [
            (Some("-c"), "PASSWORD=x node x.js"),
            (None, "--token abc"),
            (Some("--config"), r#"{"apiKey":"x"}"#),
            (Some("-e"), "console.log(1); x()"),
        ] {
            assert!(has_words(before, argument), "{argument}");
        }
    }
}

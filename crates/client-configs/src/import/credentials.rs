//! Finds credentials in the files of other programs by name and by form, masks them for display,
//! and names the variables that replace them.

use std::ops::Range;

use weir_config_file::env::reference::{ReferenceError, ReferenceSyntax, pieces};
use weir_config_file::placeholder;

/// Further endings of the last part of a name that holds a credential. In weir's own config, values
/// of these names may be ordinary texts.
const FURTHER_CREDENTIALS: [&str; 4] = ["accesskey", "credential", "pat", "dsn"];
/// Prefixes of the tokens of well-known services.
const TOKEN_PREFIXES: [&str; 22] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "AIza",
    "eyJ",
    "ya29.",
    "hf_",
    "npm_",
    "ntn_",
    "lin_api_",
    "figd_",
];
/// The shortest text that is tested for randomness. A shorter one may be a word.
const MIN_RANDOM_CHARS: usize = 20;
/// The text shown in place of a credential.
pub const MASK: &str = "***";

/// A variable that must be set in the environment that weir starts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredVariable {
    /// Its name.
    pub name: String,
    /// Its meaning, and the place of its value.
    pub about: String,
}

/// A credential in an argument.
#[derive(Debug)]
pub(crate) struct FoundCredential {
    /// The name that it stands under.
    pub(crate) name: String,
    /// Its place in the argument.
    pub(crate) place: Range<usize>,
    /// False if no variable can take its place.
    pub(crate) is_replaceable: bool,
}

/// Reports if a name is that of a credential: of a variable, a header, an option or a query
/// parameter.
pub(crate) fn holds_credential(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    placeholder::holds_credential(&name)
        || FURTHER_CREDENTIALS.iter().any(|end| last.ends_with(end))
}

/// Reports if a text looks like a credential, under any name.
pub fn looks_secret(text: &str) -> bool {
    TOKEN_PREFIXES
        .iter()
        .any(|begin| text.len() > begin.len() + 8 && text.starts_with(begin))
        || url_password(text).is_some()
        || is_random(text)
}

/// Reports if the default of a variable (`${NAME:-default}`) is a credential.
pub(crate) fn is_secret_default(name: &str, default: &str) -> bool {
    holds_credential(name) && !is_plain(default) || looks_secret(default)
}

/// Masks the secret defaults of variables in a text. With `is_credential` every default is masked.
pub(crate) fn without_defaults(text: &str, is_credential: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, after) = after.split_once('}').unwrap_or((after, ""));
        let inside = match inside.split_once(":-") {
            Some((name, default)) if is_credential || is_secret_default(name, default) => {
                format!("{name}:-{MASK}")
            }
            _ => inside.to_owned(),
        };
        shown.extend([before, "${", &inside, "}"]);
        rest = after;
    }
    shown + rest
}

/// Returns the place of the password in a URL such as `postgres://user:password@host`.
fn url_password(text: &str) -> Option<Range<usize>> {
    let begin = text.find("://")? + "://".len();
    let authority = text[begin..].split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (name, password) = user.split_once(':')?;
    let start = begin + name.len() + 1;
    (!password.is_empty()).then_some(start..start + password.len())
}

/// Reports if letters, cases and digits alternate as often as in a random text.
fn is_random(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+=.".contains(&byte);
    let kind = |byte: u8| {
        (
            byte.is_ascii_digit(),
            byte.is_ascii_uppercase(),
            byte.is_ascii_lowercase(),
        )
    };
    let bytes = text.as_bytes();
    let changes = bytes.windows(2).filter(|pair| {
        pair.iter().all(u8::is_ascii_alphanumeric) && kind(pair[0]) != kind(pair[1])
    });
    bytes.len() >= MIN_RANDOM_CHARS
        && bytes.iter().copied().all(fits)
        && changes.count() * 5 >= bytes.len()
}

/// Splits a text before its credential: `Bearer ` and the token.
pub fn split_credential<'a>(name: &str, value: &'a str) -> Option<(&'a str, &'a str)> {
    let value_of = |text: &'a str| if text.is_empty() { None } else { Some(text) };
    if !(holds_credential(name) && !is_plain(value) || looks_secret(value)) {
        return match value.split_once(' ') {
            // `Bearer x` under a name that is not one of a credential.
            Some((scheme, rest)) if is_scheme(scheme) => {
                Some((&value[..=scheme.len()], value_of(rest)?))
            }
            _ => None,
        };
    }
    match value.split_once(' ') {
        Some((scheme, rest)) if is_scheme(scheme) => {
            Some((&value[..=scheme.len()], value_of(rest)?))
        }
        _ => Some(("", value_of(value)?)),
    }
}

pub(crate) fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "apikey"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Reports if a value is a number, a boolean or the path of a file, and so no credential under any
/// name.
fn is_plain(value: &str) -> bool {
    value.is_empty()
        || matches!(value, "true" | "false")
        || value.len() < MIN_RANDOM_CHARS && value.parse::<f64>().is_ok()
        || value.starts_with(['/', '~', '.'])
}

/// Finds the credential in one argument of a command. Returns the text before it, its name, and the
/// credential.
pub(crate) fn argument_credential<'a>(
    before: Option<&str>,
    argument: &'a str,
) -> Option<(&'a str, String, &'a str)> {
    let whole = |name: &str, value: &'a str| {
        let (start, credential) = split_credential(name, value)?;
        Some((
            &argument[..argument.len() - value.len() + start.len()],
            name.to_owned(),
            credential,
        ))
    };
    if let Some((name, value)) = argument
        .split_once('=')
        .filter(|(name, _)| is_name(name.trim_start_matches('-')))
    {
        // `--header=Authorization: Bearer x`.
        let inner = || {
            let value = name.starts_with('-').then_some(value)?;
            let (start, name, credential) = argument_credential(None, value)?;
            let start = argument.len() - value.len() + start.len();
            Some((&argument[..start], name, credential))
        };
        return whole(name, value).or_else(inner);
    }
    // `--header Authorization:...`, `-H "X-Api-Key: ..."`.
    if let Some((name, value)) = argument
        .split_once(':')
        .filter(|(name, _)| is_name(name) && holds_credential(name))
    {
        return whole(name, value.trim_start());
    }
    let option = before.filter(|before| before.starts_with('-') && !before.contains('='));
    match option.filter(|_| !argument.starts_with('-')) {
        Some(option) => whole(option, argument),
        None => whole("arg", argument),
    }
}

/// Reports if a text can be the name of a variable, an option or a header.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Returns the places of the credentials in a URL, each with its name, from left to right: the
/// password, and those in the path and the query. A place lies outside all references.
pub(crate) fn url_credentials(url: &str) -> Vec<(String, Range<usize>)> {
    let path_end = url.find('?').unwrap_or(url.len());
    let mut found: Vec<_> = url_password(url)
        .map(|place| ("password".to_owned(), place))
        .into_iter()
        .collect();
    let mut at = 0;
    for (n, segment) in url[..path_end].split('/').enumerate() {
        if n >= 3 && looks_secret(segment) {
            found.push(("url".to_owned(), at..at + segment.len()));
        }
        at += segment.len() + 1;
    }
    at = path_end + 1;
    let query = url.get(at..).unwrap_or_default();
    for member in query.split('#').next().unwrap_or_default().split('&') {
        if let Some((name, value)) = member.split_once('=')
            && !value.is_empty()
            && (holds_credential(name) || looks_secret(value))
        {
            let start = at + name.len() + 1;
            found.push((name.to_owned(), start..start + value.len()));
        }
        at += member.len() + 1;
    }
    found.sort_by_key(|(_, place)| place.start);
    let mut end = 0;
    found.retain(|(_, place)| {
        let before = pieces(&url[..place.start], ReferenceSyntax::Servers);
        let is_free = place.start >= end
            && !url[place.clone()].contains("${")
            && before != Err(ReferenceError::Open);
        if is_free {
            end = place.end;
        }
        is_free
    });
    found
}

/// Returns a URL with its credentials masked.
pub(crate) fn masked_url(url: &str) -> String {
    let (mut shown, mut at) = (String::new(), 0);
    for (_, place) in url_credentials(url) {
        shown.extend([&url[at..place.start], MASK]);
        at = place.end;
    }
    shown.push_str(&url[at..]);
    without_defaults(&shown, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_recognised_by_name_and_by_format() {
        for text in [
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "postgres://me:hunter2@db/x",
            "eyJhbGciOiJFUzI1NiJ9.e30.c2lnbmF0dXJl",
            "9f86d081884c7d659a2feaa0c55ad015",
        ] {
            assert!(looks_secret(text), "{text}");
        }
        for text in [
            "@modelcontextprotocol/server-filesystem",
            "claude-sonnet-4-20250514",
            "/srv/docs/2024-11-05",
            "http://127.0.0.1:3001/mcp",
            "postgres://db/x",
            "mcp-server-sqlite-npx",
        ] {
            assert!(!looks_secret(text), "{text}");
        }
        for name in [
            "GITHUB_TOKEN",
            "Authorization",
            "x-api-key",
            "--api-key",
            "DB_PASSWORD",
            "client_secret",
        ] {
            assert!(holds_credential(name), "{name}");
        }
        for name in ["LOG_LEVEL", "PORT", "Accept", "--path", "TOKEN_COUNT"] {
            assert!(!holds_credential(name), "{name}");
        }
    }

    #[test]
    fn schemes_stay_and_switches_are_no_credentials() {
        assert_eq!(
            split_credential("Authorization", "Bearer abc"),
            Some(("Bearer ", "abc"))
        );
        assert_eq!(
            split_credential("X", "Bearer abc"),
            Some(("Bearer ", "abc"))
        );
        assert_eq!(split_credential("API_KEY", "abc"), Some(("", "abc")));
        assert_eq!(split_credential("USE_TOKEN", "true"), None);
        assert_eq!(split_credential("KEY", "/run/secrets/key"), None);
        assert_eq!(split_credential("LOG_LEVEL", "debug"), None);
    }
}

//! `docs/logs.md`: every message of weir's log, made from the code, and the causes and remedies of
//! warnings and errors in `docs/troubleshooting.md`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod workspace;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use workspace::{code, crates, keep_page, read, source_files};

const HEAD: &str = "# Log messages

Every message of weir's log, by its text. This page is made from the code (`UPDATE=1 cargo test -p weir-gateway --test
logs`). Messages of the levels `error` and `warn` have their cause and remedy in
[troubleshooting.md](troubleshooting.md#what-the-log-says); [telemetry.md](telemetry.md) describes the format and the filter.

Search for the message, then read the fields. `request` is the id of the request, in the header `X-Request-Id` and in
`data.requestId` of every error.

| message | level | fields | target |
|---|---|---|---|
";

/// The crates whose messages are not in the log of a running weir.
const OTHER_PROGRAMS: [&str; 2] = ["demo", "testkit"];

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// One call of a macro of `tracing` with a message.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LogMessage {
    text: String,
    level: String,
    fields: Vec<String>,
    target: String,
}

/// The messages in the code of a file.
fn messages(source: &str, target: &str) -> Vec<LogMessage> {
    let mut found = Vec::new();
    for level in LEVELS {
        for rest in source.split(&format!("tracing::{level}!(")).skip(1) {
            found.extend(message(arguments(rest), level, target));
        }
    }
    for rest in source.split("tracing::event!(").skip(1) {
        let arguments = arguments(rest);
        let level = LEVELS
            .into_iter()
            .find(|level| arguments.contains(&format!("Level::{}", level.to_uppercase())));
        found.extend(message(arguments, level.unwrap_or("as configured"), target));
    }
    found
}

/// Up to the parenthesis that closes a call. A parenthesis in a text does not count.
fn arguments(rest: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    let end = rest.bytes().position(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'(' | b'{' | b'[' if !quoted => depth += 1,
            b')' | b'}' | b']' if !quoted => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    &rest[..end.unwrap_or(rest.len())]
}

/// Splits arguments at their commas, not at those in texts and calls.
fn split(arguments: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    let mut parts = vec![String::new()];
    for letter in arguments.chars() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' | '{' | '[' if !quoted => depth += 1,
            ')' | '}' | ']' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(letter);
    }
    parts
        .into_iter()
        .map(|part| part.trim().to_owned())
        .collect()
}

fn message(arguments: &str, level: &str, target: &str) -> Option<LogMessage> {
    let mut fields = Vec::new();
    let mut text = None;
    let mut target = target.to_owned();
    for part in split(arguments) {
        if let Some(name) = part.strip_prefix("target:") {
            let name = name.trim();
            let quoted = name.trim_matches('"');
            quoted.clone_into(&mut target);
        } else if part.starts_with('"') {
            // A text that goes on in the next line of the source.
            let joined: Vec<&str> = part
                .trim_matches('"')
                .split("\\\n")
                .map(str::trim_start)
                .collect();
            text.get_or_insert(joined.concat());
        } else if !part.starts_with("parent:") && !part.contains("Level::") && !part.is_empty() {
            let name = part.split('=').next().unwrap_or_default();
            let name = name.trim().trim_start_matches(['%', '?', '&']);
            let name = name.rsplit('.').next().unwrap_or_default();
            if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                fields.push(name.to_owned());
            }
        }
    }
    Some(LogMessage {
        text: text?,
        level: level.to_owned(),
        fields,
        target,
    })
}

/// The target that `tracing` gives to messages of a file: the path of its module.
fn target_of(file: &str) -> String {
    let path = file.trim_start_matches("crates/").trim_end_matches(".rs");
    let (package, module) = path.split_once("/src/").unwrap_or((path, ""));
    let modules: Vec<&str> = module
        .split('/')
        .filter(|part| !["lib", "main", "mod"].contains(part))
        .collect();
    let crate_name = format!("weir_{}", package.replace('-', "_"));
    std::iter::once(crate_name.as_str())
        .chain(modules)
        .collect::<Vec<_>>()
        .join("::")
}

/// Every message of weir's log.
fn all_messages() -> BTreeSet<LogMessage> {
    crates()
        .iter()
        .filter(|name| !OTHER_PROGRAMS.contains(&name.as_str()))
        .flat_map(|name| source_files(&format!("crates/{name}/src")))
        .flat_map(|file| messages(&code(&file), &target_of(&file)))
        .collect()
}

/// Run with `UPDATE=1` to write the page anew.
#[test]
fn the_checked_in_table_of_log_messages_is_current() {
    let all = all_messages();
    assert!(all.len() > 100, "{}", all.len());
    let mut page = HEAD.to_owned();
    for LogMessage {
        text,
        level,
        fields,
        target,
    } in &all
    {
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        let _ = writeln!(
            page,
            "| {text} | {level} | {} | `{target}` |",
            fields.join(", ")
        );
    }
    keep_page("docs/logs.md", &page);
}

#[test]
fn every_warning_and_error_of_the_log_is_in_the_page_of_troubleshooting() {
    let page = read("docs/troubleshooting.md");
    // A text that is only a placeholder cannot be searched for.
    let logged: BTreeSet<String> = all_messages()
        .into_iter()
        .filter(|message| ["error", "warn"].contains(&message.level.as_str()))
        .map(|message| message.text)
        .filter(|text| text.contains(' '))
        .collect();
    assert!(logged.len() > 50, "they are found: {logged:?}");
    let missing: Vec<_> = logged
        .iter()
        .filter(|text| !page.contains(&format!("| `{text}` |")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/troubleshooting.md lacks {missing:#?}"
    );
    let (_, table) = page.split_once("## What the log says").unwrap();
    let rows = table.lines().filter_map(|line| {
        line.strip_prefix("| `")?
            .split_once("` |")
            .map(|(text, _)| text)
    });
    let gone: Vec<_> = rows.filter(|text| !logged.contains(*text)).collect();
    assert!(gone.is_empty(), "no code logs {gone:#?} any more");
}

#[test]
fn messages_are_read_with_their_fields() {
    let source = r#"
        tracing::warn!(%upstream, error = text(&error, "x"), "walk failed, retrying");
        tracing::event!(target: "audit", Level::INFO, ?end, "call ended");
        tracing::info!(target: "child", "one \
                       line");
        // no call: tracing::warn
    "#;
    let read = messages(source, "weir_core::x");
    assert_eq!(
        read,
        [
            LogMessage {
                text: "walk failed, retrying".to_owned(),
                level: "warn".to_owned(),
                fields: vec!["upstream".to_owned(), "error".to_owned()],
                target: "weir_core::x".to_owned(),
            },
            LogMessage {
                text: "one line".to_owned(),
                level: "info".to_owned(),
                fields: Vec::new(),
                target: "child".to_owned(),
            },
            LogMessage {
                text: "call ended".to_owned(),
                level: "info".to_owned(),
                fields: vec!["end".to_owned()],
                target: "audit".to_owned(),
            },
        ]
    );
    assert_eq!(
        target_of("crates/front/src/handler/mod.rs"),
        "weir_front::handler"
    );
}

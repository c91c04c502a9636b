//! One-line descriptions of other programs' servers, without credentials.

use weir_config_file::foreign::found_servers::FoundServer;

use crate::import::command_line::{has_words, line_credentials};
use crate::import::credentials::{MASK, argument_credential, masked_url, without_defaults};

/// Returns the transport and address of a server in one line, without credentials.
pub(crate) fn summary(server: &FoundServer) -> String {
    match (&server.url, &server.command) {
        (Some(url), _) if server.is_sse => format!("sse    {}", masked_url(url)),
        (Some(url), _) => format!("http   {}", masked_url(url)),
        (None, command) => {
            format!(
                "stdio  {}",
                masked_command(command.as_deref().unwrap_or_default(), &server.args)
            )
        }
    }
}

/// Returns a command line with its credentials masked, and its arguments quoted if necessary.
fn masked_command(command: &str, args: &[String]) -> String {
    let mut shown = vec![quoted(command)];
    let mut before = None;
    for argument in args {
        let masked = match argument_credential(before, argument) {
            _ if has_words(before, argument) => masked_line(argument),
            Some((start, _, credential)) if !credential.contains("${") => {
                let rest = &argument[start.len() + credential.len()..];
                format!("{start}{MASK}{rest}")
            }
            _ if argument.contains("://") => masked_url(argument),
            found => without_defaults(argument, found.is_some()),
        };
        shown.push(quoted(&masked));
        before = Some(argument.as_str());
    }
    shown.join(" ")
}

/// Returns an argument of several words with its credentials masked.
fn masked_line(line: &str) -> String {
    let (mut shown, mut at) = (String::new(), 0);
    for found in line_credentials(line) {
        shown.push_str(&without_defaults(&line[at..found.place.start], false));
        at = found.place.end;
        let credential = &line[found.place];
        if found.is_replaceable && credential.contains("${") {
            shown.push_str(&without_defaults(credential, true));
        } else {
            shown.push_str(MASK);
        }
    }
    shown + &without_defaults(&line[at..], false)
}

fn quoted(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-+=./:@%,*?&${}".contains(&b));
    if is_plain {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_urls_are_shown_without_credentials() {
        let shown = |args: &[&str]| {
            masked_command(
                "npx",
                &args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>(),
            )
        };
        for (args, wanted) in [
            (&["-y", "a b"][..], "npx -y 'a b'"),
            (&["--api-key", "canary"], "npx --api-key ***"),
            (&["--api-key=canary", "x"], "npx --api-key=*** x"),
            (&["-e", "GITHUB_TOKEN=canary"], "npx -e GITHUB_TOKEN=***"),
            (&["-e", "GITHUB_TOKEN"], "npx -e GITHUB_TOKEN"),
            (
                &["--header", "Authorization: Bearer canary"],
                "npx --header 'Authorization: Bearer ***'",
            ),
            (
                &["--header", "Authorization:${AUTH}"],
                "npx --header Authorization:${AUTH}",
            ),
            (
                &["--header=Authorization: Bearer canary"],
                "npx '--header=Authorization: Bearer ***'",
            ),
            (&["--env=API_KEY=canary"], "npx --env=API_KEY=***"),
            (
                &["-c", "API_KEY=canary npx -y x --token canary"],
                "npx -c 'API_KEY=*** npx -y x --token ***'",
            ),
            (
                &["-c", "API_KEY=a\"canary\" npx -y x"],
                "npx -c API_KEY=***",
            ),
            (
                &["-c", "API_KEY=${KEY:-canary} npx"],
                "npx -c 'API_KEY=${KEY:-***} npx'",
            ),
            (&["postgres://me:canary@db/x"], "npx ***"),
            (
                &["postgres://me:canary@${DB}/x"],
                "npx postgres://me:***@${DB}/x",
            ),
            (
                &["--key", "${API_KEY:-canary}"],
                "npx --key ${API_KEY:-***}",
            ),
            (&["${LEVEL:-info}"], "npx ${LEVEL:-info}"),
            (
                &["--token", "${LEVEL:-canary}"],
                "npx --token ${LEVEL:-***}",
            ),
            (
                &["https://x/mcp?token=canary&a=1"],
                "npx https://x/mcp?token=***&a=1",
            ),
        ] {
            assert_eq!(shown(args), wanted);
        }
        assert_eq!(
            masked_url("https://u:canary@x/mcp?key=canary"),
            "https://u:***@x/mcp?key=***"
        );
        assert_eq!(
            masked_url("https://x/s/9f86d081884c7d659a2feaa0c55ad015/mcp"),
            "https://x/s/***/mcp"
        );
        // The credential's text is elsewhere in the URL, too.
        assert_eq!(
            masked_url("https://demo:demo@demo.example/demo?api_key=demo#demo"),
            "https://demo:***@demo.example/demo?api_key=***#demo"
        );
    }
}

//! HTML instructions to connect each client: a part of the help page of endpoints and of the status
//! page.

use std::fmt::Write as _;

use data_encoding::BASE64;
use sha2::{Digest as _, Sha256};

use super::client_entry::{EndpointConnection, EntryCredential};
use super::{ClientFolders, McpClient};

/// Returns the `Content-Security-Policy` of a page that has this one style and loads no resources.
pub fn style_policy(style: &str) -> String {
    let digest = BASE64.encode(&Sha256::digest(style));
    format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// Escapes a text for HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Returns one collapsible section for each client: the file, the entry, and the client's own
/// command.
pub fn client_sections(url: &str, credential: &EntryCredential) -> String {
    let mut out = String::new();
    for client in McpClient::ALL {
        let connection = EndpointConnection {
            name: "weir",
            url,
            program: "weir",
            credential: credential.clone(),
        };
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            out,
            "<details><summary>{}</summary>",
            escape(client.title())
        );
        if let Some(command) = client.command(&connection) {
            let _ = write!(
                out,
                "<p>Run</p><pre>{}</pre><p>or add to {}:</p>",
                escape(&command),
                files(client)
            );
        } else {
            let _ = write!(out, "<p>Add to {}:</p>", files(client));
        }
        let _ = write!(
            out,
            "<pre>{}</pre>",
            escape(client.snippet(&connection).trim_end())
        );
        match credential {
            EntryCredential::Variable(variable) if client == McpClient::VsCode => {
                let _ = write!(
                    out,
                    "<p>It asks for the key once. {} is not needed.</p>",
                    escape(variable)
                );
            }
            EntryCredential::Variable(variable) if client.has_variables() => {
                let _ = write!(
                    out,
                    "<p>Set <code>{}</code> to the key where it starts.</p>",
                    escape(variable)
                );
            }
            EntryCredential::Variable(_) => {
                let name = client.name();
                let _ = write!(
                    out,
                    "<p>Its file has no variables: <code>weir connect {name} {} --with-secret --write</code> writes the key into it.</p>",
                    escape(url)
                );
            }
            EntryCredential::None | EntryCredential::Secret(_) => {}
        }
        out.push_str("</details>");
    }
    out
}

/// Returns the paths of a client's file on Linux, on macOS if different, and in projects.
fn files(client: McpClient) -> String {
    let folders = |is_macos| ClientFolders {
        is_macos,
        ..ClientFolders::at("~".into(), "".into())
    };
    let shown = |is_macos| {
        format!(
            "<code>{}</code>",
            escape(&client.usual_file(&folders(is_macos)).display().to_string())
        )
    };
    let (linux, macos) = (shown(false), shown(true));
    let mut out = if linux == macos {
        linux
    } else {
        format!("{linux}, on macOS {macos}")
    };
    if let Some(project) = client.project_file(&folders(false)) {
        let _ = write!(
            out,
            ", or in a project <code>{}</code>",
            escape(&project.display().to_string())
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        let hostile = escape("<script>'\"&");
        assert!(!hostile.contains(['<', '>', '"', '\'']), "{hostile}");
        let sections = client_sections("http://x/mcp", &EntryCredential::None);
        assert_eq!(sections.matches("<details>").count(), McpClient::ALL.len());
        assert!(
            sections.contains("&quot;url&quot;: &quot;http://x/mcp&quot;"),
            "{sections}"
        );
        assert!(
            sections.contains("on macOS <code>~/Library/Application Support/Claude/"),
            "{sections}"
        );
    }
}

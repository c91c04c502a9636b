//! HTML instructions to connect each client: the help page of endpoints, and a part of the status
//! page.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::LazyLock;

use data_encoding::BASE64;
use http::HeaderValue;
use sha2::{Digest as _, Sha256};
use weir_front::settings::HelpPage;

use super::{ClientFolders, McpClient};
use crate::config::checked_config::Config;
use crate::mcp_clients::client_entry::{EndpointConnection, EntryCredential};

const STYLE: &str = include_str!("page.css");
/// The placeholder of an endpoint's path while the page is built.
const PATH_PLACEHOLDER: &str = "/path-of-the-endpoint";

static POLICY: LazyLock<String> = LazyLock::new(|| style_policy(STYLE));

/// Returns the `Content-Security-Policy` of a page that has this one style and loads no resources.
pub(crate) fn style_policy(style: &str) -> String {
    let digest = BASE64.encode(&Sha256::digest(style));
    format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// Escapes a text for HTML.
pub(crate) fn escape(text: &str) -> String {
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

/// Returns the credential that clients of this weir write into their files: an environment variable
/// for API keys, or no credential for OAuth.
pub(crate) fn usual_credential(config: &Config) -> EntryCredential {
    if config.requires_api_keys() {
        EntryCredential::Variable(super::TOKEN_VARIABLE.to_owned())
    } else {
        EntryCredential::None
    }
}

/// Returns one collapsible section for each client: the file, the entry, and the client's own
/// command.
pub(crate) fn client_sections(url: &str, credential: &EntryCredential) -> String {
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

/// Returns the page for a person who opens an endpoint in a browser. It has the endpoint's URL, and
/// no name of an upstream or a tool.
pub(crate) fn help_page(config: &Config, listener: SocketAddr) -> HelpPage {
    let is_known = config.front.public_url.is_some() || !listener.ip().is_unspecified();
    let base = match is_known {
        true => config.public_base(listener),
        // The address is left out: the only source for it is the `Host` header, which the
        // reader controls.
        false => {
            let scheme = if config.front.tls.is_some() {
                "https"
            } else {
                "http"
            };
            format!("{scheme}://ADDRESS:{}", listener.port())
        }
    };
    let url = format!("{base}{PATH_PLACEHOLDER}");
    let credential = usual_credential(config);
    let parts = body(config, &url, is_known, &credential);
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\"><meta name=\"robots\" content=\"noindex\"><title>MCP endpoint - weir</title><style>{STYLE}</style></head>\
         <body><main>{parts}</main></body></html>\n"
    );
    HelpPage {
        parts: html.split(PATH_PLACEHOLDER).map(str::to_owned).collect(),
        policy: HeaderValue::from_static(POLICY.as_str()),
    }
}

fn body(config: &Config, url: &str, is_known: bool, credential: &EntryCredential) -> String {
    let shown = escape(url);
    let mut out = format!(
        "<h1>An MCP endpoint</h1><p>This address is for programs that speak the Model Context Protocol, such as assistants and \
         editors. A browser cannot use it; give the address to your client:</p><pre class=\"url\">{shown}</pre>"
    );
    if !is_known {
        out.push_str("<p><code>ADDRESS</code> is the name or the address of this machine.</p>");
    }
    out.push_str(match (config.auth.required, credential) {
        (false, _) => "<p>No login is needed.</p>",
        (true, EntryCredential::Variable(_)) => {
            "<p>An API key is required. Its operators issue keys.</p>"
        }
        (true, _) if !config.auth.issuers.is_empty() => {
            "<p>A login is required: a client opens a browser for it when it connects.</p>"
        }
        (true, _) => "<p>A client certificate is required. Its operators issue certificates.</p>",
    });
    out.push_str("<h2>Connect a client</h2>");
    out.push_str(&client_sections(url, credential));
    let _ = write!(
        out,
        "<h2>Other clients</h2><p>Every client with Streamable HTTP accepts the address as it is.{} With weir on your own machine, \
         <code>weir connect</code> writes the entries above, <code>weir stdio {shown}</code> is a bridge for clients that only start \
         programs, and <code>weir tools {shown}</code> lists the tools.</p>",
        if config.front.http_sse {
            format!(" A client of revision 2024-11-05 uses <code>{shown}/sse</code>.")
        } else {
            String::new()
        },
    );
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

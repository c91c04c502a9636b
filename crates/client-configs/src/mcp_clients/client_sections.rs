//! HTML instructions to connect each client: a part of the help page of endpoints and of the status
//! page.

use data_encoding::BASE64;
use maud::{Markup, html};
use sha2::{Digest as _, Sha256};

use crate::mcp_clients::client_entry::{EndpointConnection, EntryCredential};
use crate::mcp_clients::{ClientFolders, McpClient};

/// Returns the `Content-Security-Policy` of a page that has this one style and loads no resources.
pub fn style_policy(style: &str) -> String {
    let digest = BASE64.encode(&Sha256::digest(style));
    format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// Returns one collapsible section for each client: the file, the entry, and the client's own
/// command.
pub fn client_sections(url: &str, credential: &EntryCredential) -> Markup {
    html! {
        @for client in McpClient::ALL {
            (client_section(client, url, credential))
        }
    }
}

fn client_section(client: McpClient, url: &str, credential: &EntryCredential) -> Markup {
    let connection = EndpointConnection {
        name: "weir",
        url,
        program: "weir",
        credential: credential.clone(),
    };
    html! {
        details {
            summary { (client.title()) }
            @if let Some(command) = client.command(&connection) {
                p { "Run" }
                pre { (command) }
                p { "or add to " (files(client)) ":" }
            } @else {
                p { "Add to " (files(client)) ":" }
            }
            pre { (client.snippet(&connection).trim_end()) }
            @match credential {
                EntryCredential::Variable(variable) if client == McpClient::VsCode => {
                    p { "It asks for the key once. " (variable) " is not needed." }
                }
                EntryCredential::Variable(variable) if client.has_variables() => {
                    p { "Set " code { (variable) } " to the key where it starts." }
                }
                EntryCredential::Variable(_) => {
                    p {
                        "Its file has no variables: "
                        code { "weir connect " (client.name()) " " (url) " --with-secret --write" }
                        " writes the key into it."
                    }
                }
                EntryCredential::None | EntryCredential::Secret(_) => {}
            }
        }
    }
}

/// Returns the paths of a client's file on Linux, on macOS if different, and in projects.
fn files(client: McpClient) -> Markup {
    let folders = |is_macos| ClientFolders {
        is_macos,
        ..ClientFolders::at("~".into(), "".into())
    };
    let usual = |is_macos| client.usual_file(&folders(is_macos)).display().to_string();
    let (linux, macos) = (usual(false), usual(true));
    let project = client.project_file(&folders(false));
    html! {
        code { (linux) }
        @if macos != linux {
            ", on macOS " code { (macos) }
        }
        @if let Some(project) = project {
            ", or in a project " code { (project.display().to_string()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        let hostile = EntryCredential::Variable("<script>\"&".to_owned());
        let sections = client_sections("http://x/<img>", &hostile).into_string();
        assert!(!sections.contains("<script") && !sections.contains("<img"));
        let sections = client_sections("http://x/mcp", &EntryCredential::None).into_string();
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

//! The help page of endpoints, for a person who opens one in a browser.

use std::net::SocketAddr;
use std::sync::LazyLock;

use http::HeaderValue;
use maud::{Markup, PreEscaped, html};
use weir_client_configs::mcp_clients::client_entry::EntryCredential;
use weir_client_configs::mcp_clients::client_sections::{client_sections, style_policy};
use weir_config::Config;
use weir_front::settings::HelpPage;

const STYLE: &str = include_str!("page.css");
/// The placeholder of an endpoint's path while the page is built.
const PATH_PLACEHOLDER: &str = "/path-of-the-endpoint";

static POLICY: LazyLock<String> = LazyLock::new(|| style_policy(STYLE));

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
    let credential = EntryCredential::usual(config.requires_api_keys());
    let parts = body(config, &url, is_known, &credential);
    let html = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { "MCP endpoint - weir" }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (parts) } }
        }
        "\n"
    };
    let html = html.into_string();
    HelpPage {
        parts: html.split(PATH_PLACEHOLDER).map(str::to_owned).collect(),
        policy: HeaderValue::from_static(POLICY.as_str()),
    }
}

fn body(config: &Config, url: &str, is_known: bool, credential: &EntryCredential) -> Markup {
    html! {
        h1 { "An MCP endpoint" }
        p {
            "This address is for programs that speak the Model Context Protocol, such as assistants and editors. "
            "A browser cannot use it; give the address to your client:"
        }
        pre class="url" { (url) }
        @if !is_known {
            p { code { "ADDRESS" } " is the name or the address of this machine." }
        }
        p { (login(config, credential)) }
        h2 { "Connect a client" }
        (client_sections(url, credential))
        h2 { "Other clients" }
        p {
            "Every client with Streamable HTTP accepts the address as it is."
            @if config.front.http_sse {
                " A client of revision 2024-11-05 uses " code { (url) "/sse" } "."
            }
            " With weir on your own machine, " code { "weir connect" } " writes the entries above, "
            code { "weir stdio " (url) } " is a bridge for clients that only start programs, and "
            code { "weir tools " (url) } " lists the tools."
        }
    }
}

/// Returns the sentence on the credential that clients need.
fn login(config: &Config, credential: &EntryCredential) -> &'static str {
    match (config.auth.required, credential) {
        (false, _) => "No login is needed.",
        (true, EntryCredential::Variable(_)) => "An API key is required. Its operators issue keys.",
        (true, _) if !config.auth.issuers.is_empty() => {
            "A login is required: a client opens a browser for it when it connects."
        }
        (true, _) => "A client certificate is required. Its operators issue certificates.",
    }
}

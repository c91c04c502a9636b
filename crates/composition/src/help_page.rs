//! The help page of endpoints, for a person who opens one in a browser.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::LazyLock;

use http::HeaderValue;
use weir_client_configs::mcp_clients::client_entry::EntryCredential;
use weir_client_configs::mcp_clients::client_sections::{client_sections, escape, style_policy};
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

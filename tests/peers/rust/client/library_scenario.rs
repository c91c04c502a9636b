//! Prompts, resources and completion, by the SDK's own helpers.

use rmcp::model::{GetPromptRequestParams, ReadResourceRequestParams};
use serde_json::{Value, json};

use super::{ConnectedClient, print};

/// Lists prompts, resources and templates, gets `prompt`, reads, and has an argument completed.
/// `arguments` has the inputs: `arguments` of the prompt, URIs to `read`, and the `argument` to
/// complete.
pub(super) async fn run(
    client: &ConnectedClient,
    prompt: &str,
    arguments: &Value,
) -> anyhow::Result<()> {
    let names: Vec<_> = client
        .list_all_prompts()
        .await?
        .into_iter()
        .map(|prompt| prompt.name)
        .collect();
    print(&json!({ "event": "prompts", "names": names }));
    let mut get = GetPromptRequestParams::new(prompt);
    get.arguments = arguments["arguments"].as_object().cloned();
    print(&json!({ "event": "prompt", "messages": client.get_prompt(get).await?.messages }));
    let uris: Vec<_> = client
        .list_all_resources()
        .await?
        .into_iter()
        .map(|resource| json!(resource)["uri"].clone())
        .collect();
    print(&json!({ "event": "resources", "uris": uris }));
    let templates = client.list_all_resource_templates().await?.into_iter();
    let uris: Vec<_> = templates
        .map(|template| json!(template)["uriTemplate"].clone())
        .collect();
    print(&json!({ "event": "templates", "uris": uris }));
    for uri in arguments["read"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        let read = client
            .read_resource(ReadResourceRequestParams::new(uri))
            .await?;
        print(&json!({ "event": "read", "contents": read.contents }));
    }
    let argument = |member: &str| arguments["argument"][member].as_str().unwrap_or_default();
    let values = client
        .complete_prompt_simple(prompt, argument("name"), argument("value"))
        .await?;
    print(&json!({ "event": "completed", "values": values }));
    Ok(())
}

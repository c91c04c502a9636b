//! `weir resources URL` and `weir read URL URI`.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use weir_core::upstream::ListKind;
use weir_mcp_client::{Client, ClientError, ListedItems, item_word};
use weir_text::one_line;

use crate::call_command::{OutputOptions, print_notification, until_interrupted};
use crate::content;
use crate::exit_code::{EXIT_UNREACHABLE, exit_with_error};
use crate::list_options::{self, ListOptions, about};
use crate::server_target::{ServerTarget, print_client_error};
use crate::table::columns;
use crate::unknown_name::{self, UnknownName};

/// The options of `weir resources`.
#[derive(Debug, Args)]
pub struct ResourcesOptions {
    #[command(flatten)]
    listing: ListOptions,
    /// Print a JSON object with `resources` and `resourceTemplates`
    #[arg(long)]
    json: bool,
}

/// The options of `weir read`.
#[derive(Debug, Args)]
pub struct ReadOptions {
    #[command(flatten)]
    target: ServerTarget,
    /// The resource's URI, as `weir resources` shows it, or one made from a template
    uri: String,
    #[command(flatten)]
    output: OutputOptions,
}

/// Lists the resources of a server, or the templates of their URIs.
pub async fn resources(options: &ResourcesOptions) -> ExitCode {
    let ResourcesOptions { listing, json } = options;
    let (client, [resources, templates]) = match listing
        .read([ListKind::Resources, ListKind::Templates])
        .await
    {
        Ok(read) => read,
        Err(error) => return print_client_error(&error),
    };
    let all = (resources.items.len(), templates.items.len());
    let ListedItems { items, missing } = resources;
    let (resources, templates) = (
        listing.filter_items(items),
        listing.filter_items(templates.items),
    );
    let shown = resources.len() + templates.len();
    if *json {
        weir_terminal::line(weir_text::json(
            &json!({ "resources": resources, "resourceTemplates": templates }),
        ));
    } else {
        let rows = resources
            .iter()
            .map(|item| row(item, "uri"))
            .chain(templates.iter().map(|item| row(item, "uriTemplate")));
        weir_terminal::write(columns(&rows.collect::<Vec<_>>(), weir_terminal::width()));
        let found = list_options::summary(ListKind::Resources, resources.len(), all.0, &client);
        let more = if all.1 > 0 {
            format!(
                "; {}",
                weir_text::count(templates.len(), item_word(ListKind::Templates))
            )
        } else {
            String::new()
        };
        weir_terminal::note(format_args!("{found}{more}"));
    }
    listing.print_missing(ListKind::Resources, &missing);
    client.close().await;
    listing.exit_code(shown, &missing)
}

fn row(item: &Value, place: &str) -> Vec<String> {
    let text = |member: &str| one_line(item[member].as_str().unwrap_or_default());
    let about = Some(about(item))
        .filter(|about| !about.is_empty())
        .unwrap_or_else(|| text("name"));
    vec![text(place), text("mimeType"), about]
}

/// Prints or saves a resource.
pub async fn read(options: &ReadOptions) -> ExitCode {
    let read = async {
        let mut client: Client = options.target.open().await?;
        let read = client
            .read(&options.uri, &mut |note| print_notification(&note))
            .await;
        // A URI outside all lists may come from a template. It is reported as unknown only if it
        // looks misspelt.
        let unknown = match &read {
            Err(_) => {
                unknown_name::find_unknown(&mut client, ListKind::Resources, &options.uri, &read)
                    .await
            }
            Ok(_) => None,
        };
        client.close().await;
        match unknown.filter(UnknownName::has_similar) {
            Some(unknown) => Ok::<_, ClientError>(Err(unknown)),
            None => read.map(Ok),
        }
    };
    let result = match until_interrupted(read).await {
        Ok(Ok(Ok(result))) => result,
        Ok(Ok(Err(unknown))) => {
            return exit_with_error(EXIT_UNREACHABLE, unknown.explain(&options.target.url));
        }
        Ok(Err(error)) => return print_client_error(&error),
        Err(code) => return code,
    };
    let contents = result["contents"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let lines: Vec<String> = match options.output.out {
        // Contents that are saved are not printed.
        Some(_) => Vec::new(),
        None => contents.iter().map(content::show_resource).collect(),
    };
    let media = || {
        contents
            .iter()
            .filter_map(|one| content::of_resource(one).transpose())
            .collect()
    };
    options
        .output
        .finish(&result, &lines, media, last_part(&options.uri))
}

/// Returns the end of a URI's path, for a file's name.
fn last_part(uri: &str) -> &str {
    let path = uri.split(['?', '#']).next().unwrap_or(uri);
    path.trim_end_matches('/')
        .rsplit(['/', ':'])
        .next()
        .unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_shows_its_uri_type_and_name() {
        let item = json!({"uri": "memo:1\u{1b}", "mimeType": "text/plain", "name": "one"});
        assert_eq!(row(&item, "uri"), ["memo:1", "text/plain", "one"]);
        assert_eq!(
            row(
                &json!({"uriTemplate": "memo:{id}", "description": "a memo"}),
                "uriTemplate"
            ),
            ["memo:{id}", "", "a memo"]
        );
    }

    #[test]
    fn a_file_is_named_after_the_end_of_its_uri() {
        for (uri, name) in [
            ("file:///a/b.txt", "b.txt"),
            ("memo:1", "1"),
            ("https://h/x/?q=1/2", "x"),
            ("", ""),
        ] {
            assert_eq!(last_part(uri), name);
        }
    }
}

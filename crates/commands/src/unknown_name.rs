//! Explains a name that the server does not have, with the similar names that it has.

use serde_json::Value;
use weir_core::upstream::ListKind;
use weir_mcp_client::{Client, ClientError, ListedItems, MissingUpstream, item_word};
use weir_text::suggestion::similar;
use weir_text::{one_line, url_without_credentials};
use weir_wire::{error_code, unknown_tool};

/// A name that is in no list of the server.
pub(super) struct UnknownName {
    list: ListKind,
    name: String,
    similar: Vec<String>,
    missing: Vec<MissingUpstream>,
}

/// Reads the list if the answer may mean that the name is unknown.
pub(super) async fn find_unknown(
    client: &mut Client,
    list: ListKind,
    name: &str,
    answer: &Result<Value, ClientError>,
) -> Option<UnknownName> {
    if !may_be_unknown(answer, name) {
        return None;
    }
    let mut listed = client.list(list).await.ok()?;
    if list == ListKind::Resources {
        // A URI may come from a template.
        listed
            .items
            .append(&mut client.list(ListKind::Templates).await.ok()?.items);
    }
    let is_of = |known: &str| {
        known == name
            || known
                .split_once('{')
                .is_some_and(|(before, _)| name.starts_with(before))
    };
    let is_known =
        names(list, &listed).any(is_of) || find_by_own_name(&listed.items, name).is_some();
    (!is_known).then(|| UnknownName::new(list, name, &listed))
}

fn names(list: ListKind, listed: &ListedItems) -> impl Iterator<Item = &str> {
    let members: &[&str] = if list == ListKind::Resources {
        &["uri", "uriTemplate"]
    } else {
        &["name"]
    };
    listed
        .items
        .iter()
        .filter_map(move |item| members.iter().find_map(|member| item[*member].as_str()))
}

/// Returns the only tool with this own name. An endpoint with several upstreams lists it with a
/// prefix.
pub(super) fn find_by_own_name<'a>(items: &'a [Value], name: &str) -> Option<&'a Value> {
    let own = |item: &&Value| {
        item["name"]
            .as_str()
            .and_then(|exposed| exposed.split_once("__"))
            .is_some_and(|(_, own)| own == name)
    };
    let mut found = items.iter().filter(own);
    found.next().filter(|_| found.next().is_none())
}

/// Reports if an answer may mean an unknown name. Servers use several codes for that, and some a
/// result.
fn may_be_unknown(answer: &Result<Value, ClientError>, name: &str) -> bool {
    match answer {
        Err(ClientError::Refused { code, .. }) => [
            error_code::INVALID_PARAMS,
            error_code::METHOD_NOT_FOUND,
            error_code::RESOURCE_NOT_FOUND,
            error_code::INTERNAL_ERROR,
        ]
        .contains(code),
        Ok(result) if result["isError"] == true => result["content"][0]["text"]
            .as_str()
            .is_some_and(|text| unknown_tool::is_reported_by(text, name)),
        Ok(_) | Err(_) => false,
    }
}

impl UnknownName {
    /// Creates the error for a name that is not in this list.
    pub(crate) fn new(list: ListKind, name: &str, listed: &ListedItems) -> Self {
        let similar = similar(name, names(list, listed))
            .into_iter()
            .map(one_line)
            .collect();
        Self {
            list,
            name: one_line(name),
            similar,
            missing: listed.missing.clone(),
        }
    }

    /// Reports if the list has similar names.
    pub(super) fn has_similar(&self) -> bool {
        !self.similar.is_empty()
    }

    /// Returns the message, with the next step.
    pub(crate) fn explain(&self, url: &str) -> String {
        let Self {
            list,
            name,
            similar,
            missing,
        } = self;
        let url = url_without_credentials(url);
        let quoted: Vec<String> = similar.iter().map(|name| format!("`{name}`")).collect();
        let next = match quoted.is_empty() {
            true => format!("`weir {}s {url}` lists them", item_word(*list)),
            false => format!("did you mean {}?", enumerated(&quoted, "or")),
        };
        let away: Vec<String> = missing
            .iter()
            .filter(|one| one.is_away())
            .map(|one| format!("`{}`", one_line(&one.upstream)))
            .collect();
        let away = match away.is_empty() {
            true => String::new(),
            false => format!(
                "{} The list is incomplete: {} cannot be reached now",
                if next.ends_with('?') { "" } else { "." },
                enumerated(&away, "and")
            ),
        };
        format!("{url} has no {} `{name}`: {next}{away}", item_word(*list))
    }
}

/// Returns names as a part of a sentence, with a word before the last one.
fn enumerated(names: &[String], word: &str) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => {
            format!("{} {word} {last}", others.join(", "))
        }
        names => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn similar_names_and_missing_upstreams_are_sentences() {
        let missing = |upstream: &str| MissingUpstream {
            upstream: upstream.to_owned(),
            reason: "down".to_owned(),
        };
        let listed = |names: &[&str], away: &[&str]| ListedItems {
            items: names.iter().map(|name| json!({ "name": name })).collect(),
            missing: away.iter().map(|upstream| missing(upstream)).collect(),
        };
        let explained = |listed: &ListedItems| {
            UnknownName::new(ListKind::Tools, "ecoh", listed).explain("http://h/mcp")
        };
        assert_eq!(
            explained(&listed(&[], &["a", "b", "c"])),
            "http://h/mcp has no tool `ecoh`: `weir tools http://h/mcp` lists them. The list is incomplete: `a`, `b` \
             and `c` cannot be reached now"
        );
        assert_eq!(
            explained(&listed(&["echo"], &["a"])),
            "http://h/mcp has no tool `ecoh`: did you mean `echo`? The list is incomplete: `a` cannot be reached now"
        );
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(enumerated(&names, "or"), "a, b or c");
        assert_eq!(enumerated(&names[..2], "or"), "a or b");
    }
}

//! Files of other programs: the settings of MCP clients with their lists of servers, used
//! unchanged.
//!
//! A file is foreign if it is JSON or TOML, its servers are under one of [`CONTAINERS`], and it has
//! no key that is weir's own or looks like a misspelt one. All other files are weir's own, and an
//! unknown key in them is an error. A foreign file has no section of weir's, so it is served with
//! the defaults: on loopback only.

pub mod env_file;
pub mod file_place;
pub mod found_servers;
pub mod inputs;
mod opencode;
mod server_normalizer;
pub mod server_origin;
mod server_values;

use std::sync::LazyLock;

pub use inputs::answers;
pub use inputs::{InputSource, InputVariable};
pub use server_origin::ServerOrigin;

use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use crate::config_tree::{ConfigNode, NodeValue};
use crate::document::FileFormat;
use crate::schema::{self, SCHEMA_KEY};
use server_normalizer::ServerNormalizer;
use server_origin::CONTAINERS;
use weir_text::suggestion::nearest;

/// Beginnings of keys that could be meant as a protection of weir: `authentication`, `policies`.
const PROTECTION_PREFIXES: [&str; 5] = ["auth", "polic", "listen", "audit", "tls"];
/// The most keys that one message names.
const MAX_NAMED_KEYS: usize = 20;

/// weir's own keys at the top of a file, except `mcpServers`.
static OWN_KEYS: LazyLock<Vec<String>> = LazyLock::new(|| {
    schema::keys()
        .into_iter()
        .filter(|key| key != CONTAINERS[0])
        .collect()
});

/// The parts of another program's file besides its servers.
#[derive(Debug, Default)]
pub struct AdoptedFile {
    /// The inputs of the file.
    pub inputs: Vec<InputVariable>,
    /// Paths in the tree, each with its path in the file.
    pub aliases: Vec<(ConfigPath, ConfigPath)>,
}

/// Converts the servers of other programs to the form of `mcpServers`: those of a foreign file,
/// under any container, and those under `mcpServers` in a file of weir's own. Unknown keys are
/// removed with a warning.
pub fn adopt(
    tree: &mut ConfigNode,
    origin: &ServerOrigin<'_>,
    report: &mut ConfigReport,
) -> AdoptedFile {
    let mut adopted = AdoptedFile::default();
    let NodeValue::Map(entries) = &mut tree.value else {
        return adopted;
    };
    let is_foreign = is_foreign(entries, origin.format);
    if is_foreign {
        adopted.inputs = inputs::parse(&ConfigPath::root(), entries, report);
        ignore_others(entries, report);
    } else {
        explain_mixture(entries, origin.format, report);
    }
    let mut all: Vec<(String, ConfigNode)> = Vec::new();
    let mut line = tree.line;
    for (container, node) in entries
        .iter_mut()
        .filter(|(key, _)| is_foreign || key == CONTAINERS[0])
    {
        let NodeValue::Map(servers) = &mut node.value else {
            continue;
        };
        line = node.line;
        let container = &ConfigPath::root().key(&*container);
        let mut part = ServerNormalizer {
            container,
            is_foreign,
            origin,
            aliases: &mut adopted.aliases,
            report,
        };
        for (name, server) in part.normalise(std::mem::take(servers)) {
            if all.iter().any(|(other, _)| *other == name) {
                let problem = ConfigProblem::error(
                    container.key(&name),
                    "another server of the file has this name",
                );
                report.add(ConfigProblem {
                    line: Some(server.line),
                    ..problem.hint("rename one of them")
                });
            } else {
                all.push((name, server));
            }
        }
    }
    let servers = ConfigNode {
        line,
        value: NodeValue::Map(all),
    };
    if is_foreign {
        *entries = vec![(CONTAINERS[0].to_owned(), servers)];
    } else if let Some((_, own)) = entries
        .iter_mut()
        .find(|(key, node)| key == CONTAINERS[0] && is_map(node))
    {
        own.value = servers.value;
    }
    adopted
}

/// Converts the servers under `mcpServers` of a team's file, which is never foreign.
pub fn adopt_of_team(tree: &mut ConfigNode, origin: &ServerOrigin<'_>, report: &mut ConfigReport) {
    let NodeValue::Map(entries) = &mut tree.value else {
        return;
    };
    for (container, node) in entries.iter_mut().filter(|(key, _)| key == CONTAINERS[0]) {
        let NodeValue::Map(servers) = &mut node.value else {
            continue;
        };
        let mut aliases = Vec::new();
        let container = &ConfigPath::root().key(&*container);
        let mut part = ServerNormalizer {
            container,
            is_foreign: false,
            origin,
            aliases: &mut aliases,
            report,
        };
        *servers = part.normalise(std::mem::take(servers));
        for (name, server) in servers {
            let NodeValue::Map(keys) = &mut server.value else {
                continue;
            };
            if let Some(at) = keys
                .iter()
                .position(|(key, _)| key == server_normalizer::ENV_FILE)
            {
                let (_, node) = keys.remove(at);
                let path = ConfigPath::at(CONTAINERS[0])
                    .key(name)
                    .key(server_normalizer::ENV_FILE);
                let problem = ConfigProblem::error(path, "is for the main file alone")
                    .hint("write the variables under `env`");
                report.add(ConfigProblem {
                    line: Some(node.line),
                    ..problem
                });
            }
        }
    }
}

fn is_map(node: &ConfigNode) -> bool {
    matches!(node.value, NodeValue::Map(_))
}

/// Reports if a file belongs to another program. A key that could be a misspelt one of weir's makes
/// the file weir's own, so that it is an error there: a misspelt `auth` must not be ignored.
fn is_foreign(entries: &[(String, ConfigNode)], format: FileFormat) -> bool {
    let has_servers = entries
        .iter()
        .any(|(key, node)| CONTAINERS.contains(&key.as_str()) && is_map(node));
    let others = || {
        entries
            .iter()
            .filter(|(key, _)| !CONTAINERS.contains(&key.as_str()))
    };
    format != FileFormat::Yaml && has_servers && !others().any(|(key, _)| looks_own(key))
}

/// Reports if a parsed file belongs to another program.
pub(crate) fn is_foreign_file(tree: &ConfigNode, format: FileFormat) -> bool {
    is_foreign(tree.entries(), format)
}

/// Reports if a key is weir's own, or could be a misspelt one.
fn looks_own(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    let own: Vec<&str> = OWN_KEYS.iter().map(String::as_str).collect();
    let protects = PROTECTION_PREFIXES
        .iter()
        .any(|begin| key.starts_with(begin));
    protects || own.contains(&key.as_str()) || nearest(&key, own.iter().copied()).is_some()
}

/// Warns of all other keys of a foreign file in one message: an editor has hundreds of settings.
fn ignore_others(entries: &mut Vec<(String, ConfigNode)>, report: &mut ConfigReport) {
    let mut ignored = Vec::new();
    let has_projects = entries.iter().any(|(key, node)| {
        let mut projects = node.entries().iter();
        key == "projects"
            && projects.any(|(_, project)| project.find(&ConfigPath::at(CONTAINERS[0])).is_some())
    });
    entries.retain(|(key, node)| {
        let is_known = CONTAINERS.contains(&key.as_str()) && is_map(node);
        if !is_known && key != inputs::KEY && key != SCHEMA_KEY {
            ignored.push((key.clone(), node.line));
        }
        is_known
    });
    let Some((first, line)) = ignored.first() else {
        return;
    };
    let problem = if ignored.len() == 1 {
        ConfigProblem::warning(
            ConfigPath::root().key(first),
            "is not used by weir and is ignored",
        )
    } else {
        let named: Vec<String> = ignored
            .iter()
            .take(MAX_NAMED_KEYS)
            .map(|(key, line)| format!("`{key}` (line {line})"))
            .collect();
        let more = ignored.len().saturating_sub(MAX_NAMED_KEYS);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let message = format!(
            "{} keys are not used by weir and are ignored: {}{more}",
            ignored.len(),
            named.join(", ")
        );
        ConfigProblem::warning(ConfigPath::root(), message)
    };
    let hint =
        has_projects.then(|| "`weir import FILE` takes the servers of `projects`, too".to_owned());
    report.add(ConfigProblem {
        line: Some(*line),
        hint,
        ..problem
    });
}

/// Explains a file with servers of another program and a key of weir's, which makes it a file of
/// weir's own. Containers that weir does not have are refused here. All other unknown keys are
/// errors of the checks.
fn explain_mixture(
    entries: &mut Vec<(String, ConfigNode)>,
    format: FileFormat,
    report: &mut ConfigReport,
) {
    if format == FileFormat::Yaml {
        return;
    }
    let is_container = |key: &str| CONTAINERS.contains(&key);
    let Some(own) = entries
        .iter()
        .map(|(key, _)| key.clone())
        .find(|key| looks_own(key) && !is_container(key))
    else {
        return;
    };
    let hint = "`weir import FILE` converts a file of another program";
    let has_others = entries
        .iter()
        .any(|(key, _)| !is_container(key) && !OWN_KEYS.contains(key) && key != SCHEMA_KEY);
    let servers = entries
        .iter()
        .find(|(key, node)| key == CONTAINERS[0] && is_map(node));
    if let Some((_, node)) = servers.filter(|_| has_others) {
        let message =
            format!("is used together with `{own}`, so the other keys must be weir's own, too");
        let problem = ConfigProblem::note(ConfigPath::at(CONTAINERS[0]), message).hint(hint);
        report.add(ConfigProblem {
            line: Some(node.line),
            ..problem
        });
    }
    entries.retain(|(key, node)| {
        let is_foreign = CONTAINERS[1..].contains(&key.as_str()) && is_map(node);
        if is_foreign {
            let message = format!(
                "is used together with `{own}`, which is a key of weir's own or looks like one"
            );
            let problem = ConfigProblem::error(ConfigPath::root().key(key), message);
            let problem = problem.hint(format!("write the servers under `upstreams`; {hint}"));
            report.add(ConfigProblem {
                line: Some(node.line),
                ..problem
            });
        }
        !is_foreign
    });
}

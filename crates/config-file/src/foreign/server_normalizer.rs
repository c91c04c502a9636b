//! Converts one server as MCP clients write it to the keys of `mcpServers`.

use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use crate::config_tree::{ConfigNode, NodeValue};
use crate::env::reference::is_variable;
use crate::foreign::opencode;
use crate::foreign::server_origin::{CONTAINERS, ServerOrigin};
use crate::foreign::server_values::{brace_variables, flatten_command, keep_own_references, texts};
use crate::raw::RawMcpServer;

/// The key of a variable file. It is removed once the file is read.
pub(super) const ENV_FILE: &str = "envFile";
/// Keys for the URL of a server over Streamable HTTP. The first one counts.
const URLS: [&str; 3] = ["httpUrl", "serverUrl", "url"];
/// Transports that weir supports.
const KINDS: [&str; 6] = [
    "stdio",
    "http",
    "streamable-http",
    "streamableHttp",
    "streamable_http",
    "sse",
];
/// Keys without meaning for a server with a URL, then those for a program that weir starts.
const OF_PROGRAMS: [&str; 4] = ["args", "env", "cwd", ENV_FILE];
const OF_URLS: [&str; 1] = ["headers"];

/// Keys with a warning of their own: the key, the message and the hint.
const UNSUPPORTED_KEYS: [(&[&str], &str, &str); 4] = [
    (
        &[
            "includeTools",
            "excludeTools",
            "enabledTools",
            "disabledTools",
            "enabled_tools",
            "disabled_tools",
        ],
        "is not kept: all tools of the server are served",
        "select tools under `endpoints`, or hide them by a policy (docs/policy.md)",
    ),
    (
        &["sandbox", "sandboxEnabled"],
        "is not kept: weir starts the server without a sandbox",
        "start it in a container, or remove the server",
    ),
    (
        &[
            "oauth",
            "auth",
            "authProviderType",
            "scopes",
            "headersHelper",
        ],
        "is not used: weir connects without it",
        "write the server under `upstreams`, with `auth`",
    ),
    (
        &[
            "timeout",
            "tool_timeout_sec",
            "startup_timeout_sec",
            "startup_timeout_ms",
        ],
        "is not a known key and is ignored",
        "write the server under `upstreams`, with `start` and `deadlines`",
    ),
];

/// Normalizes the servers of one container.
pub(super) struct ServerNormalizer<'a, 'o> {
    /// The path of the container.
    pub container: &'a ConfigPath,
    /// True for a file of another program.
    pub(crate) is_foreign: bool,
    pub origin: &'a ServerOrigin<'o>,
    pub aliases: &'a mut Vec<(ConfigPath, ConfigPath)>,
    pub report: &'a mut ConfigReport,
}

impl ServerNormalizer<'_, '_> {
    /// Returns the servers with the keys that weir knows. Servers that are switched off or that
    /// weir cannot serve are left out.
    pub(super) fn normalise(
        &mut self,
        servers: Vec<(String, ConfigNode)>,
    ) -> Vec<(String, ConfigNode)> {
        servers
            .into_iter()
            .filter_map(|(name, server)| {
                Some((name.clone(), self.normalise_server(&name, server)?))
            })
            .collect()
    }

    fn normalise_server(&mut self, name: &str, mut server: ConfigNode) -> Option<ConfigNode> {
        let path = self.container.key(name);
        self.aliases
            .push((ConfigPath::at(CONTAINERS[0]).key(name), path.clone()));
        let line = server.line;
        let NodeValue::Map(keys) = &mut server.value else {
            return self
                .kept_if_own(&path, line, "is not a server and is left out")
                .then_some(server);
        };
        if self.is_off(keys, &path, line) {
            return None;
        }
        flatten_command(keys);
        if self.is_foreign {
            opencode::convert(keys);
        }
        self.drop_empty(keys, &path);
        self.rename_keys(keys, &path);
        self.convert_codex_variables(keys, name, &path);
        if let Some(why) = unsupported_reason(keys).filter(|_| self.is_foreign) {
            self.warn(&path, line, why, None);
            return None;
        }
        self.drop_unknown(keys, &path);
        texts(keys);
        if self.is_foreign {
            keep_own_references(keys);
        }
        if self.origin.place.has_bare_variables {
            keys.iter_mut().for_each(|(_, node)| brace_variables(node));
        }
        if self.is_foreign {
            self.drop_misplaced(keys, &path);
            self.start_in_project(keys, line);
        }
        Some(server)
    }

    fn warn(
        &mut self,
        path: &ConfigPath,
        line: u32,
        message: impl Into<String>,
        hint: Option<&str>,
    ) {
        let problem = ConfigProblem::warning(path.clone(), message);
        let problem = hint.map_or_else(|| problem.clone(), |hint| problem.clone().hint(hint));
        self.report.add(ConfigProblem {
            line: Some(line),
            ..problem
        });
    }

    /// Warns in another program's file. In weir's own the value stays, and the checks refuse it.
    fn kept_if_own(&mut self, path: &ConfigPath, line: u32, why: &str) -> bool {
        if self.is_foreign {
            self.warn(path, line, why, None);
        }
        !self.is_foreign
    }

    /// Reports if a server is switched off: `disabled: true`, or `enabled: false`.
    fn is_off(&mut self, keys: &[(String, ConfigNode)], path: &ConfigPath, line: u32) -> bool {
        let says = |key: &str, wanted: bool| {
            keys.iter().any(|(other, node)| {
                other == key && matches!(node.value, NodeValue::Bool(value) if value == wanted)
            })
        };
        let why = match (says("disabled", true), says("enabled", false)) {
            (true, _) => "is left out, because it is `disabled`",
            (false, true) => "is left out, because it is not `enabled`",
            (false, false) => return false,
        };
        self.report.add(ConfigProblem {
            line: Some(line),
            ..ConfigProblem::note(path.clone(), why)
        });
        true
    }

    /// Removes known keys without a value, and variables and headers without one.
    fn drop_empty(&mut self, keys: &mut Vec<(String, ConfigNode)>, path: &ConfigPath) {
        let is_foreign = self.is_foreign;
        let mut empty = Vec::new();
        keys.retain_mut(|(key, node)| {
            if let (true, NodeValue::Map(entries)) = (
                is_foreign && matches!(key.as_str(), "env" | "headers"),
                &mut node.value,
            ) {
                entries.retain(|(inner, node)| {
                    let is_null = matches!(node.value, NodeValue::Null);
                    is_null.then(|| empty.push((path.key(&*key).key(inner), node.line)));
                    !is_null
                });
            }
            let is_empty =
                RawMcpServer::KEYS.contains(&key.as_str()) && matches!(node.value, NodeValue::Null);
            is_empty.then(|| empty.push((path.key(&*key), node.line)));
            !is_empty
        });
        for (path, line) in empty {
            self.warn(&path, line, "has no value and is ignored", None);
        }
    }

    /// Renames the alternative keys of the URL, transport and headers to those of `mcpServers`.
    fn rename_keys(&mut self, keys: &mut Vec<(String, ConfigNode)>, path: &ConfigPath) {
        let counts = URLS
            .into_iter()
            .find(|url| keys.iter().any(|(key, _)| key == url));
        if let Some(counts) = counts {
            let (kept, others): (Vec<_>, Vec<_>) = std::mem::take(keys)
                .into_iter()
                .partition(|(key, _)| key == counts || !URLS.contains(&key.as_str()));
            *keys = kept;
            for (key, node) in others {
                self.warn(
                    &path.key(&key),
                    node.line,
                    format!("is ignored, because there is `{counts}`"),
                    None,
                );
            }
            self.rename_key(keys, counts, "url", path);
        }
        if !keys.iter().any(|(key, _)| key == "type") {
            self.rename_key(keys, "transport", "type", path);
        }
        if !keys.iter().any(|(key, _)| key == "headers") {
            self.rename_key(keys, "http_headers", "headers", path);
        }
        if let Some(kind) = keys
            .iter_mut()
            .find(|(key, node)| key == "type" && node.as_text() == Some("streamable_http"))
        {
            kind.1 = ConfigNode::text(kind.1.line, "streamable-http");
        }
    }

    /// Renames a key, and records the alias.
    fn rename_key(
        &mut self,
        keys: &mut [(String, ConfigNode)],
        from: &str,
        to: &str,
        path: &ConfigPath,
    ) {
        if from == to {
            return;
        }
        if let Some((key, _)) = keys.iter_mut().find(|(key, _)| key == from) {
            to.clone_into(key);
            let name = path.segments().last().unwrap_or_default();
            self.aliases.push((
                ConfigPath::at(CONTAINERS[0]).key(name).key(to),
                path.key(from),
            ));
        }
    }

    /// Converts the variables that Codex names to references.
    fn convert_codex_variables(
        &mut self,
        keys: &mut Vec<(String, ConfigNode)>,
        name: &str,
        path: &ConfigPath,
    ) {
        let mut take = |key: &str| {
            let at = keys.iter().position(|(other, _)| other == key)?;
            Some(keys.remove(at).1)
        };
        let token = take("bearer_token_env_var");
        let headers = take("env_http_headers");
        let variables = take("env_vars");
        if let Some((node, variable)) = token
            .as_ref()
            .and_then(|node| Some((node, node.as_text()?)))
        {
            self.aliases.push((
                ConfigPath::at(CONTAINERS[0])
                    .key(name)
                    .key("headers")
                    .key("Authorization"),
                path.key("bearer_token_env_var"),
            ));
            insert_if_absent(
                keys,
                "headers",
                "Authorization",
                &ConfigNode::text(node.line, format!("Bearer ${{{variable}}}")),
            );
        }
        for (header, node) in headers.iter().flat_map(ConfigNode::entries) {
            if let Some(variable) = node.as_text() {
                insert_if_absent(
                    keys,
                    "headers",
                    header,
                    &ConfigNode::text(node.line, format!("${{{variable}}}")),
                );
            }
        }
        let Some(ConfigNode {
            value: NodeValue::List(variables),
            ..
        }) = variables
        else {
            return;
        };
        for node in &variables {
            let variable = node
                .as_text()
                .or_else(|| node.find(&ConfigPath::at("name"))?.as_text());
            let Some(variable) = variable.filter(|variable| is_variable(variable)) else {
                continue;
            };
            if (self.origin.environment)(variable).is_some() {
                insert_if_absent(
                    keys,
                    "env",
                    variable,
                    &ConfigNode::text(node.line, format!("${{{variable}}}")),
                );
            } else {
                let message =
                    format!("{variable} is not set where weir starts, so it is not passed on");
                self.warn(&path.key("env_vars"), node.line, message, None);
            }
        }
    }

    /// Removes the keys that weir does not know.
    fn drop_unknown(&mut self, keys: &mut Vec<(String, ConfigNode)>, path: &ConfigPath) {
        // Keys without effect here, such as `enabled: true` and the origin of a server.
        let says_nothing = ["enabled", "source", "name", "description"];
        let (known, unknown): (Vec<_>, Vec<_>) = std::mem::take(keys)
            .into_iter()
            .filter(|(key, _)| !(self.is_foreign && says_nothing.contains(&key.as_str())))
            .partition(|(key, _)| RawMcpServer::KEYS.contains(&key.as_str()) || key == ENV_FILE);
        *keys = known;
        for (key, node) in unknown {
            let lost = UNSUPPORTED_KEYS
                .iter()
                .find(|(lost, _, _)| lost.contains(&key.as_str()));
            let (message, hint) = match lost {
                Some((_, message, hint)) => (*message, Some(*hint)),
                None => ("is not a known key and is ignored", None),
            };
            self.warn(&path.key(&key), node.line, message, hint);
        }
    }

    /// Removes the keys of the other transport: `env` beside a URL, `headers` beside a command.
    fn drop_misplaced(&mut self, keys: &mut Vec<(String, ConfigNode)>, path: &ConfigPath) {
        let has = |key: &str| keys.iter().any(|(other, _)| other == key);
        let (misplaced, what): (&[&str], _) = match (has("url"), has("command")) {
            (true, false) => (&OF_PROGRAMS, "a server behind a URL"),
            (false, true) => (&OF_URLS, "a server that weir starts"),
            _ => return,
        };
        let (out, kept): (Vec<_>, Vec<_>) = std::mem::take(keys)
            .into_iter()
            .partition(|(key, _)| misplaced.contains(&key.as_str()));
        *keys = kept;
        for (key, node) in out {
            self.warn(
                &path.key(&key),
                node.line,
                format!("has no effect for {what} and is ignored"),
                None,
            );
        }
    }

    /// Sets the working directory of a program in a project's file to the project, as the client
    /// does.
    fn start_in_project(&self, keys: &mut Vec<(String, ConfigNode)>, line: u32) {
        let Some(project) = self
            .origin
            .place
            .project
            .as_ref()
            .and_then(|folder| folder.to_str())
        else {
            return;
        };
        if !keys.iter().any(|(key, _)| key == "command") {
            return;
        }
        // A path with `${` would be parsed as a reference.
        let project = project.replace("${", "$${");
        match keys.iter_mut().find(|(key, _)| key == "cwd") {
            None => keys.push(("cwd".to_owned(), ConfigNode::text(line, project))),
            Some((_, node)) => {
                let relative = node
                    .as_text()
                    .filter(|cwd| !cwd.starts_with(['/', '$']))
                    .map(str::to_owned);
                if let Some(relative) = relative {
                    *node = ConfigNode::text(node.line, format!("{project}/{relative}"));
                }
            }
        }
    }
}

/// Returns the reason why weir cannot serve a server of another program.
fn unsupported_reason(keys: &[(String, ConfigNode)]) -> Option<String> {
    let kind = keys
        .iter()
        .find(|(key, _)| key == "type")
        .and_then(|(_, node)| node.as_text());
    if let Some(kind) = kind.filter(|kind| !KINDS.contains(kind)) {
        return Some(format!(
            "is left out, because weir supports no servers of the type `{kind}`"
        ));
    }
    let is_reachable = keys.iter().any(|(key, _)| key == "url" || key == "command");
    (!is_reachable)
        .then(|| "is left out, because it has neither a command nor a URL here".to_owned())
}

/// Adds an entry to a map of the server, unless the map has it.
fn insert_if_absent(keys: &mut Vec<(String, ConfigNode)>, map: &str, key: &str, node: &ConfigNode) {
    if !keys.iter().any(|(other, _)| other == map) {
        keys.push((
            map.to_owned(),
            ConfigNode {
                line: node.line,
                value: NodeValue::Map(Vec::new()),
            },
        ));
    }
    for (_, entries) in keys.iter_mut().filter(|(other, _)| other == map) {
        if let NodeValue::Map(entries) = &mut entries.value
            && !entries
                .iter()
                .any(|(other, _)| other.eq_ignore_ascii_case(key))
        {
            entries.push((key.to_owned(), node.clone()));
        }
    }
}

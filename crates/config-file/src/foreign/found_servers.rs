//! Reads the servers of another program's file as written, for `weir import`: no reference is
//! filled in, and no server is started.

use std::path::Path as FilePath;

use crate::config_files;
use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use crate::config_tree::{ConfigNode, NodeValue};
use crate::document::parse;
use crate::foreign::file_place::FilePlace;
use crate::foreign::inputs;
use crate::foreign::inputs::InputVariable;
use crate::foreign::opencode;
use crate::foreign::server_normalizer::{ENV_FILE, ServerNormalizer};
use crate::foreign::server_origin::{CONTAINERS, ServerOrigin};

/// The key of the settings of VS Code that has servers and inputs. opencode keeps its servers there.
const EDITOR_SETTINGS: &str = "mcp";

/// The content of a file of another program.
#[derive(Debug, Default)]
pub struct FoundFile {
    /// Its servers, without those that are switched off.
    pub servers: Vec<FoundServer>,
    /// Its inputs.
    pub inputs: Vec<InputVariable>,
    /// The messages about it.
    pub report: ConfigReport,
}

/// A server, with the texts of the file.
#[derive(Debug, Default)]
pub struct FoundServer {
    /// Its key in the file.
    pub name: String,
    /// The line of its entry.
    pub line: u32,
    /// The place of the file, or the project of Claude Code.
    pub place: FilePlace,
    /// The URL, for a server over HTTP.
    pub url: Option<String>,
    /// True for HTTP+SSE.
    pub is_sse: bool,
    /// The program, for a server that is started.
    pub command: Option<String>,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// Environment variables of the program.
    pub env: Vec<(String, String)>,
    /// The file with further environment variables.
    pub env_file: Option<String>,
    /// The working directory of the program.
    pub cwd: Option<String>,
    /// Headers of requests to the URL.
    pub headers: Vec<(String, String)>,
}

impl FoundServer {
    /// Returns all texts that may have references.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        let maps = self.env.iter().chain(&self.headers).map(|(_, text)| text);
        let single = [&self.url, &self.command, &self.cwd].into_iter().flatten();
        single.chain(&self.args).chain(maps)
    }
}

/// Finds the servers of a file.
///
/// # Errors
/// The file cannot be read or parsed.
pub fn find(file: &FilePath, home: Option<&FilePath>) -> Result<FoundFile, ConfigProblem> {
    let name = file.display().to_string();
    let named = |problem: ConfigProblem| ConfigProblem {
        file: name.clone(),
        ..problem
    };
    let (mut tree, format) = config_files::read_stream(file)
        .and_then(|text| parse(&name, &text))
        .map_err(named)?;
    let mut found = FoundFile::default();
    let kind = tree.kind();
    let entries = match &mut tree.value {
        NodeValue::Map(entries) => entries,
        // A client's file may be empty before it has its first server.
        NodeValue::Null => return Ok(found),
        NodeValue::Unset
        | NodeValue::Bool(_)
        | NodeValue::Integer(_)
        | NodeValue::Float(_)
        | NodeValue::Text(_)
        | NodeValue::List(_) => {
            let message = format!("expected a map of settings, found {kind}");
            return Err(named(ConfigProblem::error(ConfigPath::root(), message)));
        }
    };
    found.inputs = inputs::parse(&ConfigPath::root(), entries, &mut found.report);
    if let Some((key, settings)) = entries.iter().find(|(key, _)| key == EDITOR_SETTINGS) {
        let place = ConfigPath::root().key(&**key);
        let inputs = inputs::parse(&place, settings.entries(), &mut found.report);
        found.inputs.extend(inputs);
    }
    let own = FilePlace::of(file, home);
    for (container, node) in containers(entries) {
        // Claude Code keeps servers for one project under the project's folder.
        let project = container
            .segments()
            .nth(1)
            .filter(|_| container.depth() == 3)
            .map(Into::into);
        let place = FilePlace {
            project: project.or_else(|| own.project.clone()),
            ..own.clone()
        };
        let kind = node.kind();
        let NodeValue::Map(servers) = &mut node.value else {
            if !matches!(node.value, NodeValue::Null) {
                let problem =
                    ConfigProblem::error(container, format!("expected a map, found {kind}"));
                found.report.add(ConfigProblem {
                    line: Some(node.line),
                    ..problem
                });
            }
            continue;
        };
        // A conversion does not depend on the environment.
        let origin = ServerOrigin {
            format,
            place: &place,
            environment: &|_| Some(String::new()),
        };
        let mut aliases = Vec::new();
        let mut part = ServerNormalizer {
            container: &container,
            is_foreign: true,
            origin: &origin,
            aliases: &mut aliases,
            report: &mut found.report,
        };
        let servers = part.normalise(std::mem::take(servers));
        for (name, server) in servers {
            report_wrong_kinds(&server, &container.key(&name), &mut found.report);
            let server = FoundServer::of(name, &server, place.clone());
            found.servers.push(server);
        }
    }
    found.report.set_file(&name, |_| 0);
    Ok(found)
}

/// Returns the maps of servers in a file: at the top, in the settings of VS Code and opencode, and
/// in Claude Code's projects.
fn containers(entries: &mut [(String, ConfigNode)]) -> Vec<(ConfigPath, &mut ConfigNode)> {
    let mut all = Vec::new();
    for (key, node) in entries {
        let path = ConfigPath::root().key(&*key);
        let is_opencode = key == EDITOR_SETTINGS
            && node
                .entries()
                .iter()
                .any(|(_, server)| opencode::is_server(server));
        if is_opencode || CONTAINERS.contains(&key.as_str()) {
            all.push((path, node));
            continue;
        }
        let NodeValue::Map(inner) = &mut node.value else {
            continue;
        };
        for (inner_key, node) in inner {
            let path = path.key(&*inner_key);
            if key == EDITOR_SETTINGS && inner_key == "servers" {
                all.push((path, node));
            } else if let ("projects", NodeValue::Map(project)) = (key.as_str(), &mut node.value) {
                let servers = project.iter_mut().find(|(key, _)| key == CONTAINERS[0]);
                all.extend(servers.map(|(key, node)| (path.key(&*key), node)));
            }
        }
    }
    all
}

/// Warns of the keys of a server whose value is of another kind than weir can take.
fn report_wrong_kinds(server: &ConfigNode, path: &ConfigPath, report: &mut ConfigReport) {
    for (key, node) in server.entries() {
        let (is_right, kind) = match key.as_str() {
            "args" => (matches!(node.value, NodeValue::List(_)), "a list"),
            "env" | "headers" => (matches!(node.value, NodeValue::Map(_)), "a map"),
            "disabled" => (matches!(node.value, NodeValue::Bool(_)), "true or false"),
            _ => (node.as_text().is_some(), "a string"),
        };
        if !is_right {
            let message = format!("is not kept: expected {kind}");
            report.add(ConfigProblem {
                line: Some(node.line),
                ..ConfigProblem::warning(path.key(key), message)
            });
        }
    }
}

impl FoundServer {
    fn of(name: String, server: &ConfigNode, place: FilePlace) -> Self {
        let text = |key: &str| {
            server
                .find(&ConfigPath::root().key(key))
                .and_then(ConfigNode::as_text)
                .map(str::to_owned)
        };
        let map = |key: &str| {
            let entries = server
                .find(&ConfigPath::root().key(key))
                .map(ConfigNode::entries)
                .unwrap_or_default();
            let texts = entries
                .iter()
                .filter_map(|(key, node)| Some((key.clone(), node.as_text()?.to_owned())));
            texts.collect()
        };
        let args = match server.find(&ConfigPath::at("args")) {
            Some(ConfigNode {
                value: NodeValue::List(items),
                ..
            }) => items
                .iter()
                .filter_map(ConfigNode::as_text)
                .map(str::to_owned)
                .collect(),
            _ => Vec::new(),
        };
        Self {
            line: server.line,
            place,
            url: text("url"),
            is_sse: text("type").as_deref() == Some("sse"),
            command: text("command"),
            args,
            env: map("env"),
            env_file: text(ENV_FILE),
            cwd: text("cwd"),
            headers: map("headers"),
            name,
        }
    }
}

//! Reads the servers of another program's file as written, for `weir import`: no reference is
//! filled in, and no server is started.

use std::path::Path as FilePath;

use super::super::config_files;
use super::super::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use super::super::config_tree::{ConfigNode, NodeValue};
use super::super::document::parse_nonempty;
use super::inputs;
use super::server_normalizer::{ENV_FILE, ServerNormalizer};
use super::server_origin::{CONTAINERS, ServerOrigin};
use crate::config::foreign::file_place::FilePlace;
use crate::config::foreign::inputs::InputVariable;

/// The content of a file of another program.
#[derive(Debug, Default)]
pub(crate) struct FoundFile {
    /// Its servers, without those that are switched off.
    pub(crate) servers: Vec<FoundServer>,
    /// Its inputs.
    pub(crate) inputs: Vec<InputVariable>,
    /// The messages about it.
    pub(crate) report: ConfigReport,
}

/// A server, with the texts of the file.
#[derive(Debug, Default)]
pub(crate) struct FoundServer {
    pub(crate) name: String,
    /// The line of its entry.
    pub(crate) line: u32,
    /// The place of the file, or the project of Claude Code.
    pub(crate) place: FilePlace,
    pub(crate) url: Option<String>,
    /// True for HTTP+SSE.
    pub(crate) is_sse: bool,
    pub(crate) command: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) env_file: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
}

/// Finds the servers of a file.
///
/// # Errors
/// The file cannot be read or parsed.
pub(crate) fn find(file: &FilePath, home: Option<&FilePath>) -> Result<FoundFile, ConfigProblem> {
    let name = file.display().to_string();
    let named = |problem: ConfigProblem| ConfigProblem {
        file: name.clone(),
        ..problem
    };
    let (mut tree, format) = config_files::read(file)
        .and_then(|text| parse_nonempty(&name, &text))
        .map_err(named)?;
    let mut found = FoundFile::default();
    let NodeValue::Map(entries) = &mut tree.value else {
        return Ok(found);
    };
    found.inputs = inputs::parse(entries, &mut found.report);
    let own = FilePlace::of(file, home);
    for (container, node) in containers(entries) {
        // Claude Code keeps servers for one project under the project's folder.
        let project = container
            .segments()
            .nth(1)
            .filter(|_| container.len() == 3)
            .map(Into::into);
        let place = FilePlace {
            project: project.or_else(|| own.project.clone()),
            ..own.clone()
        };
        let NodeValue::Map(servers) = &mut node.value else {
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
        found.servers.extend(
            servers
                .into_iter()
                .map(|(name, server)| FoundServer::of(name, &server, place.clone())),
        );
    }
    found.report.set_file(&name, |_| 0);
    Ok(found)
}

/// Returns the maps of servers in a file: at the top, in the settings of VS Code, and in Claude
/// Code's projects.
fn containers(entries: &mut [(String, ConfigNode)]) -> Vec<(ConfigPath, &mut ConfigNode)> {
    let mut all = Vec::new();
    for (key, node) in entries {
        let path = ConfigPath::root().key(&*key);
        if CONTAINERS.contains(&key.as_str()) {
            all.push((path, node));
            continue;
        }
        let NodeValue::Map(inner) = &mut node.value else {
            continue;
        };
        for (inner_key, node) in inner {
            let path = path.key(&*inner_key);
            if key == "mcp" && inner_key == "servers" {
                all.push((path, node));
            } else if let ("projects", NodeValue::Map(project)) = (key.as_str(), &mut node.value) {
                let servers = project.iter_mut().find(|(key, _)| key == CONTAINERS[0]);
                all.extend(servers.map(|(key, node)| (path.key(&*key), node)));
            }
        }
    }
    all
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

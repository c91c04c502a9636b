//! The trees of the teams' files, to find the place of a problem that concerns all files together.

use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use crate::config_tree::ConfigNode;
use crate::upstream_slug::upstream_slug;

/// The trees of the teams' files that are served, each with its file's name in messages.
#[derive(Debug, Default)]
pub struct TeamTrees(Vec<(String, ConfigNode)>);

impl TeamTrees {
    /// Adds the tree of a file.
    pub fn add(&mut self, file: String, tree: ConfigNode) {
        self.0.push((file, tree));
    }

    /// Gives each problem about an upstream or an endpoint the path that the upstream or endpoint
    /// has in its file. Moves the problems of teams' files to `teams`, each with file and line.
    pub fn place(
        &self,
        main: &ConfigNode,
        report: &ConfigReport,
        teams: &mut ConfigReport,
    ) -> ConfigReport {
        let mut of_main = ConfigReport::default();
        for problem in report.problems() {
            let mut problem = problem.clone();
            if let Some(path) = path_in(main, &problem.path) {
                problem.path = path;
                of_main.add(problem);
                continue;
            }
            let found = self.0.iter().find_map(|(file, tree)| {
                let path = path_in(tree, &problem.path)?;
                Some((file, tree.line_of(&path), path))
            });
            match found {
                Some((file, line, path)) => teams.add(ConfigProblem {
                    file: file.clone(),
                    line: Some(line),
                    path,
                    ..problem
                }),
                None => of_main.add(problem),
            }
        }
        of_main
    }
}

/// Returns the path of a value in a file, if the file has the upstream or endpoint that the value
/// belongs to. An upstream may be a server of `mcpServers`.
fn path_in(tree: &ConfigNode, path: &ConfigPath) -> Option<ConfigPath> {
    if tree.find(&path.first(path.depth().min(2))).is_some() {
        return Some(path.clone());
    }
    let mut segments = path.segments();
    let (section, id) = (segments.next()?, segments.next()?);
    let servers = tree.find(&ConfigPath::at("mcpServers"))?.entries();
    let (key, _) = servers
        .iter()
        .find(|(key, _)| section == "upstreams" && upstream_slug(key) == id)?;
    let server = ConfigPath::at("mcpServers").key(key);
    Some(segments.fold(server, |path, segment| path.key(segment)))
}

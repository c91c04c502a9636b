//! `upstreams.NAME.secrets`: pattern files are read and compiled with the rest of the config, each
//! once.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use weir_config_file::config_files::{read_once, unreadable};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::config_tree::{ConfigNode, NodeValue};
use weir_config_file::raw::{OrOff, RawSecretArguments, RawSecretResults, RawSecrets};
use weir_core::secrets::{SecretAction, SecretPattern, SecretPatterns, SecretSearch};

use crate::config_part::ConfigPart;

/// Returns the search for secrets in one upstream's calls. Absent without such a section, or if its
/// patterns have errors. Relative paths start at `folder`.
pub(super) fn check(
    raw: Option<&OrOff<RawSecrets>>,
    folder: &FilePath,
    part: &mut ConfigPart,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<Arc<SecretSearch>> {
    let raw = OrOff::section(raw)?;
    let refuses_arguments = matches!(raw.arguments, Some(RawSecretArguments::Refuse));
    let answers = match raw.results {
        None | Some(RawSecretResults::Mask) => Some(SecretAction::Mask),
        Some(RawSecretResults::Refuse) => Some(SecretAction::Refuse),
        Some(RawSecretResults::Off) => None,
    };
    let Some(name) = &raw.patterns else {
        if !report.has_error_under(path) {
            let problem = ConfigProblem::error(path.clone(), "names no file with patterns");
            report.add(
                problem
                    .hint("write patterns: secrets.yaml; start with examples/secrets/tokens.yaml"),
            );
        }
        return None;
    };
    if !refuses_arguments && answers.is_none() {
        let problem = ConfigProblem::warning(
            path.clone(),
            "neither arguments nor results are searched for secrets",
        );
        report.add(problem.hint("write arguments: refuse, or results: mask"));
    }
    let file = folder.join(name);
    let path = path.key("patterns");
    let patterns = match part.patterns.get(&file) {
        Some(known) => known.clone(),
        None => {
            let read = match read_once(&file, &mut part.files) {
                Ok(text) => patterns(text, &file, &path, report),
                Err(problem) => {
                    report.add(unreadable(path, &file, problem));
                    None
                }
            };
            part.patterns.entry(file).or_insert(read).clone()
        }
    };
    Some(Arc::new(SecretSearch {
        patterns: patterns?,
        refuses_arguments,
        answers,
    }))
}

/// Compiles the patterns of a file: a map of names and regular expressions.
fn patterns(
    text: &str,
    file: &FilePath,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<Arc<SecretPatterns>> {
    let mut wrong = |line: Option<u32>, message: String| {
        let problem = ConfigProblem::error(path.clone(), message);
        report.add(ConfigProblem {
            file: file.display().to_string(),
            line,
            ..problem
        });
    };
    let tree = match ConfigNode::parse(text) {
        Ok(tree) => tree,
        Err(problem) => {
            wrong(problem.line, problem.message);
            return None;
        }
    };
    let NodeValue::Map(entries) = &tree.value else {
        wrong(
            Some(tree.line),
            format!(
                "expected names with regular expressions, found {}",
                tree.kind()
            ),
        );
        return None;
    };
    if entries.is_empty() {
        // An empty file has probably lost its patterns.
        wrong(None, "has no patterns".to_owned());
        return None;
    }
    let (mut all, mut lines, mut is_good) = (Vec::new(), BTreeMap::new(), true);
    for (name, node) in entries {
        if let NodeValue::Text(regex) = &node.value {
            lines.insert(name.clone(), node.line);
            all.push(SecretPattern {
                name: name.clone(),
                regex: regex.text.clone(),
            });
        } else {
            wrong(
                Some(node.line),
                format!(
                    "`{name}` must be a regular expression, found {}",
                    node.kind()
                ),
            );
            is_good = false;
        }
    }
    loop {
        let error = match SecretPatterns::new(&all) {
            Ok(patterns) => return is_good.then(|| Arc::new(patterns)),
            Err(error) => error,
        };
        is_good = false;
        wrong(
            error.name().and_then(|name| lines.get(name)).copied(),
            error.to_string(),
        );
        // The other patterns may have errors too.
        let before = all.len();
        all.retain(|pattern| Some(pattern.name.as_str()) != error.name());
        if all.len() == before {
            return None;
        }
    }
}

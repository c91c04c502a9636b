//! Reading the config's files, and putting the main file and the teams' files together.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path as FilePath, PathBuf};

use sha2::{Digest as _, Sha256};

use super::check::{self, Main, Part};
use super::decode::decode;
use super::env::{Environment, fill_in};
use super::raw::{RawMcpServer, RawTeam};
use super::report::{Path, Problem, Report};
use super::tree::{LONGEST, Node, Value};
use super::{Config, SourceDigest, raw};

/// The folder may hold one file a team; more than this is a folder that was not meant.
const MOST_FILES: usize = 1000;

/// Where the main config is.
#[derive(Clone, Debug)]
pub enum Source {
    /// In a file; relative paths in it start at its folder.
    File(PathBuf),
    /// Given as text, with a name for messages; relative paths start at the working folder.
    Text {
        /// What messages call it.
        name: String,
        /// The YAML or JSON.
        text: String,
    },
}

/// What a load gave.
#[derive(Debug)]
pub struct Outcome {
    /// The config; `None` where the main file has errors. Errors of a team's file leave out or keep back that file only.
    pub config: Option<Config>,
    /// What there is to say.
    pub report: Report,
}

/// Reads the config, again and again, and remembers the last good version of every team's file.
pub struct Loader<'a> {
    source: Source,
    environment: Environment<'a>,
    last_good: HashMap<PathBuf, String>,
    include: Option<PathBuf>,
    /// The files with rules.
    rules: Vec<PathBuf>,
    /// What the files said when they were read.
    read: Digest,
}

/// Names what files say.
type Digest = [u8; 32];

impl<'a> Loader<'a> {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(source: Source, environment: Environment<'a>) -> Self {
        Self { source, environment, last_good: HashMap::new(), include: None, rules: Vec::new(), read: [0; 32] }
    }

    /// Another text from now on, where the config is no file.
    pub fn replace(&mut self, source: Source) {
        self.source = source;
    }

    /// The folders whose files matter: the main file's, the included one, and those with rules.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let own = match &self.source {
            Source::File(file) => Some(folder_of(file)),
            Source::Text { .. } => None,
        };
        let mut folders: Vec<PathBuf> = Vec::new();
        let rules = self.rules.iter().map(|file| folder_of(file));
        for folder in own.into_iter().chain(self.include.clone()).chain(rules) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders
    }

    /// Whether the config's files say something else than when they were read. Cheap: what stands beside them, such as weir's own
    /// audit file, may be written all the time. Files that they only name (certificates) are not looked at.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.digest() != self.read
    }

    fn digest(&self) -> Digest {
        let (own, text) = match &self.source {
            Source::File(file) => (Some(file.clone()), None),
            Source::Text { text, .. } => (None, Some(text)),
        };
        let teams = self.include.as_deref().map(|include| files_in(include).unwrap_or_default()).unwrap_or_default();
        let mut hash = Sha256::new();
        let mut part = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        text.into_iter().for_each(|text| part(text.as_bytes()));
        for file in own.into_iter().chain(teams).chain(self.rules.iter().cloned()) {
            part(file.as_os_str().as_encoded_bytes());
            match read(&file) {
                Ok(text) => part(text.as_bytes()),
                Err(problem) => part(problem.message.as_bytes()),
            }
        }
        hash.finalize().into()
    }

    /// Reads everything.
    pub fn load(&mut self) -> Outcome {
        // Before anything is read: what changes meanwhile is stale then, and read once more.
        self.read = self.digest();
        let mut outcome = self.load_all();
        if let Some(config) = &mut outcome.config {
            // Of the teams' files and those with rules too, which are known by now.
            config.source = SourceDigest(Some(self.digest()));
        }
        self.rules.sort();
        self.rules.dedup();
        outcome
    }

    fn load_all(&mut self) -> Outcome {
        let mut report = Report::default();
        let (name, folder, text) = match &self.source {
            Source::File(file) => (file.display().to_string(), folder_of(file), read(file)),
            Source::Text { name, text } => (name.clone(), PathBuf::new(), Ok(text.clone())),
        };
        let main = text.and_then(|text| Node::parse(&text)).map_err(|problem| report.add(problem));
        let Ok(mut tree) = main else {
            report.locate(&name, |_| 0);
            return Outcome { config: None, report };
        };
        fill_in(&mut tree, &Path::root(), self.environment, &mut report);
        ignore_unknown(&mut tree, &mut report);
        let raw: raw::Raw = decode(tree.clone(), &mut report);
        let mut main = check::main(raw, &folder, self.environment, &mut report);
        let broken = report.has_errors();
        self.include = main.include.as_deref().map(|include| folder.join(include));
        self.rules = std::mem::take(&mut main.files);
        let mut teams = Report::default();
        if let Some(include) = self.include.clone() {
            self.teams(&include, &mut main, &mut report, &mut teams);
        }
        if !main.own_endpoints && main.config.endpoints.is_empty() {
            main.config.endpoints = check::default_endpoints(&main.config.upstreams, &main.defaults);
        }
        let (common, rulings) = (std::mem::take(&mut main.common), std::mem::take(&mut main.rulings));
        main.config.rules = check::book(&main.config, common, rulings);
        if let Some(oauth) = &mut main.config.front.oauth {
            let scopes =
                |endpoint: &weir_core::Endpoint| (endpoint.id.clone(), main.config.rules.scopes(&endpoint.id).to_vec());
            oauth.scopes = main.config.endpoints.iter().map(scopes).collect();
        }
        let broken = broken || report.has_errors();
        if !broken {
            check::whole(&main.config, &mut report);
        }
        report.locate(&name, |path| tree.line_of(path));
        report.append(teams);
        Outcome { config: (!broken).then_some(main.config), report }
    }

    /// Adds every team's file; one that is bad adds its last good version, or nothing.
    fn teams(&mut self, include: &FilePath, main: &mut Main, report: &mut Report, teams: &mut Report) {
        let files = match files_in(include) {
            Ok(files) => files,
            Err(message) => return report.add(Problem::error(Path::at("include"), message)),
        };
        self.last_good.retain(|file, _| files.contains(file));
        for file in files {
            let (upstreams, endpoints) = (main.config.upstreams.clone(), main.config.endpoints.clone());
            let standing = Part { upstreams, endpoints, ..Part::default() };
            let mut own = Report::default();
            let text = read(&file);
            let part = match &text {
                Ok(text) => self.team(text, main, &standing, &mut own),
                Err(problem) => {
                    own.add(problem.clone());
                    None
                }
            };
            let part = if let (Some(part), Ok(text)) = (part, text) {
                self.last_good.insert(file.clone(), text);
                own.locate(&file.display().to_string(), |_| 0);
                part
            } else {
                own.locate(&file.display().to_string(), |_| 0);
                let before = self.last_good.get(&file).cloned();
                let kept = before.and_then(|text| self.team(&text, main, &standing, &mut Report::default()));
                let note = if kept.is_some() { "its last good version stays" } else { "it is left out" };
                let mut problem = Problem::warning(Path::root(), format!("this file has errors: {note}"));
                problem.file = file.display().to_string();
                own.add(problem);
                kept.unwrap_or_default()
            };
            teams.append(own);
            main.config.upstreams.extend(part.upstreams);
            main.config.endpoints.extend(part.endpoints);
            main.rulings.extend(part.rulings);
            self.rules.extend(part.files);
        }
    }

    /// A team's part; `None` where its file has errors.
    fn team(&self, text: &str, main: &Main, standing: &Part, report: &mut Report) -> Option<Part> {
        let mut tree = match Node::parse(text) {
            Ok(tree) => tree,
            Err(problem) => {
                report.add(problem);
                return None;
            }
        };
        fill_in(&mut tree, &Path::root(), self.environment, report);
        ignore_unknown(&mut tree, report);
        let raw: RawTeam = decode(tree.clone(), report);
        let part = check::team(raw, &main.defaults, standing, report);
        // Lines are known here; the file's name is the caller's to add.
        report.place(|path| tree.line_of(path));
        (!report.has_errors()).then_some(part)
    }
}

/// Takes out what other MCP clients write under `mcpServers` and weir does not know.
fn ignore_unknown(tree: &mut Node, report: &mut Report) {
    let Value::Map(sections) = &mut tree.value else { return };
    for (_, servers) in sections.iter_mut().filter(|(key, _)| key == "mcpServers") {
        let Value::Map(servers) = &mut servers.value else { continue };
        for (name, server) in servers {
            let Value::Map(keys) = &mut server.value else { continue };
            keys.retain(|(key, node)| {
                let known = RawMcpServer::KEYS.contains(&key.as_str());
                if !known {
                    let path = Path::at("mcpServers").key(name.as_str()).key(key);
                    let mut problem = Problem::warning(path, "is not known here and is ignored");
                    problem.line = Some(node.line);
                    report.add(problem);
                }
                known
            });
        }
    }
}

pub(super) fn folder_of(file: &FilePath) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn files_in(folder: &FilePath) -> Result<Vec<PathBuf>, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let config =
            path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|own| extension == *own));
        if config && !hidden && path.is_file() {
            files.push(path);
        }
    }
    if files.len() > MOST_FILES {
        return Err(format!("{} has {} files, more than {MOST_FILES}", folder.display(), files.len()));
    }
    files.sort();
    Ok(files)
}

/// Reads a file, but never more of it than a config may have.
pub(super) fn read(file: &FilePath) -> Result<String, Problem> {
    let problem = |message: String| Problem::error(Path::root(), message);
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(LONGEST as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| problem(format!("cannot be read: {error}")))?;
    if bytes.len() > LONGEST {
        return Err(problem(format!("the file has more than the {LONGEST} bytes a config may have")));
    }
    String::from_utf8(bytes).map_err(|_| problem("is no UTF-8 text".to_owned()))
}

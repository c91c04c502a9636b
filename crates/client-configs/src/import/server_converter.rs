//! Converts the servers of MCP clients to upstreams. Credentials become references to variables,
//! and the variables are listed.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use weir_config_file::env::reference::{
    EnvReference, ReferenceError, ReferenceSyntax, TextPiece, WORKSPACE, is_variable, pieces,
};
use weir_config_file::foreign::env_file::parse as read_env_file;
use weir_config_file::foreign::found_servers::FoundServer;
use weir_config_file::foreign::inputs::InputVariable;
use weir_config_file::upstream_slug::upstream_slug;

use crate::import::ClientFile;
use crate::import::command_line::{has_words, line_credentials};
use crate::import::credentials::{
    FoundCredential, RequiredVariable, argument_credential, is_secret_default, split_credential,
    url_credentials,
};
use crate::import::server_summary::summary;
use crate::import::upstream_entry::UpstreamEntry;

/// The longest id of an upstream.
const MAX_ID: usize = 24;

/// A server that was converted to an upstream.
pub struct ConvertedServer {
    /// The upstream's id.
    pub id: String,
    /// The name in the other client's file.
    pub name: String,
    /// The upstream's entry in the config.
    pub entry: UpstreamEntry,
    /// The server as in the file, for display.
    pub summary: String,
    /// The credentials that stay in the entry.
    pub kept: Vec<KeptCredential>,
    /// The file and line.
    pub origin: String,
    /// The client that the file belongs to.
    pub client: Option<&'static str>,
}

impl std::fmt::Debug for ConvertedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConvertedServer").finish_non_exhaustive()
    }
}

/// What seems to be a credential in an argument, and cannot become a variable.
#[derive(Clone, Debug)]
pub struct KeptCredential {
    /// The name that it stands under.
    pub name: String,
    /// The number of the argument, from 1.
    pub argument: usize,
}

/// A server that was left out, and the reason.
#[derive(Debug)]
pub struct SkippedServer {
    /// The name in the other client's file.
    pub name: String,
    /// The file and line.
    pub origin: String,
    /// The reason, for people.
    pub why: String,
    /// The id of the server that it is the same as, if that is the reason.
    pub same_as: Option<String>,
}

/// Converts servers one after another, so that each id and each variable is used for one purpose
/// only.
#[derive(Default)]
pub struct ServerConverter {
    /// The upstreams, in the order of the servers.
    pub converted: Vec<ConvertedServer>,
    /// The servers that were left out.
    pub skipped: Vec<SkippedServer>,
    /// The variables that must be set.
    pub variables: Vec<RequiredVariable>,
    /// The names of servers that are ids already. They keep them.
    own_ids: HashSet<String>,
    /// The credentials by variable. `None` if a file refers to the variable itself.
    values: HashMap<String, Option<String>>,
}

impl std::fmt::Debug for ServerConverter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConverter").finish_non_exhaustive()
    }
}

impl ServerConverter {
    /// Reserves the names of variables that files refer to, so that no credential gets one of them,
    /// and the names of servers that are ids already.
    pub fn reserve(&mut self, sources: &[ClientFile]) {
        for server in sources.iter().flat_map(|source| &source.found.servers) {
            if upstream_slug(&server.name) == server.name {
                self.own_ids.insert(server.name.clone());
            }
            for text in server.texts() {
                for piece in pieces(text, ReferenceSyntax::Servers).unwrap_or_default() {
                    if let TextPiece::Reference(EnvReference::Variable { name, .. }) = piece {
                        self.values.insert(name.to_owned(), None);
                    }
                }
            }
        }
    }

    /// Converts the servers of a file.
    pub fn convert(&mut self, source: &ClientFile) {
        for server in &source.found.servers {
            let origin = format!("{}:{}", source.file.display(), server.line);
            let mut one = ServerConversion {
                converter: self,
                inputs: &source.found.inputs,
                server,
                id: String::new(),
                holder: String::new(),
                kept: Vec::new(),
                origin: &origin,
            };
            let converted = one.convert(source.client.map(|client| client.name()));
            let kept = std::mem::take(&mut one.kept);
            match converted {
                Ok(Some((id, entry))) => self.converted.push(ConvertedServer {
                    id,
                    name: server.name.clone(),
                    entry,
                    summary: summary(server),
                    kept,
                    origin,
                    client: source.client.map(|client| client.title()),
                }),
                Ok(None) => {}
                Err(why) => self.skipped.push(SkippedServer {
                    name: server.name.clone(),
                    origin,
                    why,
                    same_as: None,
                }),
            }
        }
    }

    /// Leaves out a converted server, and those that are the same.
    pub fn leave_out(&mut self, server: ConvertedServer, why: String) {
        let is_same = |other: &&mut SkippedServer| other.same_as.as_ref() == Some(&server.id);
        for other in self.skipped.iter_mut().filter(is_same) {
            other.why.clone_from(&why);
        }
        self.skipped.push(SkippedServer {
            name: server.name,
            origin: server.origin,
            why,
            same_as: None,
        });
    }

    fn require_variable(&mut self, name: &str, about: impl FnOnce() -> String) {
        if name != "HOME" && !self.variables.iter().any(|variable| variable.name == name) {
            self.variables.push(RequiredVariable {
                name: name.to_owned(),
                about: about(),
            });
        }
    }
}

/// The conversion of one server.
struct ServerConversion<'a> {
    converter: &'a mut ServerConverter,
    inputs: &'a [InputVariable],
    server: &'a FoundServer,
    id: String,
    /// The name of the variable, header or option that holds the converted text.
    holder: String,
    kept: Vec<KeptCredential>,
    origin: &'a str,
}

impl ServerConversion<'_> {
    /// Returns the id and the entry, or `None` if an earlier server is the same.
    fn convert(&mut self, client: Option<&str>) -> Result<Option<(String, UpstreamEntry)>, String> {
        let wanted = upstream_slug(&self.server.name);
        self.id.clone_from(&wanted);
        // A server that is left out or is a duplicate needs no variables.
        let (variables, values) = (
            self.converter.variables.clone(),
            self.converter.values.clone(),
        );
        let entry = self.entry();
        let same = entry.as_ref().ok().and_then(|entry| {
            self.converter
                .converted
                .iter()
                .find(|other| other.entry == *entry)
        });
        let same = same.map(|other| {
            let why = format!("is the same as `{}`, from {}", other.id, other.origin);
            (why, other.id.clone())
        });
        if same.is_some() || entry.is_err() {
            (self.converter.variables, self.converter.values) = (variables, values);
        }
        if let Some((why, same_as)) = same {
            self.converter.skipped.push(super::SkippedServer {
                name: self.server.name.clone(),
                origin: self.origin.to_owned(),
                why,
                same_as: Some(same_as),
            });
            return Ok(None);
        }
        Ok(Some((self.free_id(&wanted, client), entry?)))
    }

    /// Returns an id that no other upstream has, and no other server as its name: the name; if
    /// taken, with the client's name as a suffix; or else with a number.
    fn free_id(&self, wanted: &str, client: Option<&str>) -> String {
        let is_free = |id: &String| {
            let is_reserved = self.converter.own_ids.contains(id) && *id != self.server.name;
            !is_reserved && !self.converter.converted.iter().any(|other| other.id == *id)
        };
        let with = |suffix: &str| {
            let room = MAX_ID.saturating_sub(suffix.len() + 1);
            let base: String = wanted.chars().take(room).collect();
            format!("{}-{suffix}", base.trim_end_matches('-'))
        };
        let numbers = (2..).map(|n: u32| with(&n.to_string()));
        let all = std::iter::once(wanted.to_owned())
            .chain(client.map(with))
            .chain(numbers);
        all.into_iter()
            .find(is_free)
            .unwrap_or_else(|| wanted.to_owned())
    }

    fn entry(&mut self) -> Result<UpstreamEntry, String> {
        let server = self.server;
        let mut env = Vec::new();
        for (name, value) in &server.env {
            env.push((name.clone(), self.value(name, name, value)?));
        }
        for (name, value) in self.env_file()? {
            if !env.iter().any(|(other, _)| *other == name) {
                let literal = self.literal(&name, &name, &value);
                env.push((name, literal));
            }
        }
        let mut headers = Vec::new();
        for (name, value) in &server.headers {
            let variable = format!("{}_{name}", self.id);
            headers.push((name.clone(), self.value(name, &variable, value)?));
        }
        Ok(UpstreamEntry {
            url: server.url.as_deref().map(|url| self.url(url)).transpose()?,
            is_sse: server.is_sse && server.url.is_some(),
            command: server
                .command
                .as_deref()
                .map(|command| self.text(command))
                .transpose()?,
            args: self.args()?,
            env,
            cwd: server.cwd.as_deref().map(|cwd| self.cwd(cwd)).transpose()?,
            headers,
        })
    }

    /// Reads the variables of the server's `envFile`.
    fn env_file(&self) -> Result<Vec<(String, String)>, String> {
        let Some(named) = &self.server.env_file else {
            return Ok(Vec::new());
        };
        let file = self.resolved(named).ok_or_else(|| {
            format!(
                "its `envFile` is {named}: set {WORKSPACE} to the folder that the editor has open"
            )
        })?;
        let file = self.server.place.folder.join(file);
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        read_env_file(&text).map_err(|(line, why)| format!("{}:{line}: {why}", file.display()))
    }

    /// Resolves a path with references that need no input from a person. Returns `None` for others.
    fn resolved(&self, text: &str) -> Option<String> {
        let resolve = |piece: TextPiece<'_>| match piece {
            TextPiece::Plain(text) => Some(text.to_owned()),
            TextPiece::Reference(EnvReference::Workspace) => self
                .server
                .place
                .project
                .as_deref()
                .map(display)
                .or_else(|| std::env::var(WORKSPACE).ok()),
            TextPiece::Reference(EnvReference::Separator) => {
                Some(std::path::MAIN_SEPARATOR.to_string())
            }
            TextPiece::Reference(EnvReference::Variable { name, default }) => std::env::var(name)
                .ok()
                .or_else(|| default.map(str::to_owned)),
            TextPiece::Reference(_) => None,
        };
        pieces(text, ReferenceSyntax::Servers)
            .ok()?
            .into_iter()
            .map(resolve)
            .collect()
    }

    /// A relative folder is relative to the client's file, but the config is elsewhere.
    fn cwd(&mut self, cwd: &str) -> Result<String, String> {
        if cwd.starts_with(['/', '$']) {
            return self.text(cwd);
        }
        let folder = escaped(&display(&self.server.place.folder.join(cwd)));
        Ok(folder)
    }

    fn args(&mut self) -> Result<Vec<String>, String> {
        let mut before: Option<&str> = None;
        let mut args = Vec::new();
        for argument in &self.server.args {
            if has_words(before, argument) {
                args.push(self.line(args.len() + 1, argument)?);
                before = Some(argument);
                continue;
            }
            let credential = argument_credential(before, argument);
            self.holder = credential
                .as_ref()
                .map(|(_, name, _)| name.clone())
                .unwrap_or_default();
            let credential = credential.filter(|(_, _, credential)| !credential.contains("${"));
            args.push(match credential {
                Some((start, name, credential)) => {
                    let rest = argument[start.len() + credential.len()..].to_owned();
                    let variable = format!("{}_{}", self.id, name.trim_start_matches('-'));
                    format!(
                        "{}{}{}",
                        self.text(start)?,
                        self.credential(&name, &variable, credential),
                        self.text(&rest)?
                    )
                }
                None if argument.contains("://") => self.url(argument)?,
                None => self.text(argument)?,
            });
            before = Some(argument);
        }
        self.holder.clear();
        Ok(args)
    }

    /// Converts an argument of several words, with its number.
    fn line(&mut self, number: usize, line: &str) -> Result<String, String> {
        let (mut written, mut at) = (String::new(), 0);
        for found in line_credentials(line) {
            let FoundCredential {
                name,
                place,
                is_replaceable,
            } = found;
            written.push_str(&self.text(&line[at..place.start])?);
            at = place.end;
            let credential = &line[place];
            if is_replaceable && !credential.contains("${") {
                let variable = format!("{}_{}", self.id, name.trim_start_matches('-'));
                written.push_str(&self.credential(&name, &variable, credential));
                continue;
            }
            if !is_replaceable {
                self.kept.push(KeptCredential {
                    name: name.clone(),
                    argument: number,
                });
            }
            self.holder = name;
            written.push_str(&self.text(credential)?);
            self.holder.clear();
        }
        written.push_str(&self.text(&line[at..])?);
        Ok(written)
    }

    fn url(&mut self, url: &str) -> Result<String, String> {
        let (mut written, mut at) = (String::new(), 0);
        for (name, place) in url_credentials(url) {
            let variable = format!("{}_{name}", self.id);
            written.push_str(&self.text(&url[at..place.start])?);
            at = place.end;
            written.push_str(&self.credential(&name, &variable, &url[place]));
        }
        written.push_str(&self.text(&url[at..])?);
        Ok(written)
    }

    /// Converts the value of a variable or a header: references stay, and a credential becomes one.
    fn value(&mut self, name: &str, variable: &str, value: &str) -> Result<String, String> {
        if pieces(value, ReferenceSyntax::Servers).is_ok_and(|pieces| {
            pieces
                .iter()
                .any(|piece| matches!(piece, TextPiece::Reference(_)))
        }) {
            name.clone_into(&mut self.holder);
            let converted = if value.contains("://") {
                self.url(value)
            } else {
                self.text(value)
            };
            self.holder.clear();
            return converted;
        }
        Ok(self.literal(name, variable, value))
    }

    /// Converts a value without references.
    fn literal(&mut self, name: &str, variable: &str, value: &str) -> String {
        match split_credential(name, value) {
            Some((start, credential)) => format!(
                "{}{}",
                escaped(start),
                self.credential(name, variable, credential)
            ),
            None => escaped(value),
        }
    }

    /// Returns the reference that replaces a credential.
    fn credential(&mut self, name: &str, variable: &str, credential: &str) -> String {
        let clean = |text: &str| -> String {
            let text: String = text
                .chars()
                .map(|c| {
                    if c.is_ascii_alphanumeric() {
                        c.to_ascii_uppercase()
                    } else {
                        '_'
                    }
                })
                .collect();
            if is_variable(&text) {
                text
            } else {
                format!("V_{text}")
            }
        };
        let first = if is_variable(variable) && variable == name {
            variable.to_owned()
        } else {
            clean(variable)
        };
        let second = clean(&format!("{}_{name}", self.id));
        let numbered = (2..).map(|n: u32| format!("{second}_{n}"));
        let fits = |name: &String| {
            self.converter
                .values
                .get(name)
                .is_none_or(|value| value.as_deref() == Some(credential))
        };
        let chosen = [first.clone(), second.clone()]
            .into_iter()
            .chain(numbered)
            .find(fits)
            .unwrap_or(first);
        self.converter
            .values
            .insert(chosen.clone(), Some(credential.to_owned()));
        let about = || {
            format!(
                "`{name}` of {}, whose value is in {}",
                self.server.name, self.origin
            )
        };
        self.converter.require_variable(&chosen, about);
        format!("${{{chosen}}}")
    }

    /// Converts the other client's references in a text to weir's.
    fn text(&mut self, text: &str) -> Result<String, String> {
        let mut written = String::new();
        for piece in pieces(text, ReferenceSyntax::Servers).map_err(|bad| error_message(&bad))? {
            match piece {
                TextPiece::Plain(plain) => written.push_str(&escaped(plain)),
                TextPiece::Reference(reference) => written.push_str(&self.reference(reference)?),
            }
        }
        Ok(written)
    }

    /// Reports if a default is a credential, by the variable's name or by the holder's.
    fn is_secret(&self, name: &str, default: &str) -> bool {
        [name, &self.holder]
            .iter()
            .any(|name| is_secret_default(name, default))
    }

    fn reference(&mut self, reference: EnvReference<'_>) -> Result<String, String> {
        let project = self.server.place.project.as_deref();
        Ok(match reference {
            EnvReference::Variable { name, default }
                if default.is_none_or(|default| self.is_secret(name, default)) =>
            {
                self.converter.require_variable(name, || {
                    format!("for {}, {}", self.server.name, self.origin)
                });
                format!("${{{name}}}")
            }
            EnvReference::Variable { name, default } => {
                format!("${{{name}:-{}}}", default.unwrap_or_default())
            }
            EnvReference::File(file) => format!("${{file:{file}}}"),
            EnvReference::Separator => std::path::MAIN_SEPARATOR.to_string(),
            EnvReference::Workspace => match project {
                Some(project) => escaped(&display(project)),
                None => {
                    let about = || {
                        format!(
                            "the folder of the project that {} works in, {}",
                            self.server.name, self.origin
                        )
                    };
                    self.converter.require_variable(WORKSPACE, about);
                    format!("${{{WORKSPACE}}}")
                }
            },
            EnvReference::WorkspaceName => {
                let name = project
                    .and_then(Path::file_name)
                    .ok_or_else(|| error_message(&ReferenceError::NoWorkspace))?;
                escaped(&name.to_string_lossy())
            }
            EnvReference::Input(id) => {
                let input = self.inputs.iter().find(|input| input.id == id);
                let input =
                    input.ok_or_else(|| error_message(&ReferenceError::NoInput(id.to_owned())))?;
                let about = || {
                    input
                        .description
                        .clone()
                        .unwrap_or_else(|| format!("`{id}` of {}", self.origin))
                };
                self.converter.require_variable(&input.variable(), about);
                format!("${{{}}}", input.variable())
            }
        })
    }
}

/// Returns the message for a reference without a value.
fn error_message(bad: &ReferenceError) -> String {
    bad.clone()
        .into_problem(&weir_config_file::config_report::ConfigPath::default())
        .message
}

/// Escapes a text, so that weir reads no reference in it.
fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

//! Reading the config's files, and putting the main file and the teams' files together.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::check::{self, Main, Part, TeamGrant, Texts};
use super::decode::decode;
use super::document::{FileFormat, document};
use super::env::{Environment, ReferenceValues, SecretFiles, fill_in, fill_in_granted};
use super::files::{Fingerprint, files_in, folder_of, read};
use super::foreign::{self, FilePlace, InputSource, InputSources, ServerOrigin};
use super::raw::RawTeamFile;
use super::report::{Path, Problem, Report};
use super::team_files::{TeamFile, TeamFileVersion, unserved_paths};
use super::tree::Node;
use super::weaker::{Weakening, team_weakenings};
use super::{Config, SourceDigest, raw};

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
    /// The text that a file is to have; relative paths in it start at the file's folder.
    Proposed {
        /// The file.
        file: PathBuf,
        /// The YAML or JSON.
        text: String,
    },
}

/// What a load gave.
#[derive(Debug)]
pub struct Outcome {
    /// The config; `None` where the main file has errors. Errors of a team's file leave out or keep
    /// back that file only.
    pub config: Option<Config>,
    /// What there is to say.
    pub report: Report,
    /// The protections that teams' files lost: each of these files is kept back, and its last good
    /// version is in the config.
    pub held: Vec<Weakening>,
}

/// Reads the config, again and again, and remembers the last good version of every team's file.
pub struct Loader<'a> {
    source: Source,
    environment: Environment<'a>,
    last_good: HashMap<PathBuf, String>,
    include: Option<PathBuf>,
    /// The files with rules.
    rules: Vec<PathBuf>,
    /// The files with secrets that the main file names.
    secrets: SecretFiles,
    /// What the files said when they were read; `None`: they never were.
    read: Option<[u8; 32]>,
    /// Whether a team's file that lost protections is taken all the same.
    allows_weaker: bool,
    /// The protections that teams' files lost, in the last load.
    held: Vec<Weakening>,
    /// The source of the values of other programs' inputs.
    inputs: InputSource<'a>,
    /// The answers of a person, by the inputs' ids.
    entered: HashMap<String, String>,
    /// The address that stands for the main file's `listen`.
    listen: Option<SocketAddr>,
    /// True if one host alone is served.
    one_host: bool,
}

impl<'a> Loader<'a> {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(source: Source, environment: Environment<'a>) -> Self {
        Self {
            source,
            environment,
            last_good: HashMap::new(),
            include: None,
            rules: Vec::new(),
            secrets: SecretFiles::default(),
            read: None,
            allows_weaker: false,
            held: Vec::new(),
            inputs: InputSource::Nothing,
            entered: HashMap::new(),
            listen: None,
            one_host: false,
        }
    }

    /// Names the source of the values of other programs' inputs, where no variable has them.
    #[must_use]
    pub fn inputs_from(self, inputs: InputSource<'a>) -> Self {
        Self { inputs, ..self }
    }

    /// The same with this address in the place of the main file's `listen`.
    #[must_use]
    pub fn listening_at(self, listen: Option<SocketAddr>) -> Self {
        Self { listen, ..self }
    }

    /// The same for one host alone: a child process can ask it, where the config does not say
    /// otherwise.
    #[must_use]
    pub(crate) fn for_one_host(self) -> Self {
        Self {
            one_host: true,
            ..self
        }
    }

    /// Another text from now on, where the config is no file.
    pub fn replace(&mut self, source: Source) {
        self.source = source;
    }

    /// The folders whose files matter: the main file's, the included one, and those with rules and
    /// secrets.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let own = match &self.source {
            Source::File(file) | Source::Proposed { file, .. } => Some(folder_of(file)),
            Source::Text { .. } => None,
        };
        let mut folders: Vec<PathBuf> = Vec::new();
        let rules = self.rules.iter().map(|file| folder_of(file));
        let secrets = self.secrets.paths().map(folder_of);
        for folder in own
            .into_iter()
            .chain(self.include.clone())
            .chain(rules)
            .chain(secrets)
        {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders
    }

    /// Whether the config's files say something else than when they were read. Cheap: what stands
    /// beside them, such as weir's own audit file, may be written all the time. Certificates that
    /// they only name are not looked at.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.read != Some(self.now())
    }

    /// What the files say now.
    fn now(&self) -> [u8; 32] {
        let mut said = Fingerprint::default();
        // What of it cannot be read is in the fingerprint.
        let _ = self.main(&mut said);
        let teams = self
            .include
            .as_deref()
            .map(|include| files_in(include).unwrap_or_default())
            .unwrap_or_default();
        for file in teams.iter().chain(&self.rules) {
            said.file(file, &read(file));
        }
        self.secrets.read_again().say(&mut said);
        said.digest()
    }

    fn main(&self, said: &mut Fingerprint) -> Result<String, Problem> {
        match &self.source {
            Source::File(file) => {
                let text = read(file);
                said.file(file, &text);
                text
            }
            Source::Text { text, .. } | Source::Proposed { text, .. } => {
                said.part(text.as_bytes());
                Ok(text.clone())
            }
        }
    }

    /// The same as [`Self::load`], and takes teams' files that lost protections.
    pub fn load_weaker(&mut self) -> Outcome {
        self.allows_weaker = true;
        let outcome = self.load();
        self.allows_weaker = false;
        outcome
    }

    /// Reads everything, each file once: what changes meanwhile makes it stale.
    pub fn load(&mut self) -> Outcome {
        let mut said = Fingerprint::default();
        self.held.clear();
        let mut outcome = self.load_all(&mut said);
        outcome.held = std::mem::take(&mut self.held);
        self.read = Some(said.digest());
        // A running weir asks nobody.
        if matches!(self.inputs, InputSource::Prompt(_)) {
            self.inputs = InputSource::Nothing;
        }
        if let Some(config) = &mut outcome.config {
            config.source = SourceDigest(self.read);
        }
        outcome
    }

    fn load_all(&mut self, said: &mut Fingerprint) -> Outcome {
        let mut report = Report::default();
        let (name, folder) = match &self.source {
            Source::File(file) | Source::Proposed { file, .. } => {
                (file.display().to_string(), folder_of(file))
            }
            Source::Text { name, .. } => (name.clone(), PathBuf::new()),
        };
        let main = self
            .main(said)
            .and_then(|text| document(&name, &text))
            .map_err(|problem| report.add(problem));
        let Ok((mut tree, format)) = main else {
            report.locate(&name, |_| 0);
            return Outcome {
                config: None,
                report,
                held: Vec::new(),
            };
        };
        let mut adoption = Report::default();
        let (aliases, env_files) = self.adopt(&mut tree, format, (&mut adoption, &mut report));
        let mut raw: raw::Raw = decode(tree.clone(), &mut report);
        raw.listen = self.listen.map(|listen| listen.to_string()).or(raw.listen);
        let mut main = check::main(raw, &folder, self.environment, self.one_host, &mut report);
        let broken = report.has_errors() || adoption.has_errors();
        main.files.extend(env_files);
        let include = main
            .include
            .as_deref()
            .filter(|include| !include.is_empty());
        self.include = include.map(|include| folder.join(include));
        // The main file's own come first: no team's file takes them away.
        main.has_default_endpoint = !main.own_endpoints && !main.config.upstreams.is_empty();
        if main.has_default_endpoint {
            main.config.endpoints =
                check::default_endpoints(&main.config.upstreams, &main.defaults);
        }
        let mut teams = Report::default();
        if let Some(include) = self.include.clone() {
            match files_in(&include) {
                Ok(files) => {
                    main.teams.warn_of_missing(files.iter(), &mut report);
                    self.teams(files, &mut main, said, &mut teams);
                }
                Err(message) => report.add(Problem::error(Path::at("include"), message)),
            }
        }
        main.files
            .iter()
            .for_each(|(file, text)| said.file(file, text));
        self.secrets.say(said);
        self.rules = std::mem::take(&mut main.files).into_keys().collect();
        let names_none = main.config.endpoints.is_empty();
        main.config.names_endpoints =
            main.own_endpoints || !(main.has_default_endpoint || names_none);
        if !main.own_endpoints && names_none {
            main.config.endpoints = check::default_endpoints(&[], &main.defaults);
        }
        let (common, rulings) = (
            std::mem::take(&mut main.common),
            std::mem::take(&mut main.rulings),
        );
        main.config.rules = check::book(&main.config, common, rulings);
        if let Some(oauth) = &mut main.config.front.oauth {
            let scopes = |endpoint: &weir_core::Endpoint| {
                (
                    endpoint.id.clone(),
                    main.config.rules.scopes(&endpoint.id).to_vec(),
                )
            };
            oauth.scopes = main.config.endpoints.iter().map(scopes).collect();
        }
        let broken = broken || report.has_errors();
        if !broken {
            check::whole(&main.config, &mut report);
        }
        report.place(|path| tree.line_of(path));
        report.rename(&aliases);
        report.append(adoption);
        report.locate(&name, |_| 0);
        report.append(teams);
        Outcome {
            config: (!broken).then_some(main.config),
            report,
            held: Vec::new(),
        }
    }

    /// Brings the servers of other programs to weir's form, and fills in all references. Messages
    /// with places of the file go to the first report, those with places of the tree to the second.
    /// Returns the places that differ, and the files of variables.
    fn adopt(
        &mut self,
        tree: &mut Node,
        format: FileFormat,
        (adoption, report): (&mut Report, &mut Report),
    ) -> (Vec<(Path, Path)>, Texts) {
        let home = (self.environment)("HOME").map(PathBuf::from);
        let place = match &self.source {
            Source::File(file) | Source::Proposed { file, .. } => {
                FilePlace::of(file, home.as_deref())
            }
            Source::Text { .. } => FilePlace::default(),
        };
        let origin = ServerOrigin {
            format,
            place: &place,
            environment: self.environment,
        };
        let adopted = foreign::adopt(tree, &origin, adoption);
        let mut sources = InputSources {
            environment: self.environment,
            source: self.inputs,
            entered: &mut self.entered,
        };
        let answers = foreign::answers(&adopted.inputs, tree, &mut sources, adoption);
        let surroundings = ReferenceValues {
            project: place.project.clone(),
            answers,
        };
        self.secrets = fill_in(tree, self.environment, &surroundings, report);
        let env_files = foreign::read_env_files(tree, &place.folder, adoption);
        (adopted.aliases, env_files)
    }

    /// Adds every team's file; one that is bad adds its last good version, or nothing.
    fn teams(
        &mut self,
        files: Vec<PathBuf>,
        main: &mut Main,
        said: &mut Fingerprint,
        teams: &mut Report,
    ) {
        self.last_good.retain(|file, _| files.contains(file));
        for file in files {
            let (upstreams, endpoints) =
                (main.config.upstreams.clone(), main.config.endpoints.clone());
            let standing = Part {
                upstreams,
                endpoints,
                ..Part::default()
            };
            let grant = main.teams.of(&file);
            let mut own = Report::default();
            let text = read(&file);
            said.file(&file, &text);
            let read = match &text {
                Ok(text) => self.team(
                    TeamText {
                        file: &file,
                        text,
                        grant: &grant,
                    },
                    main,
                    &standing,
                    &mut own,
                ),
                Err(problem) => {
                    own.add(problem.clone());
                    Err(Texts::new())
                }
            };
            // The files with its rules matter also where they are what is wrong: that one is mended
            // is news.
            let named = read
                .as_ref()
                .map_or_else(Clone::clone, |part| part.files.clone());
            let part = read.ok();
            let before = self
                .last_good
                .get(&file)
                .filter(|before| text.as_ref().is_ok_and(|now| now != *before) || part.is_none());
            let before = before.and_then(|text| {
                let last = TeamText {
                    file: &file,
                    text,
                    grant: &grant,
                };
                self.team(last, main, &standing, &mut Report::default())
                    .ok()
            });
            let part = part.filter(|part| !self.holds(before.as_ref(), part, &mut own));
            own.locate(&file.display().to_string(), |_| 0);
            let part = match (part, text) {
                (Some(part), Ok(text)) => {
                    self.last_good.insert(file.clone(), text);
                    main.config.team_files.push(TeamFile::new(
                        &file,
                        TeamFileVersion::Current,
                        &own,
                    ));
                    part
                }
                (_, text) => Self::keep(
                    before,
                    &TeamText {
                        file: &file,
                        text: &text.unwrap_or_default(),
                        grant: &grant,
                    },
                    main,
                    &mut own,
                ),
            };
            teams.append(own);
            if !main.own_endpoints && part.endpoints.is_empty() {
                check::show_by_default(main, &part.upstreams, &grant);
            }
            main.config.upstreams.extend(part.upstreams);
            main.config.endpoints.extend(part.endpoints);
            main.rulings.extend(part.rulings);
            main.config.waivers.extend(part.waivers);
            for (file, text) in named.into_iter().chain(part.files) {
                // What another team has read first counts: where it says something else by now,
                // that is news.
                main.files.entry(file).or_insert(text);
            }
        }
    }

    /// The last good version of a team's file that has errors; nothing, where there is none.
    fn keep(before: Option<Part>, now: &TeamText<'_>, main: &mut Main, own: &mut Report) -> Part {
        let TeamText { file, text, grant } = now;
        let serves = if before.is_some() {
            TeamFileVersion::LastGood
        } else {
            TeamFileVersion::Nothing
        };
        let mut state = TeamFile::new(file, serves, own);
        let note = match before {
            Some(_) => "its last good version stays",
            None => "it is left out, and its paths answer 503",
        };
        if before.is_none() {
            let tree = document(&file.display().to_string(), text).ok();
            state.unserved = unserved_paths(
                tree.as_ref().map(|(tree, _)| tree),
                grant,
                !main.own_endpoints,
            );
        }
        main.config.team_files.push(state);
        let mut problem = Problem::warning(Path::root(), format!("this file has errors: {note}"));
        problem.file = file.display().to_string();
        own.add(problem);
        before.unwrap_or_default()
    }

    /// Whether a team's file is kept back, because it lost protections that its last good version
    /// has.
    fn holds(&mut self, before: Option<&Part>, now: &Part, own: &mut Report) -> bool {
        let lost = before
            .filter(|_| !self.allows_weaker)
            .map(|before| team_weakenings(before, now))
            .unwrap_or_default();
        for lost in &lost {
            own.add(
                Problem::error(lost.path.clone(), lost.message.clone()).hint(lost.hint.clone()),
            );
        }
        let is_held = !lost.is_empty();
        self.held.extend(lost);
        is_held
    }

    /// A team's part.
    ///
    /// # Errors
    /// Its file has errors; these are the files with rules that it names.
    fn team(
        &self,
        file: TeamText<'_>,
        main: &Main,
        standing: &Part,
        report: &mut Report,
    ) -> Result<Part, Texts> {
        let TeamText { file, text, grant } = file;
        let (mut tree, format) = match document(&file.display().to_string(), text) {
            Ok(read) => read,
            Err(problem) => {
                report.add(problem);
                return Err(Texts::new());
            }
        };
        // A variable without a grant looks unset.
        let environment = |name: &str| {
            grant
                .has_variable(name)
                .then(|| (self.environment)(name))
                .flatten()
        };
        let origin = ServerOrigin {
            format,
            place: &FilePlace::default(),
            environment: &environment,
        };
        foreign::adopt_of_team(&mut tree, &origin, report);
        fill_in_granted(&mut tree, grant, self.environment, report);
        let raw: RawTeamFile = decode(tree.clone(), report);
        let part = check::team(raw, grant, &main.defaults, standing, report);
        // Lines are known here; the file's name is the caller's to add.
        report.place(|path| tree.line_of(path));
        if report.has_errors() {
            Err(part.files)
        } else {
            Ok(part)
        }
    }
}

/// What a team's file says, and what it may say.
struct TeamText<'a> {
    file: &'a std::path::Path,
    text: &'a str,
    grant: &'a TeamGrant,
}

//! Loads the config: reads its files and combines the main file with the teams' files.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};

use weir_config_file::config_files::{
    FilesFingerprint, ReadFiles, files_in, folder_of, is_stream, read, read_stream,
};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::config_tree::ConfigNode;
use weir_config_file::decode::decode;
use weir_config_file::document::{FileFormat, parse_nonempty};
use weir_config_file::env::{
    Environment, GrantedVariables, ReferenceValues, SecretFiles, fill_in, fill_in_granted,
};
use weir_config_file::foreign;
use weir_config_file::foreign::file_place::FilePlace;
use weir_config_file::foreign::inputs::{InputSource, InputSources};
use weir_config_file::foreign::server_origin::ServerOrigin;
use weir_config_file::raw;
use weir_config_file::raw::RawTeamFile;
use weir_config_file::team_trees::TeamTrees;

use crate::check;
use crate::checked_config::{Config, SourceDigest};
use crate::config_part::{ConfigPart, EarlierFiles};
use crate::main_config::MainConfig;
use crate::team_files::{TeamFile, TeamFileVersion};
use crate::team_grants::TeamGrant;
use crate::unserved_paths::unserved_paths;
use crate::weakenings::team_weakenings;
use crate::weakenings::weakening::Weakening;

/// The message about a main file that was a pipe or a device at the start.
const UNREPEATABLE: &str = "cannot be read again, because it is not a regular file";

/// The source of the main config.
#[derive(Clone, Debug)]
pub enum ConfigSource {
    /// A file. Relative paths in it start at its folder.
    File(PathBuf),
    /// A text with a name for messages. Relative paths in it start at the working directory.
    Text {
        /// The name of the text in messages.
        name: String,
        /// The YAML or JSON.
        text: String,
    },
    /// The proposed new text of a file. Relative paths in it start at the file's folder.
    Proposed {
        /// The file.
        file: PathBuf,
        /// The YAML or JSON.
        text: String,
    },
}

/// The result of a load.
#[derive(Debug)]
pub struct LoadOutcome {
    /// The config, or `None` if the main file has errors. Errors in a team's file leave out or hold
    /// back that file only.
    pub config: Option<Config>,
    /// The errors, warnings and notes about all files.
    pub report: ConfigReport,
    /// The protections that teams' files lost. Each of these files is held back, and its last good
    /// version is in the config.
    pub held_back: Vec<Weakening>,
}

/// Loads the config repeatedly and remembers the last good version of every team's file.
pub struct ConfigLoader<'a> {
    source: ConfigSource,
    environment: Environment<'a>,
    last_good: HashMap<PathBuf, String>,
    include: Option<PathBuf>,
    /// The policy files that the last load named.
    rules: Vec<PathBuf>,
    /// The files with secrets that the main file names.
    secrets: SecretFiles,
    /// The fingerprint of the files at the last load. Absent before the first load.
    last_fingerprint: Option<[u8; 32]>,
    /// True if the main file was a pipe or a device at the first load.
    is_streamed: bool,
    /// The source of values for the inputs that other programs' configs declare.
    inputs: InputSource<'a>,
    /// The values that a person entered, by the inputs' ids.
    entered: HashMap<String, String>,
    /// The address that replaces the main file's `listen`.
    listen: Option<SocketAddr>,
    /// True if weir serves one MCP client only, as its child process.
    one_host: bool,
}

impl fmt::Debug for ConfigLoader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The texts of files may hold secrets.
        f.debug_struct("ConfigLoader")
            .field("include", &self.include)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

impl<'a> ConfigLoader<'a> {
    /// Creates a loader that has not read any file yet.
    #[must_use]
    pub fn new(source: ConfigSource, environment: Environment<'a>) -> Self {
        Self {
            source,
            environment,
            last_good: HashMap::new(),
            include: None,
            rules: Vec::new(),
            secrets: SecretFiles::default(),
            last_fingerprint: None,
            is_streamed: false,
            inputs: InputSource::Unavailable,
            entered: HashMap::new(),
            listen: None,
            one_host: false,
        }
    }

    /// Sets the source of values for the inputs of other programs' configs that no environment
    /// variable provides.
    #[must_use]
    pub fn with_inputs(self, inputs: InputSource<'a>) -> Self {
        Self { inputs, ..self }
    }

    /// Replaces the main file's `listen` with this address.
    #[must_use]
    pub fn with_listen(self, listen: Option<SocketAddr>) -> Self {
        Self { listen, ..self }
    }

    /// Serves one MCP client only. An upstream that is a child process may then send requests to
    /// the client, unless the config forbids it.
    #[must_use]
    pub fn for_one_host(self) -> Self {
        Self {
            one_host: true,
            ..self
        }
    }

    /// Returns the paths to watch: the main file, the included folder with its files, and the policy
    /// and secret files. There are none if the main file cannot be read again.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        if self.is_streamed {
            return paths;
        }
        if let ConfigSource::File(file) | ConfigSource::Proposed { file, .. } = &self.source {
            paths.push(file.clone());
        }
        paths.extend(self.include.clone());
        paths.extend(self.team_files());
        paths.extend(self.rules.iter().cloned());
        paths.extend(self.secrets.paths().map(FilePath::to_owned));
        paths
    }

    /// Lists the teams' files.
    fn team_files(&self) -> Vec<PathBuf> {
        let listed = self.include.as_deref().map(files_in);
        listed.and_then(Result::ok).unwrap_or_default()
    }

    /// Reports if the contents of the config's files differ from those at the last load. The check
    /// is cheap, because any write in the folders causes one, such as a write to weir's audit file.
    /// Certificates that the config only names are not compared.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        !self.is_streamed && self.last_fingerprint != Some(self.current_fingerprint())
    }

    /// Returns the reason why neither this process nor another one can read the main file again, if
    /// it is or was no regular file.
    #[must_use]
    pub fn reread_blocker(&self) -> Option<String> {
        let ConfigSource::File(file) = &self.source else {
            return None;
        };
        (self.is_streamed || is_stream(file)).then(|| format!("{} {UNREPEATABLE}", file.display()))
    }

    /// Returns the fingerprint of the files' present contents.
    fn current_fingerprint(&self) -> [u8; 32] {
        let mut fingerprint = FilesFingerprint::below(self.folder());
        // A read error is part of the fingerprint.
        let _ = self.read_main(&mut fingerprint);
        self.read_others(&mut fingerprint);
        fingerprint.digest()
    }

    /// Adds the files beside the main one that the last load named.
    fn read_others(&self, fingerprint: &mut FilesFingerprint) {
        for file in self.team_files() {
            fingerprint.add_file(&file, &read(&file));
        }
        for file in &self.rules {
            fingerprint.add_file(file, &read(file));
        }
        self.secrets.reread().add_to(fingerprint);
    }

    /// Returns the folder that relative paths in the main file start at.
    fn folder(&self) -> PathBuf {
        match &self.source {
            ConfigSource::File(file) | ConfigSource::Proposed { file, .. } => folder_of(file),
            ConfigSource::Text { .. } => PathBuf::new(),
        }
    }

    fn read_main(&self, fingerprint: &mut FilesFingerprint) -> Result<String, ConfigProblem> {
        match &self.source {
            ConfigSource::File(file) => {
                let text = match (self.is_streamed, self.last_fingerprint) {
                    (false, _) => read(file),
                    (true, None) => read_stream(file),
                    (true, Some(_)) => Err(ConfigProblem::error(ConfigPath::root(), UNREPEATABLE)),
                };
                fingerprint.add_file(file, &text);
                text
            }
            ConfigSource::Text { text, .. } | ConfigSource::Proposed { text, .. } => {
                fingerprint.add_bytes(text.as_bytes());
                Ok(text.clone())
            }
        }
    }

    /// Loads the config like [`Self::load`], and accepts teams' files that lost protections.
    pub fn load_weaker(&mut self) -> LoadOutcome {
        self.load_with(WeakerFiles::Accepted)
    }

    /// Reads every file once. A file that changes during the load makes the config stale.
    pub fn load(&mut self) -> LoadOutcome {
        self.load_with(WeakerFiles::HeldBack)
    }

    fn load_with(&mut self, weaker: WeakerFiles) -> LoadOutcome {
        let mut fingerprint = FilesFingerprint::below(self.folder());
        if let (ConfigSource::File(file), None) = (&self.source, self.last_fingerprint) {
            self.is_streamed = is_stream(file);
        }
        let mut outcome = self.load_all(weaker, &mut fingerprint);
        self.last_fingerprint = Some(fingerprint.digest());
        // Only the first load may prompt: a running weir has no person to ask.
        if matches!(self.inputs, InputSource::Prompt(_)) {
            self.inputs = InputSource::Unavailable;
        }
        if let Some(config) = &mut outcome.config {
            config.source = SourceDigest(self.last_fingerprint);
        }
        outcome
    }

    fn load_all(&mut self, weaker: WeakerFiles, fingerprint: &mut FilesFingerprint) -> LoadOutcome {
        let mut report = ConfigReport::default();
        let folder = self.folder();
        let name = match &self.source {
            ConfigSource::File(file) | ConfigSource::Proposed { file, .. } => {
                file.display().to_string()
            }
            ConfigSource::Text { name, .. } => name.clone(),
        };
        let main = self
            .read_main(fingerprint)
            .and_then(|text| parse_nonempty(&name, &text))
            .map_err(|problem| report.add(problem));
        let Ok((mut tree, format)) = main else {
            self.read_others(fingerprint);
            report.set_file(&name, |_| 0);
            return LoadOutcome {
                config: None,
                report,
                held_back: Vec::new(),
            };
        };
        let mut adoption = ConfigReport::default();
        let (aliases, env_files) = self.adopt(&mut tree, format, &mut adoption, &mut report);
        let mut raw: raw::RawConfig = decode(tree.clone(), &mut report);
        raw.listen = self.listen.map(|listen| listen.to_string()).or(raw.listen);
        let mut main =
            check::check_main_file(raw, &folder, self.environment, self.one_host, &mut report);
        let broken = report.has_errors() || adoption.has_errors();
        main.files.extend(env_files);
        let include = main
            .include
            .as_deref()
            .filter(|include| !include.is_empty());
        self.include = include.map(|include| folder.join(include));
        // The main file's own endpoints come first, so no team's file can displace them.
        main.has_default_endpoint = !main.own_endpoints && !main.config.upstreams.is_empty();
        if main.has_default_endpoint {
            main.config.endpoints =
                check::default_endpoints(&main.config.upstreams, &main.defaults);
        }
        let mut teams = TeamsLoad::default();
        if let Some(include) = self.include.clone() {
            match files_in(&include) {
                Ok(files) => {
                    main.teams.warn_of_missing(files.iter(), &mut report);
                    teams = self.add_teams(files, &mut main, weaker, fingerprint);
                }
                Err(message) => {
                    report.add(ConfigProblem::error(ConfigPath::at("include"), message))
                }
            }
        }
        main.files
            .iter()
            .for_each(|(file, text)| fingerprint.add_file(file, text));
        self.secrets.add_to(fingerprint);
        self.rules = std::mem::take(&mut main.files).into_keys().collect();
        let config = check::complete(main);
        let broken = broken || report.has_errors();
        if !broken {
            let whole = check::check_whole(&config);
            report.append(teams.trees.place(&tree, &whole, &mut teams.report));
        }
        report.set_lines(|path| tree.line_of(path));
        report.apply_aliases(&aliases);
        report.append(adoption);
        report.set_file(&name, |_| 0);
        report.append(teams.report);
        LoadOutcome {
            config: (!broken).then_some(config),
            report,
            held_back: teams.held_back,
        }
    }

    /// Converts the servers of other programs' configs to weir's form, and fills in all references.
    /// `adoption` gets messages with places in the file, `report` those with places in the tree.
    /// Returns the aliases between the two, and the variable files (`envFile`) that were read.
    fn adopt(
        &mut self,
        tree: &mut ConfigNode,
        format: FileFormat,
        adoption: &mut ConfigReport,
        report: &mut ConfigReport,
    ) -> (Vec<(ConfigPath, ConfigPath)>, ReadFiles) {
        let home = (self.environment)("HOME").map(PathBuf::from);
        let place = match &self.source {
            ConfigSource::File(file) | ConfigSource::Proposed { file, .. } => {
                FilePlace::of(file, home.as_deref())
            }
            ConfigSource::Text { .. } => FilePlace::default(),
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
        let values = ReferenceValues {
            project: place.project.clone(),
            answers,
        };
        self.secrets = fill_in(tree, self.environment, &values, report);
        let env_files = foreign::env_file::read_all(tree, &place.folder, adoption);
        (adopted.aliases, env_files)
    }

    /// Adds every team's file. A file with errors contributes its last good version, if there is
    /// one.
    fn add_teams(
        &mut self,
        files: Vec<PathBuf>,
        main: &mut MainConfig,
        weaker: WeakerFiles,
        fingerprint: &mut FilesFingerprint,
    ) -> TeamsLoad {
        let mut teams = TeamsLoad::default();
        self.last_good.retain(|file, _| files.contains(file));
        for file in files {
            let team = self.read_team(file, main, weaker, fingerprint);
            self.merge_team(team, main, &mut teams);
        }
        teams
    }

    /// Reads and checks a team's file, and its last good version unless that is the same.
    fn read_team(
        &self,
        file: PathBuf,
        main: &MainConfig,
        weaker: WeakerFiles,
        fingerprint: &mut FilesFingerprint,
    ) -> ReadTeam {
        let grant = main.teams.of(&file);
        let mut report = ConfigReport::default();
        let text = read(&file);
        fingerprint.add_file(&file, &text);
        let check = |text: &str, report: &mut ConfigReport| {
            let (file, grant) = (&file, &grant);
            self.check_team(&TeamText { file, text, grant }, main, report)
        };
        let read = match &text {
            Ok(text) => check(text, &mut report),
            Err(problem) => {
                report.add(problem.clone());
                Err(ReadFiles::new())
            }
        };
        let named = read
            .as_ref()
            .map_or_else(Clone::clone, |part| part.files.clone());
        let part = read.ok();
        let last_good = self
            .last_good
            .get(&file)
            .filter(|before| text.as_ref().is_ok_and(|now| now != *before) || part.is_none());
        let before = last_good.and_then(|text| check(text, &mut ConfigReport::default()).ok());
        let lost = match (weaker, &before, &part) {
            (WeakerFiles::HeldBack, Some(before), Some(now)) => team_weakenings(before, now),
            (WeakerFiles::HeldBack | WeakerFiles::Accepted, _, _) => Vec::new(),
        };
        lost.iter().for_each(|lost| report.add(problem_of(lost)));
        report.set_file(&file.display().to_string(), |_| 0);
        ReadTeam {
            part: part.filter(|_| lost.is_empty()),
            text: text.unwrap_or_default(),
            file,
            grant,
            report,
            named,
            before,
            lost,
        }
    }

    /// Adds a team's file, or its last good version, to the config.
    fn merge_team(&mut self, team: ReadTeam, main: &mut MainConfig, teams: &mut TeamsLoad) {
        let mut report = team.report;
        teams.held_back.extend(team.lost);
        let (file, grant) = (&team.file, &team.grant);
        let part = if let Some(part) = team.part {
            self.last_good.insert(file.clone(), team.text);
            let state = TeamFile::new(file, TeamFileVersion::Current, &report);
            main.config.team_files.push(state);
            part
        } else {
            let text = &team.text;
            let now = TeamText { file, text, grant };
            Self::keep_last_good(team.before, &now, main, &mut report)
        };
        teams.report.append(report);
        if !main.own_endpoints && part.endpoints.is_empty() {
            check::add_to_default_endpoints(main, &part.upstreams, grant);
        }
        main.config.upstreams.extend(part.upstreams);
        main.config.endpoints.extend(part.endpoints);
        main.endpoint_rules.extend(part.endpoint_rules);
        main.config.waivers.extend(part.waivers);
        if let Some(tree) = part.tree {
            teams.trees.add(file.display().to_string(), tree);
        }
        for (file, text) in team.named.into_iter().chain(part.files) {
            // The text that an earlier team read is the one to compare with: if the file has
            // changed since, the config is stale.
            main.files.entry(file).or_insert(text);
        }
    }

    /// Returns the last good version of a team's file that has errors, or an empty part without
    /// one.
    fn keep_last_good(
        before: Option<ConfigPart>,
        now: &TeamText<'_>,
        main: &mut MainConfig,
        own: &mut ConfigReport,
    ) -> ConfigPart {
        let TeamText { file, text, grant } = now;
        let serves = if before.is_some() {
            TeamFileVersion::LastGood
        } else {
            TeamFileVersion::Absent
        };
        let mut state = TeamFile::new(file, serves, own);
        let note = match before {
            Some(_) => "its last good version stays in use",
            None => "it is left out, and its paths answer 503",
        };
        if before.is_none() {
            let tree = parse_nonempty(&file.display().to_string(), text).ok();
            state.unserved = unserved_paths(
                tree.as_ref().map(|(tree, _)| tree),
                grant,
                !main.own_endpoints,
            );
        }
        main.config.team_files.push(state);
        let mut problem =
            ConfigProblem::warning(ConfigPath::root(), format!("this file has errors: {note}"));
        problem.file = file.display().to_string();
        own.add(problem);
        before.unwrap_or_default()
    }

    /// Checks a team's file.
    ///
    /// # Errors
    /// The file has errors. The error holds the policy files that it names.
    fn check_team(
        &self,
        file: &TeamText<'_>,
        main: &MainConfig,
        report: &mut ConfigReport,
    ) -> Result<ConfigPart, ReadFiles> {
        let TeamText { file, text, grant } = file;
        let (mut tree, format) = match parse_nonempty(&file.display().to_string(), text) {
            Ok(read) => read,
            Err(problem) => {
                report.add(problem);
                return Err(ReadFiles::new());
            }
        };
        // A variable that the team has no grant for looks unset.
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
        let granted = GrantedVariables {
            contains: &|name| grant.has_variable(name),
            right: grant.right_path("env"),
        };
        fill_in_granted(&mut tree, &granted, self.environment, report);
        let raw: RawTeamFile = decode(tree.clone(), report);
        let earlier = EarlierFiles {
            upstreams: &main.config.upstreams,
            endpoints: &main.config.endpoints,
        };
        let mut part = check::check_team_file(raw, grant, &main.defaults, earlier, report);
        // Lines are known here. The caller adds the file's name.
        report.set_lines(|path| tree.line_of(path));
        part.tree = Some(tree);
        if report.has_errors() {
            Err(part.files)
        } else {
            Ok(part)
        }
    }
}

/// The treatment of teams' files that lost protections against their last good versions.
#[derive(Clone, Copy)]
enum WeakerFiles {
    HeldBack,
    Accepted,
}

/// The outcome of the teams' files in one load.
#[derive(Default)]
struct TeamsLoad {
    report: ConfigReport,
    trees: TeamTrees,
    /// The protections that files lost that are held back.
    held_back: Vec<Weakening>,
}

fn problem_of(lost: &Weakening) -> ConfigProblem {
    ConfigProblem::error(lost.path.clone(), lost.message.clone()).hint(lost.hint.clone())
}

/// A team's file that was read and checked.
struct ReadTeam {
    file: PathBuf,
    grant: TeamGrant,
    /// Empty if the file could not be read.
    text: String,
    report: ConfigReport,
    /// Absent if the file has errors or is held back.
    part: Option<ConfigPart>,
    /// The last good version, if it is another one.
    before: Option<ConfigPart>,
    /// The policy files that it names. They are watched even if one of them is the file with
    /// errors, so that its repair triggers a reload.
    named: ReadFiles,
    /// The protections that it lost.
    lost: Vec<Weakening>,
}

/// A team's file: its text and its grants.
struct TeamText<'a> {
    file: &'a FilePath,
    text: &'a str,
    grant: &'a TeamGrant,
}

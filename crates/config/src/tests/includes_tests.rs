//! One file per team. A bad file affects no other team.

use super::*;

fn ids(outcome: &LoadOutcome) -> Vec<String> {
    let config = outcome.config.as_ref().unwrap();
    config
        .upstreams
        .iter()
        .map(|plan| plan.settings.id.to_string())
        .collect()
}

/// A main file that grants each team its hosts.
const MAIN: &str = r#"include: teams
upstreams: { own: { url: "http://own/mcp" } }
teams:
  a: { hosts: [a, a2], ids: ["a*"], paths: [/a, /mcp/a*], upstreams: [own] }
  b: { hosts: [b, b2], ids: ["b*"], paths: [/a, /mcp/b*] }
  c: { hosts: [own], ids: [own], paths: [/mcp/own] }
"#;

fn team(id: &str) -> String {
    format!("upstreams: {{ {id}: {{ url: \"http://{id}/mcp\" }} }}\n")
}

#[test]
fn a_bad_team_file_keeps_its_last_good_version_only() {
    let folder = TestFolder::new("teams");
    let main = folder.write("weir.yaml", MAIN);
    folder.write("teams/a.yaml", &team("a"));
    folder.write("teams/b.yaml", &team("b"));
    folder.write("teams/notes.txt", "not a config");
    let mut loader = ConfigLoader::new(ConfigSource::File(main), &environment);
    assert_eq!(ids(&loader.load()), ["own", "a", "b"]);
    let named = ["weir.yaml", "teams", "teams/a.yaml", "teams/b.yaml"];
    assert_eq!(loader.paths(), named.map(|name| folder.file(name)));

    // a breaks, b changes: a stays as it was, b is new, and the report names file and line.
    folder.write("teams/a.yaml", "upstreams:\n  a2: { url: 5 }\n");
    let named = format!("$schema: ../weir.schema.json\n{}", team("b2"));
    folder.write("teams/b.yaml", &named);
    let outcome = loader.load();
    assert_eq!(ids(&outcome), ["own", "a", "b2"]);
    let report = outcome.report.to_string();
    assert!(
        report
            .contains("teams/a.yaml:2: error: upstreams.a2.url: expected a string, found a number"),
        "{report}"
    );
    assert!(
        report.contains("its last good version stays in use"),
        "{report}"
    );

    // A file that is removed takes its upstreams along. A file that never was valid adds no
    // upstreams.
    std::fs::remove_file(folder.file("teams/a.yaml")).unwrap();
    folder.write("teams/c.yaml", "listen: 127.0.0.1:1\n");
    let outcome = loader.load();
    assert_eq!(ids(&outcome), ["own", "b2"]);
    assert!(
        outcome.report.to_string().contains("it is left out"),
        "{}",
        outcome.report
    );
}

/// Only a file whose name is gone was deleted. A link may get its target back, as on a volume that
/// is mounted again.
#[test]
fn a_team_file_that_cannot_be_reached_keeps_its_last_good_version() {
    let folder = TestFolder::new("unreached-teams");
    let main = folder.write("weir.yaml", MAIN);
    folder.write("teams/b.yaml", &team("b"));
    folder.write("a", &team("a"));
    let link = folder.file("teams/a.yaml");
    std::os::unix::fs::symlink("../a", &link).unwrap();
    // Folders are no configs, also behind a link.
    std::fs::create_dir(folder.file("teams/c.yaml")).unwrap();
    std::os::unix::fs::symlink("c.yaml", folder.file("teams/d.yaml")).unwrap();
    let mut loader = ConfigLoader::new(ConfigSource::File(main), &environment);
    assert_eq!(ids(&loader.load()), ["own", "a", "b"]);
    let stays = |loader: &mut ConfigLoader<'_>, cause: &str| {
        assert!(loader.is_stale(), "{cause}");
        let outcome = loader.load();
        assert_eq!(ids(&outcome), ["own", "a", "b"], "{cause}");
        let report = outcome.report.to_string();
        assert!(
            report.contains(cause) && report.contains("its last good version stays in use"),
            "{report}"
        );
        assert!(!loader.is_stale(), "{cause}");
    };
    std::fs::remove_file(folder.file("a")).unwrap();
    stays(
        &mut loader,
        "teams/a.yaml: error: cannot be read: No such file",
    );
    std::fs::remove_file(&link).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&link).unwrap();
    stays(
        &mut loader,
        "teams/a.yaml: error: cannot be read: it is not a regular file",
    );
    drop(socket);
    std::fs::remove_file(&link).unwrap();
    assert_eq!(ids(&loader.load()), ["own", "b"]);
}

fn make_pipe(file: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(file).status();
    assert!(made.unwrap().success());
}

/// A read from a pipe would hang, and with it all of weir.
#[test]
fn pipes_in_the_place_of_files_are_errors_without_a_wait() {
    let folder = TestFolder::new("piped-files");
    let own = "policy: { files: [main.cedar] }\n";
    let rights = MAIN.replace("hosts: [a, a2]", "hosts: [a, a2], files: [\"rules/*\"]");
    let main = folder.write("weir.yaml", &format!("{rights}{own}"));
    let rule = "permit(principal, action, resource);\n";
    let of_team = "endpoints: { /a: { upstream: a, policy: { files: [rules/a.cedar] } } }\n";
    folder.write("teams/a.yaml", &format!("{}{of_team}", team("a")));
    folder.write("rules/a.cedar", rule);
    folder.write("main.cedar", rule);
    let mut loader = ConfigLoader::new(ConfigSource::File(main), &environment);
    let outcome = loader.load();
    assert_eq!(ids(&outcome), ["own", "a"], "{}", outcome.report);
    assert_eq!(loader.reread_blocker(), None);
    for file in ["rules/a.cedar", "main.cedar", "weir.yaml"] {
        let file = folder.file(file);
        std::fs::remove_file(&file).unwrap();
        make_pipe(&file);
        assert!(loader.is_stale(), "{}", file.display());
        let report = loader.load().report.to_string();
        assert!(report.contains("not a regular file"), "{report}");
        assert!(!loader.is_stale(), "{}", file.display());
    }
    assert!(
        loader
            .reread_blocker()
            .is_some_and(|why| why.contains("weir.yaml cannot be read again"))
    );
    for (file, text) in [("weir.yaml", rights.as_str()), ("rules/a.cedar", rule)] {
        std::fs::remove_file(folder.file(file)).unwrap();
        folder.write(file, text);
    }
    assert_eq!(ids(&loader.load()), ["own", "a"]);
    assert_eq!(loader.reread_blocker(), None);
}

/// The main file is a pipe of a shell or of a program that decrypts it.
#[test]
fn main_file_that_is_a_pipe_is_read_once_and_not_followed() {
    let folder = TestFolder::new("piped-main");
    let pipe = folder.file("weir.yaml");
    make_pipe(&pipe);
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, "upstreams: { own: { url: \"http://own/mcp\" } }\n").unwrap()
    });
    let mut loader = ConfigLoader::new(ConfigSource::File(pipe.clone()), &environment);
    assert_eq!(ids(&loader.load()), ["own"]);
    writer.join().unwrap();
    assert!(!loader.is_stale());
    assert!(loader.paths().is_empty());
    // The program removes the pipe after its use.
    std::fs::remove_file(&pipe).unwrap();
    let why = loader.reread_blocker().unwrap();
    assert!(why.contains("cannot be read again"), "{why}");
    let outcome = loader.load();
    assert!(outcome.config.is_none());
    assert!(
        outcome.report.to_string().contains("cannot be read again"),
        "{}",
        outcome.report
    );
    assert!(!loader.is_stale());
}

// Proves G01.
#[test]
fn a_team_file_that_lost_its_scopes_or_rules_keeps_its_last_good_version_only() {
    let folder = TestFolder::new("weaker-teams");
    let main = folder.write("weir.yaml", MAIN);
    let serving = |more: &str| {
        format!(
            "{}endpoints: {{ /a: {{ upstream: a{more} }} }}\n",
            team("a")
        )
    };
    let guarded = ", scopes: [x], policy: { inline: \"permit(principal, action, resource);\" }";
    folder.write("teams/a.yaml", &serving(guarded));
    folder.write("teams/b.yaml", &team("b"));
    let mut loader = ConfigLoader::new(ConfigSource::File(main), &environment);
    let scopes = |outcome: &LoadOutcome| {
        let config = outcome.config.as_ref().unwrap();
        config.rules.scopes(&weir_core::EndpointId::new("/a")).len()
    };
    assert_eq!(scopes(&loader.load()), 1);
    folder.write("teams/a.yaml", &serving(""));
    folder.write("teams/b.yaml", &team("b2"));
    let outcome = loader.load();
    assert_eq!(
        (scopes(&outcome), ids(&outcome)),
        (1, ["own", "a", "b2"].map(str::to_owned).to_vec())
    );
    let lost: Vec<_> = outcome
        .held_back
        .iter()
        .map(|lost| lost.path.to_string())
        .collect();
    assert_eq!(lost, ["endpoints./a.policy", "endpoints./a.scopes"]);
    let report = outcome.report.to_string();
    assert!(
        report.contains("teams/a.yaml: error: endpoints./a.scopes") && report.contains("stays"),
        "{report}"
    );
    // An operator accepts it once, and a team gives it up explicitly.
    let outcome = loader.load_weaker();
    assert_eq!((scopes(&outcome), outcome.held_back.len()), (0, 0));
    folder.write("teams/a.yaml", &serving(guarded));
    assert_eq!(scopes(&loader.load()), 1);
    folder.write("teams/a.yaml", &serving(", scopes: [], policy: off"));
    let outcome = loader.load();
    assert_eq!((scopes(&outcome), outcome.held_back.len()), (0, 0));
}

#[test]
fn only_the_configs_own_files_make_it_stale() {
    let folder = TestFolder::new("stale");
    let rules = |who: &str| format!("permit(principal in Group::\"{who}\", action, resource);");
    let main = folder.write(
        "weir.yaml",
        "include: teams\nteams: { a: { hosts: [a, a2], ids: [\"a*\"] }, b: { hosts: [b] } }\npolicy: { files: [main.cedar] }\n",
    );
    folder.write("main.cedar", &rules("a"));
    folder.write("teams/a.yaml", &team("a"));
    let mut loader = ConfigLoader::new(ConfigSource::File(main.clone()), &environment);
    assert!(loader.is_stale(), "never read");
    let digest = |outcome: LoadOutcome| outcome.config.unwrap().source.digest().unwrap();
    let first = digest(loader.load());
    assert!(!loader.is_stale());
    assert_eq!(digest(loader.load()), first);
    folder.write("audit.jsonl", "{}\n");
    folder.write("teams/notes.txt", "not a config");
    folder.write("other.cedar", &rules("b"));
    assert!(!loader.is_stale(), "what stands beside it is nothing to it");
    let changes: [(&str, &str); 4] = [
        (
            "weir.yaml",
            "include: teams\nteams: { a: { hosts: [a, a2], ids: [\"a*\"] }, b: { hosts: [b] } }\npolicy: { files: [main.cedar] }\nlisten: 127.0.0.1:0\n",
        ),
        ("main.cedar", &rules("b")),
        ("teams/a.yaml", &team("a2")),
        ("teams/b.yaml", &team("b")),
    ];
    for (name, text) in changes {
        folder.write(name, text);
        assert!(loader.is_stale(), "{name}");
        assert!(loader.load().config.is_some(), "{name}");
        assert!(!loader.is_stale(), "{name}");
    }
    std::fs::remove_file(folder.file("teams/b.yaml")).unwrap();
    assert!(loader.is_stale(), "a file that goes away is news");
}

#[test]
fn copies_of_a_config_in_two_folders_have_the_same_digest() {
    let load = |folder: &TestFolder, team_host: &str| {
        let main = folder.write(
            "weir.yaml",
            "include: teams\nteams: { a: { hosts: [a, b] } }\npolicy: { files: [main.cedar] }\n",
        );
        folder.write("main.cedar", "permit(principal, action, resource);");
        folder.write("teams/a.yaml", &team(team_host));
        let outcome = ConfigLoader::new(ConfigSource::File(main), &environment).load();
        outcome.config.unwrap().source.short().unwrap()
    };
    let (one, two) = (TestFolder::new("copy1"), TestFolder::new("copy2"));
    let digest = load(&one, "a");
    assert_eq!(digest.len(), 16);
    assert_eq!(load(&two, "a"), digest);
    assert_ne!(load(&two, "b"), digest);
}

#[test]
fn repaired_team_policy_file_makes_config_stale() {
    let folder = TestFolder::new("mended");
    let main = folder.write(
        "weir.yaml",
        "include: teams\nteams: { a: { hosts: [a], paths: [/a], files: [\"rules/*\"] } }\nupstreams: { own: { url: \"http://own/\" } }\n",
    );
    let endpoint = "endpoints: { /a: { upstream: a, policy: { files: [rules/a.cedar] } } }\n";
    folder.write("teams/a.yaml", &format!("{}{endpoint}", team("a")));
    let good = "permit(principal, action, resource);\nforbid(principal, action, resource) when { resource.native == \"x\" };";
    // Broken from the start, and broken after a good version.
    for before in ["permit(principal", good] {
        folder.write("rules/a.cedar", before);
        let mut loader = ConfigLoader::new(ConfigSource::File(main.clone()), &environment);
        loader.load();
        folder.write("rules/a.cedar", "permit(principal");
        assert_eq!(
            ids(&loader.load()),
            ["own"],
            "a policy that cannot be read is none to go on with"
        );
        assert!(
            loader.paths().contains(&folder.file("rules/a.cedar")),
            "it is watched"
        );
        assert!(!loader.is_stale());
        folder.write("rules/a.cedar", good);
        assert!(loader.is_stale(), "it was mended");
        assert_eq!(ids(&loader.load()), ["own", "a"]);
    }
}

#[test]
fn changed_secret_file_makes_config_stale() {
    let folder = TestFolder::new("secrets");
    let secret = folder.write("secrets/token", "canary-one\n");
    let main = folder.write(
        "weir.yaml",
        &format!(
            "upstreams: {{ a: {{ url: \"http://a/\", headers: {{ x: \"Bearer ${{file:{}}}\" }} }} }}\n",
            secret.display()
        ),
    );
    let mut loader = ConfigLoader::new(ConfigSource::File(main), &environment);
    let first = loader.load().config.unwrap();
    assert!(!loader.is_stale());
    let named = ["weir.yaml", "secrets/token"];
    assert_eq!(loader.paths(), named.map(|name| folder.file(name)));
    folder.write("secrets/other", "x");
    assert!(!loader.is_stale());
    folder.write("secrets/token", "canary-two\n");
    assert!(loader.is_stale());
    let second = loader.load().config.unwrap();
    assert!(first != second && !loader.is_stale());
    // If the file is removed, the config has an error, and its return makes the config stale.
    std::fs::remove_file(&secret).unwrap();
    assert!(loader.is_stale());
    assert!(loader.load().config.is_none() && !loader.is_stale());
    folder.write("secrets/token", "canary-two");
    assert!(loader.is_stale());
    assert_eq!(loader.load().config, Some(second));
}

#[test]
fn a_team_gives_its_upstreams_ids_of_its_own() {
    let folder = TestFolder::new("ids");
    let loaded = |grant: &str, id: &str| {
        let main = folder.write(
            "weir.yaml",
            &format!("include: teams\nteams: {{ Red_Team: {{ hosts: [x]{grant} }} }}\nupstreams: {{ own: {{ url: \"http://own/\" }} }}\n"),
        );
        folder.write(
            "teams/Red_Team.yaml",
            &format!("upstreams: {{ {id}: {{ url: \"http://x/\" }} }}\n"),
        );
        let outcome = ConfigLoader::new(ConfigSource::File(main.clone()), &environment).load();
        folder.write(
            "teams/Red_Team.yaml",
            &format!("mcpServers: {{ {id}: {{ url: \"http://x/\" }} }}\n"),
        );
        let servers = ConfigLoader::new(ConfigSource::File(main), &environment).load();
        assert_eq!(ids(&outcome), ids(&servers));
        (ids(&outcome).len() == 2, outcome.report.to_string())
    };
    for id in ["red-team", "red-team-files"] {
        assert!(loaded("", id).0, "{id}");
    }
    for id in ["billing", "red", "red-teams", "red-teamfiles"] {
        let (is_taken, report) = loaded("", id);
        assert!(!is_taken, "{id}");
        let said = format!(
            "Red_Team.yaml:1: error: upstreams.{id}: has the id `{id}`, which the main file does not grant"
        );
        assert!(
            report.contains(&said) && report.contains("red-team or red-team-*"),
            "{report}"
        );
    }
    let granted = ", ids: [billing, \"r-*\"]";
    for (id, is_taken) in [("billing", true), ("r-x", true), ("red-team", false)] {
        assert_eq!(loaded(granted, id).0, is_taken, "{id}");
    }
}

#[test]
fn a_team_cannot_take_anothers_id_or_path() {
    let folder = TestFolder::new("clash");
    let main = folder.write("weir.yaml", MAIN);
    folder.write(
        "teams/a.yaml",
        &format!(
            "{}endpoints: {{ /a: {{ upstreams: [a, own] }} }}\n",
            team("a")
        ),
    );
    folder.write(
        "teams/b.yaml",
        &format!("{}endpoints: {{ /a: {{ upstream: b }} }}\n", team("b")),
    );
    folder.write("teams/c.yaml", &team("own"));
    let outcome = ConfigLoader::new(ConfigSource::File(main), &environment).load();
    assert_eq!(ids(&outcome), ["own", "a"]);
    let report = outcome.report.to_string();
    assert!(
        report.contains("b.yaml:2: error: endpoints./a: another file has an endpoint of this path"),
        "{report}"
    );
    assert!(
        report.contains("c.yaml:1: error: upstreams.own: another upstream has the id `own`"),
        "{report}"
    );
}

// Proves G01.
#[test]
fn unreadable_file_is_an_error() {
    let folder = TestFolder::new("unreadable");
    let missing =
        ConfigLoader::new(ConfigSource::File(folder.file("none.yaml")), &environment).load();
    assert!(missing.config.is_none());
    assert!(
        missing
            .report
            .to_string()
            .contains("none.yaml: error: cannot be read: No such file"),
        "{}",
        missing.report
    );
    let main = folder.file("binary.yaml");
    std::fs::write(&main, [0xff, 0xfe, 0x00]).unwrap();
    assert!(
        ConfigLoader::new(ConfigSource::File(main), &environment)
            .load()
            .report
            .to_string()
            .contains("is not UTF-8 text")
    );
    assert!(
        ConfigLoader::new(ConfigSource::File(folder.path().to_owned()), &environment)
            .load()
            .config
            .is_none()
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(500))]
    /// A good file with any bytes changed gives a config or an error, never a panic, and errors of
    /// values have lines.
    // Proves G01.
    #[test]
    fn mutated_files_never_panic(at in proptest::collection::vec((0..2000_usize, 0..128_u8), 1..6)) {
        let mut bytes = include_bytes!("full.yaml").to_vec();
        for (place, byte) in at {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        let outcome = load(&String::from_utf8(bytes).unwrap());
        assert_eq!(outcome.config.is_none(), outcome.report.has_errors());
        for problem in outcome.report.problems() {
            assert!(problem.path.is_root() || problem.line.is_some(), "{problem}");
        }
    }
}

/// Warnings of checks over all files named the main file, at its first line.
#[test]
fn warnings_about_all_files_name_the_file_and_its_own_key() {
    let folder = TestFolder::new("origins");
    let main = folder.write(
        "weir.yaml",
        "include: teams
teams: { red: { hosts: [red], paths: [\"/mcp/red/*\"], files: [\"rules/*\"] } }
upstreams:
  own: { url: \"http://own/\" }
mcpServers:
  My Files: { url: \"http://files/\" }
endpoints: { /mcp: { upstreams: [own] } }
",
    );
    folder.write(
        "rules/red.cedar",
        "permit(principal, action, resource == Tool::\"gone/a\");",
    );
    folder.write(
        "teams/red.yaml",
        "upstreams:
  red: { url: \"http://red/\" }
mcpServers:
  Red Unused: { url: \"http://red/\" }
endpoints:
  /mcp/red/a:
    upstreams: [red]
    policy: { files: [rules/red.cedar] }
    tools:
      include: [absent/*]
  /mcp/red/a/sse:
    upstreams: [red]
",
    );
    let outcome = ConfigLoader::new(ConfigSource::File(main), &environment).load();
    let report = outcome.report.to_string();
    for expected in [
        "weir.yaml:6: warning: mcpServers.\"My Files\": no endpoint shows this upstream",
        "teams/red.yaml:4: warning: mcpServers.\"Red Unused\": no endpoint shows this upstream",
        "teams/red.yaml:8: warning: endpoints./mcp/red/a.policy: the rule",
        "teams/red.yaml:10: warning: endpoints./mcp/red/a.tools.include.0: has no effect",
        "teams/red.yaml:11: warning: endpoints./mcp/red/a/sse: takes",
    ] {
        assert!(report.contains(expected), "{expected}: {report}");
    }
    assert!(!report.contains("upstreams.red-unused"), "{report}");
}

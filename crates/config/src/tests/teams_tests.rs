//! The rights of the teams' files: the main file grants each of them, and without a grant a file
//! has no rights.

use weir_core::Endpoint;

use super::*;

/// A main file with secrets of its own; `red` gets the rights of `grant`.
fn main_file(grant: &str) -> String {
    format!(
        r#"include: teams
keys: [{{ id: 1, secret: "${{WEIR_KEY}}" }}]
upstreams: {{ payments: {{ url: "http://payments/mcp", headers: {{ Authorization: "Bearer ${{TOKEN}}" }} }} }}
teams: {{ {grant} }}
"#
    )
}

/// The rights to one host and one path, which suffice for a plain file.
const PLAIN: &str = "hosts: [red.example], paths: [/mcp/red/*]";

struct LoadedTeam {
    outcome: LoadOutcome,
    report: String,
}

/// Loads a main file that grants these rights, and a file of `red`.
fn loaded(name: &str, grant: &str, red: &str) -> LoadedTeam {
    loaded_with_authority(name, grant, red, &TestCertificate::new().cert)
}

/// Does the same with this file of certificates.
fn loaded_with_authority(name: &str, grant: &str, red: &str, ca: &str) -> LoadedTeam {
    let folder = TestFolder::new(&format!("rights-{name}"));
    let main = folder.write("weir.yaml", &main_file(grant));
    folder.write("teams/red.yaml", red);
    folder.write(
        "teams/red/rules.cedar",
        "permit(principal, action, resource);",
    );
    folder.write("teams/red/ca.pem", ca);
    folder.write("teams/red/patterns.yaml", "a: x");
    folder.write("secret.cedar", "canary-file");
    #[cfg(unix)]
    std::os::unix::fs::symlink(
        folder.file("secret.cedar"),
        folder.file("teams/red/link.cedar"),
    )
    .unwrap();
    let outcome = ConfigLoader::new(ConfigSource::File(main), &environment).load();
    let report = outcome.report.to_string();
    LoadedTeam { outcome, report }
}

impl LoadedTeam {
    /// Reports if the file of `red` is in the config.
    fn is_taken(&self) -> bool {
        let config = self
            .outcome
            .config
            .as_ref()
            .unwrap_or_else(|| panic!("{}", self.report));
        config
            .upstreams
            .iter()
            .any(|plan| plan.settings.id.as_str() == "red")
    }
}

fn upstream(rest: &str) -> String {
    format!("upstreams: {{ red: {{ url: \"http://red.example/mcp\"{rest} }} }}\n")
}

fn endpoint(rest: &str) -> String {
    format!(
        "{}endpoints: {{ /mcp/red/all: {{ upstreams: [red]{rest} }} }}\n",
        upstream("")
    )
}

/// A way for a team's file to reach resources that are not its own: a name, the file, the path of
/// the error, and the right that allows it.
type GrantAttempt = (&'static str, String, &'static str, &'static str);

/// Each place that a variable can be in.
fn variables() -> Vec<GrantAttempt> {
    vec![
        ("header", upstream(", headers: { x: \"${WEIR_KEY}\" }"), "upstreams.red.headers.x", "env: [WEIR_KEY]"),
        ("padded", upstream(", headers: { x: \"a ${TOKEN} b\" }"), "upstreams.red.headers.x", "env: [TO*]"),
        (
            "url",
            "upstreams: { red: { url: \"http://red.example/${WEIR_KEY}\" } }".into(),
            "upstreams.red.url",
            "env: [\"*\"]",
        ),
        (
            "client secret",
            upstream(
                ", auth: { mode: client_credentials, issuer: \"https://id.example\", client_id: a, client_secret: \"${WEIR_KEY}\" }",
            ),
            "upstreams.red.auth.client_secret",
            "env: [WEIR_KEY], authorization_servers: [id.example]",
        ),
        (
            "query of a token endpoint",
            upstream(
                ", auth: { mode: client_credentials, token_endpoint: \"https://id.example/${WEIR_KEY}\", client_id: a, client_secret: thirteen-things }",
            ),
            "upstreams.red.auth.token_endpoint",
            "env: [WEIR_KEY], authorization_servers: [id.example]",
        ),
        (
            "scope",
            upstream(
                ", auth: { mode: client_credentials, issuer: \"https://id.example\", client_id: a, client_secret: thirteen-things, scopes: [\"${WEIR_KEY}\"] }",
            ),
            "upstreams.red.auth.scopes",
            "env: [WEIR_KEY], authorization_servers: [id.example]",
        ),
        (
            "servers of MCP clients",
            "mcpServers: { red: { url: \"http://red.example/\", headers: { x: \"${WEIR_KEY}\" } } }".into(),
            "mcpServers.red.headers.x",
            "env: [WEIR_KEY]",
        ),
        (
            "description",
            endpoint(", tools: { describe: { a: \"${WEIR_KEY}\" } }"),
            "endpoints./mcp/red/all.tools.describe.a",
            "env: [WEIR_KEY]",
        ),
        (
            "child's variable",
            "upstreams: { red: { command: cat, env: { X: \"${WEIR_KEY}\" } } }".into(),
            "upstreams.red.env.X",
            "env: [WEIR_KEY], commands: yes",
        ),
    ]
}

/// Attempts without a variable.
fn others() -> Vec<GrantAttempt> {
    let auth = |mode: &str, place: &str| {
        upstream(&format!(
            ", auth: {{ mode: {mode}, {place}: \"https://id.example/t\", client_id: a, client_secret: thirteen-things }}"
        ))
    };
    vec![
        (
            "command",
            "upstreams: { red: { command: env } }".into(),
            "upstreams.red.command",
            "commands: yes",
        ),
        (
            "command of MCP clients",
            "mcpServers: { red: { command: sh, args: [-c, env] } }".into(),
            "mcpServers.red.command",
            "commands: yes",
        ),
        (
            "callers' tokens",
            auth("token_exchange", "token_endpoint"),
            "upstreams.red.auth.token_endpoint",
            "authorization_servers: [id.example]",
        ),
        (
            "issuer",
            auth("token_exchange", "issuer"),
            "upstreams.red.auth.issuer",
            "authorization_servers: [\"*.example\"]",
        ),
        (
            "another's credentials",
            endpoint("").replace("[red]", "[red, payments]"),
            "endpoints./mcp/red/all.upstreams.1",
            "upstreams: [pay*]",
        ),
        (
            "file of rules",
            endpoint(", policy: { files: [teams/red/rules.cedar] }"),
            "endpoints./mcp/red/all.policy.files.0",
            "files: [teams/red/*]",
        ),
        (
            "file of certificates",
            upstream(", ca_file: teams/red/ca.pem"),
            "upstreams.red.ca_file",
            "files: [teams/red/*]",
        ),
        (
            "file of patterns",
            upstream(", secrets: { patterns: teams/red/patterns.yaml }"),
            "upstreams.red.secrets.patterns",
            "files: [teams/red/*]",
        ),
        (
            "trust",
            upstream(", trust: trusted"),
            "upstreams.red.trust",
            "trust: yes",
        ),
        (
            "annotations",
            endpoint(", tools: { annotations: { \"*\": { readOnlyHint: true } } }"),
            "endpoints./mcp/red/all.tools.annotations",
            "trust: yes",
        ),
    ]
}

#[test]
fn a_team_gets_no_secret_that_is_not_granted_to_it() {
    for (name, file, place, right) in variables().into_iter().chain(others()) {
        let name = &name.replace([' ', '\''], "-");
        let refused = loaded(name, &format!("red: {{ {PLAIN} }}"), &file);
        assert!(!refused.is_taken(), "{name}");
        assert!(
            refused.report.contains("red.yaml:"),
            "{name}: {}",
            refused.report
        );
        assert!(
            refused.report.contains(&format!("error: {place}")),
            "{name}: {}",
            refused.report
        );
        assert!(
            refused.report.contains("see teams.red."),
            "{name}: {}",
            refused.report
        );
        assert!(
            !refused.report.contains("canary") && !refused.report.contains("AAECAw"),
            "{}",
            refused.report
        );
        let taken = loaded(name, &format!("red: {{ {PLAIN}, {right} }}"), &file);
        assert!(taken.is_taken(), "{name}: {}", taken.report);
        // The rights of one team do not apply to another.
        assert!(
            !loaded(
                name,
                &format!("red: {{ {PLAIN} }}, blue: {{ {PLAIN}, {right} }}"),
                &file
            )
            .is_taken(),
            "{name}"
        );
    }
}

#[test]
fn every_url_of_an_upstream_is_at_a_host_of_the_team() {
    for (urls, place) in [
        (
            r#"["http://red.example/mcp", "http://10.0.0.1/mcp"]"#,
            "upstreams.red.urls.1",
        ),
        (
            r#"[{ url: "http://10.0.0.1/mcp", weight: 5 }]"#,
            "upstreams.red.urls.0",
        ),
    ] {
        let file = format!("upstreams: {{ red: {{ urls: {urls} }} }}");
        let refused = loaded("urls", &format!("red: {{ {PLAIN} }}"), &file);
        assert!(!refused.is_taken());
        assert!(
            refused.report.contains(&format!("error: {place}")),
            "{}",
            refused.report
        );
        let granted = PLAIN.replace("[red.example]", "[red.example, 10.0.0.1]");
        let taken = loaded("urls", &format!("red: {{ {granted} }}"), &file);
        assert!(taken.is_taken(), "{}", taken.report);
    }
}

#[test]
fn a_file_without_an_entry_has_no_rights_at_all() {
    for (name, file) in [
        ("host", upstream("")),
        ("path", endpoint("")),
        ("literal", upstream(", headers: { x: plain }")),
        (
            "address",
            "upstreams: { red: { url: \"http://127.0.0.1:8081/metrics\" } }".into(),
        ),
    ] {
        for grant in [
            "",
            "red: {}",
            "blue: { hosts: [red.example], paths: [/mcp/red/*] }",
        ] {
            assert!(!loaded(name, grant, &file).is_taken(), "{name} {grant}");
        }
    }
    assert!(loaded("plain", &format!("red: {{ {PLAIN} }}"), &endpoint("")).is_taken());
    // Hosts are compared as parsed from the URL, not by prefix or suffix.
    for url in [
        "http://red.example.evil.example/",
        "http://red.example@evil.example/",
        "http://evil.example/red.example",
    ] {
        let file = format!("upstreams: {{ red: {{ url: \"{url}\" }} }}");
        assert!(
            !loaded("host-like", &format!("red: {{ {PLAIN} }}"), &file).is_taken(),
            "{url}"
        );
    }
    let elsewhere = endpoint("").replace("/mcp/red/all", "/mcp/blue/all");
    assert!(!loaded("elsewhere", &format!("red: {{ {PLAIN} }}"), &elsewhere).is_taken());
}

#[test]
fn a_variable_that_is_not_granted_looks_the_same_whether_it_is_set_or_not() {
    let report = |variable: &str| {
        let file = upstream(&format!(", headers: {{ x: \"${{{variable}}}\" }}"));
        loaded(variable, &format!("red: {{ {PLAIN} }}"), &file)
            .report
            .replace(variable, "NAME")
            .replace("rights-NAME", "")
    };
    let strip = |text: String| {
        text.lines()
            .map(|line| line.split_once("red.yaml").map(|(_, rest)| rest.to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(strip(report("WEIR_KEY")), strip(report("NOT_SET")));
}

/// A team that may write into its folder can put links there.
#[test]
fn a_linked_folder_does_not_lead_a_teams_files_out() {
    use std::os::unix::fs::symlink;
    let folder = TestFolder::new("rights-linked");
    let rules = "permit(principal, action, resource);";
    for file in [
        "real/team/own.cedar",
        "real/team/sub/own.cedar",
        "real/red-other/own.cedar",
    ] {
        folder.write(file, rules);
    }
    folder.write("outside/secret.cedar", "canary-file");
    // The operator's own link, and a release as those of config maps.
    symlink("real", folder.file("teams")).unwrap();
    symlink("sub", folder.file("real/team/within")).unwrap();
    symlink("sub/own.cedar", folder.file("real/team/file.cedar")).unwrap();
    symlink(folder.file("outside"), folder.file("real/team/out")).unwrap();
    symlink("../../outside", folder.file("real/red-other/out")).unwrap();
    let report = |right: &str, key: &str| {
        let right = format!("red: {{ {PLAIN}, files: [\"{right}\"] }}");
        let main = folder.write(
            "weir.yaml",
            &main_file(&right).replace("include: teams", "include: files"),
        );
        folder.write("files/red.yaml", key);
        ConfigLoader::new(ConfigSource::File(main), &environment)
            .load()
            .report
            .to_string()
    };
    let policy = |file: &str| endpoint(&format!(", policy: {{ files: [{file}] }}"));
    for (right, file) in [
        ("teams/team/*", "teams/team/own.cedar"),
        ("teams/team/*", "teams/team/within/own.cedar"),
        ("teams/team/*", "teams/team/file.cedar"),
        ("teams/team/file.cedar", "teams/team/file.cedar"),
        ("teams/red-*", "teams/red-other/own.cedar"),
    ] {
        let report = report(right, &policy(file));
        assert!(!report.contains("error"), "{file}: {report}");
    }
    let key = |key: &str| {
        format!("upstreams: {{ red: {{ url: \"https://red.example/mcp\", {key} }} }}\n")
    };
    let out = "teams/team/out/secret.cedar";
    for (right, text) in [
        ("teams/team/*", policy(out)),
        ("teams/team/*", key(&format!("ca_file: {out}"))),
        (
            "teams/team/*",
            key(&format!("secrets: {{ patterns: {out} }}")),
        ),
        ("teams/red-*", policy("teams/red-other/out/secret.cedar")),
    ] {
        let report = report(right, &text);
        assert!(
            report.contains("is not a regular file in its folder") && !report.contains("canary"),
            "{text}: {report}"
        );
    }
}

#[test]
fn a_teams_files_stay_in_their_folder() {
    let granted = format!("red: {{ {PLAIN}, files: [\"*\"] }}");
    for (name, file) in [
        ("up", "teams/../secret.cedar".to_owned()),
        ("link", "teams/red/link.cedar".to_owned()),
        ("folder", "teams/red".to_owned()),
        ("device", "/dev/zero".to_owned()),
        ("missing", "/nowhere/none.cedar".to_owned()),
    ] {
        let loaded = loaded(
            &format!("file-{name}"),
            &granted,
            &endpoint(&format!(", policy: {{ files: [{file}] }}")),
        );
        assert!(!loaded.is_taken(), "{name}");
        assert!(
            loaded.report.contains("policy.files.0"),
            "{name}: {}",
            loaded.report
        );
        assert!(
            !loaded.report.contains("canary"),
            "{name}: {}",
            loaded.report
        );
    }
}

#[test]
fn rights_that_are_taken_back_take_the_last_good_version_along() {
    let folder = TestFolder::new("rights-back");
    let main = folder.write(
        "weir.yaml",
        &main_file(&format!("red: {{ {PLAIN}, env: [TOKEN] }}")),
    );
    folder.write(
        "teams/red.yaml",
        &upstream(", headers: { x: \"${TOKEN}\" }"),
    );
    let mut loader = ConfigLoader::new(ConfigSource::File(main), &environment);
    let ids = |outcome: LoadOutcome| outcome.config.unwrap().upstreams.len();
    assert_eq!(ids(loader.load()), 2);
    folder.write("weir.yaml", &main_file(&format!("red: {{ {PLAIN} }}")));
    assert!(loader.is_stale());
    assert_eq!(ids(loader.load()), 1);
}

#[test]
fn default_endpoints_list_a_teams_upstreams_only_on_its_paths() {
    let paths = |grant: &str, red: &str, main: &str| -> Vec<String> {
        let folder = TestFolder::new("rights-paths");
        let file = folder.write(
            "weir.yaml",
            &format!(
                "include: teams\nteams: {{ red: {{ hosts: [red.example], {grant} }} }}\n{main}"
            ),
        );
        folder.write("teams/red.yaml", red);
        let config = ConfigLoader::new(ConfigSource::File(file), &environment)
            .load()
            .config
            .unwrap();
        let shown = |endpoint: &Endpoint| match &endpoint.mode {
            weir_core::endpoint::EndpointMode::Aggregate { upstreams, .. } => {
                format!(
                    "{}={}",
                    endpoint.id,
                    upstreams
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join("+")
                )
            }
            weir_core::endpoint::EndpointMode::Transparent(one) => format!("{}:{one}", endpoint.id),
        };
        config.endpoints.iter().map(shown).collect()
    };
    let own = "upstreams: { own: { url: \"http://own/mcp\" } }";
    let plain = &upstream("");
    assert_eq!(paths("paths: []", plain, own), ["/mcp=own", "/mcp/own:own"]);
    assert_eq!(
        paths("paths: [/mcp/*]", plain, own),
        ["/mcp=own", "/mcp/own:own", "/mcp/red:red"]
    );
    assert_eq!(
        paths("paths: [/mcp*]", plain, own),
        ["/mcp=own+red", "/mcp/own:own", "/mcp/red:red"]
    );
    assert_eq!(paths("paths: [/mcp]", plain, ""), ["/mcp=red"]);
    assert_eq!(paths("paths: []", plain, ""), ["/mcp="]);
    // A team's endpoints are added to the default ones of the main file, and replace none of them.
    assert_eq!(
        paths("paths: [/mcp/red/*]", &endpoint(""), own),
        ["/mcp=own", "/mcp/own:own", "/mcp/red/all=red"]
    );
    let taker = endpoint("").replace("/mcp/red/all", "/mcp");
    assert_eq!(
        paths("paths: [/mcp]", &taker, own),
        ["/mcp=own", "/mcp/own:own"]
    );
    assert_eq!(paths("paths: [/mcp]", &taker, ""), ["/mcp=red"]);
}

#[test]
fn no_right_lets_a_team_read_a_secret_from_a_file() {
    let all = "env: [\"*\"], files: [\"*\"], commands: yes, trust: yes, upstreams: [\"*\"], authorization_servers: [id.example]";
    for file in [
        "/proc/self/environ",
        "/etc/hostname",
        "teams/red/rules.cedar",
    ] {
        let red = upstream(&format!(", headers: {{ x: \"${{file:{file}}}\" }}"));
        let refused = loaded("secret-file", &format!("red: {{ {PLAIN}, {all} }}"), &red);
        assert!(!refused.is_taken(), "{file}");
        assert!(
            refused.report.contains("is for the main file alone"),
            "{}",
            refused.report
        );
    }
}

#[test]
fn file_of_certificates_that_cannot_be_used_is_an_error_of_its_team_alone() {
    let grant = format!("red: {{ {PLAIN}, files: [teams/red/*] }}");
    let file = upstream(", ca_file: teams/red/ca.pem");
    let not_base64 = "-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n";
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (ca, why) in [
        ("", "has no certificate"),
        ("not a certificate\n", "has no certificate"),
        (not_base64, "is not a PEM file"),
        (no_certificate, "has a certificate that cannot be used"),
    ] {
        let loaded = loaded_with_authority("authority", &grant, &file, ca);
        assert!(!loaded.is_taken(), "{ca}");
        let wanted = format!("teams/red.yaml:1: error: upstreams.red.ca_file: {why}");
        assert!(loaded.report.contains(&wanted), "{}", loaded.report);
    }
}

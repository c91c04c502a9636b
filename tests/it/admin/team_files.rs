//! A team's file with errors: operators see it in the log, the metrics, the admin API and the
//! status page. Its clients get a reason, and all other teams are served.

use std::process::Command;

use serde_json::{Value, json};
use weir_testkit::{MockServer, RawClient, TestFolder};

use super::{OperatorClient, body};
use crate::harness::{Weir, wait_until};

/// The folder of `include` with the files of the teams `red` and `blue`.
struct TeamFolder(TestFolder);

impl TeamFolder {
    fn new() -> Self {
        Self(TestFolder::new("team-files"))
    }

    fn write(&self, team: &str, text: &str) {
        self.0.write(&format!("{team}.yaml"), text);
    }

    /// Returns a main file that grants both teams the hosts and paths that they need.
    fn config(&self, server: &MockServer) -> Value {
        let granted = |path: &str| json!({ "hosts": [server.address().to_string()], "paths": [path, format!("{path}/*")] });
        json!({
            "include": self.0.path(),
            "upstreams": { "own": { "url": server.url() } },
            "teams": { "red": granted("/mcp/red"), "blue": granted("/mcp/blue") },
        })
    }
}

fn good(team: &str, server: &MockServer) -> String {
    format!("upstreams:\n  {team}: {{ url: \"{}\" }}\n", server.url())
}

const BROKEN: &str = "upstreams:\n  red: { url: 5 }\n";

/// Returns status and text of a request to a path.
async fn asked(weir: &Weir, path: &str) -> (u16, String) {
    let exchange = RawClient::new(&weir.url(path))
        .modern()
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    (exchange.status.as_u16(), body(&exchange))
}

async fn team_file(weir: &Weir, name: &str) -> Value {
    let config = OperatorClient::of(weir).get_json("/admin/config").await;
    let files = config["team_files"].as_array().unwrap();
    files
        .iter()
        .find(|file| file["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {config}"))
        .clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_team_file_is_left_out_loudly_at_a_start_and_keeps_its_last_good_version_later() {
    let (server, teams) = (
        MockServer::modern().tools(1).start().await,
        TeamFolder::new(),
    );
    teams.write("red", BROKEN);
    teams.write("blue", &good("blue", &server));
    let weir = Weir::with_config(teams.config(&server));

    // The other teams are served; its own paths give the reason.
    weir.wait_until_listed("/mcp/blue", &["tool_0000"]);
    let (status, why) = asked(&weir, "/mcp/red").await;
    assert_eq!(status, 503);
    assert!(
        why.contains("config file") && why.contains("has errors") && !why.contains("yaml"),
        "{why}"
    );
    assert_eq!(asked(&weir, "/mcp/green").await.0, 404);

    // The log, the probe, the metric, the admin API and the status page report it.
    wait_until("the log to name it", || {
        weir.process
            .output()
            .contains("red.yaml:2: error: upstreams.red.url")
            .then_some(())
    });
    assert!(
        weir.process
            .output()
            .contains("it is left out, and its paths answer 503"),
        "{}",
        weir.process.output()
    );
    assert!(
        weir.get_admin_page("/readyz")
            .contains("ready, but 1 file of `include` with errors"),
        "{}",
        weir.get_admin_page("/readyz")
    );
    let gauge = |weir: &Weir, file: &str, serves: &str| {
        weir.metric(
            "weir_config_team_files",
            &[
                &format!("file=\"{file}.yaml\""),
                &format!("serves=\"{serves}\""),
            ],
        )
    };
    assert_eq!(gauge(&weir, "red", "nothing"), 1.0);
    assert_eq!(
        gauge(&weir, "red", "last_good") + gauge(&weir, "blue", "nothing"),
        0.0
    );
    assert!(
        weir.get_admin_page("/metrics")
            .contains("file=\"blue.yaml\""),
        "a file without errors has its series, too"
    );
    let red = team_file(&weir, "red.yaml").await;
    assert_eq!(
        (&red["serves"], &red["unserved"]),
        (&json!("nothing"), &json!(["/mcp/red"]))
    );
    assert!(
        red["errors"][0]
            .as_str()
            .unwrap()
            .contains("red.yaml:2: error: upstreams.red.url"),
        "{red}"
    );
    assert_eq!(team_file(&weir, "blue.yaml").await["serves"], "current");
    assert!(
        weir.get_admin_page("/")
            .contains("red.yaml has errors: it is left out"),
        "{}",
        weir.get_admin_page("/")
    );

    // A file that cannot be parsed names no paths, so every path that its team may have gets this
    // answer.
    teams.write("red", "upstreams: [");
    wait_until("the change to be read", || {
        weir.process
            .output()
            .matches("it is left out")
            .nth(1)
            .map(drop)
    });
    wait_until("its paths to be the granted ones", || {
        weir.get_admin_page("/admin/config")
            .contains(r#""unserved":["/mcp/red","/mcp/red/*"]"#)
            .then_some(())
    });
    assert_eq!(asked(&weir, "/mcp/red/any").await.0, 503);

    // The mended file is served.
    teams.write("red", &good("red", &server));
    wait_until("the gauge to fall", || {
        (gauge(&weir, "red", "nothing") == 0.0).then_some(())
    });
    weir.wait_until_listed("/mcp/red", &["tool_0000"]);
    assert!(weir.get_admin_page("/readyz").ends_with("ready\n"));

    // Broken again, its last good version stays, and no new process takes over from the one that
    // has it.
    teams.write("red", BROKEN);
    wait_until("the gauge to rise", || {
        (gauge(&weir, "red", "last_good") == 1.0).then_some(())
    });
    weir.wait_until_listed("/mcp/red", &["tool_0000"]);
    assert_eq!(team_file(&weir, "red.yaml").await["serves"], "last_good");
    assert!(
        weir.get_admin_page("/")
            .contains("its last good version is served, and would be lost by a restart")
    );
    weir.process.signal("USR2");
    wait_until("the hand-over to be refused", || {
        weir.process
            .output()
            .contains("a new process would not have the last good version")
            .then_some(())
    });
    weir.wait_until_listed("/mcp/red", &["tool_0000"]);

    // A removed file is no longer a fault.
    std::fs::remove_file(teams.0.file("red.yaml")).unwrap();
    wait_until("the gauge to fall", || {
        (gauge(&weir, "red", "last_good") == 0.0).then_some(())
    });
    assert_eq!(asked(&weir, "/mcp/red").await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_a_teams_file_is_refused_where_the_config_says_so() {
    let (server, teams) = (
        MockServer::modern().tools(1).start().await,
        TeamFolder::new(),
    );
    teams.write("red", BROKEN);
    let mut config = teams.config(&server);
    config["include_errors"] = json!("refuse_start");
    (config["listen"], config["admin"]) =
        (json!("127.0.0.1:0"), json!({ "listen": "127.0.0.1:0" }));
    let folder = TestFolder::new("main-file");
    let file = folder.write("weir.json", &config.to_string());
    let weir = |command: &[&str]| {
        Command::new(crate::harness::weir_binary())
            .args(command)
            .arg(&file)
            .output()
            .unwrap()
    };
    let (served, checked) = (weir(&["serve", "--config"]), weir(&["check"]));
    let said = String::from_utf8_lossy(&served.stderr);
    assert_eq!(served.status.code(), Some(2), "{said}");
    assert!(
        said.contains(
            "1 file in `include` has errors, and `include_errors` is refuse_start: red.yaml"
        ),
        "{said}"
    );
    assert_eq!(checked.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&checked.stdout).contains("red.yaml:2: error: upstreams.red.url")
    );
}

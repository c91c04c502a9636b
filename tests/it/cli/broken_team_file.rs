//! The commands that read a config, while one team's file has errors: they treat the others as
//! `weir serve` does.

use serde_json::json;
use weir_testkit::{MockServer, TestFolder};

use super::{CliOutput, weir};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_team_file_stops_no_command_for_the_other_teams() {
    let server = MockServer::modern().tools(1).start().await;
    let (host, url) = (server.address().to_string(), server.url());
    let folder = TestFolder::new("broken-team");
    let granted = |team: &str| json!({ "hosts": [host], "paths": [format!("/mcp/{team}/*")] });
    let mut config = json!({
        "listen": "127.0.0.1:0",
        "admin": { "listen": "127.0.0.1:0" },
        "include": "teams",
        "teams": { "red": granted("red"), "blue": granted("blue") },
        "upstreams": { "own": { "url": url } },
    });
    let endpoints =
        |team: &str| format!("endpoints: {{ /mcp/{team}/a: {{ upstreams: [{team}] }} }}\n");
    folder.write(
        "teams/blue.yaml",
        &format!(
            "upstreams: {{ blue: {{ url: \"{url}\" }} }}\n{}",
            endpoints("blue")
        ),
    );
    folder.write(
        "teams/red.yaml",
        &format!("upstreams: {{ red: {{ url: 5 }} }}\n{}", endpoints("red")),
    );
    let file = folder
        .write("weir.json", &config.to_string())
        .display()
        .to_string();
    let shows = |said: &CliOutput, words: &[&str]| {
        for word in words {
            assert!(said.out.contains(word), "{word}: {said:?}");
        }
    };
    for command in [&["doctor", &file][..], &["check", &file, "--connect"]] {
        let said = weir(command);
        assert_eq!(said.code, Some(2), "{said:?}");
        shows(
            &said,
            &[
                "red.yaml:1: error: upstreams.red.url",
                "own",
                "blue",
                "1 tool",
            ],
        );
    }
    let said = weir(&["check", &file]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let explained = |path: &str| {
        weir(&[
            "explain",
            "--config",
            &file,
            "--endpoint",
            path,
            "--tool",
            "x",
        ])
    };
    let said = explained("/mcp/red/a");
    assert_eq!(said.code, Some(1), "{said:?}");
    shows(&said, &["red.yaml", "503"]);
    shows(
        &explained("/mcp/red/other"),
        &["no endpoint has this path", "/mcp/blue/a"],
    );
    // A start that the file prevents tests no upstream.
    config["include_errors"] = json!("refuse_start");
    folder.write("weir.json", &config.to_string());
    let said = weir(&["doctor", &file]);
    assert!(
        said.code == Some(2) && !said.out.contains("1 tool"),
        "{said:?}"
    );
}

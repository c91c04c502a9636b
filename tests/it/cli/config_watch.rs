//! The ways in which operators and their programs replace config files. Each change applies, and so
//! does each later one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};
use weir_testkit::{MockServer, RawClient, TestFolder};

use super::command;
use crate::harness::{TestProcess, wait_until_async};

/// A folder with releases of a config, and the server that they name.
struct Releases {
    folder: TestFolder,
    server: MockServer,
}

impl Releases {
    async fn new() -> Self {
        Self {
            folder: TestFolder::new("releases"),
            server: MockServer::modern().tools(1).start().await,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// Writes a main file, with more endpoints.
    fn write_main(&self, file: &str, more: &str) {
        let server = json!(self.server.address().to_string());
        let paths = json!(["/mcp/red/*"]);
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\ninclude: teams\nupstreams: {{ own: {{ url: {} }} }}\nteams: {{ red: {{ hosts: [{server}], paths: {paths} }} }}\nendpoints: {{ /mcp: {{ upstreams: [own] }}{more} }}\n",
            json!(self.server.url()),
        );
        self.folder.write(file, &text);
    }

    /// Writes a team's file, with the endpoint `/mcp/red/NAME`.
    fn write_team(&self, file: &str, name: &str) {
        let url = json!(self.server.url());
        let text = format!(
            "upstreams: {{ red: {{ url: {url} }} }}\nendpoints: {{ /mcp/red/{name}: {{ upstreams: [red] }} }}\n"
        );
        self.folder.write(file, &text);
    }

    /// Writes the config `RELEASE/weir.yaml`, with a team's file.
    fn write_release(&self, release: &str, name: &str) {
        self.write_main(&format!("{release}/weir.yaml"), "");
        self.write_team(&format!("{release}/teams/red.yaml"), name);
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.file(from), self.file(to)).unwrap();
    }

    /// Replaces a link by one to another target at once.
    fn swap_link(&self, link: &str, target: &str) {
        symlink(target, self.file("link")).unwrap();
        self.rename("link", link);
    }

    fn serve(&self, config: &str) -> Serving {
        let file = self.file(config).display().to_string();
        let mut process =
            TestProcess::start(command(&["serve", &file, "--address-file", "/dev/stdout"]));
        let addresses = process.wait_for_line(r#"{"clients":"#);
        let addresses: Value =
            serde_json::from_str(&format!(r#"{{"clients":{addresses}"#)).unwrap();
        let url = format!("http://{}", addresses["clients"].as_str().unwrap());
        Serving { process, url }
    }
}

struct Serving {
    process: TestProcess,
    url: String,
}

impl Serving {
    async fn wait_for_endpoint(&self, path: &str) {
        let client = RawClient::new(&format!("{}{path}", self.url)).modern();
        wait_until_async(&format!("{path}: {}", self.process.output()), async || {
            let answer = client.ask("tools/list", json!({})).await.ok()?;
            (answer.status.as_u16() == 200).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_folder_of_teams_is_followed() {
    let releases = Releases::new().await;
    releases.write_release("c", "a");
    let serving = releases.serve("c/weir.yaml");
    serving.wait_for_endpoint("/mcp/red/a").await;
    // Replaced by a rename.
    releases.write_team("c/next/red.yaml", "b");
    releases.rename("c/teams", "c/old");
    releases.rename("c/next", "c/teams");
    serving.wait_for_endpoint("/mcp/red/b").await;
    releases.write_team("c/teams/red.yaml", "c");
    serving.wait_for_endpoint("/mcp/red/c").await;
    // Replaced by a folder with the same files.
    releases.write_team("c/next/red.yaml", "c");
    fs::remove_dir_all(releases.file("c/teams")).unwrap();
    releases.rename("c/next", "c/teams");
    serving.process.signal("HUP");
    releases.write_team("c/teams/red.yaml", "d");
    serving.wait_for_endpoint("/mcp/red/d").await;
    // Replaced by a link, and the link by another one.
    releases.write_team("r1/red.yaml", "e");
    releases.write_team("r2/red.yaml", "f");
    fs::remove_dir_all(releases.file("c/teams")).unwrap();
    releases.swap_link("c/teams", "../r1");
    serving.wait_for_endpoint("/mcp/red/e").await;
    releases.swap_link("c/teams", "../r2");
    serving.wait_for_endpoint("/mcp/red/f").await;
    releases.write_team("r2/red.yaml", "g");
    serving.wait_for_endpoint("/mcp/red/g").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_config_folder_is_followed() {
    let releases = Releases::new().await;
    for (release, name) in [("c", "a"), ("r2", "b"), ("r3", "c"), ("r4", "d")] {
        releases.write_release(release, name);
    }
    let serving = releases.serve("c/weir.yaml");
    serving.wait_for_endpoint("/mcp/red/a").await;
    // Replaced by a rename.
    releases.rename("c", "old");
    releases.rename("r2", "c");
    serving.wait_for_endpoint("/mcp/red/b").await;
    releases.write_main("c/weir.yaml", ", /mcp/one: { upstreams: [own] }");
    serving.wait_for_endpoint("/mcp/one").await;
    // Replaced by a link, and the link by another one.
    fs::remove_dir_all(releases.file("c")).unwrap();
    releases.swap_link("c", "r3");
    serving.wait_for_endpoint("/mcp/red/c").await;
    releases.swap_link("c", "r4");
    serving.wait_for_endpoint("/mcp/red/d").await;
    releases.write_team("r4/teams/red.yaml", "e");
    serving.wait_for_endpoint("/mcp/red/e").await;
    releases.write_main("c/weir.yaml", ", /mcp/two: { upstreams: [own] }");
    serving.wait_for_endpoint("/mcp/two").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_behind_links_are_followed() {
    let releases = Releases::new().await;
    releases.write_main("main/weir.yaml", "");
    releases.write_team("red/red.yaml", "a");
    fs::create_dir_all(releases.file("c/teams")).unwrap();
    releases.swap_link("c/weir.yaml", "../main/weir.yaml");
    releases.swap_link("c/teams/red.yaml", "../../red/red.yaml");
    let serving = releases.serve("c/weir.yaml");
    serving.wait_for_endpoint("/mcp/red/a").await;
    releases.write_main("main/weir.yaml", ", /mcp/one: { upstreams: [own] }");
    serving.wait_for_endpoint("/mcp/one").await;
    releases.write_team("red/red.yaml", "b");
    serving.wait_for_endpoint("/mcp/red/b").await;
}

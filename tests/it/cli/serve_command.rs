//! `weir serve` as a person at a terminal and as a program sees it.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use weir_testkit::{ClosedPort, MockServer, TestFolder};

use super::{command, interrupted_at_terminal};
use crate::harness::{TestProcess, wait_until};

/// A config in a folder of its own.
struct ServedConfigFolder(TestFolder);

impl ServedConfigFolder {
    fn new(config: &Value) -> Self {
        let folder = TestFolder::new("served");
        folder.write("weir.json", &config.to_string());
        Self(folder)
    }

    fn config(&self) -> String {
        self.0.file("weir.json").display().to_string()
    }
}

#[test]
fn number_of_threads_that_is_no_number_is_an_error() {
    for threads in ["many", "0", "-1", ""] {
        let mut version = command(&["--version"]);
        let output = version.env("TOKIO_WORKER_THREADS", threads).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{threads}: {said}");
        assert!(
            said.starts_with("weir: TOKIO_WORKER_THREADS is not"),
            "{said}"
        );
    }
}

/// The operators' port was taken, yet the children of all upstreams had been started.
#[test]
fn both_ports_are_bound_before_a_child_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for (listen, operators) in [
        ("127.0.0.1:0".to_owned(), address.to_string()),
        (address.to_string(), "127.0.0.1:0".to_owned()),
    ] {
        let marks = TestFolder::new("started");
        let mark = marks.file("mark");
        let child = json!({ "command": "sh", "args": ["-c", format!("touch {}; sleep 60", mark.display())] });
        let folder = ServedConfigFolder::new(
            &json!({ "listen": listen, "admin": { "listen": operators }, "upstreams": { "a": child } }),
        );
        let output = command(&["serve", "--config", &folder.config()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains("another program has this port"),
            "{said}"
        );
        assert!(!mark.exists(), "a child was started");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_on_the_command_line_is_the_configs_also_after_a_reload() {
    let server = MockServer::dual().tools(1).start().await;
    let config = json!({ "listen": "127.0.0.1:1", "admin": { "listen": "127.0.0.1:0" }, "upstreams": { "one": { "url": server.url() } } });
    let folder = ServedConfigFolder::new(&config);
    let mut serving = TestProcess::start(command(&[
        "serve",
        &folder.config(),
        "--listen",
        "127.0.0.1:0",
        "--address-file",
        "/dev/stdout",
    ]));
    let addresses = serving.wait_for_line(r#"{"clients":"#);
    let addresses: Value = serde_json::from_str(&format!(r#"{{"clients":{addresses}"#)).unwrap();
    let url = format!("http://{}/mcp", addresses["clients"].as_str().unwrap());
    wait_until("it to serve", || {
        (super::weir(&["tools", &url]).code == Some(0)).then_some(())
    });
    serving.signal("HUP");
    wait_until("the reload", || {
        serving.output().contains("config applied").then_some(())
    });
    assert!(
        !serving.output().contains("config setting needs a restart"),
        "{}",
        serving.output()
    );
    // An address that a start would refuse is refused on the command line too.
    let open = command(&["serve", &folder.config(), "--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&open.stderr).into_owned();
    assert!(
        open.status.code() == Some(2) && said.contains("every client that reaches 0.0.0.0:0"),
        "{said}"
    );
}

fn make_pipe(folder: &TestFolder, name: &str) -> String {
    let pipe = folder.file(name).display().to_string();
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    pipe
}

fn wait_for_output(serving: &TestProcess, text: &str) {
    wait_until(text, || serving.output().contains(text).then_some(()));
}

/// The config of `weir serve --config <(...)` and of programs that decrypt files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_from_a_pipe_is_served_and_is_not_read_again() {
    let folder = TestFolder::new("piped-config");
    let pipe = make_pipe(&folder, "weir.json");
    let mut serving = TestProcess::start(command(&["serve", &pipe]));
    let config =
        json!({ "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" }, "upstreams": {} });
    std::fs::write(&pipe, config.to_string()).unwrap();
    wait_for_output(&serving, "serves");
    serving.signal("HUP");
    wait_for_output(
        &serving,
        "weir.json: error: cannot be read again, because it is not a regular file",
    );
    serving.signal("USR2");
    wait_for_output(&serving, &format!("graceful restart failed: {pipe} cannot"));
    serving.stop_gracefully();
}

/// The open of a pipe waits for its other end, and weir had served meanwhile, deaf to signals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_in_the_place_of_files_hold_up_no_signal() {
    let folder = TestFolder::new("pipes");
    let addresses = make_pipe(&folder, "addresses");
    let config =
        json!({ "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" }, "upstreams": {} });
    let file = folder.write("weir.json", &config.to_string());
    let config_name = file.display().to_string();
    let start = || {
        TestProcess::start(command(&[
            "serve",
            &config_name,
            "--address-file",
            &addresses,
        ]))
    };
    let mut serving = start();
    wait_for_output(&serving, "addresses not written to the address file");
    serving.stop_gracefully();
    // A pipe in the place of the config.
    let mut serving = start();
    wait_for_output(&serving, "addresses not written to the address file");
    std::fs::remove_file(&file).unwrap();
    make_pipe(&folder, "weir.json");
    wait_for_output(&serving, "cannot be read: it is not a regular file");
    serving.signal("USR2");
    wait_for_output(&serving, "cannot be read again");
    serving.stop_gracefully();
}

/// Programs read JSON, line by line, without any other output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_writes_only_json_lines_to_a_pipe() {
    let server = MockServer::dual().tools(1).start().await;
    let folder = ServedConfigFolder::new(
        &json!({ "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" }, "upstreams": { "one": { "url": server.url() } } }),
    );
    let mut serving = TestProcess::start(command(&["serve", &folder.config()]));
    wait_until("the upstream to be asked", || {
        (!server.requests_of("tools/list").is_empty()).then_some(())
    });
    wait_until("it to serve", || {
        serving.output().contains("serves").then_some(())
    });
    serving.stop_gracefully();
    for line in serving.final_output().lines() {
        let event: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(
            event["timestamp"].as_str().unwrap().ends_with('Z'),
            "{line}"
        );
    }
}

/// Returns the screen of a person that starts weir in a terminal and ends it once these words are
/// shown.
fn seen(setup: &str, folder: &ServedConfigFolder, words: &[&str]) -> String {
    let (code, shown) = interrupted_at_terminal(setup, &["serve", &folder.config()], words);
    assert!(code == Some(0), "{code:?}: {shown}");
    shown
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_where_it_serves_and_how_the_upstreams_are() {
    let (server, closed) = (
        MockServer::modern().tools(2).start().await,
        ClosedPort::new(),
    );
    let folder = ServedConfigFolder::new(&json!({
        "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" },
        "upstreams": {
            "one": { "url": server.url() },
            "gone": { "url": format!("http://{}/mcp", closed.address()) },
            "slow": { "command": "sleep", "args": ["600"] },
        },
    }));
    let awaited = [
        "one  up with 2 tools",
        "gone down: ",
        "slow starting for 5 s already",
    ];
    let shown = seen("NO_COLOR=1 TZ=XYZ-5", &folder, &awaited);
    for words in [
        "serves 3 upstreams",
        "/mcp       all of them",
        "/mcp/one   one",
        "status page, for operators",
        "Ctrl-C ends it",
    ] {
        assert!(shown.contains(words), "`{words}` in {shown}");
    }
    let line = |words: &str| {
        shown
            .lines()
            .find(|line| line.contains(words))
            .unwrap_or_else(|| panic!("`{words}` in {shown}"))
            .to_owned()
    };
    assert!(
        line("one  up with 2 tools, 2026-07-28").chars().nth(2) == Some(':'),
        "begins with a time: {shown}"
    );
    assert!(line("gone down: ").len() > 20, "{shown}");
    assert!(!shown.contains('\u{1b}'), "NO_COLOR: {shown}");
    // The time is in the local time zone: five hours east of UTC.
    let utc = Command::new("date")
        .args(["-u", "-d", "+5 hours", "+%H"])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let hour: u32 = String::from_utf8_lossy(&utc.stdout).trim().parse().unwrap();
    let shown_hour: u32 = line("up with 2 tools")[..2].parse().unwrap();
    assert!(
        shown_hour == hour || (shown_hour + 1) % 24 == hour,
        "{shown_hour} and {hour}"
    );
    seen("", &folder, &["\u{1b}[32mup\u{1b}[0m with 2 tools"]);
}

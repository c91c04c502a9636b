//! `weir tools`, `weir prompts` and `weir resources`: the items, the missing upstreams, and waiting
//! for them.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use weir_testkit::{ClosedPort, MockServer};
use weir_testkit::{TestFolder, mock_server::MockTool};

use super::{command, weir};
use crate::harness::{ForeignServer, TestProcess, Weir, wait_until};

/// A list that lacked tools looked complete, and a script could not tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_names_the_upstreams_that_it_lacks_and_exits_with_4() {
    let (good, closed) = (
        MockServer::modern().tools(2).start().await,
        ClosedPort::new(),
    );
    let weir_ = Weir::start_unready(json!({ "upstreams": {
        "good": { "url": good.url() },
        "gone": { "url": format!("http://{}/mcp", closed.address()) },
        "slow": { "command": "sleep", "args": ["600"] },
    } }));
    let url = weir_.url("/mcp");
    weir_.wait_until_listed("/mcp", &["good__tool_0001"]);
    let said = wait_until("the upstream to be down", || {
        let said = weir(&["tools", &url]);
        said.err.contains("`gone` is down").then_some(said)
    });
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        said.out.contains("good__tool_0000") && said.err.contains("2 tools (weir "),
        "{said:?}"
    );
    assert!(
        said.err.contains(
            "`gone` is down, and its tools are missing: `weir admin upstreams` shows why"
        ),
        "{said:?}"
    );
    assert!(
        said.err
            .contains("`slow` is still starting, and its tools are missing: --wait waits for them"),
        "{said:?}"
    );
    // The array alone is on standard output.
    let said = weir(&["tools", &url, "--json", "--wait=1s"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert_eq!(
        serde_json::from_str::<Value>(&said.out)
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(
        said.err.contains("give --wait more time, as in --wait=2m"),
        "{said:?}"
    );
    for list in ["prompts", "resources"] {
        let said = weir(&[list, &url]);
        assert!(
            said.code == Some(4)
                && said
                    .err
                    .contains(&format!("`gone` is down, and its {list}")),
            "{said:?}"
        );
    }
    // An endpoint of one healthy upstream lacks no items.
    assert_eq!(weir(&["tools", &weir_.url("/mcp/good")]).code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_when_every_upstream_is_there() {
    let (good, mut late) = (
        MockServer::modern().tools(1).start().await,
        MockServer::modern().tools(1).start().await,
    );
    late.stop().await;
    let weir_ = Weir::with_upstreams(
        json!({ "good": { "url": good.url() }, "late": { "url": late.url() } }),
    );
    let waiting = TestProcess::start(command(&["tools", &weir_.url("/mcp"), "--wait=50s"]));
    wait_until("it to wait", || {
        waiting
            .output()
            .contains("weir: `late` is missing; waiting")
            .then_some(())
    });
    late.restart().await;
    let mut waiting = waiting;
    assert_eq!(waiting.wait_for_exit(), Some(0), "{}", waiting.output());
    let said = waiting.final_output();
    assert!(
        said.contains("good__tool_0000") && said.contains("late__tool_0000"),
        "{said}"
    );
}

/// A server that has not started yet, as in a script that has just started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_waits_for_the_server_itself() {
    let mut server = MockServer::dual().tools(1).start().await;
    server.stop().await;
    let mut waiting = TestProcess::start(command(&["tools", &server.url(), "--wait=50s"]));
    wait_until("it to wait", || {
        waiting.output().contains("waiting").then_some(())
    });
    server.restart().await;
    assert_eq!(waiting.wait_for_exit(), Some(0), "{}", waiting.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_are_chosen_by_a_text_in_their_name_or_description() {
    let tools = [
        MockTool::new("read_file").with("description", json!("Reads a file")),
        MockTool::new("write_file").with("description", json!("WRITES a file")),
        MockTool::new("now"),
    ];
    let server = tools
        .into_iter()
        .fold(MockServer::dual(), |server, tool| server.with(tool))
        .start()
        .await;
    let said = weir(&["tools", &server.url(), "--grep", "writes"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "write_file  WRITES a file\n"),
        "{said:?}"
    );
    assert!(
        said.error_lines()[0].starts_with("1 of 3 tools ("),
        "{said:?}"
    );
    let said = weir(&["tools", &server.url(), "--grep", "delete"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
}

/// A pipe gets the whole text; a terminal gets lines that fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_use_the_width_of_the_terminal() {
    let long = "word ".repeat(40);
    let server = MockServer::dual()
        .with(MockTool::new("talk").with("description", json!(long)))
        .start()
        .await;
    let said = weir(&["tools", &server.url()]);
    assert_eq!(said.out.trim_end(), format!("talk  {}", long.trim_end()));
    let (code, shown) = super::at_terminal("stty rows 24 cols 50;", &["tools", &server.url()], "");
    assert_eq!(code, Some(0), "{shown}");
    let line = shown
        .lines()
        .find(|line| line.starts_with("talk  word"))
        .unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(line.chars().count(), 50, "{line}");
    assert!(line.ends_with('…'), "{line}");
}

/// `weir tools --watch | head -1` went on for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_command_ends_if_its_output_pipe_closes() {
    let server = MockServer::dual().tools(1).start().await;
    let mut watching = command(&["tools", &server.url(), "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(watching.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    assert!(first.contains("tool_0000"), "{first}");
    drop(reader);
    let ended = wait_until("the watch to end", || {
        // The command notices that its reader has left only when it writes a line.
        server.set_tools(MockTool::numbered(
            2 + server.requests_of("tools/list").len(),
        ));
        server.notify_list_changed();
        watching.try_wait().unwrap()
    });
    assert!(ended.success(), "{ended:?}");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut watching.stderr.take().unwrap(), &mut said).unwrap();
    assert!(
        !said.contains("panic") && !said.contains("Broken pipe"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_and_resources_are_listed_filled_in_and_read() {
    use weir_wire::Revision;
    let legacy = MockServer::legacy(Revision::NEWEST_LEGACY)
        .with_library()
        .tools(1)
        .start()
        .await;
    let modern = MockServer::modern().with_library().tools(1).start().await;
    for server in [&legacy, &modern] {
        let weir_ = Weir::with_upstreams(json!({ "one": { "url": server.url() } }));
        weir_.wait_until_listed("/mcp/one", &["tool_0000"]);
        for url in [server.url(), weir_.url("/mcp/one")] {
            let said = weir(&["prompts", &url]);
            assert_eq!(said.code, Some(0), "{said:?}");
            assert!(
                said.out.contains("greet   who=  Greet") && said.err.contains("2 prompts"),
                "{said:?}"
            );
            let said = weir(&["prompt", &url, "greet", "who=Ada"]);
            assert_eq!(
                (said.code, said.out.as_str()),
                (Some(0), "user: Hello Ada\n"),
                "{said:?}"
            );
            let said = weir(&["prompt", &url, "greet", "who=5", "--json"]);
            assert!(
                said.out.contains(r#""text":"Hello 5""#),
                "prompts take texts: {said:?}"
            );
            let said = weir(&["prompt", &url, "gret"]);
            assert!(
                said.code == Some(3) && said.err.contains("did you mean `greet`?"),
                "{said:?}"
            );
            let said = weir(&["resources", &url]);
            assert!(
                said.out.contains("memo:1") && said.out.contains("memo:{id}"),
                "{said:?}"
            );
            assert!(
                said.err.contains("2 resources") && said.err.contains("1 resource template\n"),
                "{said:?}"
            );
            let said = weir(&["read", &url, "memo:1"]);
            assert_eq!(
                (said.code, said.out.as_str()),
                (Some(0), "of memo:1\n"),
                "{said:?}"
            );
            let said = weir(&["read", &url, "nemo:1"]);
            assert!(
                said.code == Some(3) && said.err.contains("did you mean `memo:1`?"),
                "{said:?}"
            );
        }
    }
}

/// A public server that is not part of this project.
#[test]
fn the_everything_server_is_used_by_hand() {
    if !crate::harness::peers_are_enabled() {
        return;
    }
    let weir_ = Weir::with_upstreams(json!({ "one": ForeignServer::Everything.as_child() }));
    weir_.wait_until_listed("/mcp/one", &["echo"]);
    let url = weir_.url("/mcp/one");
    assert_eq!(
        weir(&["call", &url, "get-sum", "a=2", "b=3.5"]).out.trim(),
        "The sum of 2 and 3.5 is 5.5."
    );
    assert!(
        weir(&["describe", &url, "get-sum"])
            .out
            .contains("a  number, required")
    );
    let said = weir(&["prompt", &url, "args-prompt", "city=Berlin"]);
    assert!(
        said.code == Some(0) && said.out.contains("Berlin"),
        "{said:?}"
    );
    let said = weir(&["resources", &url, "--json"]);
    let listed: Value = serde_json::from_str(&said.out).unwrap();
    let uri = listed["resources"][0]["uri"].as_str().unwrap().to_owned();
    let said = weir(&["read", &url, &uri]);
    assert!(said.code == Some(0) && !said.out.is_empty(), "{said:?}");
    let folder = TestFolder::new("saved");
    let aggregate = weir_.url("/mcp");
    weir_.wait_until_listed("/mcp", &["one__echo"]);
    let said = weir(&["read", &aggregate, "demo://resource/dynamic/text/1"]);
    assert!(
        said.code == Some(3)
            && said
                .err
                .contains("did you mean `one+demo://resource/dynamic/text/{"),
        "{said:?}"
    );
    let said = weir(&["read", &aggregate, "one+demo://resource/dynamic/text/1"]);
    assert!(said.code == Some(0) && !said.out.is_empty(), "{said:?}");
    let said = weir(&[
        "call",
        &url,
        "get-tiny-image",
        "--out",
        &format!("{}/", folder.path().display()),
    ]);
    assert!(
        said.code == Some(0) && said.err.contains("get-tiny-image-1.png"),
        "{said:?}"
    );
    assert!(
        std::fs::read(folder.file("get-tiny-image-1.png"))
            .unwrap()
            .starts_with(b"\x89PNG")
    );
}

//! Child processes that refuse to end, and their fate when weir is killed, stopped, replaced, or
//! loses its keeper.

use std::path::Path;

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer, MockStdio, RawClient, TestFolder};
use weir_wire::Revision;

use crate::auth::api_key;
use crate::harness::{CheckedClient, Weir, signal, wait_until, wait_until_async};

/// The file in which children record their process ids.
const NOTES: &str = "notes";

/// A child that records its process id, and that of a grandchild that has left its group and its
/// session.
struct DetachingChild {
    folder: TestFolder,
    config: Value,
}

impl DetachingChild {
    fn new(mock: &MockStdio) -> Self {
        // The program that becomes the child is not the only member of its group: `setsid` takes
        // another one out of it.
        Self::running(
            mock,
            "setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $$ $! >> \"$0\"; exec \"$@\"",
        )
    }

    /// Returns one whose child is a shell, which ignores the end of its input and every signal that
    /// can be ignored, and starts the program as a child of its own.
    fn staying(mock: &MockStdio) -> Self {
        let script = "trap '' TERM HUP INT; setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $$ $! >> \"$0\"; \
                      \"$@\"; while :; do sleep 1; done";
        Self::running(mock, script)
    }

    fn running(mock: &MockStdio, script: &str) -> Self {
        let (command, args) = mock.command();
        let folder = TestFolder::new("children");
        let notes = folder.file(NOTES);
        let mut all = vec![json!("-c"), json!(script), json!(notes), json!(command)];
        all.extend(args.into_iter().map(Value::from));
        Self {
            folder,
            config: json!({ "command": "sh", "args": all }),
        }
    }

    /// Returns the ids of each child and its grandchild, in the order of their starts.
    fn noted(&self) -> Vec<[u32; 2]> {
        let text = std::fs::read_to_string(self.folder.file(NOTES)).unwrap_or_default();
        let whole = text.lines().filter_map(|line| line.split_once(' '));
        whole
            .filter_map(|(child, below)| Some([child.parse().ok()?, below.parse().ok()?]))
            .collect()
    }

    fn until_noted(&self, count: usize) -> Vec<[u32; 2]> {
        wait_until("a child to be started", || {
            Some(self.noted()).filter(|noted| noted.len() >= count)
        })
    }
}

impl Drop for DetachingChild {
    fn drop(&mut self) {
        for id in self
            .noted()
            .into_iter()
            .flatten()
            .filter(|id| is_alive(*id))
        {
            // A failed test leaves no processes behind.
            let _gone = std::process::Command::new("kill")
                .args(["-KILL", &id.to_string()])
                .status();
        }
    }
}

/// Returns the fields of `/proc/PID/stat` after the name: state, parent, group. Empty if the
/// process is gone.
fn stat(id: u32) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    text.rsplit(')')
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .map(str::to_owned)
        .collect()
}

fn is_alive(id: u32) -> bool {
    stat(id).first().is_some_and(|state| state != "Z")
}

fn until_gone(ids: &[u32]) {
    wait_until("processes to be gone", || {
        ids.iter().all(|id| !is_alive(*id)).then_some(())
    });
}

/// Returns the parent of a child.
fn keeper_of(id: u32) -> u32 {
    stat(id)[1].parse().unwrap()
}

fn name(id: u32) -> String {
    std::fs::read_to_string(Path::new("/proc").join(id.to_string()).join("comm"))
        .unwrap_or_default()
}

/// Reports if the child answers.
async fn serves(client: &CheckedClient) -> bool {
    client.call("one__echo", json!({})).await.result()["content"][0]["text"] == "{}"
}

fn legacy() -> MockStdio {
    MockStdio::legacy(Revision::NEWEST_LEGACY)
}

// Proves E22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_child_and_its_detached_descendant_end_when_weir_is_killed() {
    // The child does not read its input, so it misses the end of it, and it never ends by itself.
    let child = DetachingChild::new(&legacy().hang());
    let weir = Weir::with_upstreams(json!({ "one": child.config }));
    let [own, below] = child.until_noted(1)[0];
    let keeper = keeper_of(own);
    assert_eq!(name(keeper).trim(), "weir-keeper");
    assert!(is_alive(own) && is_alive(below));
    // Its id is recorded before it leaves the group.
    wait_until("a group of the grandchild's own", || {
        (stat(below)[2] != stat(own)[2]).then_some(())
    });
    signal(weir.process.id(), "KILL");
    until_gone(&[own, below, keeper]);
}

// Proves E22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descendants_outside_the_process_group_end_with_weir() {
    let child = DetachingChild::new(&legacy());
    let mut weir = Weir::with_upstreams(json!({ "one": child.config }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.call("one__echo", json!({})).await.text(), "{}");
    let [own, below] = child.until_noted(1)[0];
    weir.process.stop_gracefully();
    until_gone(&[own, below]);
}

// Proves E22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descendants_of_a_crashed_child_end_while_weir_runs() {
    let child = DetachingChild::new(&legacy());
    let weir = Weir::with_upstreams(json!({ "one": child.config }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    client.call("one__exit", json!({ "code": 3 })).await;
    let [own, below] = child.until_noted(1)[0];
    until_gone(&[own, below]);
    wait_until("the exit status in the log", || {
        weir.process
            .output()
            .contains("exit status: 3")
            .then_some(())
    });
    wait_until_async("the next child", async || {
        serves(&client).await.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_is_lost_is_noticed_and_started_again_with_its_children() {
    let child = DetachingChild::new(&legacy());
    let weir = Weir::with_upstreams(json!({ "one": child.config }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.call("one__echo", json!({})).await.text(), "{}");
    let [own, below] = child.until_noted(1)[0];
    let keeper = keeper_of(own);
    // Service managers signal whole groups: the keeper ends only with weir.
    for name in ["TERM", "HUP", "INT"] {
        signal(keeper, name);
    }
    assert_eq!(client.call("one__echo", json!({})).await.text(), "{}");
    signal(keeper, "KILL");
    wait_until("weir to say so", || {
        weir.process
            .output()
            .contains("child process keeper lost")
            .then_some(())
    });
    wait_until_async("another child", async || {
        serves(&client).await.then_some(())
    })
    .await;
    let [next, _] = *child.until_noted(2).last().unwrap();
    assert_ne!(keeper_of(next), keeper);
    assert_eq!(name(keeper_of(next)).trim(), "weir-keeper");
    // weir ends the processes that the keeper can no longer end.
    until_gone(&[own, below]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_ignores_the_end_of_its_input_ends_though_its_keeper_was_killed() {
    let child = DetachingChild::staying(&legacy());
    let weir = Weir::with_upstreams(json!({ "one": child.config }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.call("one__echo", json!({})).await.text(), "{}");
    let [own, below] = child.until_noted(1)[0];
    let keeper = keeper_of(own);
    signal(keeper, "KILL");
    until_gone(&[own, below, keeper]);
    wait_until_async("another child", async || {
        serves(&client).await.then_some(())
    })
    .await;
    let [next, next_below] = *child.until_noted(2).last().unwrap();
    assert!(is_alive(next) && is_alive(next_below) && keeper_of(next) != keeper);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_took_over_ends_its_children_too_when_the_keeper_is_killed() {
    let child = DetachingChild::staying(&legacy());
    let mut weir =
        Weir::with_config(json!({ "upstreams": { "one": child.config }, "drain": "1s" }));
    // A child that is still starting is not handed over.
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    wait_until_async("the child", async || serves(&client).await.then_some(())).await;
    weir.process.signal("USR2");
    assert_eq!(
        weir.process.wait_for_exit(),
        Some(0),
        "{}",
        weir.process.output()
    );
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    wait_until_async("the successor's child", async || {
        serves(&client).await.then_some(())
    })
    .await;
    let [own, below] = child.until_noted(1)[0];
    assert!(is_alive(own), "it has moved");
    signal(keeper_of(own), "KILL");
    until_gone(&[own, below]);
    wait_until_async("another child", async || {
        serves(&client).await.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exhausted_process_limit_is_reported_and_other_upstreams_serve() {
    let ((ann, anns), (bob, bobs)) = (api_key("ann"), api_key("bob"));
    let (command, args) = legacy().command();
    let other = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": {
            "one": { "command": command, "args": args, "limits": { "max_processes": 1 } },
            "other": { "url": other.url() },
        },
        "auth": { "mode": "required", "api_keys": [anns, bobs] },
    }));
    let client = |key: &str| {
        RawClient::new(&weir.url("/mcp"))
            .modern()
            .with_header("X-API-Key", key)
    };
    let (ann, bob) = (client(&ann), client(&bob));
    assert_eq!(
        ann.call("one__echo", json!({ "n": 1 }))
            .await
            .unwrap()
            .text(),
        r#"{"n":1}"#
    );
    let refused = bob.call("one__echo", json!({ "n": 2 })).await.unwrap();
    let text = refused.last().to_string();
    assert!(text.contains("max_processes"), "the key is named: {text}");
    assert!(
        weir.metric(
            "weir_upstream_processes_refused_total",
            &[r#"upstream="one""#]
        ) >= 1.0
    );
    // The caller that has the process keeps it: the refusal affects neither it, nor the upstream,
    // nor other upstreams.
    assert_eq!(
        ann.call("one__echo", json!({ "n": 3 }))
            .await
            .unwrap()
            .text(),
        r#"{"n":3}"#
    );
    assert_eq!(
        bob.call("other__echo", json!({ "n": 4 }))
            .await
            .unwrap()
            .text(),
        r#"{"n":4}"#
    );
    let house = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let alerts = std::fs::read_to_string(house.join("deploy/prometheus/alerts.yml")).unwrap();
    let alert = alerts
        .split("- alert: ")
        .find(|alert| alert.contains("weir_upstream_processes_refused_total"))
        .unwrap();
    let runbook = alert
        .lines()
        .find_map(|line| line.trim().strip_prefix("runbook_url: "))
        .unwrap();
    let page = runbook.trim_end_matches('"').rsplit('/').next().unwrap();
    assert!(
        std::fs::read_to_string(house.join("docs/runbooks").join(page))
            .unwrap()
            .contains("max_processes")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_takes_over_has_the_same_keeper_and_the_same_children_and_ends_them_in_their_time()
 {
    let child = DetachingChild::new(&legacy());
    let mut weir =
        Weir::with_config(json!({ "upstreams": { "one": child.config }, "drain": "1s" }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.call("one__echo", json!({})).await.text(), "{}");
    let [old, old_below] = child.until_noted(1)[0];
    let keeper = keeper_of(old);
    weir.process.signal("USR2");
    assert_eq!(
        weir.process.wait_for_exit(),
        Some(0),
        "{}",
        weir.process.output()
    );
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.call("one__echo", json!({})).await.text(), "{}");
    assert!(is_alive(old) && is_alive(old_below), "both have moved");
    // A child that ends is started again, by the same keeper.
    signal(old, "KILL");
    until_gone(&[old, old_below]);
    wait_until_async("another child", async || {
        serves(&client).await.then_some(())
    })
    .await;
    let [new, new_below] = child.until_noted(2)[1];
    assert_eq!(keeper_of(new), keeper, "{}", weir.process.output());
    assert!(is_alive(new_below));
    let successor = wait_until("the successor", || {
        let said = weir.process.output();
        let line = said
            .lines()
            .find(|line| line.contains("graceful restart: new process serves"))?
            .to_owned();
        let id = line
            .rsplit("process")
            .next()?
            .chars()
            .filter(char::is_ascii_digit)
            .collect::<String>();
        id.parse().ok()
    });
    signal(successor, "KILL");
    until_gone(&[new, new_below, keeper]);
}

// Proves E22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_a_child_is_a_hundred_lines_a_second_in_the_log() {
    const LINES: usize = 20_000;
    let (command, args) = legacy().command();
    let began = std::time::Instant::now();
    let weir = Weir::with_upstreams(json!({ "one": { "command": command, "args": args } }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    // A line has 100 bytes.
    client
        .call("one__stderr", json!({ "bytes": 100 * LINES }))
        .await;
    let logged = || {
        let (mut logged, mut omitted) = (0, 0);
        for line in weir.process.output().lines() {
            logged +=
                usize::from(line.contains("\"child process stderr\"") && line.contains("eeeeeeee"));
            let count = line
                .contains("child process log rate limited")
                .then(|| line.split_once("\"lines\":"))
                .flatten();
            omitted += count.map_or(0, |(_, rest)| {
                rest.chars()
                    .take_while(char::is_ascii_digit)
                    .collect::<String>()
                    .parse::<usize>()
                    .unwrap()
            });
        }
        (logged, omitted)
    };
    let (logged, _) = wait_until("every line to be logged or counted", || {
        let (logged, omitted) = logged();
        (logged + omitted >= LINES).then_some((logged, omitted))
    });
    let seconds = began.elapsed().as_secs() as usize + 2;
    assert!(logged <= 100 * seconds, "{logged} lines in {seconds} s");
}

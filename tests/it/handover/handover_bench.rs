//! weir in front of one server, over graceful restarts.

use serde_json::{Value, json};
use weir_testkit::mock_server::MockServerBuilder;
use weir_testkit::{MockServer, RawClient};
use weir_wire::Revision;

use super::{is_gone, successors};
use crate::harness::{Weir, listening_ports_of_process, signal, wait_until};

/// weir in front of one server, and the processes that served in turn.
pub(super) struct HandoverBench {
    pub(super) weir: Weir,
    pub(super) mock_server: MockServer,
    pub(super) processes: Vec<u32>,
}

impl HandoverBench {
    pub(super) async fn new(server: MockServerBuilder) -> Self {
        Self::with_settings(server, json!({})).await
    }

    /// weir with more keys in its config.
    pub(super) async fn with_settings(server: MockServerBuilder, mut settings: Value) -> Self {
        let mock_server = server.start().await;
        settings["upstreams"] = json!({ "one": { "url": mock_server.url() } });
        settings["endpoints"] = json!({ "/mcp": { "upstream": "one" } });
        let weir = Weir::with_config(settings);
        weir.wait_until_listed("/mcp", &["echo"]);
        let processes = vec![weir.process.id()];
        Self {
            weir,
            mock_server,
            processes,
        }
    }

    /// Makes the next process take over.
    pub(super) fn hand_over(&mut self) {
        let before = self.processes.len() - 1;
        signal(self.processes[before], "USR2");
        let next = wait_until("the next process", || {
            successors(&self.weir).get(before).copied()
        });
        self.processes.push(next);
    }

    /// Waits until new connections of clients can only reach the last process.
    pub(super) fn wait_until_it_accepts_alone(&self) {
        let [.., before, _] = self.processes[..] else {
            panic!("there was no graceful restart")
        };
        let url: http::Uri = self.weir.url("/mcp").parse().unwrap();
        let port = url.port_u16().unwrap();
        wait_until("the process before to accept no more", || {
            (!listening_ports_of_process(before).contains(&port)).then_some(())
        });
    }

    pub(super) async fn client(&self, revision: Revision) -> RawClient {
        let client = RawClient::new(&self.weir.url("/mcp")).legacy(revision);
        client
            .initialize_with(json!({ "elicitation": {} }))
            .await
            .unwrap()
            .0
    }

    /// Ends the last process, and waits for those before.
    pub(super) fn end(self) {
        let (last, before) = self.processes.split_last().unwrap();
        before
            .iter()
            .for_each(|id| wait_until("a process before to end", || is_gone(*id).then_some(())));
        signal(*last, "TERM");
        wait_until("the last process to end", || is_gone(*last).then_some(()));
    }
}

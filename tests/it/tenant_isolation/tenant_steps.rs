//! The steps of a tenant's client: allowed ones, and attempts to reach the other tenant's data.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, MockServer};
use weir_wire::Revision;

use super::tenant_world::{Tenant, TenantWorld, everything};
use crate::harness::CheckedClient;

/// The last session id and cursor of each tenant, for the other to try. Counts the attempts.
#[derive(Clone, Default)]
pub struct ForeignIdBoard(
    Arc<Mutex<HashMap<(&'static str, &'static str), String>>>,
    Arc<AtomicU64>,
);

impl ForeignIdBoard {
    /// Returns the number of attempts to use the other tenant's data.
    pub fn attempts(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    /// Counts an attempt to use the other tenant's data.
    pub fn count_attempt(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn put(&self, tenant: &Tenant, what: &'static str, value: &str) {
        self.0.lock().insert((tenant.name, what), value.to_owned());
    }

    pub(super) fn find(&self, tenant: &Tenant, what: &'static str) -> Option<String> {
        let found = self.0.lock().get(&(tenant.name, what)).cloned();
        self.1
            .fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        found
    }
}

/// A client of a tenant.
pub struct TenantWalker {
    pub(super) tenant: &'static Tenant,
    pub(super) client: CheckedClient,
    /// A client of the same tenant that declares elicitation, and whose calls may become tasks.
    pub(super) asking: CheckedClient,
    pub(super) library: Arc<MockServer>,
    pub(super) board: ForeignIdBoard,
    random: u64,
    pub(super) steps: u64,
}

impl TenantWalker {
    pub async fn open(
        world: &TenantWorld,
        tenant: &'static Tenant,
        revision: Revision,
        board: &ForeignIdBoard,
        seed: u64,
    ) -> Self {
        let client = tenant.client(&world.url(), revision).await;
        if let Some(session) = client.raw().session() {
            board.put(tenant, "session", session);
        }
        let able = json!({ "elicitation": { "form": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let asking = CheckedClient::with_capabilities_and_header(
            &world.url(),
            Revision::MODERN,
            able,
            tenant.header(),
        )
        .await;
        let (board, library) = (board.clone(), world.library.clone());
        Self {
            tenant,
            client,
            asking,
            library,
            board,
            random: seed.wrapping_mul(2).wrapping_add(1),
            steps: 0,
        }
    }

    /// Takes one step.
    pub async fn step(&mut self, url: &str) {
        self.steps += 1;
        match self.random() % 23 {
            0..=6 => self.call().await,
            7 | 8 => self.list().await,
            9 => self.foreign_cursor().await,
            10 | 11 => self.foreign_tool().await,
            12 => self.foreign_session(url).await,
            13 => self.foreign_cancel().await,
            14 => self.stream().await,
            16 | 17 => self.library().await,
            18 => self.updates().await,
            19 | 20 => self.parked().await,
            21 => self.replayed().await,
            22 => self.task().await,
            _ => self.again(url).await,
        }
    }

    /// Returns a random number by xorshift: the same steps for the same seed.
    pub(super) fn random(&mut self) -> u64 {
        for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
            self.random ^= if left {
                self.random << shift
            } else {
                self.random >> shift
            };
        }
        self.random
    }

    /// Calls tools with the same names, ids that every client counts from 1, one progress token for
    /// all.
    async fn call(&mut self) {
        let tool = ["old__echo", "new__echo"][self.random() as usize % 2];
        let own = [
            tool.to_owned(),
            tool.replace("echo", &format!("{}_tool", self.tenant.name)),
        ];
        let name = &own[self.random() as usize % 2];
        let arguments = json!({ "text": self.tenant.canary, "step": self.steps });
        let answer = self
            .client
            .call_with_token(name, arguments.clone(), &json!("t"))
            .await;
        assert_eq!(
            serde_json::from_str::<Value>(answer.text()).unwrap(),
            arguments,
            "{name}"
        );
        assert_eq!(
            answer.notes("notifications/progress").count(),
            1,
            "{:?}",
            answer.messages
        );
        self.own(&answer);
    }

    /// Reads both pages of its own list.
    async fn list(&mut self) {
        let first = self.client.ask("tools/list", json!({})).await;
        self.own_tools(&first);
        let cursor = first.result()["nextCursor"]
            .as_str()
            .unwrap_or_else(|| panic!("a second page: {}", first.last()));
        self.board.put(self.tenant, "cursor", cursor);
        let second = self
            .client
            .ask("tools/list", json!({ "cursor": cursor }))
            .await;
        self.own_tools(&second);
    }

    /// Tries a cursor of a list that it does not see: it is refused.
    async fn foreign_cursor(&mut self) {
        let Some(cursor) = self.board.find(self.tenant.other(), "cursor") else {
            return;
        };
        let refused = self
            .client
            .ask("tools/list", json!({ "cursor": cursor }))
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (200, -32602),
            "{}",
            refused.last()
        );
        self.own(&refused);
    }

    /// Tries a tool without the scope for it: it does not run.
    async fn foreign_tool(&mut self) {
        let tool = format!(
            "{}__{}_tool",
            ["old", "new"][self.random() as usize % 2],
            self.tenant.other().name
        );
        let params = json!({ "name": tool, "arguments": { "text": self.tenant.canary } });
        let refused = self.client.raw().ask("tools/call", params).await.unwrap();
        assert_eq!(refused.status, 403, "{tool}: {:?}", refused.messages);
        self.own(&refused);
    }

    /// Tries a session of the other tenant: the answer is exactly that for an unknown one.
    async fn foreign_session(&mut self, url: &str) {
        let Some(session) = self.board.find(self.tenant.other(), "session") else {
            return;
        };
        let own = self.tenant.client(url, Revision::NEWEST_LEGACY).await;
        let mut answers = Vec::new();
        for id in [
            session.as_str(),
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            let (mut headers, message) = own.raw().envelope("tools/list", json!({}));
            headers.insert("mcp-session-id", id.parse().unwrap());
            let sent = own
                .raw()
                .send(http::Method::POST, headers, message.to_string())
                .await
                .unwrap();
            answers.push(sent.finish().await.unwrap());
        }
        assert_eq!(
            (answers[0].status.as_u16(), answers[1].status.as_u16()),
            (404, 404)
        );
        let text = |answer: &ClientAnswer| {
            answer
                .messages
                .iter()
                .map(|message| message["error"]["message"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(text(&answers[0]), text(&answers[1]));
        assert!(own.raw().delete().await.unwrap().status.is_success());
    }

    /// Cancels ids that are in flight elsewhere: the other's calls all end well, which
    /// [`Self::call`] checks. A cancellation reaches other replicas after its answer, so the ids are
    /// those of its own requests that are over.
    async fn foreign_cancel(&mut self) {
        let newest = self.client.raw().newest_id();
        for id in (1..=newest).rev().take(4) {
            let told = self
                .client
                .raw()
                .notify("notifications/cancelled", json!({ "requestId": id }))
                .await
                .unwrap();
            assert!(told.messages.is_empty(), "{:?}", told.messages);
        }
    }

    /// Opens a stream of changes, and checks that every message on it is its own.
    async fn stream(&mut self) {
        // A second GET stream of a session replaces the first: both belong to this client.
        drop(self.client.open_change_stream().await);
    }

    /// Leaves and comes back, so that sessions begin and end at any time.
    async fn again(&mut self, url: &str) {
        let revision = self.client.revision;
        if self.client.raw().session().is_some() {
            assert!(
                self.client
                    .raw()
                    .delete()
                    .await
                    .unwrap()
                    .status
                    .is_success()
            );
        }
        self.client = self.tenant.client(url, revision).await;
        if let Some(session) = self.client.raw().session() {
            self.board.put(self.tenant, "session", session);
        }
    }

    fn own_tools(&self, page: &ClientAnswer) {
        let tools = page.result()["tools"].as_array().unwrap();
        assert!(!tools.is_empty() && tools.len() <= 2, "{}", page.last());
        for tool in tools {
            assert!(
                self.tenant.sees(tool["name"].as_str().unwrap()),
                "{} sees {tool}",
                self.tenant.name
            );
        }
        self.own(page);
    }

    pub(super) fn own(&self, answer: &ClientAnswer) {
        let all = everything(&answer.messages);
        assert!(
            !all.contains(self.tenant.other().canary),
            "{} was sent {all}",
            self.tenant.name
        );
    }
}

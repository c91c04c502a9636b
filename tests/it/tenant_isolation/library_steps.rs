//! The steps of a tenant beyond tools: its library, updates of its resources, calls that wait for
//! its answer or become tasks, and resumed streams of its calls.

use serde_json::{Value, json};

use super::tenant_steps::TenantWalker;
use crate::harness::{CheckedStream, within_test_timeout};

impl TenantWalker {
    /// Returns the URI of a tenant's resource; both tenants' resources exist for those that may see
    /// them.
    fn memo(tenant: &str) -> String {
        format!("library+memo:{tenant}")
    }

    /// Checks that the tenant sees exactly its prompts and resources of both servers' library.
    pub(super) async fn library(&mut self) {
        let (ada, other) = (self.tenant.name == "ada", self.tenant.other().name);
        let names = |list: &Value, member: &str| -> Vec<String> {
            list.as_array()
                .unwrap()
                .iter()
                .map(|item| item[member].as_str().unwrap().to_owned())
                .collect()
        };
        let prompts = self.client.ask("prompts/list", json!({})).await;
        let expected: &[&str] = if ada {
            &["library__greet", "library__linked"]
        } else {
            &["library__greet"]
        };
        assert_eq!(
            names(&prompts.result()["prompts"], "name"),
            expected,
            "{}",
            self.tenant.name
        );
        let resources = self.client.ask("resources/list", json!({})).await;
        let expected: &[&str] = if ada {
            &["library+memo:1"]
        } else {
            &["library+memo:1", "ui://library/panel/main"]
        };
        assert_eq!(
            names(&resources.result()["resources"], "uri"),
            expected,
            "{}",
            self.tenant.name
        );
        let own = self
            .client
            .ask(
                "resources/read",
                json!({ "uri": Self::memo(self.tenant.name) }),
            )
            .await;
        assert_eq!(
            own.result()["contents"][0]["text"],
            format!("of memo:{}", self.tenant.name)
        );
        let [hidden, never] =
            [other, "nobody's"].map(|whose| json!({ "uri": format!("library+memo:{whose}") }));
        let hidden = self.client.ask("resources/read", hidden).await;
        assert!(
            hidden.last().get("error").is_some(),
            "{} read {}",
            self.tenant.name,
            hidden.last()
        );
        assert!(
            self.client
                .ask("resources/read", never)
                .await
                .last()
                .get("result")
                .is_some(),
            "it is a rule that hides"
        );
        [prompts, resources, own]
            .iter()
            .for_each(|answer| self.own(answer));
    }

    /// Updates both tenants' resources; each gets the updates of its own.
    pub(super) async fn updates(&mut self) {
        let (own, foreign) = (
            Self::memo(self.tenant.name),
            Self::memo(self.tenant.other().name),
        );
        let mut stream = if self.client.revision.is_modern() {
            let filter = json!({ "notifications": { "resourceSubscriptions": [own, foreign] } });
            let mut stream = self.client.start("subscriptions/listen", filter).await;
            let first = stream.next().await.unwrap();
            assert_eq!(
                first["params"]["notifications"],
                json!({ "resourceSubscriptions": [own] }),
                "{first}"
            );
            stream
        } else {
            let subscribed = self
                .client
                .ask("resources/subscribe", json!({ "uri": own }))
                .await;
            assert_eq!(subscribed.result(), &json!({}));
            let refused = self
                .client
                .ask("resources/subscribe", json!({ "uri": foreign }))
                .await;
            assert!(refused.last().get("error").is_some(), "{}", refused.last());
            self.client.open_change_stream().await
        };
        for tenant in [self.tenant.other(), self.tenant] {
            self.library
                .notify_resource_updated(&format!("memo:{}", tenant.name));
        }
        self.board.count_attempt();
        assert_eq!(
            heard(&mut stream).await["params"]["uri"],
            own,
            "{}",
            self.tenant.name
        );
    }

    /// Parks a call of either server for its client's answer; the other tenant cannot continue it,
    /// and its own can.
    pub(super) async fn parked(&mut self) {
        if !self.client.revision.is_modern() {
            return;
        }
        let tool = ["old__ask", "new__ask"][self.random() as usize % 2];
        let params = json!({ "name": tool, "arguments": { "text": self.tenant.canary, "step": self.steps } });
        let asked = self.asking.ask("tools/call", params.clone()).await;
        let result = asked.result();
        assert_eq!(result["resultType"], "input_required", "{}", asked.last());
        self.own(&asked);
        let question = result["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .next()
            .unwrap();
        let mut again = params;
        again["requestState"] = result["requestState"].clone();
        again["inputResponses"] =
            json!({ question: { "action": "accept", "content": { "name": self.tenant.canary } } });
        if let Some(foreign) = self.board.find(self.tenant.other(), "parked") {
            let refused = self
                .asking
                .ask("tools/call", serde_json::from_str(&foreign).unwrap())
                .await;
            assert_eq!(refused.code(), -32602, "{}", refused.last());
            self.own(&refused);
        }
        self.board.put(self.tenant, "parked", &again.to_string());
        let ended = self.asking.ask("tools/call", again).await;
        if tool == "old__ask" {
            assert!(
                ended.result()["content"][0]["text"]
                    .as_str()
                    .unwrap()
                    .contains(self.tenant.canary)
            );
        } else {
            // That server asks again after every answer.
            assert_eq!(
                ended.result()["resultType"],
                "input_required",
                "{}",
                ended.last()
            );
        }
        self.own(&ended);
    }

    /// Makes a call that becomes a task. Its name is unknown to the other tenant, and gives its own
    /// tenant the call's result.
    pub(super) async fn task(&mut self) {
        let arguments = json!({ "text": self.tenant.canary, "step": self.steps });
        let begun = self.asking.call("library__task_done", arguments).await;
        assert_eq!(begun.result()["resultType"], "task", "{}", begun.last());
        let name = begun.result()["taskId"].as_str().unwrap().to_owned();
        if let Some(foreign) = self.board.find(self.tenant.other(), "task") {
            for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
                let refused = self
                    .asking
                    .ask(method, json!({ "taskId": foreign, "inputResponses": {} }))
                    .await;
                assert_eq!(refused.code(), -32602, "{method}: {}", refused.last());
                self.own(&refused);
            }
        }
        self.board.put(self.tenant, "task", &name);
        for _ in 0..20 {
            let state = self
                .asking
                .ask("tasks/get", json!({ "taskId": name }))
                .await;
            self.own(&state);
            if state.result()["status"] == "completed" {
                assert!(
                    state.last().to_string().contains(self.tenant.canary),
                    "{}",
                    state.last()
                );
                return;
            }
        }
        panic!("the task is never over");
    }

    /// Resumes a call's stream by its event ids, which are valid in its own session alone.
    pub(super) async fn replayed(&mut self) {
        if self.client.revision.is_modern() {
            return;
        }
        let arguments = json!({ "text": self.tenant.canary, "step": self.steps });
        let answer = self
            .client
            .call_with_token("new__echo", arguments, &json!("t"))
            .await;
        let first = answer
            .events
            .iter()
            .find_map(|event| event.id.clone())
            .unwrap();
        let stream = async |id: &str| {
            let client = self.client.raw().clone().with_header("last-event-id", id);
            within_test_timeout("GET", client.get_stream())
                .await
                .unwrap()
        };
        let mut own = stream(&first).await;
        let replayed = within_test_timeout("the replay", own.next_message())
            .await
            .unwrap()
            .unwrap();
        assert!(
            replayed.get("method").is_some() || replayed.to_string().contains(self.tenant.canary),
            "{replayed}"
        );
        if let Some(foreign) = self.board.find(self.tenant.other(), "event") {
            let not_there = stream(&foreign).await;
            // A stream of its own, which the next one ends.
            drop(self.client.open_change_stream().await);
            let rest = within_test_timeout("the end of a stream", not_there.finish())
                .await
                .unwrap();
            let all = super::tenant_world::everything(&rest.messages);
            assert!(
                !all.contains("PRIVATE"),
                "{} was sent {all}",
                self.tenant.name
            );
        }
        self.board.put(self.tenant, "event", &first);
    }
}

/// Returns the next update. The lists change at any time meanwhile.
async fn heard(stream: &mut CheckedStream) -> Value {
    loop {
        let message = stream
            .next()
            .await
            .unwrap_or_else(|| panic!("the stream ended, and no update came"));
        if message["method"] == "notifications/resources/updated" {
            return message;
        }
    }
}

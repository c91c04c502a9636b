//! The builder of a mock server.

use weir_wire::Revision;

use crate::mock_server::MockServer;
use crate::mock_server::behaviour::MockBehaviour;
use crate::mock_server::mock_tool::{CursorBehaviour, MockTool};
use crate::mock_server::state::{AnswerRule, MockSettings, MockState};
use crate::mock_server::tasks;

impl MockServer {
    /// A server of 2026-07-28 alone.
    pub fn modern() -> MockServerBuilder {
        MockServerBuilder::new(None, true)
    }

    /// A server of legacy revisions up to this one, with sessions.
    ///
    /// # Panics
    /// The revision is modern.
    pub fn legacy(newest: Revision) -> MockServerBuilder {
        assert!(!newest.is_modern(), "{newest:?} is no legacy revision");
        MockServerBuilder::new(Some(newest), false)
    }

    /// A server of every revision.
    pub fn dual() -> MockServerBuilder {
        MockServerBuilder::new(Some(Revision::NEWEST_LEGACY), true)
    }
}

/// A mock server before it starts.
#[derive(Clone, Debug)]
#[must_use]
pub struct MockServerBuilder {
    settings: MockSettings,
    tools: Vec<MockTool>,
    rules: Vec<AnswerRule>,
}

impl MockServerBuilder {
    fn new(legacy: Option<Revision>, modern: bool) -> Self {
        let settings = MockSettings {
            legacy,
            modern,
            page_size: 1_000,
            cursors: CursorBehaviour::Good,
            sessions: true,
            lost_session: 404,
            list_changed: true,
            get_stream: true,
            cache: Some((60_000, "public".to_owned())),
            http2: false,
            http2_streams: None,
            library: false,
            tasks: false,
            name: "mock_server".to_owned(),
        };
        Self {
            settings,
            tools: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Adds so many echoing tools, `tool_0000` and so on.
    pub fn tools(mut self, count: usize) -> Self {
        self.tools.extend(MockTool::numbered(count));
        self
    }

    /// Adds a tool that takes any arguments.
    pub fn tool(self, name: &str, behaviour: MockBehaviour) -> Self {
        self.with(MockTool::new(name).does(behaviour))
    }

    /// Adds an echoing tool of exactly this definition.
    pub fn tool_json(self, definition: &str) -> Self {
        self.with(MockTool::raw(definition))
    }

    /// Adds a tool.
    pub fn with(mut self, tool: MockTool) -> Self {
        self.tools.push(tool);
        self
    }

    /// The count of tools on a page.
    pub fn page_size(mut self, size: usize) -> Self {
        self.settings.page_size = size.max(1);
        self
    }

    /// The behaviour of its cursors.
    pub fn cursors(mut self, cursors: CursorBehaviour) -> Self {
        self.settings.cursors = cursors;
        self
    }

    /// The server's own name.
    pub fn named(mut self, name: &str) -> Self {
        self.settings.name = name.to_owned();
        self
    }

    /// Hands out no session ids (legacy).
    pub fn without_sessions(mut self) -> Self {
        self.settings.sessions = false;
        self
    }

    /// Answers a lost session with this status: 404 by default, another as some real servers do.
    pub fn lost_session_status(mut self, status: u16) -> Self {
        self.settings.lost_session = status;
        self
    }

    /// Neither declares nor sends `list_changed`.
    pub fn without_list_changed(mut self) -> Self {
        self.settings.list_changed = false;
        self
    }

    /// Answers GET with 405 (legacy).
    pub fn without_get_stream(mut self) -> Self {
        self.settings.get_stream = false;
        self
    }

    /// The cache hints of modern lists, valid or not; `None` leaves them out.
    pub fn cache_hints(mut self, hints: Option<(i64, &str)>) -> Self {
        self.settings.cache = hints.map(|(ttl, scope)| (ttl, scope.to_owned()));
        self
    }

    /// Has prompts, resources, a template and completion, see `library.rs`.
    pub fn with_library(mut self) -> Self {
        self.settings.library = true;
        self
    }

    /// Has tools with calls that become tasks, see `tasks.rs`; plain tools in a revision without
    /// tasks. A server of both eras has those of the modern one.
    pub fn with_tasks(self) -> Self {
        let legacy = self.settings.legacy.unwrap_or(Revision::MODERN);
        let revision = if self.settings.modern {
            Revision::MODERN
        } else {
            legacy
        };
        self.with_tasks_of(revision)
    }

    /// Has the task tools as this revision defines them.
    pub fn with_tasks_of(mut self, revision: Revision) -> Self {
        self.settings.tasks = true;
        self.tools.extend(tasks::tools(revision));
        self
    }

    /// Speaks HTTP/2 with prior knowledge, and no HTTP/1.1.
    pub fn http2(mut self) -> Self {
        self.settings.http2 = true;
        self
    }

    /// Speaks HTTP/2 as after [`Self::http2`], and allows at most so many streams on a connection.
    pub fn http2_streams(mut self, most: u32) -> Self {
        self.settings.http2_streams = Some(most);
        self.http2()
    }

    /// Answers every request of this kind by a behaviour, before any tool runs: a JSON-RPC method,
    /// `GET`, `DELETE`, or `*`.
    pub fn with_rule(mut self, kind: &str, behaviour: MockBehaviour) -> Self {
        self.rules.push(AnswerRule {
            kind: kind.to_owned(),
            left: usize::MAX,
            behaviour,
        });
        self
    }

    /// Starts it on a free loopback port.
    ///
    /// # Panics
    /// No port is free.
    pub async fn start(self) -> MockServer {
        MockServer::start(MockState::new(self.settings, self.tools, self.rules)).await
    }
}

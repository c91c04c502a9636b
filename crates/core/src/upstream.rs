//! What core asks of an upstream server: the port that the upstream crate implements, one object
//! for each server.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use weir_wire::Revision;
use weir_wire::method::Method;

use crate::call::{AsTask, Call, SessionKey};
use crate::capability::CapabilityClass;
use crate::catalog::Tool;
use crate::failure::Failure;
use crate::names::UpstreamId;
use crate::port::Fut;
use crate::principal::Principal;
use crate::reply::Reply;
use crate::token::ClientToken;

/// A call that has found its upstream.
#[derive(Debug)]
pub struct Outbound {
    /// Who makes it.
    pub principal: Principal,
    /// The token it came with, where front keeps those. For the authorization server alone, never
    /// for the upstream.
    pub token: Option<ClientToken>,
    /// The call as the client made it. Shared with the record that is written when it ends.
    pub call: Arc<Call>,
    /// The upstream's own name, or URI, for what the call is about.
    pub native: Arc<str>,
    /// What the catalog knows of it.
    pub tool: Option<Arc<Tool>>,
    /// How long each part of it may take.
    pub deadlines: Deadlines,
    /// True where its result is wanted whole ([`crate::Payload::Whole`]), or not at all.
    pub whole: bool,
    /// The operator's word that the tool may be called twice.
    pub safe_to_repeat: bool,
    /// Where the upstream notes the protocol revision that the call is carried in.
    pub carried_in: CarriedIn,
}

/// The protocol revision that a call is carried in to its server: noted by the upstream when it
/// sends the call, read when the call is recorded. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CarriedIn(Arc<AtomicU8>);

impl CarriedIn {
    /// Notes the revision. Of a call that is sent again the last one counts.
    pub fn note(&self, revision: Revision) {
        // 0 is none.
        self.0.store(revision as u8 + 1, Ordering::Relaxed);
    }

    /// The revision; `None` where the call was not sent.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        let number = usize::from(self.0.load(Ordering::Relaxed));
        Revision::ALL.get(number.checked_sub(1)?).copied()
    }
}

impl Outbound {
    /// Whether the call may be made a second time although the first may have been executed: it
    /// only reads, or is of a tool that the operator declares safe to repeat. What answers a
    /// question, or goes on where a call ended, is never sent twice.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        let call = &self.call;
        let is_safe = match call.method {
            Method::ResourcesRead | Method::PromptsGet | Method::CompletionComplete => true,
            // Each of two calls would become a task.
            Method::ToolsCall => {
                self.safe_to_repeat && matches!(call.as_task, AsTask::Never | AsTask::Taken)
            }
            _ => false,
        };
        let goes_on = call.resume.is_some()
            || call.answers.is_some()
            || !matches!(call.params.input_responses(), Ok(None))
            || !matches!(call.params.request_state(), Ok(None));
        is_safe && !goes_on
    }
}

/// The time limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// To get a connection.
    pub connect: Duration,
    /// Between two signs of life: bytes of an answer, progress, log messages. Comments do not
    /// count.
    pub idle: Duration,
    /// Altogether, whatever progress is reported.
    pub hard: Duration,
}

impl Deadlines {
    /// For `tools/call`: tools may be slow as long as they show life.
    pub const CALL: Self = Self {
        connect: Duration::from_secs(2),
        idle: Duration::from_secs(300),
        hard: Duration::from_secs(3600),
    };
    /// For what is asked about tasks and, where the operator says nothing else, for lists and
    /// probes.
    pub const LIST: Self = Self {
        connect: Duration::from_secs(2),
        idle: Duration::from_secs(10),
        hard: Duration::from_secs(10),
    };
}

impl Deadlines {
    /// Each limit the shorter of both.
    #[must_use]
    pub fn cut(self, other: Self) -> Self {
        Self {
            connect: self.connect.min(other.connect),
            idle: self.idle.min(other.idle),
            hard: self.hard.min(other.hard),
        }
    }
}

/// One upstream server.
pub trait Upstream: Send + Sync {
    /// Its configured id.
    fn id(&self) -> &UpstreamId;

    /// Makes a call. The reply is given as soon as its first event is known or the wait begins;
    /// dropping the future or the reply cancels the call at the server.
    fn call(self: Arc<Self>, outbound: Outbound) -> Fut<'static, Reply>;

    /// Opens a watch: a connection of its own that lists and hears of changes, carries no calls and
    /// refuses every request of the server. Includes finding out which protocol the server speaks.
    ///
    /// # Errors
    /// The server cannot be reached or does not speak MCP.
    fn watch(
        self: Arc<Self>,
        class: CapabilityClass,
    ) -> Fut<'static, Result<Box<dyn Watch>, Failure>>;

    /// How long a watch or a line for updates may take to open: `usual`, or more for a process that
    /// may take longer to start.
    fn open_time(&self, usual: Duration) -> Duration {
        usual
    }

    /// Opens a line on which the server tells of updates of single resources: in weir's own name,
    /// apart from every call.
    ///
    /// # Errors
    /// The server cannot be reached, or tells of no such updates ([`About::subscribes`] says so
    /// too).
    fn updates(self: Arc<Self>) -> Fut<'static, Result<Box<dyn Updates>, Failure>>;

    /// A client began a session at an endpoint of this server alone: opens what the server has for
    /// that session, as the client's first call would, so that the server may change the lists of
    /// the session before that call. Gives nothing back: where there is no room, or the server
    /// refuses, the first call opens it. The call says who the client is and what it can be asked.
    fn welcome(self: Arc<Self>, _outbound: Outbound) {}

    /// Has the server tell of a task: the call asks after it, as it is named there. `None` where
    /// the server does not; its state can be asked for all the same.
    fn follow(self: Arc<Self>, _outbound: Outbound) -> Fut<'static, Option<Rings>> {
        Box::pin(std::future::ready(None))
    }

    /// Hears of the progress of a task of this principal's, as it is named there, in place of
    /// everybody else. `None` where it tells of none.
    fn progress(&self, _principal: &Principal, _native: &str) -> Option<Reports> {
        None
    }

    /// The part of a client's class that weir carries to this server as it is now known to be.
    /// Classes that are cut to the same rest share a watch.
    fn carries(&self) -> CapabilityClass;

    /// Something happened to sessions of clients: what is held open for one of them alone hears of
    /// that. Many may end at once.
    fn tell(&self, _sessions: &HashSet<SessionKey>, _news: SessionNews) {}

    /// Describes the sessions and child processes that are open, for the process that takes this
    /// one's place. From now on they are that one's to end; calls that run here go on.
    fn export_sessions(self: Arc<Self>) -> Fut<'static, Vec<ExportedSession>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Goes on with a session that another process described. What cannot be used is left out.
    fn import_session(self: Arc<Self>, _session: ExportedSession) -> Fut<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// How it is doing.
    fn health(&self) -> Health;

    /// Ends what it holds (sessions, children) once its running calls are done, at most `grace`
    /// from now.
    fn retire(self: Arc<Self>, grace: Duration) -> Fut<'static, ()>;
}

/// A session or child process that another process goes on with. Opaque, and for the same upstream
/// alone; it holds session ids, which are secrets.
#[derive(Debug)]
pub struct ExportedSession {
    /// What it is.
    pub description: Bytes,
    /// The descriptors of a child process, at most [`ExportedSession::MOST_DESCRIPTORS`].
    pub descriptors: Vec<OwnedFd>,
}

impl ExportedSession {
    /// The most descriptors of one.
    pub const MOST_DESCRIPTORS: usize = 6;
}

/// Rings when a server tells something of a task; many at once may be one. It ends when nothing
/// more will be told, and dropping it takes the subscription back.
pub type Rings = Pin<Box<dyn futures_core::Stream<Item = ()> + Send>>;

/// `params` of `notifications/progress` under the client's own token, as they come. Dropping it
/// ends the listening.
pub type Reports = Pin<Box<dyn futures_core::Stream<Item = Bytes> + Send>>;

/// What happens to a session of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionNews {
    /// It is over.
    Ended,
    /// The client's roots changed.
    RootsChanged,
}

/// How an upstream is doing, for the admin view and the metrics.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The protocol revision it was found to speak.
    pub revision: Option<&'static str>,
    /// The older revision that it was found to speak beside that.
    pub second_revision: Option<&'static str>,
    /// True while the breaker is open or the last attempt to reach it failed.
    pub down: bool,
    /// True while calls fail at once, since several in a row did not reach it.
    pub breaker_open: bool,
    /// The cause of the last failure, for operators ([`Failure::cause`]). It stays when the
    /// upstream works again.
    pub last_error: Option<String>,
    /// When that was.
    pub last_error_at: Option<SystemTime>,
    /// The start of a process that has not answered yet.
    pub starting: Option<Starting>,
    /// The last lines that a process printed whose start failed, without secrets of the config.
    pub last_lines: Vec<String>,
    /// Calls in flight now.
    pub in_flight: usize,
    /// Sessions or child processes held open now.
    pub sessions: usize,
}

/// The start of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starting {
    /// How long it has taken so far.
    pub time: Duration,
    /// The last line of its error stream, without secrets of the config.
    pub says: Option<String>,
}

/// A watch on an upstream's lists. Dropping it closes its connection.
pub trait Watch: Send {
    /// What the server says of itself.
    fn about(&self) -> &About;

    /// One page. The cursor is the upstream's own, unaltered; the empty string is a cursor.
    ///
    /// # Errors
    /// As for any request to the upstream; its -32601 where it has no such list.
    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> Fut<'_, Result<ListPage, Failure>>;

    /// Waits until the server says that a list changed, and gives the lists of which it said so;
    /// none where something may have been missed. What it says during a walk is kept, as one. Where
    /// the server tells nothing ([`About::pushes`] is empty) this waits only for the connection's
    /// end.
    ///
    /// # Errors
    /// The watch is lost: changes may have been missed, and a new watch is needed. Cancel safe.
    fn changed(&mut self) -> Fut<'_, Result<Kinds, Failure>>;
}

/// A line on which a server tells of updates of single resources. Dropping it ends what it
/// subscribed to.
pub trait Updates: Send {
    /// Has the server tell of exactly these resources, named by its own URIs, and gives those of
    /// which it will not, each with its reason. What it told of before, it tells of in between.
    ///
    /// # Errors
    /// The line is lost: a new one is needed.
    fn want<'a>(&'a mut self, uris: &'a [Arc<str>]) -> Fut<'a, Result<Unheard, Failure>>;

    /// Waits for the next update. Several of one resource may come as one. Cancel safe.
    ///
    /// # Errors
    /// The line is lost: updates may have been missed, and a new one is needed.
    fn updated(&mut self) -> Fut<'_, Result<Updated, Failure>>;
}

/// Resources of whose updates a server will not tell, and why.
pub type Unheard = Vec<(Arc<str>, Failure)>;

/// What a server told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Updated {
    /// The resource of this URI, which may be part of one that was subscribed to.
    One(Arc<str>),
    /// Any of them: something may have been missed.
    Any,
}

/// The lists a server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
}

impl ListKind {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// A word for metrics and logs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resource_templates",
        }
    }

    /// The method that lists it.
    #[must_use]
    pub const fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::ResourcesTemplatesList,
        }
    }

    /// The method that asks for one of its items, where it is asked for at all.
    #[must_use]
    pub const fn used_by(self) -> Method {
        match self {
            Self::Tools => Method::ToolsCall,
            Self::Prompts => Method::PromptsGet,
            Self::Resources | Self::Templates => Method::ResourcesRead,
        }
    }

    /// The attribute that holds an item's name in metrics and traces (semantic conventions for
    /// MCP). A URI is nobody's: there is no end to them.
    #[must_use]
    pub const fn name_attribute(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some("gen_ai.tool.name"),
            Self::Prompts => Some("gen_ai.prompt.name"),
            Self::Resources | Self::Templates => None,
        }
    }

    /// The member of a list's result that holds the items.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an item that tells it from the others.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

/// A set of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// The same with one more.
    #[must_use]
    pub const fn with(self, kind: ListKind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// Whether it is in the set.
    #[must_use]
    pub const fn has(self, kind: ListKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// The lists that are not in the set.
    #[must_use]
    pub fn others(self) -> Self {
        ListKind::ALL
            .into_iter()
            .filter(|kind| !self.has(*kind))
            .collect()
    }

    /// The same without one.
    #[must_use]
    pub const fn without(self, kind: ListKind) -> Self {
        Self(self.0 & !(1 << kind as u8))
    }

    /// What is in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if nothing is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<ListKind> for Kinds {
    fn from_iter<I: IntoIterator<Item = ListKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::default(), Self::with)
    }
}

/// An extension by its identifier, and what is said of it: a JSON object.
pub type Extension = (Arc<str>, Bytes);

/// What a server said of itself when the watch opened.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// `serverInfo`, raw.
    pub server_info: Option<Bytes>,
    /// `instructions`.
    pub instructions: Option<String>,
    /// `capabilities`, raw.
    pub capabilities: Option<Bytes>,
    /// The lists it offers.
    pub offers: Kinds,
    /// The lists of which it tells when they change.
    pub pushes: Kinds,
    /// True if it tells of changes of single resources.
    pub subscribes: bool,
    /// True if it completes arguments.
    pub completes: bool,
    /// True if calls of its tools can become tasks.
    pub tasks: bool,
    /// True if it says that tools of it have interfaces (MCP Apps).
    pub apps: bool,
    /// The extensions it has beside those that weir understands.
    pub extensions: Vec<Extension>,
}

/// One page of an upstream's list.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// The items' own bytes, in the upstream's order.
    pub items: Vec<Bytes>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
    /// `ttlMs`; absent or negative is 0.
    pub ttl_ms: u64,
    /// True if this server's protocol revision has cache hints at all. Where it has none, `ttl_ms`
    /// says nothing and the catalog makes its own small promise for a list it watches.
    pub hinted: bool,
    /// True if the page may be shown to everybody (`cacheScope: "public"`); absent is private.
    pub public: bool,
}

//! The shared context of one upstream: the handles that its parts are made with.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use weir_core::call::LogMessages;
use weir_core::completed_elicitations::CompletedElicitations;
use weir_core::names::UpstreamId;
use weir_core::port::SessionListRegistry;
use weir_core::port::{Clock, Random};
use weir_core::session_notifier::SessionNotifier;
use weir_core::{Budgets, CapabilityClass};
use weir_era::upstream_messages::{ClientDeclaration, RevisionDialect};
use weir_wire::method::Method;

use crate::background_tasks::BackgroundTasks;
use crate::lease_fence::LeaseFence;
use crate::list_changes::ListChanges;
use crate::message_budget::MessageBudget;
use crate::own_requests::OwnRequestLimits;
use crate::predecessor_calls::PredecessorCalls;
use crate::repeat_budget::RepeatBudget;
use crate::request_ids::RequestIds;
use crate::response_limits::ResponseLimits;
use crate::secret_mask::SecretMask;
use crate::server_permissions::ServerPermissions;
use crate::settings::{OwnDeadlines, UpstreamBounds};
use crate::task_holds::TaskHolds;
use crate::task_progress::TaskProgress;
use crate::upstream_clock::UpstreamClock;
use crate::upstream_label::UpstreamLabel;
use crate::upstream_record::UpstreamRecord;

/// The most session deletions at one server at the same time, each on a connection.
const MAX_SESSION_ENDS: usize = 32;

/// The settings of one upstream that its parts share.
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// The configured id.
    pub id: UpstreamId,
    /// The bounds of its use of weir.
    pub bounds: UpstreamBounds,
    /// The time limits of requests of weir's own.
    pub own_deadlines: OwnDeadlines,
    /// The capabilities that the server may use of clients.
    pub client_capabilities: CapabilityClass,
    /// True if the server may send callers to web pages.
    pub allows_url_elicitation: bool,
    /// The secrets of the config.
    pub mask: SecretMask,
    /// The advice to a caller if the server refuses weir's credentials; absent if only the operator
    /// can mend it.
    pub credential_advice: Option<String>,
    /// weir's `Implementation` object.
    pub client_info: Bytes,
    /// The fence of its child processes, if one replica alone runs them.
    pub fence: Option<Arc<LeaseFence>>,
}

/// The ports and shared parts of the process that one upstream uses.
#[derive(Clone, Debug)]
pub struct ContextPorts {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes, for jitter.
    pub random: Arc<dyn Random>,
    /// The notifiers of client sessions, for messages of servers outside of calls.
    pub notifier: Arc<SessionNotifier>,
    /// The known lists of single sessions.
    pub session_lists: Arc<dyn SessionListRegistry>,
    /// The budgets of the whole process.
    pub budgets: Budgets,
}

/// The handles of one upstream. The transports get all of them; every other part gets the handles
/// that it uses.
#[derive(Debug)]
pub struct UpstreamContext {
    /// Its id, for failures and metrics.
    pub label: UpstreamLabel,
    /// The bounds of its use of weir.
    pub bounds: UpstreamBounds,
    /// The tasks that end with it.
    pub tasks: BackgroundTasks,
    /// The time and randomness.
    pub clock: UpstreamClock,
    /// The record for its operators.
    pub record: UpstreamRecord,
    /// The capabilities of clients that the server may use.
    pub permissions: ServerPermissions,
    /// The ids of requests to it.
    pub request_ids: RequestIds,
    /// The limits of requests of weir's own.
    pub own_requests: OwnRequestLimits,
    /// The bounds of its responses.
    pub responses: ResponseLimits,
    /// The memory for its waiting messages.
    pub messages: MessageBudget,
    /// The budgets of the whole process.
    pub budgets: Budgets,
    /// The changes of its lists.
    pub list_changes: Arc<ListChanges>,
    /// The known lists of its sessions.
    pub session_lists: Arc<dyn SessionListRegistry>,
    /// The notifiers of client sessions.
    pub notifier: Arc<SessionNotifier>,
    /// The URL elicitations that it reported as complete.
    pub completed_elicitations: Arc<CompletedElicitations>,
    /// The sessions and child processes that are held open for tasks.
    pub task_holds: TaskHolds,
    /// The calls of the previous process, after a graceful restart.
    pub predecessor_calls: PredecessorCalls,
    /// The recipients of task progress.
    pub task_progress: Arc<TaskProgress>,
    /// weir's `Implementation` object.
    pub client_info: Bytes,
    /// The advice to a caller if the server refuses weir's credentials; absent if only the operator
    /// can mend it.
    pub credential_advice: Option<String>,
    /// The permits of session deletions at the same time.
    pub session_end_permits: Semaphore,
    /// The budget of repeated requests.
    pub repeat_budget: Arc<RepeatBudget>,
    /// The fence of its child processes, if one replica alone runs them.
    pub fence: Option<Arc<LeaseFence>>,
}

impl UpstreamContext {
    /// Returns a test for sessions or child processes that tasks or the previous process use now.
    pub fn values_in_use<T>(&self) -> impl Fn(&Arc<T>) -> bool + use<T> {
        let (of_tasks, of_predecessor) = (
            self.task_holds.held_values(),
            self.predecessor_calls.held_values(),
        );
        move |value| of_tasks(value) || of_predecessor(value)
    }

    /// Returns what a request of weir's own declares to the server, for clients of this class.
    pub fn own_declaration(&self, class: CapabilityClass) -> ClientDeclaration<'_> {
        ClientDeclaration {
            class,
            client_info: &self.client_info,
            extensions: &[],
            log_messages: LogMessages::None,
        }
    }

    /// Makes a `subscriptions/listen` with this filter.
    pub fn listen_request(
        &self,
        dialect: RevisionDialect,
        id: u64,
        class: CapabilityClass,
        filter: &[u8],
    ) -> Bytes {
        dialect.request(
            id,
            Method::SubscriptionsListen,
            &[("notifications", filter)],
            self.own_declaration(class),
        )
    }

    /// Makes the handles of one upstream.
    pub fn new(settings: ContextSettings, ports: ContextPorts) -> Self {
        let label = UpstreamLabel { id: settings.id };
        let clock = UpstreamClock::new(ports.clock.clone(), ports.random);
        let repeat_budget = Arc::new(RepeatBudget::default());
        let own_requests = OwnRequestLimits {
            label: label.clone(),
            clock: clock.clone(),
            deadlines: settings.own_deadlines,
            max_reply: settings.bounds.max_reply,
            repeat_budget: repeat_budget.clone(),
        };
        let tasks = BackgroundTasks::default();
        Self {
            bounds: settings.bounds,
            task_holds: TaskHolds::new(tasks.clone()),
            tasks,
            clock,
            record: UpstreamRecord::new(label.clone(), settings.mask, ports.clock),
            permissions: ServerPermissions::new(
                label.clone(),
                settings.client_capabilities,
                settings.allows_url_elicitation,
            ),
            request_ids: RequestIds::default(),
            own_requests,
            responses: ResponseLimits::new(
                label.clone(),
                settings.bounds.max_reply,
                &ports.budgets,
            ),
            messages: MessageBudget::new(label.clone(), ports.budgets.messages.clone()),
            budgets: ports.budgets,
            list_changes: Arc::new(ListChanges::new(label.clone())),
            session_lists: ports.session_lists,
            predecessor_calls: PredecessorCalls::default(),
            task_progress: Arc::new(TaskProgress::new(label.id.clone(), ports.notifier.clone())),
            completed_elicitations: ports.notifier.completed_elicitations(&label.id),
            notifier: ports.notifier,
            client_info: settings.client_info,
            credential_advice: settings.credential_advice,
            session_end_permits: Semaphore::new(MAX_SESSION_ENDS),
            repeat_budget,
            fence: settings.fence,
            label,
        }
    }

    /// Makes the handles of one instance of this server, beside others. Its sessions, failures and
    /// task ids are its own; its background tasks, the changes of its lists, its budget of repeated
    /// requests and the calls of the previous process are the upstream's.
    pub fn of_instance(&self, settings: ContextSettings, ports: ContextPorts) -> Self {
        let own = Self::new(settings, ports);
        Self {
            task_holds: TaskHolds::new(self.tasks.clone()),
            tasks: self.tasks.clone(),
            list_changes: self.list_changes.clone(),
            predecessor_calls: self.predecessor_calls.clone(),
            own_requests: OwnRequestLimits {
                repeat_budget: self.repeat_budget.clone(),
                ..own.own_requests
            },
            repeat_budget: self.repeat_budget.clone(),
            ..own
        }
    }
}

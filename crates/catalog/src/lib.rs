//! The catalog: the lists of every endpoint, kept ready so that no client's request ever asks an
//! upstream for a list.
//!
//! Each upstream has a watcher that walks all its pages and receives its change notifications; it
//! publishes immutable snapshots. A background task builds a view of each endpoint from them, off
//! the request path, and announces changes to the clients that see them. An upstream that is slow,
//! down or flapping delays no client.
//!
//! It is not a router: `weir-router` makes calls. It knows no protocol either: items are the
//! upstreams' own bytes.
//!
//! No two files need each other. A file with an `impl Catalog` of its own stands above
//! `catalog.rs`.

mod announced_lists;
mod call_timings;
mod catalog;
mod catalog_source;
mod closed_upstreams;
mod context;
mod cursor;
mod endpoint_features;
mod endpoint_lists;
mod filtered_views;
mod followed_upstream;
pub mod fuzzing;
mod ingest;
mod late_confirmations;
mod list_changes;
mod list_feed;
mod list_state;
mod list_watcher;
mod lists_behind;
mod offered_features;
mod operator_actions;
mod outstanding_cursors;
mod page;
mod resource_updates;
mod retiring_upstreams;
mod session_lists;
mod settings;
mod stale_list_signal;
mod status;
mod superseded_views;
mod traced_tool;
mod unlisted_items;
mod upstream_retirement;
mod view;
mod view_builder;
mod view_rebuild;
mod view_updater;
mod view_watch;
mod walk;
mod walk_span;

pub use call_timings::{CallTimings, RecentCallTimings};
pub use catalog::{CallRoute, Catalog, Topology};
pub use closed_upstreams::{ClosedUpstream, ClosingMode};
pub use list_changes::{ChangeReceiver, ListChange};
pub use list_state::{IncompleteReason, ListState};
pub use list_watcher::{OPEN_TIME, WALK_TIME};
pub use offered_features::OfferedFeatures;
pub use page::{CatalogPage, ListPageRequest};
pub use resource_updates::{ResourceSubscriber, ResourceSubscription, UpdateInbox, UpdateReader};
pub use session_lists::{SessionClient, SessionListTable, SessionLists, SessionSubscription};
pub use settings::{CatalogPorts, CatalogSettings};
pub use stale_list_signal::StaleListSignal;
pub use status::{ListStatus, UpstreamReach, UpstreamStatus};
pub use traced_tool::{ToolPlacement, TracedTool, trace_by_config};
pub use view::{IncompleteUpstream, KeptNames, NameCollision, NameLookup, View};
pub use view_watch::ViewWatch;
pub use weir_items::is_uri_of_other;

//! Upstreams whose child processes one replica runs for all (`instances: one`).
//!
//! The replica is found by a lease in the shared store, with an epoch for each holder. The holder
//! calls its children itself; the other replicas send it their calls, in their canonical form, over
//! the cluster listener. The calling replica has authorized and limited a call, and records it.
//!
//! A call runs at most once: the holder refuses a stream of another epoch before anything runs, and
//! a call whose replica was lost may have run.

mod call_form;
mod event_form;
mod failure_form;
mod forwarded_reply;
mod frame;
mod frame_stream;
mod lease_handover;
mod lease_view;
mod moving_watch;
mod owner_search;
mod owner_stream;
mod progress_relay;
mod remote_progress;
mod remote_record;
mod remote_watch;
mod serve_call;
mod serve_watch;
mod singleton_lease;
mod singleton_ports;
mod singleton_upstream;
mod singletons;
mod stream_form;
mod stream_head;
mod watch_form;

pub use singleton_ports::SingletonPorts;
pub use singletons::{PreparedSingleton, Singletons};

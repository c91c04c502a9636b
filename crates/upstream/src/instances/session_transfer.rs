//! Sessions that move to another process at a graceful restart, each to the instance that has it.

use std::task::Context;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use weir_core::upstream::{HandoverSession, TaskDescriptions};

use crate::instances::{ServerInstances, instance_name};

impl ServerInstances {
    /// Implements [`weir_core::upstream::Upstream::export_sessions`]. Each description begins with
    /// the name of its instance.
    pub(crate) fn export_sessions(&self) -> Vec<HandoverSession> {
        let of_instance = |instance: &super::ServerInstance| {
            let name = instance.name.add_to(Some(""));
            let sessions = instance.http.export_sessions().into_iter();
            sessions
                .map(|session| HandoverSession {
                    description: with_prefix(&name, &session.description),
                    ..session
                })
                .collect::<Vec<_>>()
        };
        self.all.iter().flat_map(|one| of_instance(one)).collect()
    }

    /// Implements [`weir_core::upstream::Upstream::tasks_after_export`].
    pub(crate) fn tasks_after_export(&self) -> TaskDescriptions {
        let of_instances = self.all.iter().map(|instance| {
            let name = instance.name.add_to(Some(""));
            let mut later = instance.context.task_holds.tasks_after_export();
            let described = move |cx: &mut Context<'_>| {
                let description = later.poll_recv(cx);
                description.map(|one| one.map(|one| with_prefix(&name, &one)))
            };
            stream::poll_fn(described)
        });
        Box::pin(stream::select_all(of_instances))
    }

    /// Implements [`weir_core::upstream::Upstream::import_session`]. A session of an instance that
    /// the config no longer has is left out.
    pub(crate) fn import_session(&self, description: &[u8]) {
        let Ok(text) = std::str::from_utf8(description) else {
            return;
        };
        // Without a name it is of a server with one URL, which is likely to be the first still.
        let (index, session) = match instance_name::split(text) {
            Some(named) => (self.position(named.name), named.text.unwrap_or_default()),
            None => (Some(0), text),
        };
        if let Some((index, instance)) = index.and_then(|at| Some((at, self.all.get(at)?)))
            && let Some(client) = instance.http.import_session(session.as_bytes())
        {
            self.affinity.get_or_bind(client, index);
        }
    }
}

fn with_prefix(name: &str, description: &Bytes) -> Bytes {
    let mut whole = BytesMut::with_capacity(name.len() + description.len());
    whole.put_slice(name.as_bytes());
    whole.put_slice(description);
    whole.freeze()
}

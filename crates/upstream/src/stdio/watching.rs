//! A watch on a child: it reads lists over the child's channel, and gets changes from it.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::port::Fut;
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::lower;
use weir_wire::Message;
use weir_wire::method::Method;

use super::pipe::{Purpose, Ticket};
use super::{Running, not_sent, talk};
use crate::list_news::ListNewsReader;
use crate::listing;
use crate::refusal::Refusal;
use crate::settle;
use crate::site::Site;

/// A watch on a stdio server.
pub(crate) struct StdioWatch {
    site: Arc<Site>,
    running: Arc<Running>,
    class: CapabilityClass,
    about: ServerDescription,
    changes: ListNewsReader,
    /// The subscription of a modern server. Dropping it ends it.
    listening: Option<Ticket>,
}

impl StdioWatch {
    pub(crate) async fn open(
        site: Arc<Site>,
        running: Arc<Running>,
        class: CapabilityClass,
    ) -> Result<Self, Refusal> {
        let mut about = running.greeted.about.clone();
        let changes = site.changes();
        let mut listening = None;
        if running.greeted.tongue.revision().is_modern() && !about.notifies_of.is_empty() {
            let listened =
                listen(&site, &running, class, listing::wanted(about.notifies_of)).await?;
            let honoured = listened
                .as_ref()
                .map(|(_, params)| listing::honoured(params))
                .unwrap_or_default();
            about.notifies_of = about.notifies_of.and(honoured);
            listening = listened
                .filter(|_| !honoured.is_empty())
                .map(|(ticket, _)| ticket);
        }
        Ok(Self {
            site,
            running,
            class,
            about,
            changes,
            listening,
        })
    }

    /// Reads the lists of a legacy child that also serves calls.
    pub(super) fn beside_calls(running: Arc<Running>) -> Self {
        let site = running.child.pipe.site.clone();
        let (class, about, changes) =
            (running.class, running.greeted.about.clone(), site.changes());
        Self {
            site,
            running,
            class,
            about,
            changes,
            listening: None,
        }
    }
}

/// Sends `subscriptions/listen` with this filter, and returns the `params` of its acknowledgment.
/// Absent if the server has no subscriptions.
pub(crate) async fn listen(
    site: &Site,
    running: &Running,
    class: CapabilityClass,
    wanted: Bytes,
) -> Result<Option<(Ticket, Bytes)>, Refusal> {
    let id = site.next_id();
    let members: &[(&str, &[u8])] = &[("notifications", &wanted)];
    let tongue = running.greeted.tongue;
    let body = tongue.request(
        id,
        Method::SubscriptionsListen,
        members,
        (class, &site.client_info),
    );
    settle::in_time(site, async {
        let mut ticket = running
            .child
            .pipe
            .request(id, body, Purpose::Errand)
            .await
            .map_err(not_sent)?;
        loop {
            match std::future::poll_fn(|cx| ticket.poll_message(cx)).await {
                Some(Message::Notification(told))
                    if told.method.known() == Some(Method::SubscriptionsAcknowledged) =>
                {
                    return Ok(Some((ticket, told.params.unwrap_or_default())));
                }
                Some(Message::Response(_)) => {
                    ticket.end();
                    return Ok(None);
                }
                Some(_) => {}
                None => return Err(talk::lost(site).into()),
            }
        }
    })
    .await
}

impl ListWatch for StdioWatch {
    fn about(&self) -> &ServerDescription {
        &self.about
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> Fut<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let text = cursor.as_deref().map(lower::json);
            let members: Vec<(&str, &[u8])> = text
                .iter()
                .map(|text: &Bytes| ("cursor", &text[..]))
                .collect();
            let outcome = talk::ask(
                &self.site,
                &self.running,
                self.class,
                kind.method(),
                &members,
            )
            .await;
            listing::page(
                &self.site,
                self.running.greeted.tongue,
                kind,
                outcome,
                (false, self.about.tasks),
            )
        })
    }

    fn next_change(&mut self) -> Fut<'_, Result<ListKinds, Failure>> {
        Box::pin(async move {
            let lost = || {
                self.site
                    .fail(FailureKind::Unavailable, "The upstream ended")
            };
            let over = self.running.child.pipe.closed();
            let ended = Ticket::ended(self.listening.as_mut());
            tokio::select! {
                biased;
                told = self.changes.changed() => told.map_err(|_| lost()),
                () = over.cancelled() => Err(lost()),
                () = ended => Err(self.site.fail(FailureKind::Unavailable, "The upstream ended the subscription")),
            }
        })
    }
}

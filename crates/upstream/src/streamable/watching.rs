//! Watches over HTTP: a legacy session of its own with a GET stream, or a modern
//! `subscriptions/listen`.
//!
//! A task reads the stream and only sets a mark: changes during a walk of the lists are kept, and
//! coalesce to one. The task is aborted when the watch is dropped, which closes its connection.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use weir_core::port::Fut;
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::{lower, upstream_messages};
use weir_wire::Message;
use weir_wire::method::Method;

use super::answer::{Answer, Part, limits};
use super::exchange::{self, Headed, unreadable};
use super::modern::Modern;
use super::reading::{self, Reading, Seen, Teller};
use super::session::{self, Session};
use crate::list_news::{ListNews, ListNewsReader};
use crate::listing;
use crate::refusal::Refusal;
use crate::site::Site;

/// A watch on a server over HTTP.
pub(crate) struct HttpWatch {
    site: Arc<Site>,
    line: Line,
    about: ServerDescription,
    seen: watch::Receiver<Seen>,
    /// Changes that came on the streams of calls.
    overheard: ListNewsReader,
    /// The part of `seen` that was read so far.
    read: ListNews,
    reader: Option<Reading>,
}

enum Line {
    Session(Arc<Session>),
    Modern(Modern, CapabilityClass),
}

impl HttpWatch {
    /// Watches in a session of its own. Without a GET stream the lists are polled.
    pub(crate) async fn legacy(site: Arc<Site>, session: Arc<Session>) -> Self {
        let mut about = session.about().clone();
        let (teller, seen) = Teller::new(None);
        let overheard = site.changes();
        let reader = reading::begin(&site, &session, teller, None).await;
        if reader.is_none() {
            about.notifies_of = ListKinds::default();
        }
        Self {
            site,
            line: Line::Session(session),
            about,
            seen,
            overheard,
            read: ListNews::default(),
            reader,
        }
    }

    /// Subscribes to changes, if the server declares that it sends them.
    ///
    /// # Errors
    /// The server cannot be reached, or breaks the protocol of the subscription.
    pub(crate) async fn modern(
        modern: Modern,
        mut about: ServerDescription,
        class: CapabilityClass,
    ) -> Result<Self, Refusal> {
        let site = modern.site.clone();
        let (teller, seen) = Teller::new(None);
        let overheard = site.changes();
        let mut reader = None;
        if !about.notifies_of.is_empty() {
            let listened = listen(&modern, class, listing::wanted(about.notifies_of)).await?;
            let honoured = listened
                .as_ref()
                .map(|(_, params)| listing::honoured(params))
                .unwrap_or_default();
            about.notifies_of = about.notifies_of.and(honoured);
            if let Some((stream, _)) = listened.filter(|_| !honoured.is_empty()) {
                reader = Some(Reading::new(site.background(reading::listen(
                    site.clone(),
                    stream,
                    teller,
                ))));
            }
        }
        Ok(Self {
            site,
            line: Line::Modern(modern, class),
            about,
            seen,
            overheard,
            read: ListNews::default(),
            reader,
        })
    }
}

impl ListWatch for HttpWatch {
    fn about(&self) -> &ServerDescription {
        &self.about
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> Fut<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let (modern, class) = match &self.line {
                Line::Session(session) => return session::list(session, kind, cursor).await,
                Line::Modern(modern, class) => (modern, *class),
            };
            let text = cursor.as_deref().map(lower::json);
            let members: Vec<(&str, &[u8])> =
                text.iter().map(|text| ("cursor", &text[..])).collect();
            let outcome = modern.ask(class, kind.method(), &members).await;
            listing::page(
                &self.site,
                modern.tongue,
                kind,
                outcome,
                (true, self.about.tasks),
            )
        })
    }

    fn next_change(&mut self) -> Fut<'_, Result<ListKinds, Failure>> {
        Box::pin(async move {
            loop {
                let reading = self.reader.is_some();
                if let Some(why) = self.seen.borrow().lost.clone() {
                    let text = "The upstream's change stream was lost";
                    return Err(self
                        .site
                        .fail(FailureKind::Unavailable, text)
                        .because(why.to_string()));
                }
                tokio::select! {
                    told = self.seen.changed(), if reading => {
                        if told.is_err() {
                            return Err(self.site.fail(FailureKind::Unavailable, "The upstream's change stream ended"));
                        }
                        let seen = self.seen.borrow_and_update();
                        if seen.lost.is_none() {
                            let news = seen.news;
                            return Ok(news.since(&std::mem::replace(&mut self.read, news)));
                        }
                    }
                    told = self.overheard.changed() => {
                        return told.map_err(|_| self.site.fail(FailureKind::Unavailable, "The upstream is gone"));
                    }
                }
            }
        })
    }
}

impl Drop for HttpWatch {
    fn drop(&mut self) {
        if let Line::Session(session) = &self.line {
            let session = session.clone();
            self.site.spawn(async move { session.close().await });
        }
    }
}

/// A subscription: its stream, and the request that opened it.
pub(crate) struct Subscription {
    pub(crate) stream: Answer,
    pub(crate) id: u64,
}

/// Opens `subscriptions/listen` with this filter. Returns the `params` of its first message, the
/// acknowledgment; absent if the server has no subscriptions.
pub(crate) async fn listen(
    modern: &Modern,
    class: CapabilityClass,
    wanted: Bytes,
) -> Result<Option<(Subscription, Bytes)>, Refusal> {
    let site = &modern.site;
    let id = site.next_id();
    let members: &[(&str, &[u8])] = &[("notifications", &wanted)];
    let body = modern.tongue.request(
        id,
        Method::SubscriptionsListen,
        members,
        (class, &site.client_info),
    );
    crate::settle::in_time(site, async {
        let headers = modern.headers(Method::SubscriptionsListen);
        let mut stream = match exchange::post(site, &modern.http, headers, body, id).await? {
            Headed::Answer(_, answer) => answer.endless(),
            Headed::Accepted => return Ok(None),
            // A server without subscriptions answers that it does not know the method; its lists
            // are polled.
            Headed::Refused(refused) if refused.error.is_some() => return Ok(None),
            Headed::Refused(refused) => return Err(refused.into_refusal(site)),
        };
        loop {
            match stream
                .part()
                .await
                .map_err(|error| Refusal::new(unreadable(site, error)))?
            {
                Some(Part::Message(bytes)) => match Message::parse(bytes, &limits()) {
                    Ok(Message::Notification(told))
                        if told.method == Method::SubscriptionsAcknowledged.into() =>
                    {
                        return Ok(Some((
                            Subscription { stream, id },
                            told.params.unwrap_or_default(),
                        )));
                    }
                    Ok(message @ Message::Response(_))
                        if upstream_messages::request_of(&message) == Some(id) =>
                    {
                        return Ok(None);
                    }
                    _ => site.dropped("before_acknowledgment"),
                },
                Some(_) => {}
                None => return Ok(None),
            }
        }
    })
    .await
}

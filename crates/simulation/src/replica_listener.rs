//! The listener of a replica: requests of clients are taken in the runtime of its host, and the
//! answers come back in parts, as over a connection that ends with the host.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use weir_core::port::SharedChanges;
use weir_front::InMemoryChannel;
use weir_redis_store::RedisStore;

use crate::links::HostName;
use crate::replica_world::ReplicaWorld;

/// The host of the clients.
const CLIENTS_HOST: HostName = "clients";
/// The longest wait of a start for the state of the other replicas, as the gateway has it.
const START_WAIT: Duration = Duration::from_secs(1);

/// A request on its way into a replica, with the way back.
pub(crate) struct ListenerRequest {
    pub(crate) request: http::Request<Bytes>,
    pub(crate) answer: mpsc::UnboundedSender<AnswerPart>,
}

/// A part of the answer to a request.
#[derive(Debug)]
pub(crate) enum AnswerPart {
    Head(http::response::Parts),
    Data(Bytes),
    /// The end of the body; true if it is whole.
    End(bool),
}

/// The listener of one replica.
pub(crate) struct ReplicaListener {
    pub(crate) channel: InMemoryChannel,
    pub(crate) store: Arc<RedisStore>,
    pub(crate) changes: Arc<dyn SharedChanges>,
    pub(crate) world: ReplicaWorld,
}

impl ReplicaListener {
    /// Serves the requests of clients, once the replica knows the state of the others or has waited
    /// for it.
    pub(crate) async fn serve(self, mut requests: mpsc::UnboundedReceiver<ListenerRequest>) {
        // A store that does not answer delays the start alone.
        let _late = timeout(START_WAIT, self.changes.fetch()).await;
        let _late = self.store.wait_for_view(START_WAIT).await;
        while let Some(request) = requests.recv().await {
            tokio::spawn(serve_request(
                request,
                self.channel.clone(),
                self.world.clone(),
            ));
        }
    }
}

async fn serve_request(
    ListenerRequest { request, answer }: ListenerRequest,
    channel: InMemoryChannel,
    world: ReplicaWorld,
) {
    let delay = || {
        world
            .network
            .links
            .delay(world.clock.now(), CLIENTS_HOST, world.host)
    };
    sleep(delay()).await;
    let Ok(response) = channel.send(request).await else {
        return;
    };
    let (head, mut body) = response.into_parts();
    sleep(delay()).await;
    // The client may have gone.
    let _gone = answer.send(AnswerPart::Head(head));
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            let _gone = answer.send(AnswerPart::End(false));
            return;
        };
        if let Ok(data) = frame.into_data() {
            let _gone = answer.send(AnswerPart::Data(data));
        }
    }
    let _gone = answer.send(AnswerPart::End(true));
}

//! The simulated server of the shared store: it speaks RESP2 on streams of the simulated network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use weir_core::instant::unix_millis;
use weir_core::port::Clock as _;

use crate::host::HostClock;
use crate::links::HostName;
use crate::network::Accepted;
use crate::redis_data::{RedisData, Reply, Text};
use crate::redis_scripts::{ScriptCall, find_script, has_name};
use crate::stream::SimStream;

/// The address of the server.
pub(crate) const REDIS_ADDRESS: &str = "redis:6379";

/// The refusal of commands by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is full: writes fail.
    Full,
    /// It loads its data: all commands fail.
    Loading,
}

/// The subscriptions of replicas that missed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subscriptions {
    /// Their connections are closed.
    End,
    /// They go on.
    GoOn,
}

/// The server. Its data outlive its host.
#[derive(Clone, Default)]
pub(crate) struct RedisServer(Arc<Mutex<ServerState>>);

#[derive(Default)]
struct ServerState {
    data: RedisData,
    refusal: Option<Refusal>,
    /// The number of starts: the name of the run follows from it.
    runs: u64,
    scripts: BTreeSet<String>,
    subscribers: Vec<(Text, mpsc::UnboundedSender<Published>)>,
    /// Messages are lost while it is set.
    loses_messages: bool,
    /// Ends of records leave no mark.
    forgets_ends: bool,
    /// The records that a replica has asked to end, by their names.
    ends_asked: BTreeMap<Text, AskedEnd>,
    /// The last time at which a replica claimed a record that was not there, in milliseconds.
    missed_claims: BTreeMap<(HostName, Text), u64>,
    /// The replicas that each record was taken over from.
    owners_before: BTreeMap<Text, BTreeSet<Text>>,
    /// The records that came back to a replica, once for each time.
    taken_back: usize,
}

/// The end of a record, with times in milliseconds.
struct AskedEnd {
    /// The first request for it.
    at: u64,
    /// The replica that made it.
    by: HostName,
    /// The first heartbeat of that replica afterwards: it announces the message about the end.
    announced: Option<u64>,
    /// The first time at which each replica could know of the end, though it got no message: of its
    /// first heartbeat after that one.
    noticed: BTreeMap<HostName, u64>,
}

/// An event of a subscription.
enum Published {
    Message(Reply),
    /// Messages were lost: the connection ends.
    Lost,
}

/// The history of the data. The simulated server has no failovers.
const REPLICATION_ID: &str = "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0";

impl RedisServer {
    /// Begins another run: clients, scripts and subscriptions of the last one are forgotten.
    pub(crate) fn begin_run(&self) {
        let mut state = self.0.lock();
        state.runs += 1;
        state.scripts.clear();
        state.subscribers.clear();
        state.refusal = None;
    }

    /// Refuses commands from now on.
    pub(crate) fn refuse(&self, refusal: Option<Refusal>) {
        self.0.lock().refusal = refusal;
    }

    /// Loses the messages that are published from now on.
    pub(crate) fn lose_messages(&self) {
        self.0.lock().loses_messages = true;
    }

    /// Delivers messages again. Connections that lost some are closed, if their subscriptions end:
    /// the server does that with a subscriber that is too slow.
    pub(crate) fn deliver_messages(&self, after: Subscriptions) {
        let mut state = self.0.lock();
        state.loses_messages = false;
        if after == Subscriptions::GoOn {
            return;
        }
        for (_, sender) in state.subscribers.drain(..) {
            // The subscriber may have gone.
            let _gone = sender.send(Published::Lost);
        }
    }

    /// Leaves no mark of ended records from now on.
    pub(crate) fn forget_ends(&self) {
        self.0.lock().forgets_ends = true;
    }

    /// True if there is a record whose name has this text, and no mark of its end.
    pub(crate) fn has_record(&self, part: &str) -> bool {
        let state = self.0.lock();
        let found = state.data.names().find(|name| {
            let text = String::from_utf8_lossy(name);
            text.contains(":s:") && text.contains(part)
        });
        found.is_some_and(|name| state.data.field(name, b"v").is_some())
    }

    /// True if a replica has claimed a record whose name has this text since then, and the record
    /// was not there: a write on its way may follow.
    pub(crate) fn has_missed_claim(
        &self,
        part: &str,
        replica: HostName,
        since: SystemTime,
    ) -> bool {
        let since = unix_millis(since);
        let state = self.0.lock();
        let mut claims = state.missed_claims.iter();
        claims.any(|((host, name), at)| {
            *host == replica && *at >= since && String::from_utf8_lossy(name).contains(part)
        })
    }

    /// The times that a replica claimed a record that it had before, from another replica.
    pub(crate) fn count_taken_back(&self) -> usize {
        self.0.lock().taken_back
    }

    /// The time since a replica asked to end a record whose name has this text, and since `replica`
    /// could know of it without a message.
    pub(crate) fn times_since_end(&self, part: &str, replica: HostName) -> Option<[Duration; 2]> {
        let state = self.0.lock();
        let (_, end) = state
            .ends_asked
            .iter()
            .find(|(name, _)| String::from_utf8_lossy(name).contains(part))?;
        let noticed = *end.noticed.get(replica)?;
        let since = |time: u64| Duration::from_millis(state.data.now.saturating_sub(time));
        Some([since(end.at), since(noticed)])
    }

    /// The process of a replica ended: its messages are announced no more, and the next process has
    /// no copies of ended records.
    pub(crate) fn forget_process(&self, replica: HostName) {
        let mut state = self.0.lock();
        let now = state.data.now;
        for end in state.ends_asked.values_mut() {
            end.noticed.insert(replica, now);
        }
        state
            .ends_asked
            .retain(|_, end| end.by != replica || end.announced.is_some());
    }

    /// Serves the streams of an address, until the host ends.
    pub(crate) async fn serve(
        self,
        mut accepted: mpsc::UnboundedReceiver<Accepted>,
        clock: HostClock,
    ) {
        while let Some((stream, host)) = accepted.recv().await {
            let (server, clock) = (self.clone(), clock.clone());
            tokio::spawn(async move {
                let stream = stream.accepted_at(clock.clone());
                server.serve_stream(stream, host, clock).await;
            });
        }
    }

    async fn serve_stream(self, mut stream: SimStream, host: HostName, clock: HostClock) {
        let (messages, mut published) = mpsc::unbounded_channel();
        let (mut read, mut out) = (BytesMut::new(), Vec::new());
        loop {
            while let Some(command) = take_command(&mut read) {
                for reply in self.answer(&command, host, &clock, &messages) {
                    reply.encode(&mut out);
                }
            }
            if !out.is_empty() && stream.write_all(&std::mem::take(&mut out)).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                had = stream.read_buf(&mut read) => if !matches!(had, Ok(1..)) { return },
                message = published.recv() => match message {
                    Some(Published::Message(message)) => message.encode(&mut out),
                    Some(Published::Lost) | None => return,
                },
            }
        }
    }

    fn answer(
        &self,
        command: &[Text],
        host: HostName,
        clock: &HostClock,
        messages: &mpsc::UnboundedSender<Published>,
    ) -> Vec<Reply> {
        let mut state = self.0.lock();
        state.data.set_time(unix_millis(clock.wall()));
        let name = command
            .first()
            .map(|name| name.to_ascii_uppercase())
            .unwrap_or_default();
        let args = command.get(1..).unwrap_or_default();
        if name == b"SUBSCRIBE" {
            let subscribe = |channel: &Text| {
                state.subscribers.push((channel.clone(), messages.clone()));
                let channel = Reply::Bulk(channel.clone());
                Reply::Many(vec![Reply::text("subscribe"), channel, Reply::Number(1)])
            };
            return args.iter().map(subscribe).collect();
        }
        vec![state.run(&name, args, host)]
    }
}

impl ServerState {
    fn run(&mut self, name: &[u8], args: &[Text], host: HostName) -> Reply {
        match (self.refusal, name) {
            (Some(Refusal::Loading), _) => {
                return Reply::Error("LOADING Redis is loading the dataset in memory");
            }
            (Some(Refusal::Full), b"EVALSHA" | b"SET" | b"HSET") => {
                return Reply::Error("OOM command not allowed when used memory > 'maxmemory'.");
            }
            (Some(Refusal::Full) | None, _) => {}
        }
        let arg = |index: usize| args.get(index).map_or(&[][..], Vec::as_slice);
        match name {
            b"INFO" => Reply::text(self.info()),
            b"PING" => Reply::Many(vec![Reply::text("pong"), Reply::text("")]),
            b"SCRIPT" => self.load_script(arg(1)),
            b"EVALSHA" => self.run_script(args, host),
            b"PUBLISH" => {
                self.publish(arg(0), arg(1));
                Reply::Number(1)
            }
            b"GET" => Reply::of(self.data.get(arg(0))),
            b"SET" => {
                let life = (arg(2) == b"PX" || arg(2) == b"EX").then(|| parse(arg(3)));
                let life = life.map(|life| if arg(2) == b"EX" { life * 1000 } else { life });
                self.data.set(arg(0), arg(1).to_vec(), life);
                Reply::Ok
            }
            b"DEL" => Reply::Number(i64::from(self.data.remove(arg(0)))),
            b"HGET" => Reply::of(self.data.field(arg(0), arg(1))),
            b"HMGET" => {
                let fields = args.iter().skip(1);
                Reply::Many(
                    fields
                        .map(|field| Reply::of(self.data.field(arg(0), field)))
                        .collect(),
                )
            }
            b"HGETALL" => {
                let all = self.data.hash(arg(0)).into_iter().flatten();
                let pairs = all.flat_map(|(field, value)| [field, value]);
                Reply::Many(pairs.map(|text| Reply::Bulk(text.clone())).collect())
            }
            b"ZRANGEBYSCORE" => self.range_by_score(args),
            other => panic!(
                "the simulated server lacks {}",
                String::from_utf8_lossy(other)
            ),
        }
    }

    fn info(&self) -> String {
        format!(
            "redis_version:7.0.0\r\nrun_id:{:040x}\r\nrole:master\r\nloading:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\nmaster_replid:{REPLICATION_ID}\r\n",
            self.runs
        )
    }

    fn note_heartbeat(&mut self, host: HostName) {
        let now = self.data.now;
        for end in self.ends_asked.values_mut() {
            if end.by == host {
                end.announced.get_or_insert(now);
            } else if end.announced.is_some() {
                end.noticed.entry(host).or_insert(now);
            }
        }
    }

    fn load_script(&mut self, text: &[u8]) -> Reply {
        let digest = sha1_smol::Sha1::from(text).digest().to_string();
        assert!(
            find_script(&digest).is_some(),
            "a script of the shared store has changed: change redis_scripts.rs with it, and its digest to {digest}:\n{}",
            String::from_utf8_lossy(text)
        );
        self.scripts.insert(digest.clone());
        Reply::text(digest)
    }

    fn run_script(&mut self, args: &[Text], host: HostName) -> Reply {
        let digest = String::from_utf8_lossy(&args[0]).into_owned();
        let Some(script) = find_script(&digest).filter(|_| self.scripts.contains(&digest)) else {
            return Reply::Error("NOSCRIPT No matching script.");
        };
        if has_name(&digest, "HEARTBEAT") {
            self.note_heartbeat(host);
        }
        if has_name(&digest, "END")
            && let Some(name) = args.get(2)
        {
            let now = self.data.now;
            self.ends_asked
                .entry(name.clone())
                .or_insert_with(|| AskedEnd {
                    at: now,
                    by: host,
                    announced: None,
                    noticed: [(host, now)].into(),
                });
        }
        if self.forgets_ends && has_name(&digest, "END") {
            return Reply::Number(1);
        }
        let keys = usize::try_from(parse(&args[1])).unwrap_or(0);
        let (keys, args) = args[2..].split_at(keys);
        let mut published = Vec::new();
        let reply = script(&mut ScriptCall {
            data: &mut self.data,
            keys,
            args,
            replication_id: REPLICATION_ID,
            published: &mut published,
        });
        for (channel, message) in published {
            self.publish(&channel, &message);
        }
        if has_name(&digest, "CLAIM") {
            self.note_claim(host, &keys[0], &args[0], &reply);
        }
        reply
    }

    fn note_claim(&mut self, host: HostName, record: &Text, replica: &Text, reply: &Reply) {
        let Reply::Many(parts) = reply else { return };
        if parts[..] == [Reply::text("missing")] {
            let claim = (host, record.clone());
            self.missed_claims.insert(claim, self.data.now);
        }
        if let [_, _, _, Reply::Bulk(owner)] = &parts[..]
            && owner != replica
        {
            let before = self.owners_before.entry(record.clone()).or_default();
            self.taken_back += usize::from(before.contains(replica));
            before.insert(owner.clone());
        }
    }

    fn publish(&mut self, channel: &[u8], message: &[u8]) {
        if self.loses_messages {
            return;
        }
        let text = |text: &[u8]| Reply::Bulk(text.to_vec());
        let reply = Reply::Many(vec![text(b"message"), text(channel), text(message)]);
        self.subscribers.retain(|(subscribed, sender)| {
            let message = || Published::Message(reply.clone());
            subscribed != channel || sender.send(message()).is_ok()
        });
    }

    fn range_by_score(&self, args: &[Text]) -> Reply {
        let from: f64 = String::from_utf8_lossy(&args[1])
            .parse()
            .unwrap_or(f64::NEG_INFINITY);
        let limit = args
            .iter()
            .position(|arg| arg == b"LIMIT")
            .map(|at| &args[at + 1..]);
        let (skip, most) = match limit {
            Some([skip, most, ..]) => (parse(skip), parse(most)),
            Some(_) | None => (0, u64::MAX),
        };
        let all = self.data.members(&args[0]);
        let found = all.into_iter().filter(|(_, score)| *score >= from);
        let found = found
            .skip(usize::try_from(skip).unwrap_or(0))
            .take(usize::try_from(most).unwrap_or(usize::MAX));
        let rows = found
            .flat_map(|(member, score)| [Reply::Bulk(member), Reply::text(format!("{score:.0}"))]);
        Reply::Many(rows.collect())
    }
}

fn parse(text: &[u8]) -> u64 {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Takes a whole command out of the bytes that were read.
fn take_command(read: &mut BytesMut) -> Option<Vec<Text>> {
    let mut rest = &read[..];
    let parts = take_number(&mut rest, b'*')?;
    let mut command = Vec::with_capacity(parts);
    for _ in 0..parts {
        let length = take_number(&mut rest, b'$')?;
        let part = rest.get(..length)?;
        command.push(part.to_vec());
        rest = rest.get(length + 2..)?;
    }
    let taken = read.len() - rest.len();
    read.advance(taken);
    Some(command)
}

fn take_number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest.first(), Some(&kind), "no command of RESP");
    let number = usize::try_from(parse(&rest[1..end])).ok()?;
    *rest = &rest[end + 2..];
    Some(number)
}

//! A run: hosts, clients and faults of one seed, in simulated time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::client::{Client, ClientWorld, OpenListeners};
use crate::faults::{FAULT_TIME, Fault, REDIS_HOST, REPLICAS, plan_faults};
use crate::host::Host;
use crate::network::Network;
use crate::options::{PlantedFault, SimulationOptions};
use crate::redis_server::{REDIS_ADDRESS, RedisServer};
use crate::replica::Replica;
use crate::replica_world::ReplicaWorld;
use crate::seeded::Seeded;
use crate::tool_server::ToolServer;
use crate::trace::Trace;

/// The clients of a run.
const CLIENTS: usize = 6;
/// The time that all hosts run before the next one's turn.
const TICK: Duration = Duration::from_millis(4);
/// The time without faults before the last checks, and the time for them.
const QUIET_TIME: Duration = Duration::from_secs(15);
const CHECK_TIME: Duration = Duration::from_secs(12);

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct SimulationOutcome {
    /// All events, in order, with their times in seconds.
    pub trace: Vec<String>,
    /// The violations of invariants.
    pub violations: Vec<String>,
    /// The calls that a tool executed.
    pub executed: usize,
    /// The times that a replica took back a session that another one had taken over.
    pub taken_back: usize,
}

struct ReplicaHost {
    host: Option<Host>,
    replica: Option<Replica>,
    /// The time at which it is started again.
    starts: Option<Duration>,
}

struct World {
    options: SimulationOptions,
    now: Duration,
    network: Network,
    trace: Trace,
    redis: RedisServer,
    redis_host: Option<Host>,
    redis_starts: Option<Duration>,
    replicas: Vec<ReplicaHost>,
    clients: Host,
    client_world: ClientWorld,
    tools: ToolServer,
    order: Seeded,
    starts: u64,
    /// Ends of faults, by time.
    ends: Vec<(Duration, Fault)>,
}

/// Runs a seed.
#[must_use]
pub fn simulate(options: SimulationOptions) -> SimulationOutcome {
    let mut world = World::new(options);
    world.run();
    SimulationOutcome {
        trace: world.trace.events(),
        violations: world.trace.violations(),
        executed: world.tools.all_executions().len(),
        taken_back: world.redis.count_taken_back(),
    }
}

impl World {
    fn new(options: SimulationOptions) -> Self {
        let seed = options.seed;
        let (trace, now) = (Trace::default(), Duration::ZERO);
        let network = Network::new(seed, options.traces_streams.then(|| trace.clone()));
        let tools = ToolServer::new(Seeded::new(seed, 2), trace.clone());
        let redis = RedisServer::default();
        if options.planted == Some(PlantedFault::NoTombstones) {
            redis.forget_ends();
        }
        let clients = Host::begin(now);
        let client_world = ClientWorld {
            listeners: OpenListeners::default(),
            clock: clients.clock(),
            random: Seeded::new(seed, 3),
            trace: trace.clone(),
            redis: redis.clone(),
            tools: tools.clone(),
            is_over: Arc::new(AtomicBool::new(false)),
            did_not_run: Arc::new(Mutex::new(BTreeSet::new())),
        };
        let replicas = REPLICAS.map(|_| ReplicaHost {
            host: None,
            replica: None,
            starts: Some(now),
        });
        Self {
            options,
            now,
            network,
            trace,
            redis,
            redis_host: None,
            redis_starts: Some(now),
            replicas: replicas.into(),
            clients,
            client_world,
            tools,
            order: Seeded::new(seed, 4),
            starts: 0,
            ends: Vec::new(),
        }
    }

    fn run(&mut self) {
        let random = Seeded::new(self.options.seed, 5);
        let plan = plan_faults(&random, self.options.scenario);
        let mut plan = plan.into_iter().peekable();
        for number in 0..CLIENTS {
            let client = Client::new(self.client_world.clone(), number);
            self.clients.spawn(client.run());
        }
        while self.now < FAULT_TIME {
            while let Some((_, fault, lasts)) = plan.next_if(|(begins, ..)| *begins <= self.now) {
                self.begin(fault, lasts);
            }
            self.step();
        }
        self.end_all_faults();
        self.run_until(FAULT_TIME + QUIET_TIME);
        self.client_world.is_over.store(true, Ordering::Relaxed);
        self.note("last checks");
        self.run_until(FAULT_TIME + QUIET_TIME + CHECK_TIME);
        self.check();
    }

    fn run_until(&mut self, end: Duration) {
        while self.now < end {
            self.step();
        }
    }

    fn step(&mut self) {
        self.end_faults();
        self.start_hosts();
        let until = self.now + TICK;
        let mut turns: Vec<usize> = (0..REPLICAS.len() + 2).collect();
        self.order.shuffle(&mut turns);
        for turn in turns {
            match turn.checked_sub(2) {
                Some(replica) => {
                    if let Some(host) = &mut self.replicas[replica].host {
                        host.run(until);
                    }
                }
                None if turn == 0 => self.clients.run(until),
                None => {
                    if let Some(host) = &mut self.redis_host {
                        host.run(until);
                    }
                }
            }
        }
        self.now = until;
    }

    fn start_hosts(&mut self) {
        if self.redis_starts.is_some_and(|starts| starts <= self.now) {
            self.redis_starts = None;
            self.redis.begin_run();
            let host = Host::begin(self.now);
            let accepted = self.network.listen(REDIS_ADDRESS, REDIS_HOST);
            host.spawn(self.redis.clone().serve(accepted, host.clock()));
            self.redis_host = Some(host);
            self.note("the store starts");
        }
        for number in 0..REPLICAS.len() {
            if self.replicas[number]
                .starts
                .is_some_and(|starts| starts <= self.now)
            {
                self.start_replica(number);
            }
        }
    }

    fn start_replica(&mut self, number: usize) {
        self.starts += 1;
        let host = Host::begin(self.now);
        let world = ReplicaWorld {
            network: self.network.clone(),
            host: REPLICAS[number],
            clock: host.clock(),
            random: Seeded::new(self.options.seed, 100 + self.starts),
            tools: self.tools.clone(),
            planted: self.options.planted,
        };
        let replica = host.enter(|| Replica::start(&world));
        let (listener, requests) = mpsc::unbounded_channel();
        host.spawn(replica.listener(world).serve(requests));
        self.client_world.listeners.open(number, listener);
        self.replicas[number] = ReplicaHost {
            host: Some(host),
            replica: Some(replica),
            starts: None,
        };
        self.note(&format!("r{number} starts"));
    }

    fn begin(&mut self, fault: Fault, lasts: Duration) {
        self.note(&format!("{fault:?} for {lasts:?}"));
        let until = self.now + lasts;
        match &fault {
            Fault::Crash(number) => self.crash(*number, until),
            Fault::Freeze(number) => {
                if let Some(host) = &mut self.replicas[*number].host {
                    host.freeze(until);
                }
            }
            Fault::StoreCrash => {
                self.redis_host = None;
                self.redis_starts = Some(until);
            }
            Fault::StoreFreeze => {
                if let Some(host) = &mut self.redis_host {
                    host.freeze(until);
                }
            }
            Fault::StoreRefusal(refusal) => self.redis.refuse(Some(*refusal)),
            Fault::LostMessages(_) => self.redis.lose_messages(),
            Fault::Cut(one, other) => self.network.links.cut(one, other),
            Fault::Reset(one, other) => self.network.reset(one, other),
            Fault::Slow(millis) => self.network.links.set_delay(*millis),
            Fault::ListChange => {
                self.tools.change_list();
            }
        }
        self.ends.push((until, fault));
    }

    fn crash(&mut self, number: usize, until: Duration) {
        self.client_world.listeners.close(number);
        self.redis.forget_process(REPLICAS[number]);
        // The memory goes with the tasks.
        let lost = std::mem::replace(
            &mut self.replicas[number],
            ReplicaHost {
                host: None,
                replica: None,
                starts: Some(until),
            },
        );
        drop(lost.host);
        drop(lost.replica);
    }

    fn end_faults(&mut self) {
        let over: Vec<_> = self
            .ends
            .extract_if(.., |(until, _)| *until <= self.now)
            .collect();
        for (_, fault) in over {
            self.end(&fault);
        }
    }

    fn end_all_faults(&mut self) {
        self.note("all faults end");
        for (_, fault) in std::mem::take(&mut self.ends) {
            self.end(&fault);
        }
    }

    fn end(&mut self, fault: &Fault) {
        let is_repeated = self.ends.iter().any(|(_, other)| other == fault);
        if is_repeated {
            return;
        }
        match fault {
            Fault::StoreRefusal(_) => self.redis.refuse(None),
            Fault::LostMessages(after) => self.redis.deliver_messages(*after),
            Fault::Cut(one, other) => self.network.links.heal(one, other),
            Fault::Slow(_) => self.network.links.set_delay(2),
            Fault::Crash(_)
            | Fault::Freeze(_)
            | Fault::StoreCrash
            | Fault::StoreFreeze
            | Fault::Reset(..)
            | Fault::ListChange => {}
        }
    }

    fn check(&self) {
        for (call, principals) in self.tools.all_executions() {
            if principals.len() > 1 {
                self.violate(&format!("{call} ran {} times", principals.len()));
            }
        }
        let refused = self.client_world.did_not_run.lock();
        for call in refused
            .iter()
            .filter(|call| !self.tools.executions(call).is_empty())
        {
            self.violate(&format!("{call} ran, and its answer says that it did not"));
        }
        for (number, replica) in self.replicas.iter().enumerate() {
            let is_connected = replica
                .replica
                .as_ref()
                .is_some_and(|replica| replica.store.status().is_connected);
            if !is_connected {
                self.violate(&format!(
                    "r{number} is not connected to the store after all faults"
                ));
            }
        }
    }

    fn note(&self, event: &str) {
        self.trace.note(self.now, event);
    }

    fn violate(&self, violation: &str) {
        self.trace.violate(self.now, violation);
    }
}

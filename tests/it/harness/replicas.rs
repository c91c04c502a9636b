//! Several weirs that share a Redis, behind a load balancer.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_replica_testkit::{RedisServer, RoundRobinProxy};

use super::{Weir, wait_until_async};

/// The variable with the number of replicas that [`WeirDeployment`] starts.
const REPLICAS_VARIABLE: &str = "WEIR_TEST_REPLICAS";

/// The time limit of requests to the store, unless the config has another one. With the default of
/// 50 ms a replica decides by itself, as in an outage, whenever this machine stands still longer.
const STORE_TIMEOUT: &str = "1s";

/// The 32 bytes of the sealing keys 1, 2 and 3.
const KEYS: [&str; 3] = [
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8",
    "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8",
];

/// Replicas of weir, their Redis, and the balancer in front of them. The balancer has no health
/// checks: a replica that ended refuses its connections, and the next one gets the request.
pub struct Replicas {
    /// In the order of their start. Those that ended stay, for their output.
    replicas: Vec<Replica>,
    /// Of the first one.
    config: Value,
    /// The build that replicas run from now on, if it is not the usual one.
    program: Option<PathBuf>,
    redis: Option<RedisServer>,
    proxy: RoundRobinProxy,
}

struct Replica {
    weir: Weir,
    is_running: bool,
}

impl Replicas {
    /// Starts so many replicas with this config, and waits until they know of each other. `store`,
    /// `cluster` and `keys` are added; further keys of `store` and `cluster` may be there.
    pub async fn start(count: usize, config: Value) -> Self {
        Self::with_redis(count, config, RedisServer::start()).await
    }

    /// Starts replicas with this Redis.
    pub async fn with_redis(count: usize, config: Value, redis: RedisServer) -> Self {
        Self::with_configs(vec![config; count], redis).await
    }

    /// Starts so many replicas with another build of weir.
    pub async fn with_program(count: usize, config: Value, program: &Path) -> Self {
        let redis = RedisServer::start();
        Self::start_with_redis(vec![config; count], redis, Some(program)).await
    }

    /// Starts a replica with each of these configs, and with this Redis. Later ones have the first.
    pub async fn with_configs(configs: Vec<Value>, redis: RedisServer) -> Self {
        Self::start_with_redis(configs, redis, None).await
    }

    async fn start_with_redis(
        mut configs: Vec<Value>,
        redis: RedisServer,
        program: Option<&Path>,
    ) -> Self {
        for config in &mut configs {
            if config["store"]["url"].is_null() {
                config["store"]["url"] = json!(redis.url());
            }
        }
        let mut replicas = Self::start_all(configs, program).await;
        replicas.redis = Some(redis);
        replicas
    }

    /// Starts replicas with the `store` of the config, whose servers the caller keeps.
    pub async fn with_store(count: usize, config: Value) -> Self {
        Self::with_stores(vec![config; count]).await
    }

    /// Starts a replica with each of these configs, and the `store` of each. Later ones have the
    /// first.
    pub async fn with_stores(configs: Vec<Value>) -> Self {
        Self::start_all(configs, None).await
    }

    async fn start_all(mut configs: Vec<Value>, program: Option<&Path>) -> Self {
        for config in &mut configs {
            if config["cluster"]["listen"].is_null() {
                config["cluster"]["listen"] = json!("127.0.0.1:0");
            }
            if config["store"]["timeout"].is_null() {
                config["store"]["timeout"] = json!(STORE_TIMEOUT);
            }
            config["keys"] = sealing_keys(&[1]);
        }
        let config = configs[0].clone();
        let started = std::thread::scope(|scope| {
            let starts: Vec<_> = configs
                .into_iter()
                .map(|config| scope.spawn(move || start_weir(program, config)))
                .collect();
            let weirs = starts.into_iter().map(|start| start.join().unwrap());
            weirs.map(Replica::new).collect::<Vec<_>>()
        });
        let proxy = RoundRobinProxy::start(started.iter().map(Replica::address)).await;
        let replicas = Self {
            replicas: started,
            config,
            program: program.map(Path::to_owned),
            redis: None,
            proxy,
        };
        replicas.wait_until_known().await;
        replicas
    }

    /// Returns the URL of an endpoint at the balancer.
    pub fn url(&self, path: &str) -> String {
        self.proxy.url(path)
    }

    /// Returns a replica by its number.
    pub fn replica(&self, number: usize) -> &Weir {
        &self.replicas[number].weir
    }

    /// Returns the replicas that run.
    pub fn running(&self) -> impl Iterator<Item = &Weir> {
        let running = self.replicas.iter().filter(|replica| replica.is_running);
        running.map(|replica| &replica.weir)
    }

    /// Returns the numbers of the replicas that run.
    pub fn running_numbers(&self) -> Vec<usize> {
        let all = self.replicas.iter().enumerate();
        let running = all.filter(|(_, replica)| replica.is_running);
        running.map(|(number, _)| number).collect()
    }

    /// Returns the output of each replica so far, also of those that have ended.
    pub fn outputs(&self) -> impl Iterator<Item = String> {
        self.replicas
            .iter()
            .map(|replica| replica.weir.process.output())
    }

    /// Returns the Redis that they share.
    pub fn redis(&self) -> &RedisServer {
        self.redis
            .as_ref()
            .expect("the replicas have a Redis of their own")
    }

    /// Returns the Redis that they share, to kill or restart it.
    pub fn redis_mut(&mut self) -> &mut RedisServer {
        self.redis
            .as_mut()
            .expect("the replicas have a Redis of their own")
    }

    /// Counts the requests that the balancer sent to a replica.
    pub fn requests_to(&self, number: usize) -> usize {
        self.proxy.requests_to(self.replica(number).address())
    }

    /// Returns the sum of a metric over the replicas that run.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.running().map(|weir| weir.metric(name, labels)).sum()
    }

    /// Ends a replica at once.
    pub async fn kill(&mut self, number: usize) {
        self.end(number, "KILL").await;
    }

    /// Ends a replica gracefully; returns its exit code.
    pub async fn stop(&mut self, number: usize) -> Option<i32> {
        self.end(number, "TERM").await
    }

    async fn end(&mut self, number: usize, signal: &str) -> Option<i32> {
        let replica = &mut self.replicas[number];
        replica.is_running = false;
        let process = &mut replica.weir.process;
        process.signal(signal);
        wait_until_async("the end of a replica", async || {
            process.has_exited().then_some(())
        })
        .await;
        process.wait_for_exit()
    }

    /// Starts one more replica and returns its number. The balancer sends requests to it from now
    /// on; the others may not know of it yet.
    pub fn start_another(&mut self) -> usize {
        self.start_with(self.config.clone())
    }

    /// Starts a replica with the config of one that ended, as [`Self::start_another`] does.
    pub fn start_again(&mut self, number: usize) -> usize {
        self.start_with(self.replica(number).config())
    }

    fn start_with(&mut self, config: Value) -> usize {
        let weir = start_weir(self.program.as_deref(), config);
        self.replicas.push(Replica::new(weir));
        let running = self.replicas.iter().filter(|replica| replica.is_running);
        self.proxy.set_backends(running.map(Replica::address));
        self.replicas.len() - 1
    }

    /// Starts further replicas with another build of weir, or with the usual one.
    pub fn use_program(&mut self, program: Option<&Path>) {
        self.program = program.map(Path::to_owned);
    }

    /// Starts one more replica with these sealing keys, newest first, and returns its number. The
    /// balancer sends it no request: it may not be ready.
    pub fn start_unready_with_keys(&mut self, ids: &[usize]) -> usize {
        let mut config = self.config.clone();
        config["keys"] = sealing_keys(ids);
        let weir = Weir::start_unready(config);
        self.replicas.push(Replica::new(weir));
        self.replicas.len() - 1
    }

    /// Writes these sealing keys, newest first, into the config file of one replica.
    pub fn write_keys(&self, number: usize, ids: &[usize]) {
        let mut config = self.config.clone();
        config["keys"] = sealing_keys(ids);
        self.replica(number).rewrite_config(config);
    }

    /// Replaces the sealing keys of the replicas that run, and of those that start later, by these,
    /// newest first.
    pub fn set_keys(&mut self, ids: &[usize]) {
        self.config["keys"] = sealing_keys(ids);
        for weir in self.running() {
            let mut config = weir.config();
            config["keys"] = sealing_keys(ids);
            weir.rewrite_config(config);
            weir.process.signal("HUP");
        }
    }

    /// Sends new requests to all replicas but this one, as a balancer that watches `/readyz` does.
    pub fn take_out_of_balancer(&self, number: usize) {
        let others = self.replicas.iter().enumerate();
        let others = others.filter(|(other, one)| *other != number && one.is_running);
        self.proxy
            .set_backends(others.map(|(_, replica)| replica.address()));
    }

    /// Waits until each replica that runs reports that it cannot use the store.
    pub async fn wait_until_store_is_missed(&self) {
        wait_until_async("replicas without the store", async || {
            self.running()
                .all(|weir| weir.metric("weir_store_up", &[]) < 0.5)
                .then_some(())
        })
        .await;
    }

    /// Waits until every replica uses the store again and has written all that waited.
    pub async fn wait_until_store_is_used(&self) {
        wait_until_async("a store in use", async || {
            self.running()
                .all(|weir| {
                    weir.metric("weir_store_up", &[]) > 0.5
                        && weir.metric("weir_store_pending", &[]) < 0.5
                })
                .then_some(())
        })
        .await;
    }

    /// Waits until each replica that runs knows of all that run.
    pub async fn wait_until_known(&self) {
        let count = self.running().count() as f64;
        wait_until_async("replicas that know of each other", async || {
            self.running()
                .all(|weir| (weir.metric("weir_replicas", &[]) - count).abs() < 0.5)
                .then_some(())
        })
        .await;
    }
}

/// Returns the `keys` of a config by their ids, newest first.
pub fn sealing_keys(ids: &[usize]) -> Value {
    let key = |id: &usize| json!({ "id": id, "secret": KEYS[id - 1] });
    ids.iter().map(key).collect()
}

fn start_weir(program: Option<&Path>, config: Value) -> Weir {
    match program {
        Some(program) => Weir::start_program(program, config),
        None => Weir::with_config(config),
    }
}

impl Replica {
    fn new(weir: Weir) -> Self {
        Self {
            weir,
            is_running: true,
        }
    }

    fn address(&self) -> std::net::SocketAddr {
        self.weir.address()
    }
}

/// The weir of a scenario that looks at no process: a single one or, with `WEIR_TEST_REPLICAS=3`
/// in the environment, so many replicas behind a balancer. There each request of a client goes to
/// another replica than the one before.
pub enum WeirDeployment {
    Single(Box<Weir>),
    Replicated(Box<Replicas>),
}

impl WeirDeployment {
    /// Starts weir with this config.
    pub async fn start(config: Value) -> Self {
        let count = std::env::var(REPLICAS_VARIABLE)
            .ok()
            .and_then(|count| count.parse().ok())
            .unwrap_or(1);
        if count < 2 {
            return Self::Single(Box::new(Weir::with_config(config)));
        }
        Self::Replicated(Box::new(Replicas::start(count, config).await))
    }

    /// Returns the URL of an endpoint for clients.
    pub fn url(&self, path: &str) -> String {
        match self {
            Self::Single(weir) => weir.url(path),
            Self::Replicated(replicas) => replicas.url(path),
        }
    }

    /// Returns the URLs of an endpoint at each process.
    pub fn urls_of_each(&self, path: &str) -> Vec<String> {
        match self {
            Self::Single(weir) => vec![weir.url(path)],
            Self::Replicated(replicas) => replicas.running().map(|weir| weir.url(path)).collect(),
        }
    }

    /// Ends every process gracefully. Returns the exit codes once all have ended.
    pub fn stop(&mut self) -> impl Future<Output = Vec<Option<i32>>> {
        let processes: Vec<_> = match self {
            Self::Single(weir) => vec![&mut weir.process],
            Self::Replicated(replicas) => replicas
                .replicas
                .iter_mut()
                .filter(|replica| replica.is_running)
                .map(|replica| &mut replica.weir.process)
                .collect(),
        };
        for process in &processes {
            process.signal("TERM");
        }
        async {
            let mut codes = Vec::new();
            for process in processes {
                wait_until_async("the end of weir", async || {
                    process.has_exited().then_some(())
                })
                .await;
                codes.push(process.wait_for_exit());
            }
            codes
        }
    }

    /// Counts the processes.
    pub fn processes(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Replicated(replicas) => replicas.running().count(),
        }
    }
}

//! Checks of the server of a config.

use std::time::Duration;

use weir_replica_testkit::RedisServer;
use weir_testkit::ClosedPort;

use crate::server_probe::examine_server;
use crate::settings::{RedisSettings, RedisTopology};

fn settings(url: &str) -> RedisSettings {
    RedisSettings {
        urls: vec![url.to_owned()],
        topology: RedisTopology::Single,
        authorities: None,
        namespace: "weir".to_owned(),
        command_timeout: Duration::from_millis(50),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_keeps_its_data_has_no_warnings() {
    let server = RedisServer::start();
    server.run(&["CONFIG", "SET", "appendonly", "yes"]);
    let report = examine_server(&settings(&server.url()))
        .await
        .expect("it is of use");
    assert_eq!(report.warnings, [""; 0]);
    let version = report.version.expect("it may be read");
    assert!(version.contains(' '), "{version}");
    assert_eq!(server.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_lose_sessions_are_warnings() {
    let server = RedisServer::start();
    server.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.run(&["CONFIG", "SET", "appendonly", "no"]);
    server.run(&["CONFIG", "SET", "save", ""]);
    let report = examine_server(&settings(&server.url()))
        .await
        .expect("it is of use");
    assert_eq!(report.warnings.len(), 2, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_user_may_be_examined() {
    let server = RedisServer::start();
    server.add_documented_user("secret");
    let url = server.url_of_user("weir", "secret");
    examine_server(&settings(&url)).await.expect("it is of use");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_of_no_use_is_an_error_without_credentials() {
    let server = RedisServer::with_password("secret");
    let url = server.url_of_user("weir", "guessed");
    let error = examine_server(&settings(&url))
        .await
        .expect_err("it is of no use");
    assert!(!error.contains("guessed"), "{error}");
    let port = ClosedPort::new();
    let url = format!("redis://weir:guessed@{}", port.address());
    let error = examine_server(&settings(&url))
        .await
        .expect_err("it is of no use");
    assert!(!error.contains("guessed"), "{error}");
    let server = RedisServer::start();
    server.run(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = examine_server(&settings(&server.url()))
        .await
        .expect_err("it is of no use");
    assert!(error.contains("replica"), "{error}");
}

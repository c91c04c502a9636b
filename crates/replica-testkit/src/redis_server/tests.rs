//! Tests of a real server.

use super::*;

#[test]
fn killed_server_comes_back_with_or_without_its_data() {
    let mut server = RedisServer::start();
    assert_eq!(server.run(&["SET", "a", "1"]).text(), "OK");
    assert_eq!(server.run(&["INCR", "a"]).text(), "2");
    server.kill();
    let refused = server.command(&["PING"]).map_err(|error| error.kind());
    assert_eq!(refused, Err(io::ErrorKind::ConnectionRefused));
    server.restart();
    assert_eq!(server.run(&["GET", "a"]).text(), "2");
    assert_eq!(server.keys(), ["a"]);
    server.restart_empty();
    assert_eq!(server.run(&["GET", "a"]), RespValue::Null);
}

#[test]
fn password_is_asked_for() {
    let server = RedisServer::with_password("secret");
    assert!(server.url().starts_with("redis://:secret@127.0.0.1:"));
    assert_eq!(server.run(&["PING"]).text(), "PONG");
    let mut stranger = RespConnection::open(server.address()).expect("a connection");
    let refused = stranger.run(&["PING"]).expect("a reply");
    assert!(matches!(&refused, RespValue::Error(text) if text.starts_with("NOAUTH")));
}

#[test]
fn commands_are_counted_by_name() {
    let server = RedisServer::start();
    server.reset_command_counts();
    server.run(&["SET", "a", "1"]);
    server.run(&["SET", "b", "1"]);
    server.run(&["CONFIG", "SET", "maxmemory", "0"]);
    let counts = server.command_counts();
    assert_eq!(counts.get("set"), Some(&2), "{counts:?}");
    assert_eq!(counts.get("config|set"), Some(&1), "{counts:?}");
    assert_eq!(counts.get("get"), None, "{counts:?}");
    server.flush();
    assert_eq!(server.keys(), [""; 0]);
}

#[test]
fn paused_server_answers_once_it_is_resumed() {
    let server = RedisServer::start();
    server.pause();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.run(&["PING"]).text());
        server.resume();
        assert_eq!(asked.join().ok().as_deref(), Some("PONG"));
    });
}

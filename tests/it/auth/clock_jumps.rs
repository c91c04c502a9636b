//! A clock that jumps, as on a machine without a battery clock that reaches its time server.
//! libfaketime, preloaded into weir, plays it.

use std::path::{Path, PathBuf};

use serde_json::json;
use weir_testkit::{IdentityProvider, MockServer, RawClient};
use weir_testkit::{TestFolder, identity_provider::now};
use weir_wire::Revision;

use super::{api_key, bearer};
use crate::harness::{CheckedClient, Weir};

/// The paths of the library on Debian.
const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
];

/// Returns the path of the library if this machine has it; else prints a line about the tests that
/// are left out.
pub fn library() -> Option<&'static str> {
    let found = LIBRARIES.into_iter().find(|path| Path::new(path).exists());
    if found.is_none() {
        eprintln!("LEFT OUT: jumps of the clock need libfaketime (`apt-get install libfaketime`)");
    }
    found
}

/// weir's wall clock.
struct FaketimeClock(TestFolder);

impl FaketimeClock {
    fn new() -> Self {
        let folder = TestFolder::new("clock");
        folder.write("clock", "+0");
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.file("clock")
    }

    /// Sets the clock this many seconds off the true time.
    fn set_offset(&self, seconds: i64) {
        // The file is replaced at once, so that a reader never finds half of it.
        let next = self.0.write("next", &format!("{seconds:+}"));
        std::fs::rename(&next, self.file()).unwrap();
    }
}

// Proves C11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jumps_of_the_clock_end_no_session_refill_no_limit_and_let_no_token_live_longer() {
    let Some(library) = library() else { return };
    let clock = FaketimeClock::new();
    let idp = IdentityProvider::start().await;
    let upstream = MockServer::dual().tools(2).start().await;
    let (key, entry) = api_key("machine");
    let config = json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "auth": { "mode": "oauth", "issuers": [{ "issuer": idp.issuer() }], "api_keys": [entry] },
        "rates": { "tools": { "one/tool_0001": { "rate": "2/h" } } },
    });
    let preload = format!("LD_PRELOAD={library}");
    let file = format!("FAKETIME_TIMESTAMP_FILE={}", clock.file().display());
    let weir = Weir::start_with_wrapper(
        &[
            "env",
            &preload,
            &file,
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ],
        config,
    );
    let url = weir.url("/mcp");
    let session =
        CheckedClient::open_with_header(&url, Revision::NEWEST_LEGACY, ("x-api-key", &key)).await;
    for _ in 0..2 {
        assert!(session.call("one__tool_0001", json!({})).await.result()["isError"].is_null());
    }
    let token = idp.token("ada", &url);
    let status = async || {
        let client: RawClient = bearer(&url, &token).modern();
        client
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status
            .as_u16()
    };
    assert_eq!(status().await, 200);
    let minute = 60;
    let to_1970 = 5 - i64::try_from(now()).unwrap();
    // The token is good for five minutes, and was made just now.
    for (jump, expected) in [
        (10 * minute, 401),
        (0, 200),
        (-10 * minute, 401),
        (2 * 60 * minute, 401),
        (to_1970, 401),
        (-minute / 6, 200),
        (0, 200),
    ] {
        clock.set_offset(jump);
        assert_eq!(status().await, expected, "{jump} seconds");
        assert!(
            session.call("one__tool_0000", json!({})).await.result()["isError"].is_null(),
            "the session lives"
        );
        let limited = session.call("one__tool_0001", json!({})).await;
        assert_eq!(
            limited.result()["isError"],
            true,
            "no jump refills a limit: {}",
            limited.last()
        );
    }
    let said = weir.process.output();
    assert!(!said.contains("panicked"), "{said}");
}

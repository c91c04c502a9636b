//! `weir doctor` about clocks and certificates.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use weir_testkit::{ClosedPort, TestFolder};

use super::{CliOutput, weir};
use crate::down_causes::answering_each;

const DAY: u64 = 24 * 60 * 60;

/// A self-signed certificate for 127.0.0.1, with its validity in days from now; negative days are
/// in the past.
struct DatedCertificate {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

fn made(begin: i64, end: i64) -> DatedCertificate {
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let at = |days: i64| {
        let now = date_time_ymd(1970, 1, 1) + today;
        let away = Duration::from_secs(days.unsigned_abs() * DAY);
        if days < 0 { now - away } else { now + away }
    };
    let mut plan = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    (plan.not_before, plan.not_after) = (at(begin), at(end));
    let key = KeyPair::generate().unwrap();
    DatedCertificate {
        certificate: plan.self_signed(&key).unwrap(),
        key,
    }
}

/// A folder for the files of one test.
struct DoctorFolder(TestFolder);

impl DoctorFolder {
    fn new() -> Self {
        Self(TestFolder::new("doctor"))
    }

    /// Runs the doctor with this config; returns its output and the grade and the text of each
    /// finding.
    fn examined(&self, mut config: Value) -> (CliOutput, Vec<(String, String)>) {
        (config["listen"], config["admin"]) =
            (json!("127.0.0.1:0"), json!({ "listen": "127.0.0.1:0" }));
        let file = self.0.write("weir.json", &config.to_string());
        let said = weir(&["doctor", "--json", "--config", file.to_str().unwrap()]);
        let found: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
        let text = |found: &Value, member: &str| found[member].as_str().unwrap().to_owned();
        let found = found["machine"].as_array().unwrap().iter();
        (
            said,
            found
                .map(|found| (text(found, "grade"), text(found, "text")))
                .collect(),
        )
    }
}

/// Returns the one finding that has all of these words.
fn finding<'a>(found: &'a [(String, String)], words: &[&str]) -> &'a (String, String) {
    let fitting: Vec<_> = found
        .iter()
        .filter(|(_, text)| words.iter().all(|word| text.contains(word)))
        .collect();
    assert_eq!(fitting.len(), 1, "{words:?} in {found:#?}");
    fitting[0]
}

/// Returns the grade of the one finding that has all of these words.
fn grade<'a>(found: &'a [(String, String)], words: &[&str]) -> &'a str {
    &finding(found, words).0
}

/// Starts a server whose clock differs from this machine's by this many seconds, with or without
/// TLS; returns its port.
fn server(behind: u64, tls: Option<&DatedCertificate>) -> u16 {
    let tls = tls.map(|made| {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.key.serialize_der()));
        let chain: Vec<CertificateDer<'static>> = vec![made.certificate.der().clone()];
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        Arc::new(
            config
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap(),
        )
    });
    let answer = move || {
        let date = httpdate::fmt_http_date(SystemTime::now() - Duration::from_secs(behind));
        format!(
            "HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
    };
    answering_each(answer, tls)
}

#[test]
fn a_clock_that_differs_from_a_servers_or_an_issuers_is_named() {
    let (agreeing, late, issuer) = (server(0, None), server(7_200, None), server(300, None));
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let begin = Instant::now();
    let (said, found) = DoctorFolder::new().examined(json!({
        "upstreams": { "agreeing": { "url": url(agreeing) }, "late": { "url": url(late) } },
        "auth": { "mode": "oauth", "issuers": [{ "issuer": url(issuer), "allow_http": true }] },
    }));
    // `Date` has whole seconds, and further ones may pass while the response is on its way.
    let rounding = 1 + begin.elapsed().as_secs();
    assert_eq!(said.code, Some(1), "no upstream works");
    for (port, behind) in [(late, 7_200), (issuer, 300)] {
        let warning = finding(&found, &["clock", &url(port), "ahead of", "timedatectl"]);
        let ahead = warning.1.split(' ').find_map(|word| word.parse().ok());
        assert!(
            ahead.is_some_and(|ahead: u64| (behind..=behind + rounding).contains(&ahead)),
            "{warning:?} of a clock {behind} s behind, or {rounding} s more"
        );
        assert_eq!(warning.0, "warning");
    }
    assert_eq!(
        grade(&found, &["clock", "agrees with that of 1 server"]),
        "good"
    );
}

#[test]
fn keys_of_issuers_are_counted_or_their_failure_is_named() {
    let point = "A".repeat(43);
    let key = json!({ "kty": "EC", "crv": "P-256", "x": point, "y": point, "kid": "one" });
    let keys = json!({ "keys": [key] }).to_string();
    let answer = move || {
        let length = keys.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{keys}")
    };
    let (good, bad) = (answering_each(answer, None), server(0, None));
    let nowhere = ClosedPort::new();
    let closed = nowhere.address().port();
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (said, found) = DoctorFolder::new().examined(json!({
        "upstreams": {},
        "auth": { "mode": "oauth", "issuers": [
            { "issuer": url(good), "jwks_uri": url(good) },
            { "issuer": url(bad) },
            { "issuer": url(closed), "jwks_uri": url(closed) },
        ] },
    }));
    assert_eq!(grade(&found, &["issuer", &url(good), "has 1 key"]), "good");
    let failure = ["keys of the issuer", &url(bad), "cannot be fetched", "404"];
    assert_eq!(grade(&found, &failure), "error");
    let refused = [&*url(closed), "cannot be fetched", "Connection refused"];
    assert_eq!(grade(&found, &refused), "error");
    assert_eq!(said.code, Some(1));
}

#[test]
fn introspection_endpoint_is_asked_about_a_made_up_token() {
    let answer = |status: &'static str, body: &'static str| {
        let length = body.len();
        move || {
            format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )
        }
    };
    let nowhere = ClosedPort::new();
    for (port, expected, parts) in [
        (
            answering_each(answer("200 OK", r#"{"active":false}"#), None),
            "good",
            &["answers introspection"][..],
        ),
        (
            answering_each(answer("200 OK", r#"{"active":true}"#), None),
            "error",
            &["a made-up token is active"],
        ),
        (
            answering_each(answer("401 Unauthorized", ""), None),
            "error",
            &["cannot be asked", "status 401", "`client_secret`"],
        ),
        (
            nowhere.address().port(),
            "error",
            &["cannot be asked", "Connection refused"],
        ),
    ] {
        let url = format!("http://127.0.0.1:{port}/introspect");
        let introspection =
            json!({ "url": url, "client_id": "weir", "client_secret": "kq83jf92jfs02kfs" });
        let issuer = json!({ "issuer": "http://127.0.0.1:1", "introspection": introspection });
        let (said, found) = DoctorFolder::new().examined(json!({
            "upstreams": {},
            "auth": { "mode": "oauth", "issuers": [issuer] },
        }));
        assert_eq!(grade(&found, parts), expected, "{found:?}");
        assert_eq!(said.code, Some(i32::from(expected == "error")));
    }
}

#[test]
fn a_certificate_of_an_upstream_that_ends_soon_is_named() {
    let files = DoctorFolder::new();
    let (soon, long) = (made(-1, 5), made(-1, 100));
    let ports = [server(0, Some(&soon)), server(0, Some(&long))];
    let ca = |name: &str, made: &DatedCertificate| files.0.write(name, &made.certificate.pem());
    let url = |port: u16| format!("https://127.0.0.1:{port}");
    let (_, found) = files.examined(json!({ "upstreams": {
        "soon": { "url": url(ports[0]), "ca_file": ca("soon.pem", &soon) },
        "long": { "url": url(ports[1]), "ca_file": ca("long.pem", &long) },
    }}));
    assert_eq!(
        grade(&found, &[&url(ports[0]), "expires on", "renew it before"]),
        "warning"
    );
    assert!(
        !found.iter().any(|(_, text)| text.contains(&url(ports[1]))),
        "{found:?}"
    );
    assert_eq!(grade(&found, &["agrees with that of 2 servers"]), "good");
}

#[test]
fn weirs_own_certificate_is_held_against_the_clock() {
    let files = DoctorFolder::new();
    let good = made(-1, 100);
    let examined = |made: &DatedCertificate, key: &str| {
        let (cert, key) = (
            files.0.write("cert.pem", &made.certificate.pem()),
            files.0.write("key.pem", key),
        );
        private(&key);
        files.examined(json!({ "upstreams": {}, "tls": { "cert": cert, "key": key } }))
    };
    let key = |made: &DatedCertificate| made.key.serialize_pem();
    let (said, found) = examined(&good, &key(&good));
    assert_eq!(
        (said.code, grade(&found, &["cert.pem is valid until"])),
        (Some(0), "good")
    );
    for (times, grade_wanted, words) in [
        ([-10, -1], "error", ["cert.pem expired on", "renew it"]),
        ([-10, 3], "warning", ["cert.pem expires on", "renew it"]),
        ([2, 10], "error", ["cert.pem is not valid before", "clock"]),
    ] {
        let made = made(times[0], times[1]);
        let (said, found) = examined(&made, &key(&made));
        assert_eq!(grade(&found, &words), grade_wanted);
        assert_eq!(
            said.code,
            Some(i32::from(grade_wanted == "error")),
            "{words:?}"
        );
    }
}

/// Makes the file readable for its owner alone.
fn private(path: &Path) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

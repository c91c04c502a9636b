//! Client certificates with odd names, of the operator's own authority: the ones that become a
//! principal, and the form of the name in the audit, the log, the metrics, the rates and the rules.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use rcgen::string::{BmpString, Ia5String, TeletexString, UniversalString};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, SanType, date_time_ymd,
};
use serde_json::json;
use weir_testkit::{MockBehaviour, MockServer, RawClient};

use crate::audit::{AuditFolder, assert_chain_whole, of_kind};
use crate::auth::{IssuedCertificate, IssuingAuthority, TlsTunnel, pem};
use crate::harness::{Bystander, Weir, wait_until, wait_until_async};

/// Returns a client certificate without any name.
fn bare() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn common(values: Vec<DnValue>) -> CertificateParams {
    let mut params = bare();
    for (number, value) in values.into_iter().enumerate() {
        // The same type under another name, because the map has one of each.
        let kind = if number == 0 {
            DnType::CommonName
        } else {
            DnType::CustomDnType(vec![2, 5, 4, 3])
        };
        params.distinguished_name.push(kind, value);
    }
    params
}

fn named(text: &str) -> CertificateParams {
    common(vec![DnValue::Utf8String(text.to_owned())])
}

fn dns(names: &[&str]) -> CertificateParams {
    let mut params = bare();
    params.subject_alt_names = names
        .iter()
        .map(|name| SanType::DnsName((*name).try_into().unwrap()))
        .collect();
    params
}

/// weir that names clients by this part of their certificates.
struct CertificateScene {
    folder: AuditFolder,
    servers: IssuingAuthority,
    machines: IssuingAuthority,
    upstream: MockServer,
    weir: Weir,
}

impl CertificateScene {
    async fn new(part: &str, more: serde_json::Value) -> Self {
        let folder = AuditFolder::new(&format!("names-{part}"));
        let (servers, machines) = (IssuingAuthority::new(), IssuingAuthority::new());
        let own = servers.issue(
            SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
            ExtendedKeyUsagePurpose::ServerAuth,
        );
        let upstream = MockServer::modern()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        let mut config = json!({
            "tls": {
                "cert": pem(folder.0.path(), "server.pem", &own.certificate.pem()),
                "key": pem(folder.0.path(), "server.key", &own.key.serialize_pem()),
                "client_ca": pem(folder.0.path(), "clients.pem", &machines.own.pem()),
                "client_auth": "optional",
            },
            "auth": { "mode": "required", "mtls": { "subject": part } },
            "upstreams": { "one": { "url": upstream.url() } },
            "endpoints": { "/mcp": { "upstream": "one" } },
            "audit": { "file": { "path": folder.file() } },
        });
        for (name, value) in more.as_object().unwrap() {
            config[name] = value.clone();
        }
        let weir = tokio::task::block_in_place(|| Weir::with_log_filter(config, "info,weir=debug"));
        let scene = Self {
            folder,
            servers,
            machines,
            upstream,
            weir,
        };
        let known = scene.tunnel(scene.machines.sign(&match part {
            "cn" => named("known"),
            "dns" => dns(&["known"]),
            _ => uri("known"),
        }));
        let known = known.await;
        wait_until_async("a good call", async || {
            (call(&known.client()).await == Some(200)).then_some(())
        })
        .await;
        scene
    }

    async fn tunnel(&self, own: IssuedCertificate) -> TlsTunnel {
        let address: SocketAddr = self
            .weir
            .url("")
            .trim_start_matches("http://")
            .parse()
            .unwrap();
        TlsTunnel::open(address, &self.servers, Some(own)).await
    }

    /// Returns the status of a call by a client with this certificate, [`DENIED`] if its answer is
    /// an error; `None` if the connection is not established.
    async fn status(&self, own: IssuedCertificate) -> Option<u16> {
        call(&self.tunnel(own).await.client()).await
    }

    /// Returns the subjects of all recorded calls.
    fn subjects(&self) -> Vec<String> {
        let calls = of_kind(&self.folder.file(), "call");
        calls
            .iter()
            .map(|call| call["principal"]["subject"].as_str().unwrap().to_owned())
            .collect()
    }

    fn shows_no_raw_names(&self) {
        for (what, text) in [
            ("log", self.weir.process.output()),
            ("metrics", self.weir.get_admin_page("/metrics")),
        ] {
            let odd = |c: char| c.is_control() && c != '\n' && c != '\r';
            assert!(!text.chars().any(odd), "a control character in the {what}");
            assert!(!text.contains("panicked"), "{what}");
        }
        assert!(lines_are_objects(&self.folder.file()));
        assert_chain_whole(&[&self.folder.file()]);
    }
}

fn uri(text: &str) -> CertificateParams {
    let mut params = bare();
    params.subject_alt_names = vec![SanType::URI(text.try_into().unwrap())];
    params
}

/// Checks that each line of the audit is one JSON object without raw control characters.
fn lines_are_objects(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().all(|line| {
        serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.is_object())
            && !line.chars().any(char::is_control)
    })
}

/// Stands for the status of a call that is answered with an error.
const DENIED: u16 = 0;

async fn call(client: &RawClient) -> Option<u16> {
    let answer = client
        .clone()
        .modern()
        .call("echo", json!({ "n": 1 }))
        .await
        .ok()?;
    let result = answer.messages.last().map(|message| &message["result"]);
    let is_good = result.is_some_and(|result| result.is_object() && result["isError"] != true);
    Some(if is_good || answer.status != 200 {
        answer.status.as_u16()
    } else {
        DENIED
    })
}

/// Returns certificates whose name is missing, ambiguous or unreadable.
fn ambiguous_names() -> Vec<(&'static str, CertificateParams)> {
    let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
    let long = "x".repeat(257);
    let huge = "x".repeat(60_000);
    vec![
        ("empty", common(vec![utf8("")])),
        ("none", bare()),
        ("two", common(vec![utf8("ada"), utf8("root")])),
        ("twice the same", common(vec![utf8("ada"), utf8("ada")])),
        ("a NUL", named("ada\0.example.com")),
        ("a NUL at the end", named("ada\0")),
        ("a line end", named("ada\nroot")),
        ("a carriage return", named("ada\rroot")),
        ("an escape", named("\u{1b}[2Jada")),
        ("a delete", named("ada\u{7f}")),
        ("a next line", named("ada\u{85}root")),
        ("a right-to-left override", named("\u{202e}toor")),
        ("an isolate", named("ada\u{2066}x\u{2069}")),
        ("a space of no width", named("a\u{200b}da")),
        ("a joiner", named("ada\u{200d}")),
        ("a byte order mark", named("\u{feff}ada")),
        ("a line separator", named("ada\u{2028}root")),
        ("a soft hyphen", named("a\u{ad}da")),
        ("a tag", named("ada\u{e0041}")),
        ("too long", named(&long)),
        ("far too long", named(&huge)),
        (
            "UTF-16",
            common(vec![DnValue::BmpString(
                BmpString::try_from("ada").unwrap(),
            )]),
        ),
        (
            "UTF-32",
            common(vec![DnValue::UniversalString(
                UniversalString::try_from("ada").unwrap(),
            )]),
        ),
        (
            "T.61",
            common(vec![DnValue::TeletexString(
                TeletexString::try_from("ada").unwrap(),
            )]),
        ),
        ("an alternative name alone", dns(&["ada"])),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_readable_common_name_is_a_principal() {
    let scene = CertificateScene::new("cn", json!({})).await;
    let tunnel = scene.tunnel(scene.machines.sign(&named("bystander"))).await;
    let bystander = Bystander::calling(
        &scene.weir,
        tunnel.client().modern(),
        "echo",
        Some(&scene.folder.file()),
    );
    for (what, params) in ambiguous_names() {
        let status = scene.status(scene.machines.sign(&params)).await;
        // A certificate that the handshake refuses is no principal either.
        assert!([Some(401), None].contains(&status), "{what}: {status:?}");
    }
    let cyrillic = "\u{430}da";
    let somebody = [
        ("ada", named("ada")),
        ("Ada", named("Ada")),
        (cyrillic, named(cyrillic)),
        ("*", named("*")),
        ("*.example.com", named("*.example.com")),
        (
            "a\"b\\c,d=e\u{20ac}'--;</td><script>",
            named("a\"b\\c,d=e\u{20ac}'--;</td><script>"),
        ),
        ("weir_admin_0123", named("weir_admin_0123")),
        (
            "127.0.0.1",
            common(vec![DnValue::Ia5String(
                Ia5String::try_from("127.0.0.1").unwrap(),
            )]),
        ),
    ];
    for (name, params) in somebody {
        assert_eq!(
            scene.status(scene.machines.sign(&params)).await,
            Some(200),
            "{name:?}"
        );
        tokio::task::block_in_place(|| {
            wait_until("its record", || {
                scene
                    .subjects()
                    .iter()
                    .any(|subject| subject == name)
                    .then_some(())
            });
        });
    }
    bystander
        .finish("client certificates with odd names")
        .await
        .assert_none_refused();
    let mut known: Vec<String> = scene.subjects();
    known.sort_unstable();
    known.dedup();
    let mut expected: Vec<&str> = hostile_subject_names(cyrillic);
    expected.sort_unstable();
    assert_eq!(known, expected, "nobody else was let in");
    scene.shows_no_raw_names();
    let page = scene.weir.get_admin_page("/");
    assert!(!page.contains("</td><script>"));
}

fn hostile_subject_names(cyrillic: &'static str) -> Vec<&'static str> {
    let odd = "a\"b\\c,d=e\u{20ac}'--;</td><script>";
    vec![
        "ada",
        "Ada",
        cyrillic,
        "*",
        "*.example.com",
        odd,
        "weir_admin_0123",
        "127.0.0.1",
        "known",
        "bystander",
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_no_clients_makes_no_connection() {
    let scene = CertificateScene::new("uri", json!({})).await;
    let before = scene.upstream.total_executions();
    let ada = || uri("spiffe://example.com/ada");
    let mut expired = ada();
    (expired.not_before, expired.not_after) =
        (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let mut early = ada();
    (early.not_before, early.not_after) = (date_time_ymd(4000, 1, 1), date_time_ymd(4001, 1, 1));
    let mut authority = ada();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let mut server = ada();
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut code = ada();
    code.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    for (what, params) in [
        ("expired", expired),
        ("not yet valid", early),
        ("an authority", authority),
        ("a server's", server),
        ("code's", code),
    ] {
        assert_eq!(
            scene.status(scene.machines.sign(&params)).await,
            None,
            "{what}"
        );
    }
    // Of another authority, of none, and of one that only resembles the right one.
    for (what, of) in [
        ("another authority's", IssuingAuthority::new()),
        ("the servers' authority's", IssuingAuthority::new()),
    ] {
        assert_eq!(
            scene.status(of.machine("spiffe://example.com/ada")).await,
            None,
            "{what}"
        );
    }
    assert_eq!(
        scene
            .status(scene.servers.machine("spiffe://example.com/ada"))
            .await,
        None,
        "the servers' authority's"
    );
    // One signed by a client, which is not an authority.
    let client = scene.machines.sign(&ada());
    let issuer = rcgen::Issuer::new(ada(), client.key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = ada().signed_by(&key, &issuer).unwrap();
    assert_eq!(
        scene.status(IssuedCertificate { certificate, key }).await,
        None,
        "a client's"
    );
    assert_eq!(scene.upstream.total_executions(), before);
    // Names of other kinds are not a URI, and of two URIs neither counts.
    let mut two = uri("spiffe://example.com/ada");
    two.subject_alt_names.push(SanType::URI(
        "spiffe://example.com/root".try_into().unwrap(),
    ));
    let mut address = bare();
    address.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
    let mut mail = bare();
    mail.subject_alt_names = vec![SanType::Rfc822Name("ada@example.com".try_into().unwrap())];
    for (what, params) in [
        ("two", two),
        ("an address", address),
        ("mail", mail),
        ("an empty URI", uri("")),
        (
            "a URI with a line end",
            uri("spiffe://example.com/a\r\nx: y"),
        ),
        ("a URI with a NUL", uri("spiffe://example.com/ada\0.evil")),
        ("a DNS name", dns(&["ada.example.com"])),
    ] {
        let status = scene.status(scene.machines.sign(&params)).await;
        assert!([Some(401), None].contains(&status), "{what}: {status:?}");
    }
    assert_eq!(
        scene.upstream.total_executions(),
        before,
        "none of them reached anything"
    );
    scene.shows_no_raw_names();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_name_is_literal_in_rules() {
    let permit = |name: &str| {
        format!("permit(principal == Principal::\"mtls {name}\", action, resource);\n")
    };
    let policy = permit("known") + &permit("ada.example.com");
    let scene = CertificateScene::new("dns", json!({ "policy": { "inline": policy } })).await;
    let others = ["*", "*.example.com", "ada.example.com.", "ADA.example.com"];
    let before = scene.upstream.total_executions();
    for name in others {
        assert_eq!(
            scene.status(scene.machines.sign(&dns(&[name]))).await,
            Some(DENIED),
            "{name}"
        );
    }
    assert_eq!(scene.upstream.total_executions(), before);
    assert_eq!(
        scene
            .status(scene.machines.sign(&dns(&["ada.example.com"])))
            .await,
        Some(200)
    );
    tokio::task::block_in_place(|| {
        wait_until("the records", || {
            scene
                .subjects()
                .iter()
                .any(|subject| subject == "ada.example.com")
                .then_some(())
        });
    });
    // Each as in the certificate: neither expanded nor changed to another's.
    let subjects = scene.subjects();
    for name in others {
        assert_eq!(
            subjects.iter().filter(|subject| *subject == name).count(),
            1,
            "{name}"
        );
    }
    scene.shows_no_raw_names();
}

//! The settings of valid configs.

use std::time::Duration;

use weir_config_file::local_host::is_local_host;
use weir_core::endpoint::{EndpointMode, NamePrefix, UpstreamRules};
use weir_core::{Endpoint, EndpointId};
use weir_policy::limit::{LimitSettings, RateLimit, UncountedQuota};
use weir_redis_store::{RedisSettings, RedisTopology};
use weir_schema::CheckMode;
use weir_store::RecordCaps;
use weir_upstream::{OwnDeadlines, SessionSharing, TransportSettings, UpstreamProtocol};

use super::*;

fn endpoint<'a>(config: &'a Config, path: &str) -> &'a Endpoint {
    config
        .endpoints
        .iter()
        .find(|endpoint| endpoint.id.as_str() == path)
        .unwrap()
}

#[test]
fn single_url_is_a_valid_config() {
    let config = good("upstreams: { a: { url: http://127.0.0.1:3001/mcp }, b: { command: npx } }");
    assert_eq!(config.front.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(
        config.admin.as_ref().unwrap().listen.to_string(),
        "127.0.0.1:8081"
    );
    assert_eq!(config.drain, Duration::from_secs(25));
    assert_eq!(
        config.front.limits,
        weir_front::settings::FrontLimits::default()
    );
    assert_eq!(config.sessions, RecordCaps::default());
    assert_eq!(config.upstreams[0].rules, UpstreamRules::default());
    let paths: Vec<&str> = config
        .endpoints
        .iter()
        .map(|endpoint| endpoint.id.as_str())
        .collect();
    assert_eq!(paths, ["/mcp", "/mcp/a", "/mcp/b"]);
    assert!(
        matches!(&endpoint(&config, "/mcp").mode, EndpointMode::Aggregate { upstreams, .. } if upstreams.len() == 2)
    );
    assert!(
        matches!(&endpoint(&config, "/mcp/b").mode, EndpointMode::Transparent(id) if id.as_str() == "b")
    );
    assert_eq!(
        config.upstreams[0].settings.session,
        SessionSharing::Principal
    );
    assert_eq!(config.upstreams[1].settings.session, SessionSharing::Shared);
}

#[test]
fn every_key_is_applied() {
    let config = good(include_str!("full.yaml"));
    let limits = &config.front.limits;
    assert_eq!(
        (
            limits.listener.connections,
            limits.listener.body_bytes,
            limits.listener.h2.send_buffer,
        ),
        (9000, 2 << 20, 16 << 10)
    );
    assert_eq!(
        config.sessions,
        RecordCaps {
            total: 1000,
            per_principal: 10
        }
    );
    assert_eq!(config.keys.len(), 1);
    assert_eq!(config.admin, None);
    let files = &config.upstreams[0];
    assert_eq!(files.settings.protocol, UpstreamProtocol::Legacy);
    assert_eq!(
        (
            files.settings.bounds.in_flight,
            files.settings.bounds.standing
        ),
        (7, 5)
    );
    assert_eq!(files.rules.deadlines.idle, Duration::from_secs(60));
    assert_eq!(
        files.rules.deadlines.hard,
        Duration::from_secs(600),
        "comes from the top"
    );
    assert_eq!(files.settings.connect, Duration::from_secs(1));
    let (name, slow) = &files.rules.tools[0];
    assert_eq!(
        (name.as_str(), slow.deadlines.unwrap().idle),
        ("slow", Duration::from_secs(1200))
    );
    assert_eq!(slow.deadlines.unwrap().hard, Duration::from_secs(3600));
    assert!(slow.safe_to_repeat && !files.rules.tools[1].1.safe_to_repeat);
    let seconds = |list, probe| OwnDeadlines {
        list: Duration::from_secs(list),
        probe: Duration::from_secs(probe),
        ..OwnDeadlines::default()
    };
    assert_eq!(
        files.settings.own_deadlines,
        seconds(20, 3),
        "the list's comes from the top"
    );
    assert_eq!(config.upstreams[1].settings.own_deadlines, seconds(20, 10));
    assert_eq!(slow.validation.unwrap().output, CheckMode::Enforce);
    assert_eq!(
        slow.validation.unwrap().input,
        CheckMode::Warn,
        "comes from the upstream"
    );
    let TransportSettings::Stdio(child) = &config.upstreams[1].settings.transport else {
        panic!()
    };
    assert_eq!((child.command.as_str(), child.max_processes), ("npx", 2));
    assert_eq!(child.env.len(), 1);
    let EndpointMode::Aggregate {
        upstreams,
        naming,
        prefix,
    } = &endpoint(&config, "/all").mode
    else {
        panic!()
    };
    assert_eq!(
        upstreams.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
        ["child", "files"],
        "as the endpoint lists them"
    );
    assert_eq!(*prefix, NamePrefix::None, "comes from the top");
    assert_eq!(naming.expose(&upstreams[0], "x"), "child-x");
    assert_eq!(endpoint(&config, "/all").page.items, 50);
    assert_eq!(endpoint(&config, "/files").page.items, 100);
    assert_eq!(endpoint(&config, "/files").deadlines, None);
    let cut = files
        .rules
        .deadlines
        .cut(endpoint(&config, "/all").deadlines.unwrap());
    assert_eq!(
        (cut.idle, cut.hard),
        (Duration::from_secs(60), Duration::from_secs(180)),
        "the shorter of both"
    );
}

#[test]
fn secrets_of_a_config_do_not_print() {
    let text = format!("{:?}", good(include_str!("full.yaml")));
    assert!(!text.contains("canary"), "{text}");
    assert!(!text.contains("0, 1, 2, 3"), "the sealing key is in it");
}

#[test]
fn non_loopback_needs_allow_anyone() {
    for listen in ["127.0.0.1:1", "127.9.9.9:1", "\"[::1]:1\""] {
        good(&format!("listen: {listen}"));
    }
    for listen in ["0.0.0.0:1", "\"[::]:1\"", "10.0.0.1:1"] {
        assert!(
            load(&format!("listen: {listen}")).config.is_none(),
            "{listen}"
        );
        assert!(
            load(&format!("listen: {listen}\nauth: {{ mode: none }}"))
                .config
                .is_none()
        );
        good(&format!(
            "listen: {listen}\nauth: {{ mode: none, allow_anyone: true }}"
        ));
    }
}

#[test]
fn numbers_may_come_from_the_environment() {
    let config = good("listen: 127.0.0.1:${PORT}\nlimits: { connections: '${PORT}' }");
    assert_eq!(config.front.listen.port(), 9000);
    assert_eq!(config.front.limits.listener.connections, 9000);
}

#[test]
fn mcp_servers_map_is_accepted() {
    let config = good(
        r#"{ "mcpServers": {
            "My Files": { "command": "npx", "args": ["-y", "server"], "env": { "KEY": "x" }, "alwaysAllow": [] },
            "web": { "type": "http", "url": "https://example.com/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } }
        } }"#,
    );
    assert_eq!(config.upstreams[0].settings.id.as_str(), "my-files");
    let TransportSettings::Http(web) = &config.upstreams[1].settings.transport else {
        panic!()
    };
    assert_eq!(web.headers[0].0, "authorization");
}

#[test]
fn urls_are_instances_with_weights() {
    let config = good(
        r#"
upstreams:
  many:
    urls:
      - http://127.0.0.1:1/mcp
      - { url: "http://127.0.0.1:2/mcp", weight: 10 }
      - { url: "http://127.0.0.1:3/mcp", weight: 0 }
  one: { urls: ["http://127.0.0.1:1/mcp"] }
  plain: { url: "http://127.0.0.1:1/mcp" }
"#,
    );
    let http = |nth: usize| match &config.upstreams[nth].settings.transport {
        TransportSettings::Http(http) => http.clone(),
        TransportSettings::Stdio(_) => panic!("it has a URL"),
    };
    let many = http(0);
    let weights: Vec<_> = many.instances.iter().map(|one| one.weight).collect();
    assert_eq!(weights, [100, 10, 0]);
    assert_eq!(many.url, many.instances[0].url);
    assert_eq!(many.instances[2].url, "http://127.0.0.1:3/mcp");
    assert_eq!(http(1), http(2), "one URL needs no choice");
}

#[test]
fn equal_files_give_equal_settings_and_a_change_shows() {
    let text = include_str!("full.yaml");
    let changed = good(&text.replace("in_flight: 7", "in_flight: 8"));
    let (one, two) = (good(text), good(text));
    assert_eq!(one, two);
    assert_ne!(one.upstreams[0].settings, changed.upstreams[0].settings);
    assert_eq!(one.upstreams[1].settings, changed.upstreams[1].settings);
}

/// The example configs.
fn examples() -> Vec<std::path::PathBuf> {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let entries = [folder.to_owned(), folder.join("identity")]
        .map(|folder| std::fs::read_dir(folder).unwrap());
    let files = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let is_config = |file: &std::path::PathBuf| {
        let extension = file.extension();
        extension.is_some_and(|extension| extension == "yaml" || extension == "json")
    };
    let examples: Vec<_> = files.filter(is_config).collect();
    assert!(examples.len() >= 10, "only {examples:?}");
    examples
}

#[test]
fn every_example_passes_check() {
    for file in examples() {
        let variables = |name: &str| {
            let any = || Some("AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA".into());
            // Variables that no file names are not set.
            environment(name).or_else(|| {
                if name.starts_with("OTEL_") {
                    None
                } else {
                    any()
                }
            })
        };
        let outcome = ConfigLoader::new(ConfigSource::File(file.clone()), &variables).load();
        assert!(
            outcome.report.problems().is_empty(),
            "{}:\n{}",
            file.display(),
            outcome.report
        );
    }
}

#[test]
fn example_without_its_variables_has_no_other_errors() {
    for file in examples() {
        let outcome = ConfigLoader::new(ConfigSource::File(file), &|_| None).load();
        let report = outcome.report.to_string();
        let errors = report.lines().filter(|line| line.contains(": error: "));
        for error in errors {
            assert!(error.contains("is not set"), "{error}\nin\n{report}");
        }
    }
}

#[test]
fn limits_inherit_absent_keys() {
    let rates = good(include_str!("full.yaml")).rates;
    let says = |limit: &RateLimit| {
        let rate = limit
            .rate()
            .map(|rate| (rate.count.get(), rate.per.as_secs(), rate.burst.get()));
        (rate, limit.daily())
    };
    assert_eq!(
        rates.address.as_ref().map(says),
        Some((Some((50, 1, 200)), None))
    );
    assert_eq!(
        rates.principal.as_ref().map(says),
        Some((Some((20, 1, 100)), Some(10_000)))
    );
    assert_eq!(
        says(&rates.endpoints[&EndpointId::new("/files")]),
        (Some((5, 1, 5)), Some(10_000))
    );
    let groups: Vec<_> = rates
        .groups
        .iter()
        .map(|(name, limit)| (&**name, says(limit)))
        .collect();
    let batch = ("batch", (Some((20, 1, 100)), Some(100)));
    assert_eq!(
        groups,
        [batch, ("staff", (Some((100, 1, 500)), Some(10_000)))]
    );
    assert_eq!(
        says(&rates.clients["ci"]),
        (Some((600, 60, 600)), Some(10_000))
    );
    let tools: Vec<_> = rates
        .tools
        .iter()
        .map(|tool| (tool.pattern.as_str(), tool.cost.get(), tool.shared))
        .collect();
    assert_eq!(
        tools,
        [("files/write_*", 3, false), ("*/delete_*", 1, true)]
    );
    assert_eq!(
        rates.upstreams.values().map(says).collect::<Vec<_>>(),
        [(Some((100, 1, 100)), Some(200_000))]
    );
    let concurrency = &rates.concurrency;
    assert_eq!(
        (concurrency.principal, concurrency.queue, concurrency.wait),
        (32, 64, Duration::from_secs(1))
    );
    assert_eq!(concurrency.upstream_queue, 64);
    assert_eq!(rates.uncounted, UncountedQuota::Refused);
    assert_eq!(
        good("upstreams: { a: { url: http://127.0.0.1:3001/mcp } }").rates,
        LimitSettings::default()
    );
}

#[test]
fn local_hosts_are_recognised_by_name_and_address() {
    for host in [
        "localhost",
        "LocalHost",
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "[::1]",
        "[::ffff:127.0.0.1]",
    ] {
        assert!(is_local_host(host), "{host}");
    }
    for host in [
        "",
        "localhost.example",
        "128.0.0.1",
        "[::2]",
        "[::ffff:192.0.2.1]",
        "127.0.0.1.example",
    ] {
        assert!(!is_local_host(host), "{host}");
    }
}

/// The keys and listener that a shared store needs.
const SHARED: &str = "keys: [{ id: 1, secret: \"${WEIR_KEY}\" }]\ncluster: { listen: \"0.0.0.0:0\", advertise: \"fd00::7:8082\" }\n";

/// Returns the settings of the shared store of a config, which must have one.
fn redis(config: &Config) -> &RedisSettings {
    let StorePlan::Redis(settings) = &config.store else {
        panic!("{:?}", config.store)
    };
    settings
}

#[test]
fn url_alone_is_a_shared_store_with_defaults() {
    let config = good(&format!(
        "store: \"rediss://weir:${{TOKEN}}@redis.internal\"\n{SHARED}"
    ));
    let expected = RedisSettings {
        urls: vec!["rediss://weir:canary-token@redis.internal:6379/".to_owned()],
        topology: RedisTopology::Single,
        authorities: None,
        namespace: "weir".to_owned(),
        command_timeout: Duration::from_millis(50),
    };
    assert_eq!(redis(&config), &expected);
    let cluster = config.cluster.as_ref().unwrap();
    assert_eq!(cluster.listen.to_string(), "0.0.0.0:0");
    assert_eq!(cluster.advertise.as_deref(), Some("[fd00::7]:8082"));
    assert!(!format!("{config:?}").contains("canary"));
}

#[test]
fn every_key_of_a_shared_store_is_applied() {
    let folder = TestFolder::new("store");
    let ca_file = folder.write("ca.pem", &TestCertificate::new().cert);
    let store = format!(
        "store: {{ url: [valkeys://s1, \"valkeys://s2:7\"], kind: sentinel, primary: main, ca_file: {}, namespace: team-a_1.b, timeout: 5s }}\n",
        ca_file.display()
    );
    let config = good(&format!("{store}{SHARED}"));
    let expected = RedisSettings {
        urls: vec!["rediss://s1:26379/".to_owned(), "rediss://s2:7/".to_owned()],
        topology: RedisTopology::Sentinel {
            primary: "main".to_owned(),
        },
        authorities: std::fs::read(ca_file).ok(),
        namespace: "team-a_1.b".to_owned(),
        command_timeout: Duration::from_secs(5),
    };
    assert_eq!(redis(&config), &expected);
    let cluster = good(&format!(
        "store: {{ url: redis://a/0, kind: cluster }}\n{SHARED}"
    ));
    assert_eq!(redis(&cluster).topology, RedisTopology::Cluster);
}

#[test]
fn one_client_in_the_process_shares_no_sessions() {
    assert_eq!(good("upstreams: {}").store, StorePlan::Memory);
    let config = good(&format!("store: redis://127.0.0.1\n{SHARED}"));
    let served = config.in_memory();
    assert_eq!((served.store, served.cluster), (StorePlan::Memory, None));
}

#[test]
fn changed_contents_of_a_ca_file_are_changed_settings() {
    let folder = TestFolder::new("changed-authority");
    let read = || {
        let file = folder.write("ca.pem", &TestCertificate::new().cert);
        let file = file.display();
        good(&format!(
            "upstreams:\n  a: {{ url: https://a.test/mcp, ca_file: {file} }}\n\
             store: {{ url: rediss://s1, ca_file: {file} }}\n\
             telemetry: {{ otlp: {{ endpoint: https://c.test, ca_file: {file} }} }}\n\
             audit: {{ file: {{ path: {file}.audit }}, otlp: {{ url: https://c.test, ca_file: {file} }} }}\n{SHARED}"
        ))
    };
    let (before, after) = (read(), read());
    assert_ne!(before.upstreams[0].settings, after.upstreams[0].settings);
    assert_ne!(before.store, after.store);
    assert_ne!(before.telemetry.otlp, after.telemetry.otlp);
    let collector = |config: &Config| config.audit.as_ref().map(|plan| plan.otlp.clone());
    assert_ne!(collector(&before), collector(&after));
}

#[test]
fn forward_proxy_is_that_of_the_file_or_of_the_environment() {
    assert_eq!(good("upstreams: {}").forward_proxy, None);
    let config = good(
        "forward_proxy: { url: 'http://me:${TOKEN}@proxy.example:3128', bypass: [.corp.example, 10.0.0.0/8] }",
    );
    let shown = format!("{config:?}");
    assert!(
        shown.contains("ForwardProxy(proxy.example:3128)") && !shown.contains("canary"),
        "{shown}"
    );
    let other = good("forward_proxy: { url: 'http://proxy.example:3128' }");
    assert_ne!(config.forward_proxy, other.forward_proxy);

    let load_with = |variables: &[(&str, &str)]| {
        let find = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let source = ConfigSource::Text {
            name: "weir.yaml".to_owned(),
            text: "forward_proxy: environment\nupstreams: { a: { url: 'http://127.0.0.1:1/mcp' } }"
                .to_owned(),
        };
        let outcome = ConfigLoader::new(source, &find).load();
        let proxy = outcome.config.map(|config| {
            let proxy = config.forward_proxy.as_ref();
            proxy.map(ToString::to_string)
        });
        (proxy, outcome.report.to_string())
    };
    let (proxy, report) = load_with(&[
        ("HTTPS_PROXY", "http://me:canary@proxy.example:3128"),
        (
            "NO_PROXY",
            "localhost,<local>,http://me:canary@inner.example",
        ),
    ]);
    assert_eq!(proxy, Some(Some("proxy.example:3128".to_owned())));
    assert!(
        report.starts_with("weir.yaml:1: warning: forward_proxy: ignores `<local>` in NO_PROXY")
            && report.contains("ignores `http://***@inner.example`")
            && !report.contains("canary"),
        "{report}"
    );
    let (proxy, report) = load_with(&[("ALL_PROXY", "socks5://me:canary@proxy.example:1080")]);
    assert_eq!(proxy, None);
    assert!(
        report.starts_with("weir.yaml:1: error: forward_proxy: uses the variable ALL_PROXY, which")
            && !report.contains("canary"),
        "{report}"
    );
    assert_eq!(load_with(&[]).0, Some(None));
}

#[test]
fn rate_of_an_entry_with_a_burst_alone_comes_from_the_principal() {
    let config = good(
        "rates: { principal: { rate: 20/s, burst: 40 }, endpoints: { /mcp: { burst: 5 } } }\n\
         telemetry: { traces: { sample: \"${SHARE}\" } }\n\
         upstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }\n",
    );
    let rate = config.rates.endpoints[&EndpointId::new("/mcp")]
        .rate()
        .unwrap();
    assert_eq!((rate.count.get(), rate.burst.get()), (20, 5));
    assert!((config.telemetry.sampling.ratio - 0.5).abs() < f64::EPSILON);
}

/// Each value of a list is checked, and a reference without a value hides no other mistake.
#[test]
fn every_mistake_in_a_list_is_reported() {
    let said = load(
        "upstreams:
  a:
    command: x
    args:
      - 1
      - two
      - 3
      - \"${NOT_SET}\"
      - 5
auth:
  mode: oauth
  issuers:
    - { issuer: 1, jwks_url: x }
    - { issuer: https://id.example.com, audience: [1, 2] }
",
    )
    .report
    .to_string();
    for place in [
        ":5: error: upstreams.a.args.0:",
        ":7: error: upstreams.a.args.2:",
        ":8: error: upstreams.a.args.3:",
        ":9: error: upstreams.a.args.4:",
        ":13: error: auth.issuers.0.issuer:",
        ":13: error: auth.issuers.0.jwks_url:",
        ":14: error: auth.issuers.1.audience.0:",
        ":14: error: auth.issuers.1.audience.1:",
    ] {
        assert_eq!(said.matches(place).count(), 1, "{place}: {said}");
    }
    assert_eq!(said.matches(" error: ").count(), 8, "{said}");
}

#[test]
fn a_text_in_the_place_of_a_section_gets_the_section_as_hint() {
    for (text, hint) in [
        ("auth: none", "write { mode: none }"),
        ("admin: 127.0.0.1:8081", "write { listen: 127.0.0.1:8081 }"),
        ("audit: { file: /x }", "write { path: /x }"),
        (
            "upstreams: { a: \"http://a/\" }",
            "write { url: http://a/ }",
        ),
        ("rates: { principal: 20/s }", "write { rate: 20/s }"),
        ("admin: \"a, b\"", "write { listen: ... }"),
        ("admin: \"${TOKEN}\"", "write { listen: ... }"),
    ] {
        let said = load(text).report.to_string();
        assert!(said.contains(hint), "{text}: {said}");
    }
}

#[test]
fn limits_of_callers_without_auth_are_warned_of() {
    let rates = "rates:\n  address: { rate: 1/s }\n  principal: { rate: 1/s }\n  groups: { a: { rate: 1/s } }\n";
    let said = load(rates).report.to_string();
    assert_eq!(
        said.matches("cannot tell callers apart").count(),
        2,
        "{said}"
    );
    assert!(
        said.contains(":3: warning: rates.principal: has no effect"),
        "{said}"
    );
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_folder() {
    let folder = weir_testkit::TestFolder::new("named-files");
    folder.write("bad.cedar", "");
    std::fs::write(folder.file("bad.cedar"), b"permit\n\xff").unwrap();
    let main = folder.write(
        "weir.yaml",
        "policy: { files: [absent.cedar, bad.cedar] }
tls: { cert: a.pem, key: b.pem }
audit: { file: { path: logs/audit.jsonl } }
auth: { api_keys: [] , mode: none }
",
    );
    let loader = |main| ConfigLoader::new(ConfigSource::File(main), &environment).load();
    let said = loader(main).report.to_string();
    let at = folder.path().display();
    for expected in [
        format!("weir.yaml:1: error: policy.files.0: {at}/absent.cedar cannot be read"),
        format!("weir.yaml:1: error: policy.files.1: {at}/bad.cedar:2 is not UTF-8 text"),
        format!("weir.yaml:2: error: tls.cert: cannot read {at}/a.pem"),
        format!(
            "weir.yaml:3: error: audit.file.path: is in the folder {at}/logs, which does not exist"
        ),
        "auth.api_keys: has no effect, because clients need no credentials (write mode: required)"
            .to_owned(),
    ] {
        assert!(said.contains(&expected), "{expected}: {said}");
    }
    let main = folder.file("weir.yaml");
    std::fs::write(&main, b"listen: 127.0.0.1:1\n# \xff").unwrap();
    let said = loader(main).report.to_string();
    assert!(
        said.contains("weir.yaml:2: error: is not UTF-8 text"),
        "{said}"
    );
}

/// Helm and other programs of YAML 1.1 take these words for booleans.
#[test]
fn booleans_stand_for_the_words_off_no_and_yes() {
    let with_booleans = |text: &str| {
        [("off", "false"), ("no", "false"), ("yes", "true")]
            .iter()
            .fold(text.to_owned(), |text, (word, boolean)| {
                text.replace(&format!(": {word}"), &format!(": {boolean}"))
            })
    };
    let sections = "tls: off
policy: off
audit: off
rates: off
admin: { listen: 127.0.0.1:1, auth: off }
upstreams:
  a: { url: \"http://127.0.0.1:1/\", validation: { input: off, output: off }, secrets: off }
endpoints: { /a: { upstreams: [a], policy: off } }
";
    let teams = "teams: { red: { commands: no, trust: yes } }\nupstreams: {}";
    for words in [sections, teams] {
        let booleans = with_booleans(words);
        assert_ne!(booleans, words);
        let [written, rendered] = [words, &booleans].map(load);
        assert_eq!(written.report.to_string(), rendered.report.to_string());
        assert_eq!(written.config.is_some(), rendered.config.is_some());
    }
    assert!(load(&with_booleans(sections)).config.is_some());
    for wrong in [
        "rates: true",
        "upstreams: { a: { url: \"http://x/\", trust: false } }",
    ] {
        assert!(load(wrong).config.is_none(), "{wrong}");
    }
}

#[test]
fn a_json_file_may_name_its_schema() {
    let named = r#"{ "$schema": "weir.schema.json", "listen": "127.0.0.1:1", "upstreams": {} }"#;
    let other = "{ listen: 127.0.0.1:1, upstreams: {} }";
    assert_eq!(good(named).front.listen, good(other).front.listen);
}

//! `upstreams.NAME.secrets` and `upstreams.NAME.results`.

use weir_core::endpoint::{OversizedAction, ResultLimit};
use weir_core::secrets::SecretAction;

use super::*;

/// Loads a config with one upstream, `a`, that has these keys, beside a pattern file.
fn loaded(name: &str, patterns: &str, says: &str) -> LoadOutcome {
    let folder = TestFolder::new(name);
    folder.write("rules/secrets.yaml", patterns);
    let text = format!("upstreams: {{ a: {{ url: \"http://a/\", {says} }} }}\n");
    ConfigLoader::new(
        ConfigSource::File(folder.write("weir.yaml", &text)),
        &environment,
    )
    .load()
}

#[test]
fn results_are_masked_by_default() {
    let said = |says: &str| {
        let says = format!("secrets: {{ patterns: rules/secrets.yaml{says} }}");
        let outcome = loaded("secrets", "a: 'x\\d'\nb: 'y(?<secret>z)'\n", &says);
        assert!(!outcome.report.has_errors(), "{}", outcome.report);
        let secrets = outcome.config.unwrap().upstreams[0]
            .rules
            .secrets
            .clone()
            .unwrap();
        assert_eq!(secrets.patterns.names().collect::<Vec<_>>(), ["a", "b"]);
        (
            secrets.refuses_arguments,
            secrets.answers,
            outcome.report.to_string(),
        )
    };
    assert_eq!(said(""), (false, Some(SecretAction::Mask), String::new()));
    assert_eq!(
        said(", arguments: refuse, results: refuse"),
        (true, Some(SecretAction::Refuse), String::new())
    );
    assert_eq!(
        said(", arguments: refuse, results: off"),
        (true, None, String::new())
    );
    let (refuses, answers, report) = said(", results: off");
    assert_eq!((refuses, answers), (false, None));
    assert!(report.contains("neither arguments nor results"), "{report}");
    let none = good("upstreams: { a: { url: \"http://a/\", secrets: off } }");
    assert_eq!(none.upstreams[0].rules.secrets, None);
}

#[test]
fn pattern_errors_have_file_and_line() {
    let says = "secrets: { patterns: rules/secrets.yaml }";
    for (text, line, expected) in [
        ("a: x\nb: '('\n", ":2", "unclosed group"),
        ("a: 'x*'\n", ":1", "matches the empty text"),
        (
            "a: [x]\n",
            ":1",
            "must be a regular expression, found a list",
        ),
        ("a b: x\n", ":1", "must have 1 to 64 letters"),
        ("a: x\nb: '\\w{1000}{1000}'\n", ":2", "exceeds size limit"),
        ("- a\n", ":1", "found a list"),
        ("", "", "has no patterns"),
        ("# a: x\n", "", "has no patterns"),
        ("a: x\na: y\n", ":2", "a"),
        ("a: 'x\n", "", ""),
    ] {
        let outcome = loaded("secrets-wrong", text, says);
        assert!(outcome.config.is_none(), "{text:?}");
        let report = outcome.report.to_string();
        let place = format!("rules/secrets.yaml{line}");
        assert!(
            report.contains(&place) && report.contains(expected),
            "{text:?}: {report}"
        );
        assert!(report.contains("upstreams.a.secrets.patterns"), "{report}");
    }
    // All of them at once.
    let report = loaded("secrets-wrong", "a: '('\nb: x\nc: '['\nd: 7\n", says)
        .report
        .to_string();
    assert!(
        [":1", ":3", ":4"].iter().all(|line| report.contains(line)) && !report.contains(":2"),
        "{report}"
    );
    let report = loaded(
        "secrets-wrong",
        "a: x",
        "secrets: { patterns: rules/other.yaml }",
    )
    .report
    .to_string();
    assert!(
        report.contains("weir.yaml:1") && report.contains("cannot be read"),
        "{report}"
    );
    let report = loaded("secrets-wrong", "a: x", "secrets: { arguments: refuse }")
        .report
        .to_string();
    assert!(report.contains("names no file with patterns"), "{report}");
}

#[test]
fn a_changed_file_of_patterns_makes_the_config_stale_and_another_one() {
    let folder = TestFolder::new("secrets-stale");
    let text = "upstreams: { a: { url: \"http://a/\", secrets: { patterns: s.yaml } }, b: { url: \"http://b/\", secrets: { patterns: s.yaml } } }";
    folder.write("s.yaml", "a: x\n");
    let mut loader = ConfigLoader::new(
        ConfigSource::File(folder.write("weir.yaml", text)),
        &environment,
    );
    let before = loader.load().config.unwrap();
    assert!(!loader.is_stale());
    let secrets =
        |config: &Config, nth: usize| config.upstreams[nth].rules.secrets.clone().unwrap();
    let shared = [0, 1].map(|nth| secrets(&before, nth).patterns.clone());
    assert!(
        std::sync::Arc::ptr_eq(&shared[0], &shared[1]),
        "a file is compiled once"
    );
    folder.write("s.yaml", "a: x\nb: y\n");
    assert!(loader.is_stale());
    let after = loader.load().config.unwrap();
    assert_ne!(before.upstreams[0].rules, after.upstreams[0].rules);
    assert_eq!(weakenings(&before, &after), []);
    let lost: Vec<String> = weakenings(&after, &before)
        .iter()
        .map(|lost| lost.path.to_string())
        .collect();
    assert_eq!(
        lost,
        [
            "upstreams.a.secrets.patterns.b",
            "upstreams.b.secrets.patterns.b"
        ]
    );
    // The repair of a broken file makes the config stale, too.
    folder.write("s.yaml", "a: '('\n");
    assert!(loader.load().config.is_none() && !loader.is_stale());
    folder.write("s.yaml", "a: x\n");
    assert!(loader.is_stale() && loader.load().config.is_some());
}

#[test]
fn secret_search_is_given_up_explicitly_only() {
    let of = |says: &str| loaded("secrets-weaker", "a: x\n", says).config.unwrap();
    let old = of("secrets: { patterns: rules/secrets.yaml, arguments: refuse }");
    let lost = |says: &str| {
        let lost = weakenings(&old, &of(says));
        lost.iter()
            .map(|lost| format!("{} {}", lost.protection.label(), lost.path))
            .collect::<Vec<_>>()
    };
    assert_eq!(lost("session: shared"), ["secrets upstreams.a.secrets"]);
    assert_eq!(lost("secrets: off"), Vec::<String>::new());
    assert_eq!(
        lost("secrets: { patterns: rules/secrets.yaml }"),
        ["secrets upstreams.a.secrets.arguments"]
    );
    assert_eq!(
        lost("secrets: { patterns: rules/secrets.yaml, arguments: off }"),
        Vec::<String>::new()
    );
    assert_eq!(
        lost("secrets: { patterns: rules/secrets.yaml, arguments: refuse, results: off }"),
        Vec::<String>::new()
    );
}

#[test]
fn result_limit_must_fit_hold_limit() {
    let of = |says: &str| {
        load(&format!(
            "upstreams: {{ a: {{ url: \"http://a/\"{says} }} }}"
        ))
    };
    let good = |says: &str| of(says).config.unwrap().upstreams[0].rules.results;
    assert_eq!(good(""), None);
    assert_eq!(
        good(", results: { max: 1MiB }"),
        Some(ResultLimit {
            bytes: 1 << 20,
            action: OversizedAction::Refuse
        })
    );
    let cut = Some(ResultLimit {
        bytes: 4 << 20,
        action: OversizedAction::Cut,
    });
    assert_eq!(good(", results: { max: 4MiB, over: cut }"), cut);
    for (says, expected) in [
        ("{ over: cut }", "has no `max`"),
        ("{ max: 1023B }", "at least 1KiB"),
        ("{ max: 5MiB }", "limits.hold_per_call"),
        ("{ max: 1MiB, over: mask }", "`mask` is not a known value"),
    ] {
        let report = of(&format!(", results: {says}")).report.to_string();
        assert!(report.contains(expected), "{says}: {report}");
    }
    let larger = load(
        "limits: { hold_per_call: 8MiB }\nupstreams: { a: { url: \"http://a/\", results: { max: 5MiB } } }",
    );
    assert!(!larger.report.has_errors(), "{}", larger.report);
}

#[test]
fn example_secret_patterns_match_their_tokens_and_no_harmless_text() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/secrets/tokens.yaml"
    );
    let text = format!(
        "upstreams: {{ a: {{ url: \"http://a/\", secrets: {{ patterns: \"{file}\" }} }} }}"
    );
    let patterns = super::good(&text).upstreams[0]
        .rules
        .secrets
        .clone()
        .unwrap()
        .patterns
        .clone();
    let many = |text: &str, times: usize| text.repeat(times);
    // Assembled here, so that no scanner of this repository takes them for real secrets.
    let secrets = [
        ("aws-access-key", format!("AKIA{}", many("A7", 8))),
        ("github-token", format!("ghp_{}", many("aB3", 12))),
        ("gitlab-token", format!("glpat-{}", many("x-Y_", 5))),
        ("slack-token", format!("xoxb-{}", many("1234-ab", 3))),
        ("google-api-key", format!("AIza{}", many("Sy_-x", 7))),
        ("stripe-key", format!("sk_live_{}", many("4eC", 8))),
        ("npm-token", format!("npm_{}", many("a1B", 12))),
        (
            "private-key",
            format!(
                "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END",
                many("MIIB", 20)
            ),
        ),
        (
            "jwt",
            format!(
                "eyJ{}.eyJ{}.{}",
                many("hbG", 5),
                many("zdW", 5),
                many("Sf", 9)
            ),
        ),
        (
            "url-password",
            format!("postgres://app:{}@db/x", many("hunter", 2)),
        ),
        (
            "assigned-password",
            format!("\"password\": \"{}\"", many("correct", 2)),
        ),
    ];
    assert_eq!(
        patterns.names().collect::<Vec<_>>(),
        secrets.each_ref().map(|(name, _)| *name)
    );
    for (name, secret) in &secrets {
        assert!(
            patterns.has_match(&format!("before {secret} after")),
            "{name}"
        );
    }
    for harmless in [
        "the password is secret",
        "task_1234567890",
        "https://example.com/a:b@c",
        "AKIA in prose",
        "eyJ",
    ] {
        assert!(!patterns.has_match(harmless), "{harmless}");
    }
}

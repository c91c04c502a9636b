//! Files, texts and keys without content: they never allow access to all callers.

use serde_json::Value;

use super::*;

// Proves G01, G05.
#[test]
fn empty_file_is_an_error() {
    for text in [
        "",
        "\n\n",
        "{}",
        "---\n",
        "# listen: 0.0.0.0:80\n",
        "~",
        "null",
    ] {
        let outcome = load(text);
        assert!(outcome.config.is_none(), "{text:?}");
        assert!(
            outcome
                .report
                .to_string()
                .contains("weir.yaml: error: the file is empty"),
            "{text:?}: {}",
            outcome.report
        );
    }
    good("upstreams: {}");
}

#[test]
fn an_empty_file_of_a_team_keeps_its_last_good_version() {
    let folder = TestFolder::new("empty-team");
    let main = folder.write(
        "weir.yaml",
        "include: teams\nteams: { a: { hosts: [a], paths: [/mcp/a*] } }\n",
    );
    folder.write(
        "teams/a.yaml",
        "upstreams: { a: { url: \"http://a/mcp\" } }\n",
    );
    let mut loader = ConfigLoader::new(ConfigSource::File(main), &environment);
    assert_eq!(loader.load().config.unwrap().upstreams.len(), 1);
    folder.write("teams/a.yaml", "");
    let outcome = loader.load();
    assert_eq!(outcome.config.unwrap().upstreams.len(), 1);
    assert!(
        outcome.report.to_string().contains("the file is empty"),
        "{}",
        outcome.report
    );
}

/// Collects the JSON pointers to every key of a document.
fn keys(value: &Value, at: &str, found: &mut Vec<String>) {
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, value)| (at.to_string(), value))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (key, value) in entries {
        let path = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        found.push(path.clone());
        keys(value, &path, found);
    }
}

// Proves G05.
#[test]
fn null_is_an_error_for_every_key() {
    let full: Value = serde_saphyr::from_str(include_str!("full.yaml")).unwrap();
    let mut all = Vec::new();
    keys(&full, "", &mut all);
    assert!(all.len() > 150, "{}", all.len());
    for pointer in all {
        let mut text = full.clone();
        *text.pointer_mut(&pointer).unwrap() = Value::Null;
        let outcome = load(&text.to_string());
        assert!(outcome.config.is_none(), "{pointer}: null is taken");
        assert!(
            outcome.report.to_string().contains("has no value"),
            "{pointer}: {}",
            outcome.report
        );
    }
}

// Proves C22.
#[test]
fn empty_policy_file_is_an_error() {
    let folder = TestFolder::new("empty-rules");
    let main = folder.write(
        "weir.yaml",
        "policy: { files: [main.cedar] }\nupstreams: { a: { url: \"http://a/\" } }\n",
    );
    // The last one is cut in the middle of its only rule.
    for text in [
        "",
        "\n\n",
        "// Staff sees everything.\n",
        "// a\n// b",
        "permit(principal in Group::\"staff\",\n",
    ] {
        folder.write("main.cedar", text);
        let outcome = ConfigLoader::new(ConfigSource::File(main.clone()), &environment).load();
        assert!(outcome.config.is_none(), "{text:?}");
        let report = outcome.report.to_string();
        assert!(
            report.contains("main.cedar") && report.contains("policy.files.0"),
            "{text:?}: {report}"
        );
    }
    folder.write("main.cedar", "forbid(principal, action, resource);");
    let config = ConfigLoader::new(ConfigSource::File(main), &environment)
        .load()
        .config
        .unwrap();
    assert!(!config.rules.common().is_empty());
}

//! `weir apikey`: a fresh key for a machine, and the config's entry for it.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use weir_config::{ConfigLoader, ConfigSource};
use weir_config_file::config_report::Severity;
use weir_core::port::Random;
use weir_system::SystemRandom;

/// The owner of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOwner {
    /// A program that calls tools.
    Machine,
    /// A person who operates weir.
    Operator,
}

/// Returns the text to print. It is the only place with the key: the config has the key's digest
/// only.
///
/// # Errors
/// A message for people: a config would not accept an entry of this name.
pub fn apikey(subject: &str, of: KeyOwner) -> Result<String, String> {
    let (mut id, mut secret) = ([0; 5], [0; 32]);
    SystemRandom.fill(&mut id);
    SystemRandom.fill(&mut secret);
    let id = HEXLOWER.encode(&id);
    let key = format!("weir_{id}_{}", BASE64URL_NOPAD.encode(&secret));
    let digest = HEXLOWER.encode(&weir_policy::api_key_digest(&key));
    // A JSON string is a YAML string, with any content.
    let subject = serde_json::Value::from(subject);
    let (entry, config) = match of {
        KeyOwner::Machine => (
            format!("{{ id: \"{id}\", sha256: \"{digest}\", subject: {subject} }}"),
            "auth:\n  mode: required\n  api_keys:\n  - ",
        ),
        KeyOwner::Operator => (
            format!("{{ name: {subject}, sha256: \"{digest}\" }}"),
            "admin:\n  auth:\n    tokens:\n    - ",
        ),
    };
    if let Some(why) = first_error(format!("{config}{entry}\n")) {
        return Err(why);
    }
    Ok(match of {
        KeyOwner::Machine => format!(
            "# The key is shown this once: give it to the machine, which sends it as `Authorization: Bearer` or `X-API-Key`.\n\
             WEIR_API_KEY={key}\n\
             # Its entry in the config, under auth.api_keys:\n\
             # - {entry}\n"
        ),
        KeyOwner::Operator => format!(
            "# The token is shown this once: give it to the operator, whose `weir admin` takes it from this variable.\n\
             WEIR_ADMIN_TOKEN={key}\n\
             # Its entry in the config, under admin.auth.tokens:\n\
             # - {entry}\n"
        ),
    })
}

/// Returns the first error of a config, with the last part of its path.
fn first_error(text: String) -> Option<String> {
    let source = ConfigSource::Text {
        name: String::new(),
        text,
    };
    let report = ConfigLoader::new(source, &|_| None).load().report;
    let mut problems = report.problems().iter();
    let problem = problems.find(|problem| problem.severity == Severity::Error)?;
    let key = problem.path.segments().last().unwrap_or_default();
    Some(format!("the {key} of the entry {}", problem.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_config_refuses_gets_no_key() {
        let long = "x".repeat(65);
        for (subject, of, words) in [
            ("", KeyOwner::Machine, "subject of the entry is missing"),
            ("", KeyOwner::Operator, "name of the entry is missing"),
            (&long, KeyOwner::Operator, "at most 64 characters"),
            ("a\nb", KeyOwner::Operator, "control character"),
        ] {
            let why = apikey(subject, of).expect_err(subject);
            assert!(why.contains(words), "{why}");
        }
        assert!(apikey(&long, KeyOwner::Machine).is_ok());
        assert!(apikey(&long[1..], KeyOwner::Operator).is_ok());
    }

    // Proves G05.
    #[test]
    fn a_generated_entry_is_accepted_and_is_of_its_key() {
        let printed = apikey("build: \"x\"", KeyOwner::Machine).expect("a key");
        let line = |start: &str| {
            printed
                .lines()
                .find_map(|line| line.strip_prefix(start))
                .expect("the line is printed")
        };
        let text = format!(
            "auth:\n  mode: required\n  api_keys:\n  - {}\n",
            line("# - ")
        );
        let source = ConfigSource::Text {
            name: "keys".to_owned(),
            text,
        };
        let outcome = ConfigLoader::new(source, &|_| None).load();
        let config = outcome
            .config
            .unwrap_or_else(|| panic!("{}", outcome.report));
        let [key] = config.auth.api_keys.as_slice() else {
            panic!("one key")
        };
        assert_eq!(
            (&*key.subject, key.digest),
            (
                "build: \"x\"",
                weir_policy::api_key_digest(line("WEIR_API_KEY="))
            )
        );
        assert_ne!(
            apikey("x", KeyOwner::Machine),
            apikey("x", KeyOwner::Machine)
        );
    }
    // Proves G05.
    #[test]
    fn an_operators_entry_is_accepted_and_is_of_its_token() {
        let printed = apikey("ada", KeyOwner::Operator).expect("a token");
        let line = |start: &str| {
            printed
                .lines()
                .find_map(|line| line.strip_prefix(start))
                .expect("the line is printed")
        };
        let text = format!("admin:\n  auth:\n    tokens:\n    - {}\n", line("# - "));
        let outcome = ConfigLoader::new(
            ConfigSource::Text {
                name: "keys".to_owned(),
                text,
            },
            &|_| None,
        )
        .load();
        let config = outcome
            .config
            .unwrap_or_else(|| panic!("{}", outcome.report));
        let plan = config.admin.expect("a listener for operators");
        let [key] = plan.keys.as_slice() else {
            panic!("one key in {plan:?}")
        };
        assert_eq!(
            (&*key.name, key.digest),
            (
                "ada",
                weir_policy::api_key_digest(line("WEIR_ADMIN_TOKEN="))
            )
        );
    }
}

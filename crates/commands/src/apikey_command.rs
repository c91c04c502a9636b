//! `weir apikey`: a fresh key for a machine, and the config's entry for it.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
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
pub fn apikey(subject: &str, of: KeyOwner) -> String {
    let (mut id, mut secret) = ([0; 5], [0; 32]);
    SystemRandom.fill(&mut id);
    SystemRandom.fill(&mut secret);
    let id = HEXLOWER.encode(&id);
    let key = format!("weir_{id}_{}", BASE64URL_NOPAD.encode(&secret));
    let digest = HEXLOWER.encode(&weir_policy::api_key_digest(&key));
    // A JSON string is a YAML string, with any content.
    let subject = serde_json::Value::from(subject);
    match of {
        KeyOwner::Machine => format!(
            "# The key is shown this once: give it to the machine, which sends it as `Authorization: Bearer` or `X-API-Key`.\n\
             WEIR_API_KEY={key}\n\
             # Its entry in the config, under auth.api_keys:\n\
             # - {{ id: \"{id}\", sha256: \"{digest}\", subject: {subject} }}\n"
        ),
        KeyOwner::Operator => format!(
            "# The token is shown this once: give it to the operator, whose `weir admin` takes it from this variable.\n\
             WEIR_ADMIN_TOKEN={key}\n\
             # Its entry in the config, under admin.auth.tokens:\n\
             # - {{ name: {subject}, sha256: \"{digest}\" }}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::{ConfigLoader, ConfigSource};

    // Proves G05.
    #[test]
    fn a_generated_entry_is_accepted_and_is_of_its_key() {
        let printed = apikey("build: \"x\"", KeyOwner::Machine);
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
        let printed = apikey("ada", KeyOwner::Operator);
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

//! `weir apikey`: a fresh key for a machine, and the config's entry for it.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use weir_core::port::Random;

use crate::system::SystemRandom;

/// What is printed. The key is in it this once; the config has its digest only.
pub(super) fn apikey(subject: &str) -> String {
    let (mut id, mut secret) = ([0; 5], [0; 32]);
    SystemRandom.fill(&mut id);
    SystemRandom.fill(&mut secret);
    let id = HEXLOWER.encode(&id);
    let key = format!("weir_{id}_{}", BASE64URL_NOPAD.encode(&secret));
    let digest = HEXLOWER.encode(&weir_policy::api_key_digest(&key));
    // A text in JSON is one in YAML, whatever is in it.
    let subject = serde_json::Value::from(subject);
    format!(
        "# The key is shown this once: give it to the machine, which sends it as `Authorization: Bearer` or `X-API-Key`.\n\
         WEIR_API_KEY={key}\n\
         # Its entry in the config, under auth.api_keys:\n\
         # - {{ id: \"{id}\", sha256: \"{digest}\", subject: {subject} }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Loader, Source};

    #[test]
    fn g05_a_generated_entry_is_accepted_and_is_of_its_key() {
        let printed = apikey("build: \"x\"");
        let line =
            |start: &str| printed.lines().find_map(|line| line.strip_prefix(start)).expect("the line is printed");
        let text = format!("auth:\n  mode: required\n  api_keys:\n  - {}\n", line("# - "));
        let source = Source::Text { name: "keys".to_owned(), text };
        let outcome = Loader::new(source, &|_| None).load();
        let config = outcome.config.unwrap_or_else(|| panic!("{}", outcome.report));
        let [key] = config.auth.api_keys.as_slice() else { panic!("one key") };
        assert_eq!((&*key.subject, key.digest), ("build: \"x\"", weir_policy::api_key_digest(line("WEIR_API_KEY="))));
        assert_ne!(apikey("x"), apikey("x"));
    }
}

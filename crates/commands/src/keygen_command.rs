//! `weir keygen`: a fresh sealing key.

use data_encoding::BASE64URL_NOPAD;
use weir_core::port::Random;
use weir_system::SystemRandom;

/// Returns a fresh key, with its variable and its line of the config.
pub fn keygen() -> String {
    let mut bytes = [0; 33];
    SystemRandom.fill(&mut bytes);
    let [id, secret @ ..] = bytes;
    format!(
        "# Put the secret where weir starts (WEIR_KEY), and the line into the config. A new key goes in front; keep the\n\
         # old one behind it until what it sealed has expired.\n\
         WEIR_KEY={}\n\
         # keys: [{{ id: {}, secret: \"${{WEIR_KEY}}\" }}]\n",
        BASE64URL_NOPAD.encode(&secret),
        id.max(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::ConfigSource;

    // Proves G05.
    #[test]
    fn a_generated_key_is_accepted_and_no_two_are_equal() {
        let (one, two) = (keygen(), keygen());
        assert_ne!(one, two);
        let value = |text: &str, start: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(start))
                .expect("the line is printed");
            line[start.len()..].to_owned()
        };
        let secret = value(&one, "WEIR_KEY=");
        let entry = value(&one, "# keys: ");
        let environment = move |name: &str| (name == "WEIR_KEY").then(|| secret.clone());
        let source = ConfigSource::Text {
            name: "keys".to_owned(),
            text: format!("keys: {entry}\n"),
        };
        let outcome = weir_config::ConfigLoader::new(source, &environment).load();
        assert_eq!(
            outcome.config.map(|config| config.keys.len()),
            Some(1),
            "{}",
            outcome.report
        );
    }
}

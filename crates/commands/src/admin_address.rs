//! Finds the address of the operators' listener in a config that may have errors elsewhere: a
//! command that queries a running weir must not fail because its file is being edited.

use std::net::SocketAddr;
use std::path::Path as FilePath;

use weir_config::DEFAULT_ADMIN_LISTEN as ADMIN;
use weir_config_file::config_files::read_stream;
use weir_config_file::config_report::{ConfigPath, ConfigReport};
use weir_config_file::config_tree::NodeValue;
use weir_config_file::document::parse_nonempty;
use weir_config_file::env::{Environment, ReferenceValues, fill_in};

/// Returns the address of `admin.listen` in this file, or its default if the file does not have
/// the key; `None` if it is `off`.
///
/// # Errors
/// The file cannot be read, is not YAML, or has an `admin.listen` that is no address, such as one
/// with a variable that is not set. The default would then be the address of another weir.
pub(crate) fn find_admin_address(
    file: &FilePath,
    environment: Environment<'_>,
) -> Result<Option<SocketAddr>, String> {
    let name = file.display().to_string();
    let (tree, _) = read_stream(file)
        .and_then(|text| parse_nonempty(&name, &text))
        .map_err(|problem| problem.message)?;
    if !matches!(tree.value, NodeValue::Map(_)) {
        return Err(format!("expected a config, found {}", tree.kind()));
    }
    let Some(admin) = tree.find(&ConfigPath::at("admin")) else {
        return Ok(Some(ADMIN));
    };
    if !matches!(admin.value, NodeValue::Map(_)) {
        return Err(format!("admin: expected a map, found {}", admin.kind()));
    }
    // The other parts of the file may have errors, and are not looked at.
    let Some(mut listen) = admin.find(&ConfigPath::at("listen")).cloned() else {
        return Ok(Some(ADMIN));
    };
    let mut report = ConfigReport::default();
    fill_in(
        &mut listen,
        environment,
        &ReferenceValues::default(),
        &mut report,
    );
    if let [problem, ..] = report.problems() {
        return Err(format!("admin.listen: {}", problem.message));
    }
    match &listen.value {
        NodeValue::Text(text) if text.text == "off" => Ok(None),
        NodeValue::Text(text) => text
            .text
            .parse()
            .map(Some)
            .map_err(|_| format!("admin.listen: `{}` is not an address and port", text.text)),
        NodeValue::Null
        | NodeValue::Unset
        | NodeValue::Bool(_)
        | NodeValue::Integer(_)
        | NodeValue::Float(_)
        | NodeValue::List(_)
        | NodeValue::Map(_) => Err(format!(
            "admin.listen: expected an address and port, found {}",
            listen.kind()
        )),
    }
}

#[cfg(test)]
mod tests {
    use weir_testkit::TestFolder;

    use super::*;

    fn asked(text: &str) -> Result<Option<SocketAddr>, String> {
        let folder = TestFolder::new("operators");
        let file = folder.write("weir.yaml", text);
        find_admin_address(&file, &|name| (name == "PORT").then(|| "9".to_owned()))
    }

    #[test]
    fn address_is_found_despite_other_errors() {
        let nine = Ok(Some(SocketAddr::from(([0, 0, 0, 0], 9))));
        for (name, text, expected) in [
            ("default", "upstreams: {}\n", Ok(Some(ADMIN))),
            ("said", "admin: { listen: \"0.0.0.0:9\" }\n", nine.clone()),
            (
                "filled",
                "admin: { listen: \"0.0.0.0:${PORT}\" }\n",
                nine.clone(),
            ),
            (
                "bad",
                "lisen: 1\nadmin: { listen: \"0.0.0.0:9\" }\nupstreams: { a: { url: ftp://x } }\n",
                nine,
            ),
            ("off", "admin: { listen: off }\n", Ok(None)),
        ] {
            assert_eq!(asked(text), expected, "{name}");
        }
    }

    /// The default would be the address of another weir, which a command would then change.
    #[test]
    fn no_default_stands_in_for_an_address_that_cannot_be_read() {
        for (name, text, words) in [
            ("none", "admin: { listen: here }\n", "`here`"),
            ("broken", "admin: [\n", ""),
            ("text", "just words\n", "expected a config"),
            (
                "unset",
                "admin: { listen: \"${NO_SUCH}\" }\n",
                "variable NO_SUCH is not set",
            ),
            (
                "elsewhere",
                "a: \"${NO_SUCH}\"\nadmin: { listen: \"${NO_SUCH}\" }\n",
                "admin.listen",
            ),
            (
                "beside",
                "admin: { auth: { token: \"${NO_SUCH}\" }, listen: \"${NO_SUCH}\" }\n",
                "admin.listen: environment variable NO_SUCH",
            ),
            ("whole", "admin: \"${NO_SUCH}\"\n", "admin: expected a map"),
            ("empty", "", "the file is empty"),
            ("port", "admin: { listen: 8081 }\n", "admin.listen"),
            ("list", "admin: [off]\n", "admin: expected a map"),
            ("null", "admin:\n", "admin: expected a map"),
            ("no value", "admin: { listen: }\n", "admin.listen"),
        ] {
            let why = asked(text).expect_err(name);
            assert!(why.contains(words), "{name}: {why}");
        }
        assert!(find_admin_address(FilePath::new("/nowhere/weir.yaml"), &|_| None).is_err());
    }
}

//! Finds the address of the operators' listener in a config that may have errors elsewhere: a
//! command that queries a running weir must not fail because its file is being edited.

use std::net::SocketAddr;
use std::path::Path as FilePath;

use weir_config_file::config_files::read;
use weir_config_file::config_report::ConfigReport;
use weir_config_file::decode::decode;
use weir_config_file::document::parse;
use weir_config_file::env::{Environment, ReferenceValues, fill_in};
use weir_config_file::raw;

use crate::check::DEFAULT_ADMIN_LISTEN as ADMIN;

/// The path of the operators' listener for liveness probes, of orchestrators and `weir health`.
pub const LIVENESS_PATH: &str = "/healthz";
/// The path of the operators' listener for readiness probes.
pub const READINESS_PATH: &str = "/readyz";

/// Returns the address of `admin.listen` in this file, or its default; `None` if it is `off`.
///
/// # Errors
/// The file cannot be read, is not YAML, or `admin.listen` is not an address.
pub fn find_admin_address(
    file: &FilePath,
    environment: Environment<'_>,
) -> Result<Option<SocketAddr>, String> {
    let name = file.display().to_string();
    let (mut tree, _) = read(file)
        .and_then(|text| parse(&name, &text))
        .map_err(|problem| problem.message)?;
    let mut others = ConfigReport::default();
    fill_in(
        &mut tree,
        environment,
        &ReferenceValues::default(),
        &mut others,
    );
    let raw: raw::RawConfig = decode(tree, &mut others);
    match raw.admin.and_then(|admin| admin.listen).as_deref() {
        None => Ok(Some(ADMIN)),
        Some("off") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| format!("admin.listen: `{text}` is not an address and port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, text: &str) -> Result<Option<SocketAddr>, String> {
        let file =
            std::env::temp_dir().join(format!("weir-operators-{name}-{}.yaml", std::process::id()));
        std::fs::write(&file, text).expect("a file can be written");
        let found = find_admin_address(&file, &|name| (name == "PORT").then(|| "9".to_owned()));
        std::fs::remove_file(file).expect("it is there");
        found
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
            assert_eq!(asked(name, text), expected, "{name}");
        }
        assert!(asked("none", "admin: { listen: here }\n").is_err());
        assert!(asked("broken", "admin: [\n").is_err());
        assert!(find_admin_address(FilePath::new("/nowhere/weir.yaml"), &|_| None).is_err());
    }
}

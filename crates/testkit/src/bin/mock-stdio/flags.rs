//! The command line of `mock-stdio`.

use weir_wire::Revision;

/// The parsed command line.
#[derive(Debug, Default)]
pub(super) struct MockStdioFlags {
    pub(super) modern: bool,
    pub(super) revision: Option<Revision>,
    pub(super) silent_to_discover: bool,
    pub(super) tools: usize,
    pub(super) exit_after: Option<usize>,
    pub(super) flood_stderr: usize,
    pub(super) noise: bool,
    pub(super) ignore_sigterm: bool,
    pub(super) grandchild: bool,
    pub(super) hang: bool,
    pub(super) starts_file: Option<String>,
    pub(super) calls_file: Option<String>,
    /// The URL of the server that it relays.
    pub(super) relay: Option<String>,
    /// The folder for records of the client's messages.
    pub(super) keep: Option<String>,
}

/// Reads the arguments; the error names the faulty one.
pub(super) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<MockStdioFlags, String> {
    let mut flags = MockStdioFlags::default();
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
        let number = |text: String| text.parse().map_err(|error| format!("{text}: {error}"));
        match flag.as_str() {
            "--era" => flags.modern = value()? == "modern",
            "--revision" => flags.revision = Revision::parse(&value()?),
            "--silent-to-discover" => flags.silent_to_discover = true,
            "--tools" => flags.tools = number(value()?)?,
            "--exit-after" => flags.exit_after = Some(number(value()?)?),
            "--flood-stderr" => flags.flood_stderr = number(value()?)?,
            "--noise" => flags.noise = true,
            "--ignore-sigterm" => flags.ignore_sigterm = true,
            "--grandchild" => flags.grandchild = true,
            "--keep" => flags.keep = Some(value()?),
            "--relay" => flags.relay = Some(value()?),
            "--hang" => flags.hang = true,
            "--calls-file" => flags.calls_file = Some(value()?),
            "--starts-file" => flags.starts_file = Some(value()?),
            _ => return Err(format!("unknown flag {flag}")),
        }
    }
    Ok(flags)
}

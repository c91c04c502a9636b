//! `weir audit verify FILE...`: verifies that an audit log is complete and unchanged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use data_encoding::{BASE64URL, BASE64URL_NOPAD};
use weir_audit::{
    AuditKey, ChainFault, ChainGap, ChainHead, ChainInspector, ChainLink, ChainSummary,
};
use weir_text::count;

use super::exit_code::{EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};

/// The exit code of a missing, moved or changed record.
const EXIT_BROKEN: u8 = 1;
/// The longest line in bytes. weir writes shorter ones.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// The subcommands of `weir audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that no record was changed, dropped, inserted or swapped; exits with 1 at the first
    /// such record, 3 if a file cannot be read
    Verify(VerifyOptions),
}

/// The options of `weir audit verify`.
#[derive(Debug, Args)]
pub struct VerifyOptions {
    /// The files of one audit log, in any order: of calls, of refusals, and of processes that
    /// handed over to others
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A record that must be present, as an earlier run printed it: detects an end that was cut
    /// off, or a log that was rewritten. One for each chain
    #[arg(long, value_name = "[CHAIN:]SEQ:HASH", value_parser = parse_head)]
    expect: Vec<(String, ChainHead)>,
    /// Require that the files contain the first record of each chain
    #[arg(long)]
    from_start: bool,
    /// Keys of a signed chain, as in the config; better given in the environment, hidden from other
    /// users
    #[arg(
        long = "key",
        env = "WEIR_AUDIT_KEYS",
        hide_env_values = true,
        value_name = "ID:SECRET",
        value_delimiter = ','
    )]
    keys: Vec<String>,
}

/// Runs a command on audit files.
pub fn run(command: AuditCommand) -> ExitCode {
    let AuditCommand::Verify(verify) = command;
    match verify.run() {
        Ok(summaries) => {
            summaries
                .iter()
                .for_each(|(chain, summary)| weir_terminal::line(format_summary(chain, summary)));
            ExitCode::SUCCESS
        }
        Err(VerifyError::Unreadable(file, error)) => exit_with_error(
            EXIT_UNREACHABLE,
            format_args!("{}: {error}", file.display()),
        ),
        Err(VerifyError::Usage(why)) => exit_with_error(EXIT_USAGE, why),
        Err(VerifyError::Broken(file, ChainFault { line, why })) => {
            weir_terminal::line(format_args!("{}:{line}: {why}", file.display()));
            ExitCode::from(EXIT_BROKEN)
        }
    }
}

/// The reason for an early end of the verification.
enum VerifyError {
    Unreadable(PathBuf, io::Error),
    Usage(&'static str),
    Broken(PathBuf, ChainFault),
}

/// The chains of an audit log by name. The chain of the calls has an empty name.
type ChainInspectors = BTreeMap<String, ChainInspector>;

impl VerifyOptions {
    fn run(self) -> Result<Vec<(String, ChainSummary)>, VerifyError> {
        let Self {
            files,
            expect,
            from_start,
            keys,
        } = self;
        // clap must not parse keys: it would repeat an invalid secret in its message.
        let keys: Vec<AuditKey> = keys
            .iter()
            .map(|text| parse_key(text))
            .collect::<Result<_, _>>()
            .map_err(VerifyError::Usage)?;
        let mut chains = ChainInspectors::new();
        for (chain, head) in expect {
            let inspector = ChainInspector::new(keys.clone()).expect(head);
            if chains.insert(chain, inspector).is_some() {
                return Err(VerifyError::Usage(
                    "give at most one expected record of each chain",
                ));
            }
        }
        let files = in_order(files)?;
        for file in &files {
            inspect_file(&mut chains, &keys, file)?;
        }
        let last = files.last().cloned().unwrap_or_default();
        let mut summaries = Vec::new();
        for (chain, inspector) in chains {
            let summary = inspector
                .finish()
                .map_err(|trouble| VerifyError::Broken(last.clone(), trouble))?;
            match summary.first {
                None => {}
                Some(first) if from_start && first != 1 => {
                    let why = format!("it is record {first}: those before it are missing");
                    let file = files.first().cloned().unwrap_or_default();
                    return Err(VerifyError::Broken(file, ChainFault { line: 1, why }));
                }
                Some(_) => summaries.push((chain, summary)),
            }
        }
        match summaries.is_empty() {
            true => Err(VerifyError::Usage("there is no record in these files")),
            false => Ok(summaries),
        }
    }
}

/// Sorts files by their first record. A file without a first record sorts first, and its error is
/// reported there.
fn in_order(files: Vec<PathBuf>) -> Result<Vec<PathBuf>, VerifyError> {
    let mut numbered = Vec::new();
    for file in files {
        let line = open(&file).and_then(|mut reader| next_line(&mut reader));
        let line = line.map_err(|error| VerifyError::Unreadable(file.clone(), error))?;
        let first = line
            .and_then(|(line, _)| ChainLink::read(&line))
            .map_or(0, |link| link.head.seq);
        numbered.push((first, file));
    }
    numbered.sort_by_key(|(first, _)| *first);
    Ok(numbered.into_iter().map(|(_, file)| file).collect())
}

fn inspect_file(
    chains: &mut ChainInspectors,
    keys: &[AuditKey],
    file: &Path,
) -> Result<(), VerifyError> {
    let unreadable = |error| VerifyError::Unreadable(file.to_owned(), error);
    let broken = |trouble| VerifyError::Broken(file.to_owned(), trouble);
    let mut reader = open(file).map_err(unreadable)?;
    chains.values_mut().for_each(ChainInspector::begin_file);
    // A line that is not a record belongs to the chain of the record before it, or else to that of
    // the first one.
    let mut chain = first_chain(file).map_err(unreadable)?;
    let mut before = 0;
    while let Some((line, whole)) = next_line(&mut reader).map_err(unreadable)? {
        if let Some(link) = ChainLink::read(&line) {
            chain = link.chain.unwrap_or_default();
        }
        if !chains.contains_key(&chain) {
            let mut inspector = ChainInspector::new(keys.to_vec());
            inspector.begin_file();
            (0..before).for_each(|_| inspector.skip_line());
            chains.insert(chain.clone(), inspector);
        }
        before += 1;
        for (name, inspector) in &mut *chains {
            if *name == chain {
                inspector.line(&line, whole).map_err(broken)?;
            } else {
                inspector.skip_line();
            }
        }
    }
    chains
        .values_mut()
        .try_for_each(|inspector| inspector.end_file().map_err(broken))
}

/// Returns the chain of the first record of a file.
fn first_chain(file: &Path) -> io::Result<String> {
    let mut reader = open(file)?;
    while let Some((line, _)) = next_line(&mut reader)? {
        if let Some(link) = ChainLink::read(&line) {
            return Ok(link.chain.unwrap_or_default());
        }
    }
    Ok(String::new())
}

fn open(file: &Path) -> io::Result<BufReader<File>> {
    File::open(file).map(BufReader::new)
}

/// Reads the next line without its end. The flag is true if it has an end. A line that is too long
/// is read in pieces, which are not records.
fn next_line(reader: &mut BufReader<File>) -> io::Result<Option<(Vec<u8>, bool)>> {
    let mut line = Vec::new();
    if reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let whole = line.last() == Some(&b'\n');
    if whole {
        line.pop();
    }
    Ok(Some((line, whole)))
}

fn format_summary(chain: &str, summary: &ChainSummary) -> String {
    let ChainSummary {
        first,
        head,
        records,
        signed,
        gaps: seams,
    } = summary;
    let mut lines = vec![match chain {
        "" => format!("whole: {}", count(*records, "record")),
        chain => format!(
            "whole, of the chain `{chain}`: {}",
            count(*records, "record")
        ),
    }];
    if let Some(first) = first.filter(|first| *first > 1) {
        lines.push(format!(
            "begins with record {first}: older ones are not in these files"
        ));
    }
    if *signed > 0 && signed < records {
        lines.push(format!("the first {} are not signed", records - signed));
    }
    for seam in seams {
        lines.push(match seam {
            ChainGap::Recovered { seq, bytes } => {
                format!("before record {seq}, weir crashed, and {bytes} bytes of records were cut off")
            }
            ChainGap::Open { seq } => format!(
                "after record {seq}, another process continued, and the previous one has not recorded its end: it may still be draining"
            ),
            ChainGap::Lost { seq, events } => format!("before record {seq}, {events} events were lost, because there was no room for them"),
        });
    }
    if let Some(head) = head {
        let chain = if chain.is_empty() {
            String::new()
        } else {
            format!("{chain}:")
        };
        lines.push(format!("last: {chain}{head}"));
    }
    lines.join("\n")
}

fn parse_head(text: &str) -> Result<(String, ChainHead), String> {
    let named = || {
        let (chain, head) = text.split_once(':')?;
        Some((chain.to_owned(), ChainHead::read(head)?))
    };
    let read = ChainHead::read(text)
        .map(|head| (String::new(), head))
        .or_else(named);
    read.ok_or_else(|| "write SEQ:HASH, as `weir audit verify` prints it".to_owned())
}

/// Parses a key. The error never contains the text, which is a secret.
fn parse_key(text: &str) -> Result<AuditKey, &'static str> {
    let (id, secret) = text
        .split_once(':')
        .ok_or("a key of --key or WEIR_AUDIT_KEYS is ID:SECRET")?;
    let bytes = BASE64URL_NOPAD
        .decode(secret.as_bytes())
        .or_else(|_| BASE64URL.decode(secret.as_bytes()));
    let secret: Option<[u8; 32]> = bytes.ok().and_then(|bytes| bytes.try_into().ok());
    match (id.parse(), secret) {
        (Ok(id), Some(secret)) => Ok(AuditKey::new(id, secret)),
        _ => Err("a key is its number, a colon, and 32 bytes of URL-safe base64"),
    }
}

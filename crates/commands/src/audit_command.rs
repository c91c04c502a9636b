//! `weir audit verify FILE...`: verifies that an audit log is complete and unchanged.

use std::collections::{BTreeMap, VecDeque};
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

use crate::exit_code::{EXIT_NO, EXIT_UNREACHABLE, EXIT_USAGE, exit_with_error};

/// The longest line in bytes. weir writes shorter ones.
const MAX_LINE_BYTES: u64 = 16 << 20;
/// More bytes before the first record of a file than a sudden end of weir can leave.
const MAX_TORN: u64 = 64 << 20;

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
            ExitCode::from(EXIT_NO)
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
type AuditChains = BTreeMap<String, AuditChainState>;

/// A chain while its files are read.
struct AuditChainState {
    inspector: ChainInspector,
    /// The places of its first and its last record.
    first: Option<RecordPosition>,
    last: Option<RecordPosition>,
}

/// A line of a file.
#[derive(Clone, Default)]
struct RecordPosition {
    file: PathBuf,
    line: u64,
}

impl AuditChainState {
    fn new(inspector: ChainInspector) -> Self {
        Self {
            inspector,
            first: None,
            last: None,
        }
    }
}

impl RecordPosition {
    /// The fault of a chain at this place.
    fn broken(self, chain: &str, why: &str) -> VerifyError {
        let of_chain = match chain {
            "" => String::new(),
            chain => format!(" (chain `{chain}`)"),
        };
        let why = format!("{why}{of_chain}");
        VerifyError::Broken(
            self.file,
            ChainFault {
                line: self.line,
                why,
            },
        )
    }
}

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
        let mut chains = AuditChains::new();
        for (chain, head) in expect {
            let inspector = ChainInspector::new(keys.clone()).expect(head);
            let state = AuditChainState::new(inspector);
            if chains.insert(chain, state).is_some() {
                return Err(VerifyError::Usage(
                    "give at most one expected record of each chain",
                ));
            }
        }
        let files = in_order(files)?;
        // The place of a chain without any record.
        let nowhere = RecordPosition {
            file: files
                .last()
                .map(|file| file.path.clone())
                .unwrap_or_default(),
            line: 1,
        };
        for file in files {
            inspect_file(&mut chains, &keys, file)?;
        }
        let mut summaries = Vec::new();
        for (chain, state) in chains {
            let last = state.last.unwrap_or_else(|| nowhere.clone());
            let summary = state
                .inspector
                .finish()
                .map_err(|fault| last.broken(&chain, &fault.why))?;
            match summary.first {
                None => {}
                Some(first) if from_start && first != 1 => {
                    let why = format!("it is record {first}: those before it are missing");
                    return Err(state.first.unwrap_or(nowhere).broken(&chain, &why));
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

/// A file of an audit log, and its first record.
struct CheckedAuditFile {
    path: PathBuf,
    first: Option<ChainLink>,
    /// The lines of a file that cannot be opened anew, such as a pipe. Others are opened one at a
    /// time, since an audit log may have more files than a process may have open.
    kept: Option<AuditLines>,
}

impl CheckedAuditFile {
    fn open(path: PathBuf) -> Result<Self, VerifyError> {
        let opened = AuditLines::open(&path).and_then(|mut lines| {
            let first = lines.find_first()?;
            let is_regular = lines.reader.get_ref().metadata()?.is_file();
            Ok((first, Some(lines).filter(|_| !is_regular)))
        });
        match opened {
            Ok((first, kept)) => Ok(Self { path, first, kept }),
            Err(error) => Err(VerifyError::Unreadable(path, error)),
        }
    }
}

/// The lines of a file, from its first one on.
struct AuditLines {
    /// The lines that were read to find the first record.
    ahead: VecDeque<AuditLine>,
    reader: BufReader<File>,
}

/// A line without its end. `is_whole`: it has one.
struct AuditLine {
    text: Vec<u8>,
    is_whole: bool,
}

impl AuditLines {
    fn open(file: &Path) -> io::Result<Self> {
        Ok(Self {
            ahead: VecDeque::new(),
            reader: BufReader::new(File::open(file)?),
        })
    }

    /// Returns the first record. The lines before it are kept, as many bytes of them as a record can
    /// account for; behind more of them no record is looked for.
    fn find_first(&mut self) -> io::Result<Option<ChainLink>> {
        let mut bytes = 0;
        while bytes <= MAX_TORN {
            let Some(line) = self.read()? else { break };
            bytes += line.text.len() as u64;
            let link = ChainLink::read(&line.text);
            self.ahead.push_back(line);
            if link.is_some() {
                return Ok(link);
            }
        }
        Ok(None)
    }

    fn next_line(&mut self) -> io::Result<Option<AuditLine>> {
        match self.ahead.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.read(),
        }
    }

    /// Reads a line. One that is too long is read in pieces, which are not records.
    fn read(&mut self) -> io::Result<Option<AuditLine>> {
        let mut text = Vec::new();
        let mut reader = self.reader.by_ref().take(MAX_LINE_BYTES);
        if reader.read_until(b'\n', &mut text)? == 0 {
            return Ok(None);
        }
        let is_whole = text.last() == Some(&b'\n');
        if is_whole {
            text.pop();
        }
        Ok(Some(AuditLine { text, is_whole }))
    }
}

/// Opens files and sorts them by their first record. A file without one sorts first, and its error
/// is reported there.
fn in_order(files: Vec<PathBuf>) -> Result<Vec<CheckedAuditFile>, VerifyError> {
    let opened: Result<Vec<_>, _> = files.into_iter().map(CheckedAuditFile::open).collect();
    let mut files = opened?;
    files.sort_by_key(|file| file.first.as_ref().map_or(0, |link| link.head.seq));
    Ok(files)
}

fn inspect_file(
    chains: &mut AuditChains,
    keys: &[AuditKey],
    file: CheckedAuditFile,
) -> Result<(), VerifyError> {
    let CheckedAuditFile { path, first, kept } = file;
    let unreadable = |error| VerifyError::Unreadable(path.clone(), error);
    let broken = |chain: &str, fault: &ChainFault| {
        let place = RecordPosition {
            file: path.clone(),
            line: fault.line,
        };
        place.broken(chain, &fault.why)
    };
    let mut lines = match kept {
        Some(lines) => lines,
        None => AuditLines::open(&path).map_err(unreadable)?,
    };
    for state in chains.values_mut() {
        state.inspector.begin_file();
    }
    // A line that is not a record belongs to the chain of the record before it, or else to that of
    // the first one.
    let mut chain = first.and_then(|link| link.chain).unwrap_or_default();
    let mut number = 0;
    while let Some(line) = lines.next_line().map_err(unreadable)? {
        if let Some(link) = ChainLink::read(&line.text) {
            chain = link.chain.unwrap_or_default();
        }
        if !chains.contains_key(&chain) {
            let mut inspector = ChainInspector::new(keys.to_vec());
            inspector.begin_file();
            (0..number).for_each(|_| inspector.skip_line());
            chains.insert(chain.clone(), AuditChainState::new(inspector));
        }
        number += 1;
        for (name, state) in &mut *chains {
            if *name != chain {
                state.inspector.skip_line();
                continue;
            }
            let inspected = state.inspector.line(&line.text, line.is_whole);
            inspected.map_err(|fault| broken(name, &fault))?;
            let place = RecordPosition {
                file: path.clone(),
                line: number,
            };
            state.first.get_or_insert_with(|| place.clone());
            state.last = Some(place);
        }
    }
    chains.iter_mut().try_for_each(|(name, state)| {
        let ended = state.inspector.end_file();
        ended.map_err(|fault| broken(name, &fault))
    })
}

fn format_summary(chain: &str, summary: &ChainSummary) -> String {
    let ChainSummary {
        first,
        head,
        records,
        signed,
        gaps,
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
    for gap in gaps {
        lines.push(match gap {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Records that a weir wrote: one of the calls, two of the refusals.
    const CALLS: &str = r#"{"seq":1,"time":"2026-11-30T07:24:29.465Z","kind":"started","version":"0.1.0","unclean":false,"prev":"0000000000000000000000000000000000000000000000000000000000000000","hash":"350745d97c0215cc226b1fa157694259da14c7360f24d288c80fbc3b47c28bda"}"#;
    const REFUSALS: [&str; 2] = [
        r#"{"seq":1,"chain":"refusals","time":"2026-11-30T07:24:29.465Z","kind":"started","version":"0.1.0","unclean":false,"prev":"0000000000000000000000000000000000000000000000000000000000000000","hash":"5f809b752382227e0ccbbaac228762841a28c5ccb0be44e15e10149b015bc95a"}"#,
        r#"{"seq":2,"chain":"refusals","time":"2026-11-30T07:24:32.065Z","kind":"refusals","decision":"refused","reason":"key","endpoint":"/mcp","network":"127.0.0.0/24","since":"2026-11-30T07:24:32.055Z","count":7,"prev":"5f809b752382227e0ccbbaac228762841a28c5ccb0be44e15e10149b015bc95a","hash":"9c6d510900557cc99666728aa4fe4eb843f20b2853ddbb03898b1e725fd08b1c"}"#,
    ];

    #[test]
    fn fault_of_a_chain_names_its_own_file_and_line() {
        let file = |name: &str, text: String| {
            let file = format!("weir-audit-{name}-{}", std::process::id());
            let file = std::env::temp_dir().join(file);
            std::fs::write(&file, text).expect("it is written");
            file
        };
        let calls = file("calls", format!("{CALLS}\n"));
        let whole = file(
            "refusals",
            REFUSALS.map(|line| format!("{line}\n")).concat(),
        );
        let cut = file("cut", format!("{}\n", REFUSALS[1]));
        let fault = |files: [&PathBuf; 2], expect: &str, from_start| {
            let head = parse_head(expect).expect("a head");
            let options = VerifyOptions {
                files: files.map(Clone::clone).to_vec(),
                expect: vec![head],
                from_start,
                keys: Vec::new(),
            };
            match options.run() {
                Err(VerifyError::Broken(file, fault)) => (file, fault.line, fault.why),
                Err(_) | Ok(_) => panic!("a fault was expected of {files:?}"),
            }
        };
        let missing = format!("refusals:9:{}", "a".repeat(64));
        let of_calls = format!("9:{}", "a".repeat(64));
        for [one, other] in [[&calls, &whole], [&whole, &calls]] {
            let (file, line, why) = fault([one, other], &missing, false);
            assert_eq!((&file, line), (&whole, 2), "{why}");
            assert!(why.ends_with("(chain `refusals`)"), "{why}");
            let (file, line, why) = fault([one, other], &of_calls, false);
            assert_eq!((&file, line), (&calls, 1), "{why}");
            assert!(!why.contains("chain"), "{why}");
        }
        let known = "1:350745d97c0215cc226b1fa157694259da14c7360f24d288c80fbc3b47c28bda";
        let (file, line, why) = fault([&calls, &cut], known, true);
        assert_eq!((&file, line), (&cut, 1), "{why}");
        assert!(
            why.starts_with("it is record 2") && why.contains("refusals"),
            "{why}"
        );
        for file in [calls, whole, cut] {
            std::fs::remove_file(file).expect("it is there");
        }
    }

    #[test]
    fn pipe_is_read_once() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let verify = |lines: &[&str]| {
            let (reader, mut writer) = std::io::pipe().expect("a pipe");
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            writer.write_all(text.as_bytes()).expect("it has room");
            drop(writer);
            let file = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
            let options = VerifyOptions {
                files: vec![file],
                expect: Vec::new(),
                from_start: true,
                keys: Vec::new(),
            };
            options.run()
        };
        let records = |found: Result<Vec<(String, ChainSummary)>, _>| {
            let found = found.unwrap_or_default();
            found
                .iter()
                .map(|(chain, summary)| (chain.clone(), summary.records))
                .collect::<Vec<_>>()
        };
        assert_eq!(records(verify(&REFUSALS)), [("refusals".to_owned(), 2)]);
        assert_eq!(
            records(verify(&[CALLS, REFUSALS[0], REFUSALS[1]])),
            [(String::new(), 1), ("refusals".to_owned(), 2)]
        );
        // The fault is that of the chain whose record follows.
        let Err(VerifyError::Broken(_, fault)) = verify(&["no record", REFUSALS[0]]) else {
            panic!("a fault was expected");
        };
        assert_eq!(fault.line, 1);
        assert!(fault.why.ends_with("(chain `refusals`)"), "{}", fault.why);
    }
}

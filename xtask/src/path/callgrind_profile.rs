//! The file format of callgrind, as far as a count needs it.
//!
//! A file is a list of blocks, one for each function (`fn=`) of a source file (`fl=`). Its lines
//! are the function's own costs, and its calls (`cfn=`, `calls=`), each followed by one line with
//! the cost inside the called function. Names are compressed: `(7) name` defines the number 7,
//! `(7)` repeats its name. Files and functions have numbers of their own.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context as _, bail};

/// The counts of one measurement, by function.
#[derive(Debug, Default)]
pub(crate) struct CallgrindProfile {
    /// The functions by their name in the file. Functions of the same name are one.
    pub(crate) functions: BTreeMap<String, FunctionCosts>,
}

/// The counts of one function.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionCosts {
    /// Source files of the function, without the unknown one.
    pub(crate) files: Vec<String>,
    /// The program or library of the function.
    pub(crate) object: String,
    /// Instructions of the function itself.
    pub(crate) instructions: u64,
    /// Calls of the function, by the name of the caller.
    pub(crate) callers: BTreeMap<String, u64>,
}

impl FunctionCosts {
    /// The count of calls.
    pub(crate) fn calls(&self) -> u64 {
        self.callers.values().sum()
    }
}

/// The names of one kind, by number.
#[derive(Default)]
struct CompressedNames(HashMap<String, String>);

impl CompressedNames {
    /// Resolves `(7) name`, `(7)` or a plain name.
    fn resolve(&mut self, text: &str) -> anyhow::Result<String> {
        let Some((number, name)) = text.strip_prefix('(').and_then(|text| text.split_once(')'))
        else {
            return Ok(text.to_owned());
        };
        let name = name.trim_start();
        // A plain name may begin with a parenthesis, too.
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(text.to_owned());
        }
        if name.is_empty() {
            let known = self.0.get(number);
            return known
                .cloned()
                .with_context(|| format!("the name ({number}) is not defined"));
        }
        self.0.insert(number.to_owned(), name.to_owned());
        Ok(name.to_owned())
    }
}

/// The state of a reader in the middle of a file.
#[derive(Default)]
struct ProfileReader {
    profile: CallgrindProfile,
    objects: CompressedNames,
    files: CompressedNames,
    functions: CompressedNames,
    /// The current object, file and function.
    object: String,
    file: String,
    function: String,
    /// The function that the next `calls=` line calls.
    callee: String,
    /// True if the next line of costs belongs to a called function.
    in_call: bool,
    /// The count of position columns before the costs.
    positions: usize,
}

/// Reads a profile. The first event must be `Ir`, the executed instructions.
///
/// # Errors
/// The text has another format.
pub(crate) fn parse(text: &str) -> anyhow::Result<CallgrindProfile> {
    let mut reader = ProfileReader {
        positions: 1,
        ..ProfileReader::default()
    };
    for (number, line) in text.lines().enumerate() {
        reader
            .read_line(line)
            .with_context(|| format!("line {}: {line}", number + 1))?;
    }
    Ok(reader.profile)
}

impl ProfileReader {
    fn read_line(&mut self, line: &str) -> anyhow::Result<()> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            return self.read_costs(line);
        }
        if let Some((key, value)) = line.split_once('=')
            && key.bytes().all(|byte| byte.is_ascii_lowercase())
        {
            return self.read_assignment(key, value);
        }
        match line.split_once(':') {
            Some(("positions", columns)) => self.positions = columns.split_whitespace().count(),
            Some(("events", events)) if events.split_whitespace().next() != Some("Ir") => {
                bail!("the first event is not Ir")
            }
            Some(_) => {}
            None => bail!("neither a header nor costs"),
        }
        Ok(())
    }

    fn read_assignment(&mut self, key: &str, value: &str) -> anyhow::Result<()> {
        match key {
            "ob" => self.object = self.objects.resolve(value)?,
            "cob" => drop(self.objects.resolve(value)?),
            "fl" => self.file = self.files.resolve(value)?,
            // The file of inlined lines, and of a called function, whose own block repeats it.
            "fi" | "fe" | "cfi" | "cfl" => drop(self.files.resolve(value)?),
            "fn" => {
                self.function = self.functions.resolve(value)?;
                let costs = self.profile.functions.entry(self.function.clone());
                let costs = costs.or_default();
                costs.object.clone_from(&self.object);
                if self.file != "???" && !costs.files.contains(&self.file) {
                    costs.files.push(self.file.clone());
                }
            }
            "cfn" => self.callee = self.functions.resolve(value)?,
            "calls" => {
                let count = value.split_whitespace().next().context("no count")?;
                let callee = self.profile.functions.entry(self.callee.clone());
                let callers = &mut callee.or_default().callers;
                *callers.entry(self.function.clone()).or_default() += count.parse::<u64>()?;
                self.in_call = true;
            }
            // Jumps inside a function.
            "jump" | "jcnd" => {}
            _ => bail!("unknown key {key}"),
        }
        Ok(())
    }

    fn read_costs(&mut self, line: &str) -> anyhow::Result<()> {
        if std::mem::take(&mut self.in_call) {
            return Ok(());
        }
        // A missing cost is zero.
        let Some(cost) = line.split_whitespace().nth(self.positions) else {
            return Ok(());
        };
        let costs = self.profile.functions.get_mut(&self.function);
        costs.context("costs before a function")?.instructions += cost.parse::<u64>()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    /// Two functions of weir and one of libc. `weir_a::callee` is defined by its caller.
    pub(super) const SAMPLE: &str = "\
# callgrind format
version: 1
creator: callgrind-3.19.0
cmd:  weir serve --config weir.yaml
desc: Trigger: dump
positions: line
events: Ir
summary: 1161

ob=(1) /bin/weir
fl=(1) crates/a/src/lib.rs
fn=(1) weir_a::caller
10 100
+2 20
cfi=(2) crates/a/src/callee.rs
cfn=(2) weir_a::callee
calls=3 7
* 90
cob=(2) /lib/libc.so.6
cfi=(3) ???
cfn=(3) memcpy
calls=4 0
-1 1000
fi=(4) /rust/core/src/option.rs
5 1
fe=(1)
13 10

fl=(2)
fn=(2)
7 30
cfn=(1)
calls=1 10
+1 5000

ob=(2)
fl=(3)
fn=(3)
0 1000
";

    #[test]
    fn own_costs_leave_out_called_functions() {
        let profile = parse(SAMPLE).unwrap();
        let instructions = |name: &str| profile.functions[name].instructions;
        assert_eq!(instructions("weir_a::caller"), 131);
        assert_eq!(instructions("weir_a::callee"), 30);
        assert_eq!(instructions("memcpy"), 1000);
    }

    #[test]
    fn calls_are_counted_by_caller() {
        let profile = parse(SAMPLE).unwrap();
        let callee = &profile.functions["weir_a::callee"];
        assert_eq!(callee.calls(), 3);
        assert_eq!(callee.callers["weir_a::caller"], 3);
        assert_eq!(profile.functions["memcpy"].calls(), 4);
        assert_eq!(
            profile.functions["weir_a::caller"].callers["weir_a::callee"],
            1
        );
    }

    #[test]
    fn numbers_stand_for_names_of_their_kind() {
        let profile = parse(SAMPLE).unwrap();
        let callee = &profile.functions["weir_a::callee"];
        assert_eq!(callee.files, ["crates/a/src/callee.rs"]);
        assert_eq!(callee.object, "/bin/weir");
        let memcpy = &profile.functions["memcpy"];
        assert!(memcpy.files.is_empty(), "an unknown file is none");
        assert_eq!(memcpy.object, "/lib/libc.so.6");
    }

    #[test]
    fn functions_of_one_name_are_one() {
        let text = "events: Ir\nfl=(1) a.rs\nfn=(1) same\n1 2\nfl=(2) b.rs\nfn=(2) same\n1 3\n";
        let same = &parse(text).unwrap().functions["same"];
        assert_eq!(same.instructions, 5);
        assert_eq!(same.files, ["a.rs", "b.rs"]);
    }

    #[test]
    fn columns_of_positions_are_skipped() {
        let text = "positions: instr line\nevents: Ir Dr\nfn=f\n0x10 7 40 9\n+3 +1 2\n* *\n";
        // A hexadecimal address begins with a digit, and a line may end before its costs.
        assert_eq!(parse(text).unwrap().functions["f"].instructions, 42);
    }

    #[test]
    fn other_texts_are_errors() {
        assert!(parse("nonsense").is_err());
        assert!(parse("events: Dr\n").is_err());
        assert!(parse("fn=(7)\n").is_err(), "a number without a name");
        assert!(parse("1 2\n").is_err(), "costs without a function");
    }
}

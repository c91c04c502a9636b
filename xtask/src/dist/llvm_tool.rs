//! The programs of LLVM that a deployed build needs: found, or installed from Debian's packages.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::{peers, run::output_of};

/// The versions of Debian's packages, the newest first. The formats of counts have not changed
/// since 19, and the compiler reads what an older program has merged.
const VERSIONS: [u32; 6] = [24, 23, 22, 21, 20, 19];

/// The names of a program.
pub(super) struct ToolNames {
    program: &'static str,
    /// The variable of the environment that can name its file.
    variable: &'static str,
    /// Debian's package, without its version.
    package: &'static str,
    /// Advice on a source beside that package, or no text.
    other_source: &'static str,
}

/// Merges the counts of branches for the compiler.
pub(super) const PROFDATA: ToolNames = ToolNames {
    program: "llvm-profdata",
    variable: "LLVM_PROFDATA",
    package: "llvm",
    other_source: "run `rustup component add llvm-tools`, ",
};

/// Rewrites a linked program.
pub(super) const BOLT: ToolNames = ToolNames {
    program: "llvm-bolt",
    variable: "LLVM_BOLT",
    package: "bolt",
    other_source: "",
};

/// Merges the counts that rewritten programs write.
pub(super) const MERGE_FDATA: ToolNames = ToolNames {
    program: "merge-fdata",
    variable: "MERGE_FDATA",
    package: "bolt",
    other_source: "",
};

/// A program that is there.
pub(super) struct LlvmTool(PathBuf);

impl LlvmTool {
    /// Finds a program: the one that its variable names, of the toolchain, of Debian's packages, or
    /// on PATH. Or installs it, on Debian and as root.
    ///
    /// # Errors
    /// There is none, and it cannot be installed.
    pub(super) fn find_or_install(names: &ToolNames) -> anyhow::Result<Self> {
        let package = format!("{}-{}", names.package, VERSIONS[VERSIONS.len() - 1]);
        Self::find(names)
            .or_else(|| {
                peers::install_llvm(&package)
                    .then(|| Self::find(names))
                    .flatten()
            })
            .with_context(|| {
                let ToolNames {
                    program,
                    variable,
                    other_source,
                    ..
                } = names;
                format!(
                    "there is no {program}: {other_source}install a package such as {package}, or name the program in {variable}"
                )
            })
    }

    fn find(names: &ToolNames) -> Option<Self> {
        if let Some(named) = env::var_os(names.variable) {
            return Some(Self(named.into()));
        }
        let program = names.program;
        let of_toolchain = output_of(Command::new("rustc").args(["--print", "target-libdir"]))
            .map(|libraries| Path::new(&libraries).join("../bin").join(program));
        // By the link of its package on PATH, BOLT of version 19 does not find its library.
        let of_packages =
            VERSIONS.map(|version| PathBuf::from(format!("/usr/lib/llvm-{version}/bin/{program}")));
        of_toolchain
            .into_iter()
            .chain(of_packages)
            .chain([PathBuf::from(program)])
            .find(|tool| output_of(Command::new(tool).arg("--version")).is_some())
            .map(Self)
    }

    /// Returns a command of the program.
    pub(super) fn command(&self) -> Command {
        Command::new(&self.0)
    }
}

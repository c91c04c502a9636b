//! The program of this process, to start it again.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use weir_process::keeper::KeeperProgram;

use crate::keeper::KEEPER_COMMAND;

/// The command line of this process.
#[derive(Clone, Debug)]
pub struct OwnProgram {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl OwnProgram {
    /// Returns this process's program. Call it at the start: after an upgrade the path leads to the
    /// new program, and the system would call the old one deleted.
    ///
    /// # Errors
    ///
    /// The system does not give the program's path.
    pub fn own() -> io::Result<Self> {
        Ok(Self {
            path: std::env::current_exe()?,
            arguments: std::env::args_os().skip(1).collect(),
        })
    }

    /// Returns this program as the keeper of child processes: the running file itself, even if
    /// another file is at its path by now.
    pub fn keeper(&self) -> KeeperProgram {
        let own = PathBuf::from("/proc/self/exe");
        let path = if own.exists() { own } else { self.path.clone() };
        KeeperProgram {
            path,
            args: vec![KEEPER_COMMAND.into()],
            env: Vec::new(),
        }
    }

    /// The path of the program's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The arguments after the program's name.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }
}

impl std::fmt::Display for OwnProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

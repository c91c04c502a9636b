//! The MCP clients that weir knows: their names, the paths and formats of their files, and their
//! entries, after the clients' public documentation. `weir import` reads these files,
//! `weir connect` writes them, and the HTML pages show the same entries.

pub mod client_entry;
pub mod client_sections;
pub mod file_merge;
pub mod line_diff;

use std::path::{Path, PathBuf};

/// An MCP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpClient {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Gemini CLI.
    Gemini,
    /// Windsurf.
    Windsurf,
    /// Codex CLI.
    Codex,
    /// Zed.
    Zed,
}

/// The format of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientFormat {
    /// JSON. Comments and trailing commas are kept.
    Json,
    /// TOML.
    Toml,
}

/// The folders of a user.
#[derive(Clone, Debug)]
pub struct ClientFolders {
    /// The home folder.
    pub home: PathBuf,
    /// The folder of settings: `XDG_CONFIG_HOME`, or `.config`.
    pub config: PathBuf,
    /// The folder of Codex: `CODEX_HOME`, or `.codex`.
    pub(crate) codex: PathBuf,
    /// The folder of the file of Claude Code: `CLAUDE_CONFIG_DIR`, or the home folder.
    pub(crate) claude: PathBuf,
    /// The folder that is searched for files of a project.
    pub project: PathBuf,
    /// True for the folders of macOS.
    pub(crate) is_macos: bool,
}

impl ClientFolders {
    /// Returns the folders below a home folder.
    pub fn at(home: PathBuf, project: PathBuf) -> Self {
        let (config, codex) = (home.join(".config"), home.join(".codex"));
        Self {
            claude: home.clone(),
            home,
            config,
            codex,
            project,
            is_macos: cfg!(target_os = "macos"),
        }
    }

    /// Returns the folders of the user who runs weir, or those below `home`. `None` if the variable
    /// `HOME` is not set.
    pub fn of_user(home: Option<&Path>) -> Option<Self> {
        let project = std::env::current_dir().unwrap_or_default();
        if let Some(home) = home {
            return Some(Self::at(std::path::absolute(home).ok()?, project));
        }
        let folder = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|folder| folder.is_absolute())
        };
        Some(Self::at(folder("HOME")?, project).with_variables(folder))
    }

    /// Returns the folders with those that variables name.
    fn with_variables(self, folder: impl Fn(&str) -> Option<PathBuf>) -> Self {
        Self {
            config: folder("XDG_CONFIG_HOME").unwrap_or(self.config),
            codex: folder("CODEX_HOME").unwrap_or(self.codex),
            claude: folder("CLAUDE_CONFIG_DIR").unwrap_or(self.claude),
            ..self
        }
    }

    /// Returns the folder of a client that follows the system's convention for settings.
    fn application(&self, name: &str) -> PathBuf {
        if self.is_macos {
            self.home.join("Library/Application Support").join(name)
        } else {
            self.config.join(name)
        }
    }
}

impl McpClient {
    /// All clients, in the order of lists.
    pub const ALL: [Self; 8] = [
        Self::ClaudeDesktop,
        Self::ClaudeCode,
        Self::Cursor,
        Self::VsCode,
        Self::Gemini,
        Self::Windsurf,
        Self::Codex,
        Self::Zed,
    ];

    /// Returns the name on the command line, and in ids.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Gemini => "gemini",
            Self::Windsurf => "windsurf",
            Self::Codex => "codex",
            Self::Zed => "zed",
        }
    }

    /// Returns the product name.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Gemini => "Gemini CLI",
            Self::Windsurf => "Windsurf",
            Self::Codex => "Codex",
            Self::Zed => "Zed",
        }
    }

    /// Returns the client with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    /// Returns the key of the file that contains the servers.
    fn container(self) -> &'static str {
        match self {
            Self::ClaudeDesktop
            | Self::ClaudeCode
            | Self::Cursor
            | Self::Gemini
            | Self::Windsurf => "mcpServers",
            Self::VsCode => "servers",
            Self::Codex => "mcp_servers",
            Self::Zed => "context_servers",
        }
    }

    /// Returns the format of the file.
    fn format(self) -> ClientFormat {
        match self {
            Self::Codex => ClientFormat::Toml,
            Self::ClaudeDesktop
            | Self::ClaudeCode
            | Self::Cursor
            | Self::VsCode
            | Self::Gemini
            | Self::Windsurf
            | Self::Zed => ClientFormat::Json,
        }
    }

    /// Returns the files that may have its servers: the user's first, then those of the project.
    pub fn files(self, folders: &ClientFolders) -> Vec<PathBuf> {
        let mut files = self.user_files(folders);
        files.extend(self.project_file(folders));
        // The project may be the home folder itself.
        let mut seen: Vec<PathBuf> = Vec::new();
        files.retain(|file| {
            let is_new = !seen.contains(file);
            seen.push(file.clone());
            is_new
        });
        files
    }

    /// Returns the files with the servers of a user, the usual one first.
    fn user_files(self, folders: &ClientFolders) -> Vec<PathBuf> {
        let home = |path: &str| folders.home.join(path);
        match self {
            Self::ClaudeDesktop => vec![
                folders
                    .application("Claude")
                    .join("claude_desktop_config.json"),
            ],
            Self::ClaudeCode => vec![folders.claude.join(".claude.json")],
            Self::Cursor => vec![home(".cursor/mcp.json")],
            Self::VsCode => vec![
                folders.application("Code/User").join("mcp.json"),
                folders.application("Code - Insiders/User").join("mcp.json"),
            ],
            Self::Gemini => vec![home(".gemini/settings.json")],
            Self::Windsurf => vec![
                home(".codeium/windsurf/mcp_config.json"),
                home(".codeium/mcp_config.json"),
            ],
            Self::Codex => vec![folders.codex.join("config.toml")],
            // Zed does not follow the convention of macOS.
            Self::Zed if folders.is_macos => vec![home(".config/zed/settings.json")],
            Self::Zed => vec![folders.config.join("zed/settings.json")],
        }
    }

    /// Returns the usual file with the servers of a user, even if it does not exist.
    fn usual_file(self, folders: &ClientFolders) -> PathBuf {
        self.user_files(folders).swap_remove(0)
    }

    /// Returns the file with the servers of a project, or `None` if the client has no such file.
    pub fn project_file(self, folders: &ClientFolders) -> Option<PathBuf> {
        let path = match self {
            Self::ClaudeDesktop | Self::Windsurf => return None,
            Self::ClaudeCode => ".mcp.json",
            Self::Cursor => ".cursor/mcp.json",
            Self::VsCode => ".vscode/mcp.json",
            Self::Gemini => ".gemini/settings.json",
            Self::Codex => ".codex/config.toml",
            Self::Zed => ".zed/settings.json",
        };
        Some(folders.project.join(path))
    }

    /// Returns the file of a user to write to: the first one that exists, or else the usual one.
    pub fn user_file(self, folders: &ClientFolders) -> PathBuf {
        let mut files = self.user_files(folders);
        let at = files
            .iter()
            .position(|file| file.is_file())
            .unwrap_or_default();
        files.swap_remove(at)
    }

    /// Returns the existing files of this client.
    pub fn found(self, folders: &ClientFolders) -> Vec<PathBuf> {
        self.files(folders)
            .into_iter()
            .filter(|file| file.is_file())
            .collect()
    }

    /// Returns the client that keeps its servers in this file.
    pub fn of(file: &Path, folders: &ClientFolders) -> Option<Self> {
        let file = std::path::absolute(file).ok()?;
        let is_its = |client: &Self| client.files(folders).contains(&file);
        Self::ALL.into_iter().find(is_its)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_config_paths_depend_on_the_system_and_name_one_client() {
        let mut folders = ClientFolders::at("/home/a".into(), "/src/x".into());
        folders.is_macos = false;
        let claude = |folders: &ClientFolders| {
            McpClient::ClaudeDesktop.files(folders)[0]
                .display()
                .to_string()
        };
        assert_eq!(
            claude(&folders),
            "/home/a/.config/Claude/claude_desktop_config.json"
        );
        assert_eq!(
            McpClient::of(Path::new("/src/x/.vscode/mcp.json"), &folders),
            Some(McpClient::VsCode)
        );
        assert_eq!(
            McpClient::of(Path::new("/src/y/.vscode/mcp.json"), &folders),
            None
        );
        folders.is_macos = true;
        assert_eq!(
            claude(&folders),
            "/home/a/Library/Application Support/Claude/claude_desktop_config.json"
        );
        for client in McpClient::ALL {
            assert_eq!(McpClient::named(client.name()), Some(client));
            assert!(
                client
                    .files(&folders)
                    .iter()
                    .all(|file| McpClient::of(file, &folders) == Some(client))
            );
        }
        folders.is_macos = false;
        let folders = folders.with_variables(|name| Some(Path::new("/v").join(name)));
        for (client, file) in [
            (McpClient::Zed, "/v/XDG_CONFIG_HOME/zed/settings.json"),
            (McpClient::ClaudeCode, "/v/CLAUDE_CONFIG_DIR/.claude.json"),
            (McpClient::Codex, "/v/CODEX_HOME/config.toml"),
        ] {
            assert_eq!(client.usual_file(&folders), Path::new(file));
        }
        let home = ClientFolders::at("/home/a".into(), "/home/a".into());
        assert_eq!(McpClient::Cursor.files(&home).len(), 1);
    }
}

//! The MCP clients whose files weir finds, and the places of these files, after the clients' public documentation.

use std::path::{Path, PathBuf};

/// An MCP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McpClient {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    VsCode,
    Gemini,
    Windsurf,
    Codex,
    Zed,
}

/// The folders of a user.
#[derive(Clone, Debug)]
pub(crate) struct ClientFolders {
    /// The home folder.
    pub(crate) home: PathBuf,
    /// The folder of settings: `XDG_CONFIG_HOME`, or `.config`.
    pub(crate) config: PathBuf,
    /// The folder of Codex: `CODEX_HOME`, or `.codex`.
    pub(crate) codex: PathBuf,
    /// The folder whose projects' files are looked for.
    pub(crate) project: PathBuf,
    /// True where clients keep their settings as on macOS.
    pub(crate) is_macos: bool,
}

impl ClientFolders {
    /// The folders below a home folder.
    pub(crate) fn at(home: PathBuf, project: PathBuf) -> Self {
        let (config, codex) = (home.join(".config"), home.join(".codex"));
        Self { home, config, codex, project, is_macos: cfg!(target_os = "macos") }
    }

    /// The folder of a client that keeps its settings where the system wants them.
    fn application(&self, name: &str) -> PathBuf {
        if self.is_macos { self.home.join("Library/Application Support").join(name) } else { self.config.join(name) }
    }
}

impl McpClient {
    pub(crate) const ALL: [Self; 8] = [
        Self::ClaudeDesktop,
        Self::ClaudeCode,
        Self::Cursor,
        Self::VsCode,
        Self::Gemini,
        Self::Windsurf,
        Self::Codex,
        Self::Zed,
    ];

    /// The name on the command line, and in ids.
    pub(crate) fn name(self) -> &'static str {
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

    /// The name that people know.
    pub(crate) fn title(self) -> &'static str {
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

    /// The client with a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    /// The files that may have its servers: the user's first, then those of the project.
    pub(crate) fn files(self, folders: &ClientFolders) -> Vec<PathBuf> {
        let home = |path: &str| folders.home.join(path);
        let project = |path: &str| folders.project.join(path);
        let mut files = match self {
            Self::ClaudeDesktop => vec![folders.application("Claude").join("claude_desktop_config.json")],
            Self::ClaudeCode => vec![home(".claude.json"), project(".mcp.json")],
            Self::Cursor => vec![home(".cursor/mcp.json"), project(".cursor/mcp.json")],
            Self::VsCode => vec![
                folders.application("Code/User").join("mcp.json"),
                folders.application("Code - Insiders/User").join("mcp.json"),
                project(".vscode/mcp.json"),
            ],
            Self::Gemini => vec![home(".gemini/settings.json"), project(".gemini/settings.json")],
            Self::Windsurf => vec![home(".codeium/windsurf/mcp_config.json"), home(".codeium/mcp_config.json")],
            Self::Codex => vec![folders.codex.join("config.toml"), project(".codex/config.toml")],
            Self::Zed => vec![home(".config/zed/settings.json"), project(".zed/settings.json")],
        };
        // The project may be the home folder itself.
        let mut seen: Vec<PathBuf> = Vec::new();
        files.retain(|file| {
            let is_new = !seen.contains(file);
            seen.push(file.clone());
            is_new
        });
        files
    }

    /// The files of this client that are there.
    pub(crate) fn found(self, folders: &ClientFolders) -> Vec<PathBuf> {
        self.files(folders).into_iter().filter(|file| file.is_file()).collect()
    }

    /// The client that keeps its servers in this file.
    pub(crate) fn of(file: &Path, folders: &ClientFolders) -> Option<Self> {
        let file = std::path::absolute(file).ok()?;
        let is_its = |client: &Self| client.files(folders).contains(&file);
        Self::ALL.into_iter().find(is_its)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_differ_by_system_and_each_has_one_client() {
        let mut folders = ClientFolders::at("/home/a".into(), "/src/x".into());
        folders.is_macos = false;
        let claude = |folders: &ClientFolders| McpClient::ClaudeDesktop.files(folders)[0].display().to_string();
        assert_eq!(claude(&folders), "/home/a/.config/Claude/claude_desktop_config.json");
        assert_eq!(McpClient::of(Path::new("/src/x/.vscode/mcp.json"), &folders), Some(McpClient::VsCode));
        assert_eq!(McpClient::of(Path::new("/src/y/.vscode/mcp.json"), &folders), None);
        folders.is_macos = true;
        assert_eq!(claude(&folders), "/home/a/Library/Application Support/Claude/claude_desktop_config.json");
        for client in McpClient::ALL {
            assert_eq!(McpClient::named(client.name()), Some(client));
            assert!(client.files(&folders).iter().all(|file| McpClient::of(file, &folders) == Some(client)));
        }
        let home = ClientFolders::at("/home/a".into(), "/home/a".into());
        assert_eq!(McpClient::Cursor.files(&home).len(), 1);
    }
}

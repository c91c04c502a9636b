//! The place of a file: its folder, its project and its MCP client.

use std::path::{Path, PathBuf};

/// Folders that clients keep the settings of one project in.
const PROJECT_FOLDERS: [&str; 5] = [".vscode", ".cursor", ".gemini", ".zed", ".codex"];

/// The place of a file.
#[derive(Clone, Debug, Default)]
pub struct FilePlace {
    /// The folder of the file. Relative paths start there.
    pub folder: PathBuf,
    /// The folder of the project that the settings belong to. Clients start programs there, and it
    /// is their `${workspaceFolder}`.
    pub project: Option<PathBuf>,
    /// True if `$NAME` is a variable, as in files of Gemini CLI.
    pub(crate) has_bare_variables: bool,
}

impl FilePlace {
    /// Returns the place of `file`, for a user with the home folder `home`.
    pub fn of(file: &Path, home: Option<&Path>) -> Self {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let above = if PROJECT_FOLDERS.contains(&name) {
            folder.parent().map(Path::to_owned)
        } else {
            file.file_name()
                .filter(|name| *name == ".mcp.json")
                .map(|_| folder.clone())
        };
        let project = above.filter(|above| Some(above.as_path()) != home);
        let has_bare_variables = name == ".gemini";
        Self {
            project,
            has_bare_variables,
            folder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_is_the_folder_above_the_settings_but_never_home() {
        let place = |file: &str| FilePlace::of(Path::new(file), Some(Path::new("/home/a")));
        let project = |file: &str| {
            place(file)
                .project
                .map(|folder| folder.display().to_string())
        };
        assert_eq!(
            project("/src/x/.vscode/mcp.json").as_deref(),
            Some("/src/x")
        );
        assert_eq!(project("/src/x/.mcp.json").as_deref(), Some("/src/x"));
        assert_eq!(project("/home/a/.cursor/mcp.json"), None);
        assert_eq!(project("/home/a/.mcp.json"), None);
        assert_eq!(project("/home/a/.claude.json"), None);
        assert_eq!(project("/etc/mcp.json"), None);
        assert!(place("/home/a/.gemini/settings.json").has_bare_variables);
        assert!(!place("/home/a/.cursor/mcp.json").has_bare_variables);
    }
}

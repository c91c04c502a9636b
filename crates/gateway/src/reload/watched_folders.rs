//! The folders in which a change of the config's files shows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf, absolute};
use std::time::SystemTime;

/// The most links that one path may lead over, as on Linux.
const MAX_LINKS: usize = 40;

/// The identity of a folder. Another folder at the same path has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FolderIdentity {
    device: u64,
    inode: u64,
    /// File systems give the inode of a removed folder to the next one. Absent if unknown.
    created: Option<SystemTime>,
}

impl FolderIdentity {
    fn of(folder: &Metadata) -> Self {
        Self {
            device: folder.dev(),
            inode: folder.ino(),
            created: folder.created().ok(),
        }
    }
}

/// Returns the folders to watch for these files and folders: each folder itself, the folders of the
/// files, and those of the links that lead there. Their paths have no links. A folder that does not
/// exist is left out.
pub(super) fn watched_folders(paths: &[PathBuf]) -> BTreeMap<PathBuf, FolderIdentity> {
    let mut search = FolderSearch::default();
    for path in paths {
        let path = absolute(path).unwrap_or_else(|_| path.clone());
        let real = search.resolve(&path, 0);
        let folder = match real.parent() {
            Some(folder) if !real.is_dir() => folder.to_owned(),
            _ => real,
        };
        search.folders.insert(folder);
    }
    let identified = search.folders.into_iter().filter_map(|folder| {
        let identity = FolderIdentity::of(&folder.metadata().ok()?);
        Some((folder, identity))
    });
    identified.collect()
}

#[derive(Default)]
struct FolderSearch {
    folders: BTreeSet<PathBuf>,
    /// The paths that were resolved: hundreds of files are in few folders.
    resolved: HashMap<PathBuf, PathBuf>,
}

impl FolderSearch {
    /// Returns a path without links, and collects the folders of the links. `links` is their number
    /// so far.
    fn resolve(&mut self, path: &Path, links: usize) -> PathBuf {
        if let Some(real) = self.resolved.get(path) {
            return real.clone();
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let real = match path.components().next_back() {
            Some(Component::Normal(name)) => {
                let folder = self.resolve(parent, links);
                let own = folder.join(name);
                match std::fs::read_link(&own) {
                    Ok(target) if links < MAX_LINKS => {
                        let target = folder.join(target);
                        self.folders.insert(folder);
                        self.resolve(&target, links + 1)
                    }
                    Ok(_) | Err(_) => own,
                }
            }
            Some(Component::ParentDir) => {
                let mut folder = self.resolve(parent, links);
                folder.pop();
                folder
            }
            Some(Component::CurDir) => self.resolve(parent, links),
            Some(Component::RootDir | Component::Prefix(_)) | None => path.to_owned(),
        };
        self.resolved.insert(path.to_owned(), real.clone());
        real
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::os::unix::fs::symlink;

    use weir_testkit::TestFolder;

    use super::*;

    fn paths(watched: &BTreeMap<PathBuf, FolderIdentity>) -> Vec<&Path> {
        watched.keys().map(PathBuf::as_path).collect()
    }

    #[test]
    fn folders_of_links_and_of_their_targets_are_watched() {
        let folder = TestFolder::new("watched");
        let root = folder.path().canonicalize().unwrap();
        folder.write("r1/weir.yaml", "");
        folder.write("r1/teams/red.yaml", "");
        folder.write("other/blue.yaml", "");
        symlink("r1", root.join("current")).unwrap();
        symlink("../../other/blue.yaml", root.join("r1/teams/blue.yaml")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let named = |name: &str| root.join("current").join(name);
        let watched = watched_folders(&[
            named("weir.yaml"),
            named("teams"),
            named("teams/red.yaml"),
            named("teams/blue.yaml"),
            named("absent/rules.cedar"),
        ]);
        let expected = ["", "other", "r1", "r1/teams"].map(|name| match name {
            "" => root.clone(),
            name => root.join(name),
        });
        assert_eq!(paths(&watched), expected);
        // A link to itself ends.
        assert_eq!(paths(&watched_folders(&[root.join("loop")])), [root]);
    }

    #[test]
    fn another_folder_at_the_same_path_has_another_identity() {
        let folder = TestFolder::new("identity");
        folder.write("teams/red.yaml", "");
        folder.write("next/red.yaml", "");
        let teams = folder.file("teams");
        let watched = || watched_folders(std::slice::from_ref(&teams));
        let before = watched();
        folder.write("teams/red.yaml", "changed");
        folder.write("teams/blue.yaml", "");
        assert_eq!(watched(), before);
        std::fs::rename(&teams, folder.file("old")).unwrap();
        assert_ne!(watched(), before, "it is gone");
        std::fs::rename(folder.file("next"), &teams).unwrap();
        let after = watched();
        assert_eq!(paths(&after), paths(&before));
        assert_ne!(after, before);
    }
}

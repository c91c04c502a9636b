//! The Dockerfile, without an engine: its steps, run in order in a clean folder that has the
//! tracked files.
//!
//! A small stand-in takes the engine's place. `COPY . .` copies the tracked files that
//! `.dockerignore` does not name. `RUN` runs with the absolute folders of the build (`/src`,
//! `/out`) put under the clean one. `apt-get` is left to the machine. Base images, users and layers
//! are not tested.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weir_testkit::TestFolder;

use super::{KEY, read, root, run_checked};

/// Returns the instructions of the file: the word, and the rest on one line.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n");
    let joined = lines.replace("\\\n", " ");
    let split = joined
        .lines()
        .filter_map(|line| line.trim().split_once(' '));
    split
        .map(|(word, rest)| {
            (
                word.to_owned(),
                rest.split_whitespace().collect::<Vec<_>>().join(" "),
            )
        })
        .collect()
}

/// Returns the tracked files that `.dockerignore` does not name.
fn context() -> Vec<String> {
    let tracked = run_checked(Command::new("git").args(["ls-files"]).current_dir(root()));
    let ignored = read(".dockerignore");
    let ignored: Vec<&str> = ignored
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let is_ignored = |path: &str| {
        ignored
            .iter()
            .any(|pattern| match pattern.strip_prefix("**/") {
                Some(name) => path.split('/').any(|part| part == name),
                None => path.split('/').next() == Some(pattern),
            })
    };
    tracked
        .lines()
        .filter(|path| !is_ignored(path))
        .map(str::to_owned)
        .collect()
}

/// The stand-in of the engine: `/src` and `/out` of the build are folders in it.
struct ImageBuild {
    folder: TestFolder,
    work: PathBuf,
}

impl ImageBuild {
    fn new() -> Self {
        let folder = TestFolder::new("image");
        let work = folder.path().to_owned();
        Self { folder, work }
    }

    /// Returns the place of a path of the image on this machine.
    fn place(&self, path: &str) -> PathBuf {
        self.folder.file(path.trim_start_matches('/'))
    }

    fn copy_context(&self) {
        for path in context() {
            let to = self.work.join(&path);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            // A file that is deleted but still in the index is in no build.
            if root().join(&path).exists() {
                std::fs::copy(root().join(&path), &to).unwrap();
            }
        }
    }

    fn run(&self, command: &str) {
        // Flags of BuildKit, before the command itself.
        let words: Vec<&str> = command
            .split(' ')
            .skip_while(|word| word.starts_with("--mount="))
            .collect();
        let own = self.folder.path().display().to_string();
        let line = words
            .join(" ")
            .replace("/out/", &format!("{own}/out/"))
            .replace("/src/", &format!("{own}/src/"));
        if line.starts_with("apt-get ") {
            return;
        }
        println!("RUN {line}");
        let mut shell = Command::new("sh");
        shell
            .args(["-ec", &line])
            .current_dir(&self.work)
            .env("CARGO_INSTALL_ROOT", self.place("/usr/local/cargo"));
        let path = format!(
            "{}:{}",
            self.place("/usr/local/cargo/bin").display(),
            std::env::var("PATH").unwrap()
        );
        shell
            .env("PATH", path)
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CARGO_INCREMENTAL");
        assert!(shell.status().unwrap().success(), "{line}");
    }
}

/// The libraries of the last image: Debian's libc6 and libgcc-s1.
const LIBRARIES: [&str; 7] = [
    "linux-vdso.so.1",
    "libgcc_s.so.1",
    "libm.so.6",
    "libc.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "/lib64/ld-linux-x86-64.so.2",
];

fn holds(image: &Path) {
    let weir = image.join("usr/local/bin/weir");
    assert_eq!(
        run_checked(Command::new(&weir).arg("--version")).trim(),
        format!("weir {}", env!("CARGO_PKG_VERSION"))
    );
    let size = weir.metadata().unwrap().len();
    println!("the binary has {} MiB", size >> 20);
    assert!(size < 80 << 20, "{size}");
    let needs = run_checked(Command::new("ldd").arg(&weir));
    for library in needs
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        assert!(
            LIBRARIES.contains(&library),
            "the last image does not have {library}"
        );
    }
    let bill: Value = serde_json::from_slice(
        &std::fs::read(image.join("usr/share/doc/weir/sbom.cdx.json")).unwrap(),
    )
    .unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let listed: Vec<&str> = super::entries(&bill["components"])
        .iter()
        .filter_map(|part| part["name"].as_str())
        .collect();
    println!("the bill of materials has {} packages", listed.len());
    for package in ["hyper", "rustls", "tokio", "weir-core"] {
        assert!(
            listed.contains(&package),
            "{package} is in the binary and not in the bill"
        );
    }
    for script in [
        "bash-completion/completions/weir",
        "zsh/vendor-completions/_weir",
        "fish/vendor_completions.d/weir.fish",
    ] {
        assert!(
            image
                .join("usr/share")
                .join(script)
                .metadata()
                .unwrap()
                .len()
                > 1000,
            "{script}"
        );
    }
    let (folder, text) = super::compose_config("weir.yaml");
    let config = folder.file("weir.yaml");
    std::fs::write(&config, text).unwrap();
    run_checked(
        Command::new(&weir)
            .arg("check")
            .arg(&config)
            .env("WEIR_KEY", KEY)
            .env("WEIR_ADMIN_TOKEN", KEY),
    );
}

#[test]
#[ignore = "builds weir anew as it is released"]
fn the_dockerfiles_steps_run_in_order_in_a_clean_folder() {
    let mut build = ImageBuild::new();
    let mut stages = 0;
    for (word, rest) in instructions() {
        match word.as_str() {
            "FROM" => stages += 1,
            "WORKDIR" => {
                build.work = build.place(&rest);
                std::fs::create_dir_all(&build.work).unwrap();
            }
            "COPY" if rest == ". ." => build.copy_context(),
            "COPY" => {
                assert_eq!(rest, "--from=build /out /", "a step that is not known here");
                holds(&build.place("/out"));
            }
            "RUN" => build.run(&rest),
            "USER" | "ENV" | "EXPOSE" | "LABEL" | "STOPSIGNAL" | "HEALTHCHECK" | "ENTRYPOINT"
            | "CMD" => {}
            other => panic!("{other} is not known here"),
        }
    }
    assert_eq!(stages, 2);
}

#[test]
fn docker_build_context_is_small_and_complete() {
    let context = context();
    for needed in [
        "Cargo.lock",
        "Cargo.toml",
        "crates/gateway/Cargo.toml",
        "xtask/Cargo.toml",
        "benches/Cargo.toml",
    ] {
        assert!(context.iter().any(|path| path == needed), "{needed}");
    }
    assert!(!context.iter().any(|path| path.starts_with("deploy/")));
    let bytes: u64 = context
        .iter()
        .filter_map(|path| root().join(path).metadata().ok())
        .map(|file| file.len())
        .sum();
    assert!(bytes < 32 << 20, "{bytes}");
    let ran = instructions()
        .iter()
        .filter(|(word, _)| word == "RUN")
        .count();
    assert!(ran >= 5, "{ran}");
}

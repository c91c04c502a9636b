//! The corpus of poisoned texts: `tests/poisoned/DOCUMENT/NAME.json`, and `NAME.clean.json` if the
//! text must change.

use std::fs;
use std::path::Path;

use weir_clean::{DocumentKind, clean};

use crate::{cleaned, streamed};

const DOCUMENTS: [(&str, DocumentKind); 9] = [
    ("definitions", DocumentKind::Definitions),
    ("error", DocumentKind::Error),
    ("instructions", DocumentKind::Instructions),
    ("notification", DocumentKind::Notification),
    ("prompt_result", DocumentKind::PromptResult),
    ("question", DocumentKind::Question),
    ("task", DocumentKind::Task),
    ("task_state", DocumentKind::TaskState),
    ("tool_result", DocumentKind::ToolResult),
];

#[test]
fn poisoned_texts_are_cleaned_and_harmless_ones_kept_for_every_chunking() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/poisoned");
    let mut folders: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    folders.sort();
    assert_eq!(
        folders,
        DOCUMENTS.map(|(name, _)| name),
        "a folder for each document"
    );
    let (mut poisoned, mut harmless) = (0, 0);
    for (name, document) in DOCUMENTS {
        for entry in fs::read_dir(folder.join(name)).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".clean.json") {
                assert!(
                    path.with_extension("").with_extension("json").exists(),
                    "{}",
                    path.display()
                );
                continue;
            }
            let given = fs::read(&path).unwrap();
            let expected = fs::read(path.with_extension("clean.json")).ok();
            poisoned += usize::from(expected.is_some());
            harmless += usize::from(expected.is_none());
            check(
                document,
                &given,
                expected.as_deref().unwrap_or(&given),
                &path,
            );
        }
    }
    assert!(poisoned >= 20 && harmless >= 6, "{poisoned} and {harmless}");
}

fn check(document: DocumentKind, given: &[u8], expected: &[u8], path: &Path) {
    let (bytes, removed) = cleaned(document, given);
    assert_eq!(
        String::from_utf8_lossy(&bytes),
        String::from_utf8_lossy(expected),
        "{}",
        path.display()
    );
    assert_eq!(removed.total() > 0, given != expected, "{}", path.display());
    assert!(clean(document, expected).is_none(), "{}", path.display());
    for size in 1..=48 {
        assert_eq!(
            streamed(document, given, &[size]),
            (bytes.clone(), removed),
            "{} in chunks of {size}",
            path.display()
        );
    }
    // Cut in two at every place, as by the border of two events of a stream.
    for at in 1..given.len() {
        let halves = [at, given.len()];
        assert_eq!(
            streamed(document, given, &halves),
            (bytes.clone(), removed),
            "{} cut at {at}",
            path.display()
        );
    }
}

//! Formats content that servers send for a terminal, and saves the media for `--out`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use data_encoding::{BASE64, BASE64_NOPAD};
use serde_json::Value;
use weir_text::{one_line, plain};

/// The longest file name in characters that is taken from a tool, prompt or URI.
const MAX_STEM_CHARS: usize = 64;
/// The most files of one name in a folder.
const MAX_FILES: usize = 10_000;

/// File extensions by media type. Others get `bin`, texts `txt`.
const ENDINGS: [(&str, &str); 20] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("image/svg+xml", "svg"),
    ("image/bmp", "bmp"),
    ("image/tiff", "tiff"),
    ("audio/wav", "wav"),
    ("audio/x-wav", "wav"),
    ("audio/mpeg", "mp3"),
    ("audio/mp3", "mp3"),
    ("audio/ogg", "ogg"),
    ("audio/flac", "flac"),
    ("video/mp4", "mp4"),
    ("application/json", "json"),
    ("application/pdf", "pdf"),
    ("application/zip", "zip"),
    ("application/gzip", "gz"),
    ("text/html", "html"),
    ("text/markdown", "md"),
];

/// Formats one block of content: texts unchanged, media by their size.
pub(crate) fn show(block: &Value) -> String {
    let kind = block["type"].as_str().unwrap_or_default();
    match kind {
        "text" => plain(block["text"].as_str().unwrap_or_default()),
        "image" | "audio" => medium(kind, &block["mimeType"], &block["data"]),
        "resource" => show_resource(&block["resource"]),
        _ => weir_text::json(block),
    }
}

/// Formats the contents of a resource.
pub(super) fn show_resource(resource: &Value) -> String {
    match resource["text"].as_str() {
        Some(text) => plain(text),
        None if resource["blob"].is_string() => {
            medium("blob", &resource["mimeType"], &resource["blob"])
        }
        None => weir_text::json(resource),
    }
}

fn medium(kind: &str, mime: &Value, data: &Value) -> String {
    let bytes = data
        .as_str()
        .map_or(0, |data| data.trim_end_matches('=').len() * 3 / 4);
    format!(
        "[{kind} {}, {bytes} bytes]",
        one_line(mime.as_str().unwrap_or("of unknown type"))
    )
}

/// An image, audio or file that can be saved.
#[derive(Debug, PartialEq)]
pub(super) struct MediaContent {
    bytes: Vec<u8>,
    mime: String,
    is_text: bool,
}

impl MediaContent {
    /// Reports if a terminal cannot show the content.
    pub(super) fn is_binary(&self) -> bool {
        !self.is_text
    }
}

/// Returns the media of content blocks: images, audio, and the contents of embedded resources.
///
/// # Errors
/// A message for people: the server sent invalid base64.
pub(super) fn media<'a>(
    blocks: impl IntoIterator<Item = &'a Value>,
) -> Result<Vec<MediaContent>, String> {
    let medium = |block: &Value| match block["type"].as_str() {
        Some("image" | "audio") => decoded(&block["data"], &block["mimeType"]).map(Some),
        Some("resource") => of_resource(&block["resource"]),
        _ => Ok(None),
    };
    blocks
        .into_iter()
        .filter_map(|block| medium(block).transpose())
        .collect()
}

/// Returns the contents of a resource, text or binary.
///
/// # Errors
/// The same as for [`media`].
pub(super) fn of_resource(resource: &Value) -> Result<Option<MediaContent>, String> {
    match (resource["text"].as_str(), &resource["blob"]) {
        (Some(text), _) => {
            let mime = resource["mimeType"]
                .as_str()
                .unwrap_or("text/plain")
                .to_owned();
            Ok(Some(MediaContent {
                bytes: text.as_bytes().to_vec(),
                mime,
                is_text: true,
            }))
        }
        (None, Value::Null) => Ok(None),
        (None, blob) => decoded(blob, &resource["mimeType"]).map(Some),
    }
}

fn decoded(data: &Value, mime: &Value) -> Result<MediaContent, String> {
    let text: String = data
        .as_str()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    let bytes = BASE64
        .decode(text.as_bytes())
        .or_else(|_| BASE64_NOPAD.decode(text.as_bytes()));
    let bytes = bytes.map_err(|error| {
        format!("the server sent data that is not base64 ({error}): nothing was saved")
    })?;
    Ok(MediaContent {
        bytes,
        mime: mime.as_str().unwrap_or_default().to_owned(),
        is_text: false,
    })
}

/// Saves media. The target is a folder (one that exists, or a path that ends with `/`), with files
/// named after `stem` and without overwriting any; or a file, for a single medium.
///
/// # Errors
/// A message for people: there are too many media for a file, or a file cannot be written.
pub(super) fn save(media: &[MediaContent], out: &Path, stem: &str) -> Result<Vec<PathBuf>, String> {
    let cannot = |path: &Path, error: std::io::Error| {
        format!("{} cannot be written: {error}", path.display())
    };
    let names_folder = out.as_os_str().as_encoded_bytes().ends_with(b"/");
    if names_folder || out.is_dir() {
        std::fs::create_dir_all(out).map_err(|error| cannot(out, error))?;
        return media
            .iter()
            .map(|medium| into_folder(medium, out, stem).map_err(|error| cannot(out, error)))
            .collect();
    }
    match media {
        [medium] => {
            std::fs::write(out, &medium.bytes).map_err(|error| cannot(out, error))?;
            Ok(vec![out.to_owned()])
        }
        [] => Ok(Vec::new()),
        several => Err(format!(
            "there are {} to save: name a folder, such as --out {}/",
            several.len(),
            out.display()
        )),
    }
}

fn into_folder(medium: &MediaContent, folder: &Path, stem: &str) -> std::io::Result<PathBuf> {
    let (stem, ending) = (safe_stem(stem), ending(&medium.mime));
    for number in 1..=MAX_FILES {
        let path = folder.join(format!("{stem}-{number}.{ending}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => return file.write_all(&medium.bytes).map(|()| path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::Error::other(format!(
        "it has {MAX_FILES} files of this name"
    )))
}

/// Returns a safe file name from a tool, prompt or URI: no slash, no leading dot, at most
/// [`MAX_STEM_CHARS`] characters.
fn safe_stem(stem: &str) -> String {
    let kept = stem.chars().map(|c| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '_'
        }
    });
    let kept: String = kept.take(MAX_STEM_CHARS).collect();
    let kept = kept.trim_matches(['.', '_']);
    if kept.is_empty() {
        "saved".to_owned()
    } else {
        kept.to_owned()
    }
}

fn ending(mime: &str) -> &'static str {
    let mime = mime
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let known = ENDINGS
        .iter()
        .find(|(known, _)| *known == mime)
        .map(|(_, ending)| *ending);
    known.unwrap_or(if mime.starts_with("text/") {
        "txt"
    } else {
        "bin"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("weir-content-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn content_reads_well_on_a_terminal() {
        for (block, shown) in [
            (
                json!({"type": "text", "text": "two\nlines\u{1b}[0m"}),
                "two\nlines[0m",
            ),
            (
                json!({"type": "image", "mimeType": "image/png\n", "data": "AAAAAAA="}),
                "[image image/png , 5 bytes]",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "memo:1", "text": "in"}}),
                "in",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "memo:1", "blob": "AAAA"}}),
                "[blob of unknown type, 3 bytes]",
            ),
        ] {
            assert_eq!(show(&block), shown);
        }
        assert!(show(&json!({"type": "resource_link", "uri": "file:///x"})).contains("file:///x"));
    }

    #[test]
    fn media_are_saved_under_harmless_names_and_overwrite_nothing() {
        let folder = folder("media");
        let blocks = [
            json!({"type": "text", "text": "beside"}),
            json!({"type": "image", "mimeType": "image/png", "data": "iVBO"}),
            json!({"type": "audio", "mimeType": "audio/x-unknown", "data": "AAA"}),
        ];
        let media = media(&blocks).expect("it is base64");
        let (into, stem) = (folder.join("new/"), "../../etc/passwd");
        let saved = save(&media, &into, stem).expect("it is saved");
        let names = |saved: &[PathBuf]| {
            saved
                .iter()
                .map(|path| path.file_name().unwrap_or_default().display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&saved), ["etc_passwd-1.png", "etc_passwd-1.bin"]);
        assert!(
            saved
                .iter()
                .all(|path| path.parent() == Some(&folder.join("new"))),
            "{saved:?}"
        );
        let again = save(&media, &into, stem).expect("it is saved");
        assert_eq!(names(&again), ["etc_passwd-2.png", "etc_passwd-2.bin"]);
        assert_eq!(std::fs::read(&saved[0]).ok(), Some(vec![0x89, b'P', b'N']));
        let several =
            save(&media, &folder.join("one.png"), "x").expect_err("two do not fit into a file");
        assert!(several.contains("name a folder"), "{several}");
        assert_eq!(
            save(&media[..1], &folder.join("one.png"), "x"),
            Ok(vec![folder.join("one.png")])
        );
        std::fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn invalid_base64_is_an_error() {
        let said = media(&[json!({"type": "image", "data": "%%"})]).expect_err("not base64");
        assert!(said.contains("not base64"), "{said}");
    }
}

//! A real browser.

use std::process::Command;

use super::fresh_path;

/// Returns the whole document of a page after Chromium loaded it.
pub fn render_page(url: &str) -> String {
    let profile = fresh_path("chromium");
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ]);
    command.args([
        "--hide-scrollbars",
        "--disable-background-networking",
        "--disable-component-update",
    ]);
    command
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--window-size=1280,900");
    let output = command
        .arg("--dump-dom")
        .arg(url)
        .output()
        .expect("Chromium is there: install `chromium`");
    let _gone = std::fs::remove_dir_all(&profile);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

//! A real browser.

use std::process::Command;

use weir_testkit::TestFolder;

/// Returns the whole document of a page after Chromium loaded it.
pub fn render_page(url: &str) -> String {
    let profile = TestFolder::new("chromium");
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
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--window-size=1280,900");
    let output = command
        .arg("--dump-dom")
        .arg(url)
        .output()
        .expect("Chromium is there: install `chromium`");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

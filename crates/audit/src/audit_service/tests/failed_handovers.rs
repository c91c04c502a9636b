//! The files of the audit after graceful restarts that fail: the old process goes on as before.

use super::*;

/// The longest wait for a writer.
const WAIT: Duration = Duration::from_secs(60);

/// Starts the process that is to take over.
async fn take_over(plan: &AuditPlan, left: ChainHeads) -> AuditService {
    let next =
        AuditService::start(Some(plan), left, Arc::new(SystemClock::new()), &factory()).unwrap();
    next.wait_for_first_record().await;
    next
}

/// Waits until the file at the path has a record that closes the branch of a process.
async fn wait_for_return(plan: &AuditPlan) {
    let is_back = || path(plan).exists() && has_record(path(plan), "predecessor");
    wait_for_condition("the return to the path", WAIT, is_back).await;
}

fn has_record(file: &Path, kind: &str) -> bool {
    members_of(file, "kind").iter().any(|one| one == kind)
}

/// Records events until this many rotated files are there.
async fn fill_files(auditing: &AuditService, plan: &AuditPlan, files: usize) {
    let is_full = || {
        operate(auditing, "fills the file");
        rotation::rotated_files(path(plan)).len() >= files
    };
    wait_for_condition("rotated files", WAIT, is_full).await;
}

/// Returns the names of all files of the chain of calls.
fn files_of_calls(folder: &AuditTestFolder) -> Vec<String> {
    let entries = fs::read_dir(folder.0.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.contains("refusals")).collect();
    names.sort();
    names
}

// Proves F18, G06.
#[tokio::test]
async fn failed_handover_leaves_the_chain_whole() {
    let folder = AuditTestFolder::new("handed-back");
    let plan = folder.plan_of_files(2000, 100);
    let old = start(&plan).await;
    // The successor begins, cannot serve, and holds the file for a moment more.
    let failed = take_over(&plan, old.release_files().await).await;
    operate(&old, "before the failure");
    old.take_back_files();
    operate(&old, "before the return");
    failed.shutdown().await;
    wait_for_return(&plan).await;
    fill_files(&old, &plan, 3).await;
    change(&old, Some(&plan));
    fill_files(&old, &plan, 6).await;
    let new = take_over(&plan, old.release_files().await).await;
    operate(&old, "while it drains");
    new.record_predecessor_end(old.shutdown().await);
    new.shutdown().await;
    assert_eq!(verified(&plan).gaps, []);
    let mut expected: Vec<String> = rotation::rotated_files(path(&plan))
        .iter()
        .chain([&path(&plan).to_owned()])
        .map(|file| file.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    expected.sort();
    assert_eq!(files_of_calls(&folder), expected);
}

#[tokio::test]
async fn old_files_are_removed_after_a_failed_handover() {
    let folder = AuditTestFolder::new("handed-back-and-cleaned");
    let plan = folder.plan_of_files(2000, 2);
    let old = start(&plan).await;
    old.release_files().await;
    old.take_back_files();
    wait_for_return(&plan).await;
    let first = files_of_calls(&folder);
    let is_removed = || {
        operate(&old, "fills the file");
        !first
            .iter()
            .any(|name| name != "audit.jsonl" && folder.0.file(name).exists())
    };
    wait_for_condition("the end of the first file", WAIT, is_removed).await;
    old.shutdown().await;
    assert_eq!(rotation::rotated_files(path(&plan)).len(), 2);
    assert_eq!(verified(&plan).gaps, []);
}

#[tokio::test]
async fn chain_is_whole_after_a_successor_that_wrote_nothing() {
    let folder = AuditTestFolder::new("handed-to-none");
    let plan = folder.plan("audit.jsonl");
    let old = start(&plan).await;
    old.release_files().await;
    operate(&old, "before the failure");
    old.take_back_files();
    wait_for_return(&plan).await;
    operate(&old, "goes on");
    old.shutdown().await;
    assert_eq!(
        members_of(path(&plan), "kind"),
        ["predecessor", "admin", "stopped"]
    );
    let summary = verified(&plan);
    assert_eq!((summary.records, summary.gaps.as_slice()), (6, &[][..]));
}

#[tokio::test]
async fn predecessor_may_end_after_a_failed_handover() {
    let folder = AuditTestFolder::new("handed-back-while-draining");
    let plan = folder.plan("audit.jsonl");
    let first = start(&plan).await;
    let second = take_over(&plan, first.release_files().await).await;
    operate(&first, "while it drains");
    let failed = take_over(&plan, second.release_files().await).await;
    failed.shutdown().await;
    second.take_back_files();
    wait_for_return(&plan).await;
    second.record_predecessor_end(first.shutdown().await);
    second.shutdown().await;
    assert_eq!(verified(&plan).gaps, []);
}

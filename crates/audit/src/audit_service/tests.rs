//! The audit in real files, through starts, ends, moves and full disks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::record::{
    ArgumentRecording, AuditKey, ChainGap, ChainHead, ChainInspector, ChainSummary,
};
use bytes::Bytes;
use serde_json::Value;
use weir_core::call::RequestName;
use weir_core::names::EndpointId;
use weir_core::port::{CallAttempt, CallPermission, EndedCall, GateDecision, OperatorAction};
use weir_core::{Call, CallOutcome, Failure, FailureKind, Principal};
use weir_system::SystemClock;
use weir_testkit::{FakeClock, FakeRandom, TestFolder, wait_for_condition};
use weir_wire::Params;
use weir_wire::method::Method;

use super::*;
use crate::audit_plan::AuditFilePlan;

mod failed_handovers;
mod refusals;

/// The folder of one test's files.
struct AuditTestFolder(TestFolder);

impl AuditTestFolder {
    fn new(name: &str) -> Self {
        Self(TestFolder::in_memory(name))
    }

    fn plan(&self, file: &str) -> AuditPlan {
        plan(&self.0.file(file))
    }

    /// A plan with files of at most `size` bytes, of which `keep` are kept.
    fn plan_of_files(&self, size: u64, keep: usize) -> AuditPlan {
        let mut plan = self.plan("audit.jsonl");
        let file = plan.file.as_mut().unwrap();
        (file.size, file.keep) = (size, keep);
        plan
    }
}

fn plan(path: &Path) -> AuditPlan {
    AuditPlan {
        file: Some(AuditFilePlan {
            path: path.to_owned(),
            size: 64 << 20,
            keep: 32,
            keep_for: None,
        }),
        stdout: false,
        otlp: None,
        closed: false,
        sync: Duration::from_millis(100),
        queue: 1024,
        shape: ArgumentRecording::default(),
        key: None,
    }
}

fn path(plan: &AuditPlan) -> &Path {
    &plan.file.as_ref().unwrap().path
}

fn factory() -> UpstreamFactory {
    let ports = weir_upstream::UpstreamPorts {
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(FakeRandom::new(7)),
        notifier: Arc::default(),
        session_lists: weir_catalog::SessionListTable::new(Arc::default(), &FakeRandom::new(8)),
        keeper: weir_process::keeper::ChildKeeper::unavailable(),
        budgets: weir_core::Budgets::default(),
    };
    UpstreamFactory::new(ports, weir_upstream::ClientImplementation::new("weir", "0"))
}

async fn start(plan: &AuditPlan) -> AuditService {
    start_at(plan, Arc::new(SystemClock::new())).await
}

async fn start_at(plan: &AuditPlan, clock: Arc<dyn Clock>) -> AuditService {
    let auditing =
        AuditService::start(Some(plan), ChainHeads::default(), clock, &factory()).unwrap();
    auditing.wait_for_first_record().await;
    auditing
}

fn change(auditing: &AuditService, plan: Option<&AuditPlan>) {
    let prepared = auditing.prepare(plan, &factory()).unwrap();
    auditing.take(prepared).unwrap();
}

/// Waits until the writer carries out a change of settings while it writes to this file. It takes
/// later events when it has done so.
async fn wait_for_change(file: &Path) {
    let is_recorded = || members_of(file, "kind").contains(&"changed".to_owned());
    wait_for_condition("the change", Duration::from_secs(60), is_recorded).await;
}

fn operate(auditing: &AuditService, what: &str) {
    auditing.port().record_operator_action(&OperatorAction {
        actor: "test",
        action: what,
        detail: "",
        took_effect: true,
    });
}

/// Verifies the chain over files, in the order given.
fn inspect(mut inspector: ChainInspector, files: &[PathBuf]) -> ChainSummary {
    for file in files {
        let text = fs::read(file).unwrap();
        inspector.begin_file();
        for line in text.split_inclusive(|b| *b == b'\n') {
            let whole = line.ends_with(b"\n");
            let found = inspector.line(line.strip_suffix(b"\n").unwrap_or(line), whole);
            found.unwrap_or_else(|trouble| {
                panic!(
                    "{}: {trouble:?}\n{}",
                    file.display(),
                    String::from_utf8_lossy(&text)
                )
            });
        }
        inspector
            .end_file()
            .unwrap_or_else(|trouble| panic!("{}: {trouble:?}", file.display()));
    }
    inspector.finish().unwrap()
}

fn verified(plan: &AuditPlan) -> ChainSummary {
    let mut files = rotation::rotated_files(path(plan));
    files.push(path(plan).to_owned());
    inspect(ChainInspector::default(), &files)
}

/// Returns one member of each record of a file.
fn members_of(path: &Path, member: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
    records
        .map(|record| record[member].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn call() -> Call {
    let params =
        Params::parse(Some(&Bytes::from_static(br#"{"name":"x","arguments":{}}"#))).unwrap();
    Call::new(
        EndpointId::new("/mcp"),
        Method::ToolsCall,
        params,
        RequestName::from_bits(1),
    )
}

/// Makes a call that is allowed, and records its end.
fn allowed(auditing: &AuditService, principal: &Principal) -> Result<(), Failure> {
    let call = call();
    let attempt = CallAttempt {
        principal,
        call: &call,
        item: None,
    };
    auditing
        .port()
        .record_decision(&attempt, GateDecision::Allowed(&CallPermission::default()))?;
    let ended = EndedCall {
        outcome: CallOutcome::Complete,
        took: Duration::ZERO,
        bytes: 0,
        changes: weir_core::port::ContentChanges::default(),
        revision: None,
        verdict: CallPermission::default(),
    };
    auditing.port().record_end(&attempt, &ended);
    Ok(())
}

// Proves F18.
#[tokio::test]
async fn the_chain_goes_on_over_orderly_restarts() {
    let folder = AuditTestFolder::new("restarts");
    let plan = folder.plan("audit.jsonl");
    for _ in 0..3 {
        let auditing = start(&plan).await;
        operate(&auditing, "one");
        operate(&auditing, "two");
        auditing.shutdown().await;
    }
    let summary = verified(&plan);
    assert_eq!(
        (summary.first, summary.records, summary.gaps),
        (Some(1), 12, Vec::new())
    );
    assert_eq!(
        members_of(path(&plan), "kind")[..5],
        ["started", "admin", "admin", "stopped", "started"]
    );
    assert!(
        !fs::read_to_string(path(&plan))
            .unwrap()
            .contains("\"unclean\":true")
    );
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path(&plan)).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "nobody else reads who called what");
}

// Proves F18, G10.
#[tokio::test]
async fn wherever_a_sudden_end_cuts_the_file_the_next_start_says_so_and_goes_on() {
    let folder = AuditTestFolder::new("torn");
    let plan = folder.plan("audit.jsonl");
    let auditing = start(&plan).await;
    for _ in 0..5 {
        operate(&auditing, "something");
    }
    auditing.shutdown().await;
    let whole = fs::read(path(&plan)).unwrap();
    let garbage = [
        &b""[..],
        b"\0\0\0\0",
        b"\n",
        b"half\nof\n{\"seq\":3",
        b"\xff\xfe",
    ];
    for cut in (0..whole.len())
        .step_by(37)
        .chain([whole.len() - 1, whole.len()])
    {
        for garbage in garbage {
            if cut < 10 && !garbage.is_empty() {
                continue;
            }
            let left = [&whole[..cut], garbage].concat();
            fs::write(path(&plan), &left).unwrap();
            let auditing = start(&plan).await;
            operate(&auditing, "after");
            auditing.shutdown().await;
            let summary = verified(&plan);
            let before = whole[..cut].iter().filter(|b| **b == b'\n').count() as u64;
            assert!(summary.records >= before + 3, "{cut}: {summary:?}");
            let clean = left.is_empty() || left == whole || left == whole[..whole.len() - 1];
            let text = String::from_utf8_lossy(&fs::read(path(&plan)).unwrap()).into_owned();
            assert_eq!(
                !text.contains("\"unclean\":true"),
                clean,
                "{cut} {garbage:?}"
            );
            assert!(
                summary
                    .gaps
                    .iter()
                    .all(|seam| matches!(seam, ChainGap::Recovered { .. }))
            );
        }
    }
}

// Proves F18.
#[tokio::test]
async fn a_file_that_is_no_record_of_weirs_is_left_alone() {
    let folder = AuditTestFolder::new("foreign");
    let plan = folder.plan("audit.jsonl");
    for text in [
        "root:x:0:0\n",
        "{\"a\":1}\n",
        "{\"seq\":2,\"hash\":\"x\"}\n",
    ] {
        fs::write(path(&plan), text).unwrap();
        let refused = AuditService::start(
            Some(&plan),
            ChainHeads::default(),
            Arc::new(SystemClock::new()),
            &factory(),
        )
        .unwrap_err();
        assert!(refused.to_string().contains("move it away"), "{refused}");
        assert_eq!(fs::read_to_string(path(&plan)).unwrap(), text);
    }
}

// Proves F18.
#[tokio::test]
async fn two_processes_never_write_one_chain() {
    let folder = AuditTestFolder::new("two");
    let plan = folder.plan("audit.jsonl");
    let auditing = start(&plan).await;
    let refused = AuditService::start(
        Some(&plan),
        ChainHeads::default(),
        Arc::new(SystemClock::new()),
        &factory(),
    )
    .unwrap_err();
    assert!(refused.to_string().contains("another process"), "{refused}");
    auditing.shutdown().await;
}

// Proves F18.
#[tokio::test]
async fn full_files_are_put_aside_and_the_chain_goes_on_through_them() {
    let folder = AuditTestFolder::new("rotation");
    let plan = folder.plan_of_files(2000, 3);
    let mut head: Option<ChainHead> = None;
    for _ in 0..12 {
        let auditing = start(&plan).await;
        for _ in 0..4 {
            operate(&auditing, "something");
        }
        auditing.shutdown().await;
        let summary = verified(&plan);
        assert!(summary.head.as_ref().unwrap().seq > head.map_or(0, |head| head.seq));
        head = summary.head;
    }
    assert_eq!(head.unwrap().seq, 72, "nothing is missing at the end");
    let aside = rotation::rotated_files(path(&plan));
    assert!((1..=3).contains(&aside.len()), "{aside:?}");
    assert!(verified(&plan).first.unwrap() > 1, "the oldest are gone");
}

// Proves F18.
#[test]
fn old_files_go_by_number_and_by_age() {
    let folder = AuditTestFolder::new("shelf");
    let own = folder.0.file("audit.jsonl");
    let names = [
        "audit.jsonl.0000000000000001",
        "audit.jsonl.0000000000000002",
        "audit.jsonl.0000000000000002-002",
    ];
    let others = [
        "audit.jsonl",
        "audit.jsonl.bak",
        "other.jsonl.0000000000000001",
        "audit.jsonl.0000000000000002-2",
    ];
    for name in names.iter().chain(&others) {
        fs::write(folder.0.file(name), name).unwrap();
    }
    assert_eq!(
        rotation::rotated_files(&own),
        names.map(|name| folder.0.file(name))
    );
    assert_eq!(
        rotation::rotated_name(&own, 2),
        folder.0.file("audit.jsonl.0000000000000002-003")
    );
    let now = std::time::SystemTime::now();
    rotation::remove_old(&own, 2, Some(Duration::from_secs(60)), now);
    assert_eq!(
        rotation::rotated_files(&own),
        names[1..]
            .iter()
            .map(|name| folder.0.file(name))
            .collect::<Vec<_>>()
    );
    rotation::remove_old(
        &own,
        2,
        Some(Duration::from_secs(60)),
        now + Duration::from_secs(3600),
    );
    assert!(rotation::rotated_files(&own).is_empty());
    assert!(
        others.iter().all(|name| folder.0.file(name).exists()),
        "what is not weir's stays"
    );
}

#[tokio::test]
async fn reload_without_a_change_leaves_no_record_and_finds_a_moved_file() {
    let folder = AuditTestFolder::new("unchanged");
    let plan = folder.plan("audit.jsonl");
    let auditing = start(&plan).await;
    operate(&auditing, "before");
    change(&auditing, Some(&plan));
    operate(&auditing, "after");
    let own = path(&plan);
    let is_kept = || members_of(own, "what").contains(&"after".to_owned());
    wait_for_condition("the record", Duration::from_secs(60), is_kept).await;
    let moved = folder.0.file("moved.jsonl");
    fs::rename(own, &moved).unwrap();
    change(&auditing, Some(&plan));
    wait_for_condition("the new file", Duration::from_secs(60), || own.exists()).await;
    operate(&auditing, "in the new file");
    auditing.shutdown().await;
    let kinds = members_of(&moved, "kind");
    assert!(!kinds.contains(&"changed".to_owned()), "{kinds:?}");
    assert_eq!(members_of(own, "what"), ["in the new file", ""]);
    let summary = inspect(ChainInspector::new(Vec::new()), &[moved, own.to_owned()]);
    assert_eq!((summary.first, summary.gaps), (Some(1), Vec::new()));
}

// Proves F18.
#[tokio::test]
async fn a_reload_moves_the_record_and_the_chain_goes_on() {
    let folder = AuditTestFolder::new("moves");
    let (first, second) = (folder.plan("first.jsonl"), folder.plan("second.jsonl"));
    // At the new path there is another chain already.
    let auditing = start(&second).await;
    auditing.shutdown().await;
    let auditing = start(&first).await;
    operate(&auditing, "here");
    change(&auditing, Some(&second));
    wait_for_change(path(&first)).await;
    operate(&auditing, "there");
    // The same path with other settings.
    let signed = AuditPlan {
        key: Some(AuditKey::new(1, [7; 32])),
        closed: true,
        ..second.clone()
    };
    change(&auditing, Some(&signed));
    wait_for_change(path(&second)).await;
    operate(&auditing, "signed");
    auditing.shutdown().await;
    let files = [path(&first).to_owned(), path(&second).to_owned()];
    let summary = inspect(ChainInspector::new(vec![AuditKey::new(1, [7; 32])]), &files);
    assert_eq!((summary.first, summary.gaps), (Some(1), Vec::new()));
    assert_eq!(summary.signed, 2, "the event and the end");
    assert_eq!(
        members_of(path(&second), "what"),
        ["there", "", "signed", ""]
    );
    assert_eq!(
        rotation::rotated_files(path(&second)).len(),
        1,
        "the other chain is kept"
    );
    // Switched off, then on again: the chain continues in the file.
    let auditing = start(&signed).await;
    change(&auditing, None);
    operate(&auditing, "unseen");
    auditing.shutdown().await;
    assert!(!members_of(path(&second), "what").contains(&"unseen".to_owned()));
}

// Proves F13.
#[tokio::test]
async fn a_full_disk_refuses_calls_where_it_is_closed_and_counts_them_where_it_is_open() {
    let anybody = Principal::owner(None);
    let full = plan(Path::new("/dev/full"));
    let closed = AuditPlan {
        closed: true,
        queue: 64,
        ..full.clone()
    };
    let auditing = AuditService::start(
        Some(&closed),
        ChainHeads::default(),
        Arc::new(SystemClock::new()),
        &factory(),
    )
    .unwrap();
    for _ in 0..200 {
        assert_eq!(
            allowed(&auditing, &anybody).unwrap_err().kind(),
            &FailureKind::Overloaded
        );
    }
    // The operator opens the audit, or gives another path; the failing writer obeys.
    let folder = AuditTestFolder::new("full");
    change(
        &auditing,
        Some(&AuditPlan {
            closed: false,
            ..closed.clone()
        }),
    );
    for _ in 0..200 {
        allowed(&auditing, &anybody).unwrap();
    }
    let elsewhere = AuditPlan {
        queue: 64,
        ..folder.plan("audit.jsonl")
    };
    change(&auditing, Some(&elsewhere));
    auditing.shutdown().await;
    let summary = verified(&elsewhere);
    let lost = summary.gaps.iter().map(|seam| match seam {
        ChainGap::Lost { events, .. } => *events,
        ChainGap::Recovered { .. } | ChainGap::Open { .. } => 0,
    });
    let calls = members_of(path(&elsewhere), "kind")
        .iter()
        .filter(|kind| *kind == "call")
        .count() as u64;
    assert_eq!(
        calls + lost.sum::<u64>(),
        200,
        "what has no record is counted"
    );
}

// Proves F18.
#[tokio::test]
async fn a_closed_audit_has_a_record_of_every_call_that_it_let_through() {
    let folder = AuditTestFolder::new("closed");
    let plan = AuditPlan {
        closed: true,
        queue: 64,
        ..folder.plan("audit.jsonl")
    };
    let auditing = start(&plan).await;
    let anybody = Principal::owner(None);
    let through = (0..5000)
        .filter(|_| allowed(&auditing, &anybody).is_ok())
        .count();
    assert!(through > 0);
    auditing.shutdown().await;
    let summary = verified(&plan);
    assert_eq!(
        members_of(path(&plan), "kind")
            .iter()
            .filter(|kind| *kind == "call")
            .count(),
        through
    );
    assert_eq!(summary.gaps, []);
}

// Proves F18, G06.
#[tokio::test]
async fn the_chain_goes_on_in_the_next_process_and_names_the_end_of_the_last_ones_branch() {
    let folder = AuditTestFolder::new("handed-over");
    let plan = folder.plan("audit.jsonl");
    let old = start(&plan).await;
    operate(&old, "before");
    let left = old.release_files().await;
    let (clock, factory) = (Arc::new(SystemClock::new()), factory());
    let new = AuditService::start(Some(&plan), left, clock, &factory).unwrap();
    new.wait_for_first_record().await;
    operate(&new, "after");
    operate(&old, "while it drains");
    let last = old.shutdown().await;
    new.record_predecessor_end(last);
    new.shutdown().await;
    let aside = rotation::rotated_files(path(&plan)).remove(0);
    assert_eq!(
        members_of(&aside, "kind"),
        ["started", "admin", "left", "admin", "stopped"]
    );
    assert_eq!(
        members_of(path(&plan), "kind"),
        ["started", "admin", "predecessor", "stopped"]
    );
    let summary = verified(&plan);
    assert_eq!((summary.records, summary.gaps.as_slice()), (9, &[][..]));
    // A later process continues the file as after any restart, regardless of the head that is left
    // to it.
    let other = AuditService::start(
        Some(&plan),
        ChainHeads {
            calls: Some(ChainHead::genesis()),
            refusals: None,
        },
        Arc::new(SystemClock::new()),
        &factory,
    )
    .unwrap();
    other.wait_for_first_record().await;
    other.shutdown().await;
    assert_eq!(verified(&plan).records, 11);
}

//! Refusals have a chain of their own, and displace no record of a call.

use weir_core::port::{SenderEntrance, SenderRejection};

use super::*;

fn refuse(auditing: &AuditService, peer: [u8; 4], principal: Option<&Principal>) {
    let endpoint = EndpointId::new("/mcp");
    let outcome = Err(SenderRejection {
        reason: "missing",
        principal,
    });
    auditing.port().record_entrance(&SenderEntrance {
        peer: peer.into(),
        endpoint: &endpoint,
        request: "1",
        outcome,
    });
}

fn refusals(plan: &AuditPlan) -> PathBuf {
    let mut path = path(plan).as_os_str().to_owned();
    path.push(".refusals");
    path.into()
}

// Proves F18.
#[tokio::test]
async fn a_flood_of_refusals_displaces_no_record_of_a_call() {
    let folder = AuditTestFolder::new("flood");
    let plan = folder.plan_of_files(64 << 10, 4);
    let auditing = start(&plan).await;
    let anybody = Principal::owner(None);
    allowed(&auditing, &anybody).unwrap();
    for n in 0..200_000_u32 {
        let [_, a, b, c] = n.to_be_bytes();
        refuse(&auditing, [a, b, c, 1], None);
    }
    allowed(&auditing, &anybody).unwrap();
    auditing.shutdown().await;
    assert!(
        rotation::rotated_files(path(&plan)).is_empty(),
        "nothing of it came to the file of the calls"
    );
    assert_eq!(
        members_of(path(&plan), "kind"),
        ["started", "call", "call", "stopped"]
    );
    let mut files = rotation::rotated_files(&refusals(&plan));
    assert!(files.len() <= 4, "{files:?}");
    files.push(refusals(&plan));
    let summary = inspect(ChainInspector::default(), &files);
    // A minute may end meanwhile.
    assert!((1026..4 * 1030).contains(&summary.head.unwrap().seq));
}

// Proves F18.
#[tokio::test]
async fn denials_of_principals_displace_no_record_of_a_call_and_are_kept_all_the_same() {
    let folder = AuditTestFolder::new("denials");
    let plan = folder.plan_of_files(1 << 20, 4);
    let auditing = start(&plan).await;
    let anybody = Principal::owner(None);
    allowed(&auditing, &anybody).unwrap();
    let denied = Failure::new(FailureKind::Denied, "no".repeat(100));
    // As many as the queue has room for.
    for _ in 0..500 {
        let call = call();
        let attempt = CallAttempt {
            principal: &anybody,
            call: &call,
            item: None,
        };
        auditing
            .port()
            .record_decision(&attempt, GateDecision::Refused(&denied))
            .unwrap();
    }
    allowed(&auditing, &anybody).unwrap();
    auditing.shutdown().await;
    assert!(
        rotation::rotated_files(path(&plan)).is_empty(),
        "they do not fill the file"
    );
    let outcomes = members_of(path(&plan), "outcome");
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| *outcome == "complete")
            .count(),
        2
    );
    let length = fs::metadata(path(&plan)).unwrap().len();
    assert!((256 << 10..260 << 10).contains(&length), "{length}");
    let kept = [
        members_of(path(&plan), "decision"),
        members_of(&refusals(&plan), "decision"),
    ]
    .concat();
    assert_eq!(
        kept.iter()
            .filter(|decision| *decision == "refused")
            .count(),
        500
    );
}

// Proves F18, G06.
#[tokio::test]
async fn the_chain_of_refusals_goes_on_in_the_next_process() {
    let folder = AuditTestFolder::new("refusals-handed-over");
    let plan = folder.plan("audit.jsonl");
    // The refusals of a minute are written at its end, which must not come in between.
    let clock = FakeClock::new();
    let old = start_at(&plan, Arc::new(clock.clone())).await;
    refuse(&old, [192, 0, 2, 1], None);
    let left = old.release_files().await;
    assert_eq!(
        left.refusals.as_ref().map(|head| head.seq),
        Some(3),
        "the open minute is written at a hand-over"
    );
    let new = AuditService::start(Some(&plan), left, Arc::new(clock), &factory()).unwrap();
    new.wait_for_first_record().await;
    refuse(&new, [192, 0, 2, 1], None);
    refuse(&old, [192, 0, 2, 1], None);
    new.record_predecessor_end(old.shutdown().await);
    new.shutdown().await;
    let mut files = rotation::rotated_files(&refusals(&plan));
    assert_eq!(
        members_of(&files[0], "kind"),
        ["started", "refusals", "left", "refusals", "stopped"]
    );
    files.push(refusals(&plan));
    assert_eq!(
        members_of(&files[1], "kind"),
        ["started", "predecessor", "refusals", "stopped"]
    );
    let summary = inspect(ChainInspector::default(), &files);
    assert_eq!((summary.records, summary.gaps.as_slice()), (9, &[][..]));
}

// Proves F18.
#[tokio::test]
async fn a_pipe_takes_both_chains_as_whole_lines() {
    let folder = AuditTestFolder::new("both");
    let pipe = folder.0.file("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    // Open at both ends, so that no open waits.
    let end = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let auditing = start(&plan(&pipe)).await;
    let anybody = Principal::owner(None);
    allowed(&auditing, &anybody).unwrap();
    refuse(&auditing, [192, 0, 2, 1], None);
    auditing.shutdown().await;
    let mut bytes = vec![0; 64 << 10];
    let count = std::io::Read::read(&mut &end, &mut bytes).unwrap();
    let text = String::from_utf8(bytes[..count].to_vec()).unwrap();
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |chain: &Value| {
        records
            .iter()
            .filter(|record| record["chain"] == *chain)
            .count()
    };
    assert_eq!(
        (of(&Value::Null), of(&"refusals".into()), records.len()),
        (3, 3, 6),
        "{text}"
    );
}

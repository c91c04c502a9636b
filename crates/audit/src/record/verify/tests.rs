//! Chains that were tampered with.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::super::chain::AuditChain;
use super::super::event::{AuditEvent, AuditLifecycle};
use super::*;

fn event(life: AuditLifecycle) -> AuditEvent {
    AuditEvent::life(UNIX_EPOCH + Duration::from_secs(1_785_542_400), life)
}

/// This number of records after `head`, a line each.
fn more(chain: &mut AuditChain, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| chain.seal(&event(AuditLifecycle::Changed)).line)
        .collect()
}

fn fresh(key: Option<AuditKey>) -> AuditChain {
    AuditChain::after(ChainHead::genesis(), key)
}

fn key(id: u8) -> AuditKey {
    AuditKey::new(id, [id; 32])
}

fn walk(mut inspector: ChainInspector, text: &[u8]) -> Result<ChainSummary, ChainFault> {
    inspector.begin_file();
    for line in text.split_inclusive(|b| *b == b'\n') {
        match line.split_last() {
            Some((b'\n', line)) => inspector.line(line, true)?,
            _ => inspector.line(line, false)?,
        }
    }
    inspector.end_file()?;
    inspector.finish()
}

fn check(lines: &[String]) -> Result<ChainSummary, ChainFault> {
    walk(ChainInspector::default(), lines.concat().as_bytes())
}

fn line_of(trouble: Result<ChainSummary, ChainFault>) -> u64 {
    trouble.unwrap_err().line
}

// Proves F18.
#[test]
fn intact_audit_chain_verifies_and_reports_its_head() {
    let mut chain = fresh(None);
    let lines = more(&mut chain, 100);
    let summary = check(&lines).unwrap();
    assert_eq!(
        (summary.first, summary.records, summary.gaps.len()),
        (Some(1), 100, 0)
    );
    assert_eq!(summary.head.as_ref(), Some(chain.head()));
    // The older part may be gone: the rest still holds.
    assert_eq!(check(&lines[40..]).unwrap().first, Some(41));
    assert_eq!(check(&[]).unwrap().head, None);
}

// Proves F18.
#[test]
fn tampering_is_reported_with_its_line() {
    let lines = more(&mut fresh(None), 10);
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = lines.clone();
        change(&mut lines);
        check(&lines)
    };
    assert_eq!(line_of(with(&|lines| drop(lines.remove(4)))), 5);
    assert_eq!(line_of(with(&|lines| lines.swap(3, 4))), 4);
    assert_eq!(line_of(with(&|lines| lines.insert(5, lines[4].clone()))), 6);
    assert_eq!(
        line_of(with(
            &|lines| lines[6] = lines[6].replace("changed", "stopped")
        )),
        7
    );
    assert_eq!(line_of(with(&|lines| lines.insert(2, "\n".to_owned()))), 3);
    assert_eq!(line_of(with(&|lines| lines[9].truncate(50))), 10);
    assert_eq!(
        line_of(with(&|lines| lines[9].retain(|c| c != '\n'))),
        10,
        "even its end alone"
    );
    // One record written anew, with a hash that fits it: the next one does not link to it.
    let exchanged = with(&|lines| {
        let mut chain = fresh(None);
        more(&mut chain, 4);
        lines[4] = chain.seal(&event(AuditLifecycle::Stopped)).line;
    });
    assert!(exchanged.as_ref().unwrap_err().why.contains("replaced"));
    assert_eq!(line_of(exchanged), 6);
}

proptest! {
    // Proves F18.
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_byte_can_be_flipped(at in 0..2000usize, bit in 0..8u8) {
        let mut text = more(&mut fresh(None), 8).concat().into_bytes();
        let at = at % text.len();
        text[at] ^= 1 << bit;
        prop_assert!(walk(ChainInspector::default(), &text).is_err(), "{at} {bit}");
    }
}

// Proves F18.
#[test]
fn truncated_or_restarted_audit_chain_is_detected_with_a_known_head() {
    let mut chain = fresh(None);
    let lines = more(&mut chain, 10);
    let known = || ChainInspector::default().expect(chain.head().clone());
    assert!(walk(known(), lines.concat().as_bytes()).is_ok());
    assert!(check(&lines[..9]).is_ok(), "nobody can see that without");
    assert!(
        walk(known(), lines[..9].concat().as_bytes())
            .unwrap_err()
            .why
            .contains("cut off")
    );
    let mut other = fresh(None);
    let mut anew = vec![other.seal(&event(AuditLifecycle::Stopped)).line];
    anew.extend(more(&mut other, 9));
    assert!(check(&anew).is_ok(), "nobody can see that without");
    assert!(
        walk(known(), anew.concat().as_bytes())
            .unwrap_err()
            .why
            .contains("rewritten")
    );
}

// Proves F18.
#[test]
fn a_signed_chain_is_continued_by_the_keys_holder_alone() {
    let lines = more(&mut fresh(Some(key(1))), 5).concat();
    let with = |keys: &[u8], text: &str| {
        walk(
            ChainInspector::new(keys.iter().map(|id| key(*id)).collect()),
            text.as_bytes(),
        )
    };
    assert!(with(&[2, 1], &lines).is_ok());
    assert!(
        with(&[2], &lines)
            .unwrap_err()
            .why
            .contains("key 1, which was not given")
    );
    assert!(with(&[], &lines).is_err());
    let unsigned = more(&mut fresh(None), 5).concat();
    assert!(
        with(&[1], &unsigned)
            .unwrap_err()
            .why
            .contains("no record is signed")
    );
    // A key came later: from there on all are signed.
    let mut chain = fresh(None);
    let mut both = more(&mut chain, 3).concat();
    let mut signed = AuditChain::after(chain.head().clone(), Some(key(1)));
    both.push_str(&more(&mut signed, 2).concat());
    assert_eq!(with(&[1], &both).unwrap().signed, 2);
    let mut unsigned = AuditChain::after(signed.head().clone(), None);
    both.push_str(&more(&mut unsigned, 1).concat());
    assert_eq!(with(&[1], &both).unwrap_err().line, 6);
    // The same number, another secret.
    let forged = more(&mut fresh(Some(AuditKey::new(1, [9; 32]))), 5).concat();
    assert_eq!(with(&[1], &forged).unwrap_err().line, 1);
}

/// A chain of five records, then bytes that are not a record, then a record that accounts for them,
/// and two more.
fn recovered(torn: &str, said: u64, sha256: &str) -> Result<ChainSummary, ChainFault> {
    let mut chain = fresh(None);
    let mut text = more(&mut chain, 5).concat();
    text.push_str(torn);
    text.push('\n');
    text.push_str(
        &chain
            .seal(&event(AuditLifecycle::Recovered {
                bytes: said,
                sha256: sha256.to_owned(),
            }))
            .line,
    );
    text.push_str(&more(&mut chain, 2).concat());
    walk(ChainInspector::default(), text.as_bytes())
}

// Proves F18, G10.
#[test]
fn torn_lines_are_valid_if_a_record_accounts_for_them() {
    let digest = |text: &str| HEXLOWER.encode(&Sha256::digest(text));
    for torn in [
        r#"{"seq":6,"ti"#,
        "\0\0\0\0",
        "half\nanother\n{\"seq\"",
        "",
        "\n\n",
        "\u{fffd}",
    ] {
        let summary = recovered(torn, torn.len() as u64, &digest(torn)).unwrap();
        assert_eq!(
            summary.gaps,
            [ChainGap::Recovered {
                seq: 6,
                bytes: torn.len() as u64
            }],
            "{torn}"
        );
        assert_eq!(summary.records, 8);
        // Bytes without a record that accounts for them are a fault.
        assert_eq!(
            recovered(torn, torn.len() as u64, &digest("other"))
                .unwrap_err()
                .line,
            6
        );
        assert_eq!(
            recovered(torn, torn.len() as u64 + 1, &digest(torn))
                .unwrap_err()
                .line,
            6
        );
    }
}

// Proves F13.
#[test]
fn lost_events_are_counted_and_the_chain_holds() {
    let mut chain = fresh(None);
    let lines = [
        chain.seal(&event(AuditLifecycle::Changed)).line,
        chain.seal(&event(AuditLifecycle::Lost { events: 12 })).line,
    ];
    assert_eq!(
        check(&lines).unwrap().gaps,
        [ChainGap::Lost { seq: 2, events: 12 }]
    );
}

/// The records of a process with a successor after five records, and those of the successor. `last`
/// is the end that the successor reports for the process.
fn taken_over(
    last: impl Fn(&ChainHead) -> Option<ChainHead>,
) -> (Vec<String>, Vec<String>, ChainHead) {
    let mut before = fresh(None);
    let mut old = more(&mut before, 4);
    old.push(before.seal(&event(AuditLifecycle::Left)).line);
    let mut after = AuditChain::after(before.head().clone(), None);
    old.extend(more(&mut before, 3));
    let mut new = more(&mut after, 2);
    new.push(
        after
            .seal(&event(AuditLifecycle::Predecessor {
                last: last(before.head()),
            }))
            .line,
    );
    new.extend(more(&mut after, 2));
    (old, new, after.head().clone())
}

fn in_turn(mut inspector: ChainInspector, files: &[&[String]]) -> Result<ChainSummary, ChainFault> {
    for file in files {
        inspector.begin_file();
        for line in *file {
            inspector.line(line.trim_end().as_bytes(), true)?;
        }
        inspector.end_file()?;
    }
    inspector.finish()
}

// Proves F18, G06.
#[test]
fn chain_continues_after_a_take_over_and_cut_ends_are_found() {
    let (old, new, head) = taken_over(|head| Some(head.clone()));
    let check = |files: &[&[String]]| in_turn(ChainInspector::default(), files);
    let summary = check(&[&old, &new]).unwrap();
    assert_eq!(
        (summary.records, summary.gaps.as_slice(), summary.head),
        (13, &[][..], Some(head.clone()))
    );
    // The last records of the process that drained.
    for kept in 5..8 {
        let trouble = check(&[&old[..kept], &new]).unwrap_err();
        assert!(
            trouble.line == 3 && trouble.why.contains("ended with record 8"),
            "{trouble:?}"
        );
    }
    assert!(
        check(&[&old[..4], &new])
            .unwrap_err()
            .why
            .contains("records 5 to 5 are missing")
    );
    let mut more_of_it = old.clone();
    more_of_it.push(old[7].clone());
    assert!(check(&[&more_of_it, &new]).is_err());
    // Either file alone is valid; another chain's file links to neither.
    assert_eq!(check(&[&new]).unwrap().first, Some(6));
    assert_eq!(check(&[&old]).unwrap().records, 8);
    assert!(check(&[&old, &more(&mut fresh(None), 3)]).is_err());
    // An expected record is looked for on the branch and after it.
    let last = ChainLink::read(old[7].trim_end().as_bytes()).unwrap().head;
    for known in [head, last] {
        assert!(
            in_turn(
                ChainInspector::default().expect(known.clone()),
                &[&old, &new]
            )
            .is_ok()
        );
        let other = ChainHead {
            hash: "0".repeat(64),
            ..known
        };
        assert!(in_turn(ChainInspector::default().expect(other), &[&old, &new]).is_err());
    }
}

// Proves F18.
#[test]
fn unreported_end_of_a_predecessor_is_a_gap() {
    let (old, new, _) = taken_over(|_| None);
    let summary = in_turn(ChainInspector::default(), &[&old, &new]).unwrap();
    assert_eq!(summary.gaps, [ChainGap::Open { seq: 5 }]);
}

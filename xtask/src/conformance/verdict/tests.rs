//! Tests of the judgement: each is one way to make a run look better than it is.

use super::*;

const REVISION: &str = "2025-11-25";

fn check(id: &str, status: Status) -> Check {
    Check {
        id: id.to_owned(),
        status,
        error_message: None,
    }
}

fn run<const N: usize>(scenarios: [(&str, Vec<Check>); N]) -> Checks {
    scenarios
        .into_iter()
        .map(|(name, checks)| (name.to_owned(), checks))
        .collect()
}

fn good(id: &str) -> Vec<Check> {
    vec![
        check(id, Status::Success),
        check(ADDED_TO_ALL, Status::Success),
    ]
}

fn judged(direct: &Checks, weir: &Checks, lines: &str) -> Vec<Wrong> {
    let requirements = Requirements {
        revision: REVISION,
        scored: vec!["ping".to_owned()],
        not_scored: vec!["extra".to_owned()],
    };
    let lines = if lines.is_empty() {
        Lines::default()
    } else {
        Lines::from_yaml(lines)
    };
    judge_checks(
        requirements,
        Some(direct),
        Some(weir),
        &lines,
        Demand::Scored,
    )
    .wrong()
}

#[test]
fn a_run_without_problems_has_none() {
    let both = run([("ping", good("ping")), ("extra", good("extra"))]);
    assert_eq!(judged(&both, &both, ""), []);
}

#[test]
fn an_unexpected_failure_is_wrong() {
    let direct = run([("ping", good("ping"))]);
    let weir = run([("ping", vec![check("ping", Status::Failure)])]);
    assert!(
        matches!(&judged(&direct, &weir, "")[..], [Wrong::Weir { scenario, .. }] if scenario == "ping")
    );
    assert_eq!(judged(&direct, &weir, "ping: operations"), []);
}

#[test]
fn a_scenario_whose_checks_were_all_skipped_did_not_pass() {
    let direct = run([("ping", good("ping"))]);
    let weir = run([(
        "ping",
        vec![
            check("ping", Status::Skipped),
            check(ADDED_TO_ALL, Status::Success),
        ],
    )]);
    assert!(matches!(
        &judged(&direct, &weir, "")[..],
        [Wrong::Weir { .. }]
    ));
}

#[test]
fn a_check_that_weir_made_vanish_is_a_failure_unless_its_line_says_so() {
    let direct = run([("ping", [good("ping"), good("change")].concat())]);
    let weir = run([(
        "ping",
        [
            good("ping"),
            good("ping"),
            vec![check("change", Status::Skipped)],
        ]
        .concat(),
    )]);
    assert!(
        matches!(&judged(&direct, &weir, "")[..], [Wrong::Weir { why, .. }] if why.contains("change"))
    );
    assert_eq!(
        judged(&direct, &weir, "ping/change: whole protocol bridge"),
        []
    );
}

#[test]
fn a_warning_is_a_failure() {
    let direct = run([("ping", good("ping"))]);
    let weir = run([(
        "ping",
        [good("ping"), vec![check("should", Status::Warning)]].concat(),
    )]);
    assert!(matches!(
        &judged(&direct, &weir, "")[..],
        [Wrong::Weir { .. }]
    ));
}

#[test]
fn an_expected_failure_that_passes_is_wrong() {
    let both = run([("ping", good("ping"))]);
    let passes = |line: &str| {
        vec![Wrong::Passes {
            revision: REVISION,
            line: line.to_owned(),
        }]
    };
    assert_eq!(judged(&both, &both, "ping: operations"), passes("ping"));
    assert_eq!(
        judged(&both, &both, "ping/ping: operations"),
        passes("ping/ping")
    );
}

#[test]
fn an_expected_failure_that_did_not_run_is_wrong() {
    let both = run([("ping", good("ping"))]);
    let not_run = |line: &str| {
        vec![Wrong::NotRun {
            revision: REVISION,
            line: line.to_owned(),
        }]
    };
    assert_eq!(
        judged(&both, &both, "no-such: operations"),
        not_run("no-such")
    );
    assert_eq!(
        judged(&both, &both, "ping/no-such: operations"),
        not_run("ping/no-such")
    );
    let weir = run([("ping", Vec::new())]);
    assert_eq!(judged(&both, &weir, "ping: operations"), not_run("ping"));
}

#[test]
fn what_the_fixture_fails_is_required_only_where_it_is_scored() {
    let bad = || vec![check("x", Status::Failure)];
    let both = run([("ping", good("ping")), ("extra", bad())]);
    assert_eq!(
        judged(&both, &both, ""),
        [],
        "the fixture does not have it, so weir cannot lose it"
    );
    let both = run([("ping", bad())]);
    assert!(matches!(
        &judged(&both, &both, "")[..],
        [Wrong::Fixture { .. }, Wrong::Weir { .. }]
    ));
}

#[test]
fn a_scenario_that_broke_off_is_a_failure() {
    let direct = run([("ping", good("ping"))]);
    let broken = run([("ping", Vec::new())]);
    assert!(matches!(
        &judged(&direct, &broken, "")[..],
        [Wrong::Weir { .. }]
    ));
    assert!(matches!(
        &judged(&direct, &run([]), "")[..],
        [Wrong::Weir { .. }]
    ));
}

#[test]
fn where_weir_itself_is_tested_everything_is_required() {
    let found = |weir: Checks| {
        let requirements = Requirements {
            revision: REVISION,
            scored: vec!["ping".to_owned()],
            not_scored: vec!["extra".to_owned()],
        };
        judge_checks(
            requirements,
            None,
            Some(&weir),
            &Lines::default(),
            Demand::Scored,
        )
        .wrong()
    };
    assert_eq!(
        found(run([("ping", good("ping")), ("extra", good("extra"))])),
        []
    );
    let bad = || vec![check("x", Status::Failure)];
    assert!(matches!(
        &found(run([("ping", bad()), ("extra", bad())]))[..],
        [Wrong::Weir { .. }, Wrong::Weir { .. }]
    ));
}

#[test]
fn a_server_of_others_is_asked_for_nothing_and_weir_for_what_it_passes() {
    let wrong = |direct: &Checks, weir: &Checks| {
        let requirements = Requirements {
            revision: REVISION,
            scored: vec!["ping".to_owned()],
            not_scored: Vec::new(),
        };
        judge_checks(
            requirements,
            Some(direct),
            Some(weir),
            &Lines::default(),
            Demand::AsDirectly,
        )
        .wrong()
    };
    let passing = run([("ping", good("ping"))]);
    let failing = run([("ping", vec![check("ping", Status::Failure)])]);
    assert_eq!(wrong(&failing, &failing), [], "the server cannot do it");
    assert_eq!(
        wrong(&failing, &passing),
        [],
        "weir mends what the server does"
    );
    assert!(matches!(
        &wrong(&passing, &failing)[..],
        [Wrong::Weir { .. }]
    ));
}

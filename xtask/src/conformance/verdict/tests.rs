//! Tests of the judgement: each is one way to make a run look better than it is.

use super::*;

const REVISION: &str = "2025-11-25";

fn check(id: &str, status: CheckStatus) -> ScenarioCheck {
    ScenarioCheck {
        id: id.to_owned(),
        status,
        error_message: None,
    }
}

fn run<const N: usize>(scenarios: [(&str, Vec<ScenarioCheck>); N]) -> ScenarioChecks {
    scenarios
        .into_iter()
        .map(|(name, checks)| (name.to_owned(), checks))
        .collect()
}

fn good(id: &str) -> Vec<ScenarioCheck> {
    vec![
        check(id, CheckStatus::Success),
        check(ADDED_TO_ALL, CheckStatus::Success),
    ]
}

fn judged(direct: &ScenarioChecks, weir: &ScenarioChecks, lines: &str) -> Vec<ConformanceProblem> {
    let requirements = RequirementSet {
        revision: REVISION,
        scored: vec!["ping".to_owned()],
        not_scored: vec!["extra".to_owned()],
    };
    let lines = if lines.is_empty() {
        ExpectedLines::default()
    } else {
        ExpectedLines::from_yaml(lines)
    };
    judge_checks(
        requirements,
        Some(direct),
        Some(weir),
        &lines,
        RunDemand::Scored,
    )
    .problems()
}

#[test]
fn a_run_without_problems_has_none() {
    let both = run([("ping", good("ping")), ("extra", good("extra"))]);
    assert_eq!(judged(&both, &both, ""), []);
}

#[test]
fn an_unexpected_failure_is_wrong() {
    let direct = run([("ping", good("ping"))]);
    let weir = run([("ping", vec![check("ping", CheckStatus::Failure)])]);
    assert!(
        matches!(&judged(&direct, &weir, "")[..], [ConformanceProblem::Weir { scenario, .. }] if scenario == "ping")
    );
    assert_eq!(judged(&direct, &weir, "ping: operations"), []);
}

#[test]
fn a_scenario_whose_checks_were_all_skipped_did_not_pass() {
    let direct = run([("ping", good("ping"))]);
    let weir = run([(
        "ping",
        vec![
            check("ping", CheckStatus::Skipped),
            check(ADDED_TO_ALL, CheckStatus::Success),
        ],
    )]);
    assert!(matches!(
        &judged(&direct, &weir, "")[..],
        [ConformanceProblem::Weir { .. }]
    ));
}

#[test]
fn check_skipped_only_through_weir_is_a_failure_unless_listed() {
    let direct = run([("ping", [good("ping"), good("change")].concat())]);
    let weir = run([(
        "ping",
        [
            good("ping"),
            good("ping"),
            vec![check("change", CheckStatus::Skipped)],
        ]
        .concat(),
    )]);
    assert!(
        matches!(&judged(&direct, &weir, "")[..], [ConformanceProblem::Weir { why, .. }] if why.contains("change"))
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
        [good("ping"), vec![check("should", CheckStatus::Warning)]].concat(),
    )]);
    assert!(matches!(
        &judged(&direct, &weir, "")[..],
        [ConformanceProblem::Weir { .. }]
    ));
}

#[test]
fn an_expected_failure_that_passes_is_wrong() {
    let both = run([("ping", good("ping"))]);
    let passes = |line: &str| {
        vec![ConformanceProblem::Passes {
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
        vec![ConformanceProblem::NotRun {
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
fn direct_failures_are_required_only_if_scored() {
    let bad = || vec![check("x", CheckStatus::Failure)];
    let both = run([("ping", good("ping")), ("extra", bad())]);
    assert_eq!(
        judged(&both, &both, ""),
        [],
        "the fixture does not have it, so weir cannot lose it"
    );
    let both = run([("ping", bad())]);
    assert!(matches!(
        &judged(&both, &both, "")[..],
        [
            ConformanceProblem::Fixture { .. },
            ConformanceProblem::Weir { .. }
        ]
    ));
}

#[test]
fn a_scenario_that_broke_off_is_a_failure() {
    let direct = run([("ping", good("ping"))]);
    let broken = run([("ping", Vec::new())]);
    assert!(matches!(
        &judged(&direct, &broken, "")[..],
        [ConformanceProblem::Weir { .. }]
    ));
    assert!(matches!(
        &judged(&direct, &run([]), "")[..],
        [ConformanceProblem::Weir { .. }]
    ));
}

#[test]
fn client_scenarios_are_all_required() {
    let found = |weir: ScenarioChecks| {
        let requirements = RequirementSet {
            revision: REVISION,
            scored: vec!["ping".to_owned()],
            not_scored: vec!["extra".to_owned()],
        };
        judge_checks(
            requirements,
            None,
            Some(&weir),
            &ExpectedLines::default(),
            RunDemand::Scored,
        )
        .problems()
    };
    assert_eq!(
        found(run([("ping", good("ping")), ("extra", good("extra"))])),
        []
    );
    let bad = || vec![check("x", CheckStatus::Failure)];
    assert!(matches!(
        &found(run([("ping", bad()), ("extra", bad())]))[..],
        [
            ConformanceProblem::Weir { .. },
            ConformanceProblem::Weir { .. }
        ]
    ));
}

#[test]
fn foreign_server_failures_are_excused() {
    let wrong = |direct: &ScenarioChecks, weir: &ScenarioChecks| {
        let requirements = RequirementSet {
            revision: REVISION,
            scored: vec!["ping".to_owned()],
            not_scored: Vec::new(),
        };
        judge_checks(
            requirements,
            Some(direct),
            Some(weir),
            &ExpectedLines::default(),
            RunDemand::AsDirectly,
        )
        .problems()
    };
    let passing = run([("ping", good("ping"))]);
    let failing = run([("ping", vec![check("ping", CheckStatus::Failure)])]);
    assert_eq!(wrong(&failing, &failing), [], "the server cannot do it");
    assert_eq!(
        wrong(&failing, &passing),
        [],
        "weir mends what the server does"
    );
    assert!(matches!(
        &wrong(&passing, &failing)[..],
        [ConformanceProblem::Weir { .. }]
    ));
}

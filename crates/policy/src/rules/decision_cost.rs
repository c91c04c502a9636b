//! The cost of a decision with a thousand rules.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use super::PolicyAuthorizer;
use super::tests::{ToolFixture, call, person, rules};
use weir_core::principal::Principal;

const PEOPLE: usize = 100;
const TOOLS: usize = 40;
/// The slowdown factor of an unoptimized build.
const SLACK: u32 = if cfg!(debug_assertions) { 100 } else { 1 };
/// The most that a usual decision may take.
const MOST: Duration = Duration::from_micros(20);

/// A thousand rules as a service of fifty teams would have them: for each team and some of the
/// tools, and some that read arguments.
fn thousand() -> PolicyAuthorizer {
    let mut text = String::new();
    text.push_str("permit(principal in Group::\"all\", action, resource);\n");
    for number in 0..999 {
        let (team, tool) = (number % 50, number % TOOLS);
        let _ = match number % 10 {
            0..6 => {
                writeln!(
                    text,
                    "permit(principal in Group::\"team-{team}\", action, resource == Tool::\"up/t{tool}\");"
                )
            }
            6 => writeln!(
                text,
                "permit(principal in Group::\"team-{team}\", action, resource in Upstream::\"up\") when {{ resource.native like \"t*\" }};"
            ),
            7 => writeln!(
                text,
                "forbid(principal in Group::\"team-{team}\", action == Action::\"call\", resource == Tool::\"up/t{tool}\") \
                 when {{ context.arguments.hasTag(\"/path\") && context.arguments.getTag(\"/path\") like \"/etc/*\" }};"
            ),
            8 => writeln!(
                text,
                "forbid(principal in Group::\"team-{team}\", action == Action::\"call\", resource in Upstream::\"other\") \
                 unless {{ principal.scopes.contains(\"other\") }};"
            ),
            _ => writeln!(
                text,
                "permit(principal == Principal::\"https://id.example.com p{number}\", action, resource);"
            ),
        };
    }
    rules(&text)
}

/// The calls of one measurement: of each tool by each principal, so many rounds.
#[derive(Clone, Copy)]
struct MeasuredCalls<'a> {
    principals: &'a [Principal],
    tools: &'a [ToolFixture],
    arguments: &'a str,
    rounds: usize,
}

impl MeasuredCalls<'_> {
    /// Decides the calls, prints the times under a title, and returns the median.
    fn measure(self, title: &str, rules: &PolicyAuthorizer) -> Duration {
        let Self {
            principals,
            tools,
            arguments,
            rounds,
        } = self;
        let mut times = Vec::with_capacity(principals.len() * tools.len() * rounds);
        let mut made = 0;
        for who in (0..rounds).flat_map(|_| principals) {
            for tool in tools {
                let begun = Instant::now();
                made +=
                    usize::from(black_box(call(rules, who, tool, black_box(arguments))).is_ok());
                times.push(begun.elapsed());
            }
        }
        times.sort_unstable();
        let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!(
            "{title}: mean {mean:?}, p50 {:?}, p99 {:?}, {made} of {} permitted",
            at(50),
            at(99),
            times.len()
        );
        at(50)
    }
}

#[test]
#[ignore = "measures time"]
fn t14_a_decision_with_a_thousand_rules_takes_less_than_20_microseconds() {
    let rules = thousand();
    let teams: Vec<String> = (0..PEOPLE)
        .map(|number| format!("team-{}", number % 60))
        .collect();
    let people: Vec<Principal> = teams
        .iter()
        .enumerate()
        .map(|(number, team)| person(&format!("p{number}"), &[team], &[]))
        .collect();
    let things: Vec<ToolFixture> = (0..TOOLS)
        .map(|number| ToolFixture::new(&format!("up/t{number}")))
        .collect();
    let arguments = r#"{"path":"/srv/a","lines":[1,2,3],"options":{"follow":true,"depth":4}}"#;
    let calls = MeasuredCalls {
        principals: &people,
        tools: &things,
        arguments,
        rounds: 1,
    };
    calls.measure("the first time for each person and tool", &rules);
    let calls = MeasuredCalls { rounds: 5, ..calls };
    let usual = calls.measure("from then on", &rules);
    assert!(usual < MOST * SLACK, "{usual:?}");
    // The principals with rules that read the arguments (five of them, here): decided anew each
    // time.
    let looked_at: Vec<Principal> = [7, 17, 27, 37, 47]
        .map(|team| person("x", &[&format!("team-{team}"), "all"], &[]))
        .into();
    let things: Vec<ToolFixture> = [7, 17, 27, 37]
        .map(|tool| ToolFixture::new(&format!("up/t{tool}")))
        .into();
    let calls = MeasuredCalls {
        principals: &looked_at,
        tools: &things,
        arguments,
        rounds: 1,
    };
    calls.measure("where rules look at arguments, the first time", &rules);
    let calls = MeasuredCalls {
        rounds: 50,
        ..calls
    };
    let refused = MeasuredCalls {
        arguments: r#"{"path":"/etc/passwd"}"#,
        ..calls
    };
    refused.measure("from then on, refused", &rules);
    let usual = calls.measure("from then on", &rules);
    assert!(usual < MOST * SLACK, "{usual:?}");
}

//! Calls of core's audit port, and the records made of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use weir_core::call::{RequestName, TraceContext};
use weir_core::names::EndpointId;
use weir_core::port::{CallPermission, ContentChanges};
use weir_core::principal::{Subject, VerifiedIdentity};
use weir_core::{Call, CallOutcome, Principal};
use weir_testkit::{FakeClock, principal_of};
use weir_wire::method::Method;
use weir_wire::params::Params;

use super::super::chain::AuditChain;
use super::super::chain_head::ChainHead;
use super::*;
use crate::record::recorded_arguments::ArgumentPointer;
use crate::record::verify::ChainInspector;

/// Keeps all events in memory, or refuses to.
#[derive(Default)]
struct MemoryEventKeeper {
    events: Mutex<Vec<AuditEvent>>,
    full: AtomicBool,
}

impl EventKeeper for MemoryEventKeeper {
    fn reserve(&self) -> Result<(), RecordNotKept> {
        if self.full.load(Ordering::SeqCst) {
            Err(RecordNotKept)
        } else {
            Ok(())
        }
    }

    fn can_reserve(&self) -> bool {
        !self.full.load(Ordering::SeqCst)
    }

    fn keep_reserved(&self, event: AuditEvent) {
        self.events.lock().push(event);
    }

    fn keep(&self, event: AuditEvent) -> Result<(), RecordNotKept> {
        self.reserve()?;
        self.keep_reserved(event);
        Ok(())
    }
}

struct RecorderFixture {
    keeper: Arc<MemoryEventKeeper>,
    clock: FakeClock,
    refusals: Arc<RefusalCounter>,
    recorder: AuditRecorder,
}

impl RecorderFixture {
    fn new(shape: ArgumentRecording) -> Self {
        let (keeper, clock) = (Arc::new(MemoryEventKeeper::default()), FakeClock::new());
        let refusals = Arc::new(RefusalCounter::new(Arc::new(clock.clone())));
        let recorder = AuditRecorder::new(
            Arc::new(clock.clone()),
            keeper.clone(),
            shape,
            refusals.clone(),
        );
        Self {
            keeper,
            clock,
            refusals,
            recorder,
        }
    }

    /// The lines of all events so far.
    fn lines(&self) -> Vec<String> {
        let mut chain = AuditChain::after(ChainHead::genesis(), None);
        let lines: Vec<String> = self
            .keeper
            .events
            .lock()
            .iter()
            .map(|event| chain.seal(event).line)
            .collect();
        let mut inspector = ChainInspector::default();
        for line in &lines {
            inspector.line(line.trim_end().as_bytes(), true).unwrap();
        }
        lines
    }

    fn last(&self) -> Value {
        serde_json::from_str(self.lines().last().unwrap()).unwrap()
    }

    /// The counts so far: of the minutes that are over, or with `open` of all.
    fn counts(&self, open: bool) -> Vec<Value> {
        let mut chain = AuditChain::after(ChainHead::genesis(), None).named(Some("refusals"));
        let lines = self
            .refusals
            .take(open)
            .into_iter()
            .map(|event| chain.seal(&event).line);
        lines
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    }

    fn entered(&self, outcome: Result<&Principal, &'static str>) {
        let outcome = outcome.map_err(|reason| SenderRejection {
            reason,
            principal: None,
        });
        self.came([192, 0, 2, 1].into(), outcome);
    }

    fn came(&self, peer: IpAddr, outcome: Result<&Principal, SenderRejection<'_>>) {
        let endpoint = EndpointId::new("/mcp");
        self.recorder.record_entrance(&SenderEntrance {
            peer,
            endpoint: &endpoint,
            request: "00ff",
            outcome,
        });
    }

    fn decided(
        &self,
        call: &Call,
        principal: &Principal,
        decision: GateDecision<'_>,
    ) -> Result<(), Failure> {
        self.recorder.record_decision(
            &CallAttempt {
                principal,
                call,
                item: None,
            },
            decision,
        )
    }
}

fn principal(subject: Subject) -> Principal {
    principal_of(VerifiedIdentity::Subject(Arc::new(subject)))
}

fn ada() -> Principal {
    let mut subject = Subject::new("https://id.example.com", "ada");
    subject.client = Some("ide".into());
    subject.actor = Some("robot-7".into());
    principal(subject)
}

fn call(params: &str) -> Call {
    let params = Params::parse(Some(&Bytes::copy_from_slice(params.as_bytes()))).unwrap();
    let parent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    let call = Call::new(
        EndpointId::new("/mcp"),
        Method::ToolsCall,
        params,
        RequestName::from_bits(0xabc),
    );
    Call {
        trace: TraceContext {
            parent,
            ..TraceContext::default()
        },
        ..call
    }
}

fn denied() -> Failure {
    Failure::new(FailureKind::Denied, "A rule says no")
}

// Proves F18.
#[tokio::test]
async fn call_has_one_record_with_principal_and_outcome() {
    let world = RecorderFixture::new(ArgumentRecording::default());
    let ada = ada();
    let raw = r#"{"name":"files__read","arguments":{"path":"/a"},
        "_meta":{"io.modelcontextprotocol/clientInfo":{"name":"IDE","version":"2.1"}}}"#;
    let call = call(raw);
    let verdict = CallPermission {
        rules: Arc::new(["team-a".into()]),
    };
    world
        .decided(&call, &ada, GateDecision::Allowed(&verdict))
        .unwrap();
    assert!(
        world.lines().is_empty(),
        "an allowed call has its record when it ends"
    );
    let ended = EndedCall {
        outcome: CallOutcome::Complete,
        took: Duration::from_micros(1500),
        bytes: 42,
        changes: ContentChanges {
            cleaned: 7,
            secrets: 2,
            cut: 9,
        },
        revision: Some("2026-07-28"),
        verdict,
    };
    world.recorder.record_end(
        &CallAttempt {
            principal: &ada,
            call: &call,
            item: None,
        },
        &ended,
    );
    let mut record = world.last();
    for chained in ["prev", "hash"] {
        assert_eq!(
            record
                .as_object_mut()
                .unwrap()
                .remove(chained)
                .unwrap()
                .as_str()
                .unwrap()
                .len(),
            64
        );
    }
    let expected = serde_json::json!({
        "seq": 1, "time": "2026-08-01T00:00:00.000Z", "kind": "call",
        "principal": { "issuer": "https://id.example.com", "subject": "ada" }, "actor": "robot-7", "client": "ide",
        "software": { "name": "IDE", "version": "2.1" },
        "endpoint": "/mcp", "method": "tools/call", "tool": "files__read",
        "arguments": { "sha256": super::super::canonical::digest(br#"{"path":"/a"}"#) },
        "decision": "allowed", "policies": ["team-a"], "outcome": "complete", "took_ms": 1.5, "bytes": 42, "protocol": "2026-07-28", "cleaned": 7,
        "secrets": 2, "cut": 9,
        "request": "0000000000000abc", "trace": "0af7651916cd43dd8448eb211c80319c",
    });
    assert_eq!(record, expected);
}

// Proves F18.
#[tokio::test]
async fn refusal_has_one_record_and_unrecordable_call_is_refused() {
    let world = RecorderFixture::new(ArgumentRecording::default());
    let (ada, call) = (ada(), call(r#"{"name":"x"}"#));
    world
        .decided(&call, &ada, GateDecision::Refused(&denied()))
        .unwrap();
    let record = world.last();
    assert_eq!(record["decision"], "refused");
    assert_eq!(
        (&record["reason"], &record["because"]),
        (&"denied".into(), &"A rule says no".into())
    );
    assert!(record.get("arguments").is_none(), "there are none");
    let forbidden = denied().forbidden_by(Some("no-deletes".into()));
    world
        .decided(&call, &ada, GateDecision::Refused(&forbidden))
        .unwrap();
    assert_eq!(
        (&world.last()["rule"], record.get("rule")),
        (&"no-deletes".into(), None)
    );
    world.keeper.full.store(true, Ordering::SeqCst);
    for decision in [
        GateDecision::Refused(&denied()),
        GateDecision::Allowed(&CallPermission::default()),
    ] {
        let failure = world.decided(&call, &ada, decision).unwrap_err();
        assert_eq!(failure.kind(), &FailureKind::Overloaded, "f13");
        assert!(failure.retry_delay().is_some());
    }
    assert_eq!(world.lines().len(), 2);
}

// Proves F18.
#[tokio::test]
async fn first_admission_is_recorded_and_refusals_are_counted() {
    let world = RecorderFixture::new(ArgumentRecording::default());
    let ada = ada();
    for _ in 0..5 {
        world.entered(Ok(&ada));
        world.entered(Err("expired"));
        world.entered(Err("address_limit"));
    }
    assert_eq!(world.lines().len(), 1);
    let first: Value = serde_json::from_str(&world.lines()[0]).unwrap();
    assert_eq!(
        (&first["kind"], &first["decision"]),
        (&"entry".into(), &"allowed".into())
    );
    assert_eq!(
        (&first["principal"]["subject"], &first["peer"]),
        (&"ada".into(), &"192.0.2.1".into())
    );
    assert_eq!(world.counts(false).len(), 0, "the minute is not over");
    world.clock.advance(Duration::from_secs(3600));
    world.entered(Ok(&ada));
    world.entered(Err("expired"));
    assert_eq!(world.lines().len(), 2);
    let counts = world.counts(true);
    assert_eq!(
        counts
            .iter()
            .map(|count| count["count"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [5, 5, 1]
    );
    assert_eq!(counts[2]["since"], "2026-08-01T01:00:00.000Z");
    let mut count = counts
        .into_iter()
        .find(|count| count["reason"] == "expired")
        .unwrap();
    for chained in ["prev", "hash"] {
        count.as_object_mut().unwrap().remove(chained).unwrap();
    }
    count.as_object_mut().unwrap().remove("seq").unwrap();
    let expected = serde_json::json!({
        "chain": "refusals", "time": "2026-08-01T00:00:00.000Z", "kind": "refusals", "decision": "refused",
        "reason": "expired", "endpoint": "/mcp", "network": "192.0.2.0/24", "since": "2026-08-01T00:00:00.000Z",
        "count": 5,
    });
    assert_eq!(count, expected);
}

// Proves F18.
#[tokio::test]
async fn a_flood_without_an_identity_leaves_a_bounded_number_of_counts() {
    let world = RecorderFixture::new(ArgumentRecording::default());
    for n in 0..100_000_u32 {
        let peer: IpAddr = match n % 2 {
            0 => IpAddr::from((n << 8).to_be_bytes()),
            _ => IpAddr::from([0x2001, 0xdb8, (n >> 16) as u16, n as u16, 1, 2, 3, n as u16]),
        };
        let reason = ["missing", "expired", "malformed"][n as usize % 3];
        world.came(
            peer,
            Err(SenderRejection {
                reason,
                principal: None,
            }),
        );
    }
    assert_eq!(
        world.lines().len(),
        0,
        "none of them is among the records of calls"
    );
    world.clock.advance(Duration::from_secs(60));
    world.entered(Err("missing"));
    let counts = world.counts(false);
    assert_eq!(
        counts.len(),
        crate::record::refusal_counter::MAX_NETWORKS + 3
    );
    assert_eq!(
        counts
            .iter()
            .map(|count| count["count"].as_u64().unwrap())
            .sum::<u64>(),
        100_000
    );
    let rest = counts.iter().filter(|count| count.get("network").is_none());
    assert_eq!(rest.clone().count(), 3, "one for each reason");
    assert!(rest.clone().all(|count| count.get("endpoint").is_none()));
    let networks: Vec<&str> = counts
        .iter()
        .filter_map(|count| count["network"].as_str())
        .collect();
    assert!(
        networks.contains(&"0.0.2.0/24") && networks.contains(&"2001:db8:0:1::/64"),
        "{networks:?}"
    );
    assert_eq!(world.counts(true).len(), 1, "the next minute begins anew");
    assert!(world.counts(true).is_empty());
}

// Proves F18.
#[tokio::test]
async fn untaken_counts_are_bounded() {
    let world = RecorderFixture::new(ArgumentRecording::default());
    for _ in 0..20 {
        for n in 0..1024_u32 {
            world.came(
                IpAddr::from((n << 8).to_be_bytes()),
                Err(SenderRejection {
                    reason: "missing",
                    principal: None,
                }),
            );
        }
        world.clock.advance(Duration::from_secs(60));
    }
    let counts = world.counts(false);
    assert_eq!(counts.len(), 16 * 1024 + 1);
    assert_eq!(
        (&counts[16 * 1024]["kind"], &counts[16 * 1024]["events"]),
        (&"lost".into(), &(4 * 1024).into())
    );
}

// Proves F18.
#[tokio::test]
async fn denials_of_a_principal_have_a_record_each_up_to_600_a_minute() {
    let world = RecorderFixture::new(ArgumentRecording::default());
    let (ada, call) = (ada(), call(r#"{"name":"x"}"#));
    let bob = principal(Subject::new("https://id.example.com", "bob"));
    for _ in 0..500 {
        world
            .decided(&call, &ada, GateDecision::Refused(&denied()))
            .unwrap();
        world.came(
            [192, 0, 2, 1].into(),
            Err(SenderRejection {
                reason: "denied",
                principal: Some(&ada),
            }),
        );
    }
    world
        .decided(&call, &bob, GateDecision::Refused(&denied()))
        .unwrap();
    let lines = world.lines();
    assert_eq!(lines.len(), 601);
    let at_the_door = lines
        .iter()
        .filter(|line| line.contains("\"kind\":\"entry\""));
    assert!(
        at_the_door.clone().count() == 300
            && at_the_door
                .clone()
                .all(|line| line.contains("\"subject\":\"ada\""))
    );
    assert_eq!(
        world.last()["principal"]["subject"],
        "bob",
        "another's denials are not counted with them"
    );
    let counts = world.counts(true);
    assert_eq!(counts.len(), 1);
    assert_eq!(
        (&counts[0]["principal"]["subject"], &counts[0]["count"]),
        (&"ada".into(), &400.into())
    );
    world
        .decided(&call, &ada, GateDecision::Refused(&denied()))
        .unwrap();
    assert_eq!(
        world.lines().len(),
        601,
        "a count that was written early begins no new minute"
    );
    world.clock.advance(Duration::from_secs(60));
    world
        .decided(&call, &ada, GateDecision::Refused(&denied()))
        .unwrap();
    assert_eq!(world.lines().len(), 602);
    let allowed = EndedCall {
        outcome: CallOutcome::Complete,
        took: Duration::ZERO,
        bytes: 0,
        changes: ContentChanges::default(),
        revision: None,
        verdict: CallPermission::default(),
    };
    for _ in 0..1000 {
        world.recorder.record_end(
            &CallAttempt {
                principal: &ada,
                call: &call,
                item: None,
            },
            &allowed,
        );
    }
    assert_eq!(
        world.lines().len(),
        1602,
        "calls that were let through all have their record"
    );
}

// Proves F18.
#[test]
fn logins_of_operators_that_fail_have_sixty_records_a_minute_and_are_counted_then() {
    let world = RecorderFixture::new(ArgumentRecording::default());
    let log_in = |done| {
        world.recorder.record_operator_action(&OperatorAction {
            actor: "unknown",
            action: "login",
            detail: "",
            took_effect: done,
        })
    };
    (0..100).for_each(|_| log_in(false));
    world.recorder.record_operator_action(&OperatorAction {
        actor: "ada",
        action: "reload",
        detail: "",
        took_effect: false,
    });
    assert_eq!(world.lines().len(), 61);
    let counts = world.counts(true);
    assert_eq!(
        (&counts[0]["reason"], &counts[0]["count"]),
        (&"login".into(), &40.into())
    );
}

// Proves R283, F15.
#[tokio::test]
async fn no_argument_stands_in_a_record_unless_it_is_listed() {
    let ada = ada();
    let long = "CANARY".repeat(1000);
    for padding in ["", &long] {
        let raw = format!(
            r#"{{"name":"x","arguments":{{"password":"CANARY-1{padding}","path":"/srv"}},"requestState":"CANARY-2",
                "inputResponses":{{"a":{{"content":"CANARY-3"}}}},"_meta":{{"authorization":"CANARY-4"}}}}"#
        );
        let world = RecorderFixture::new(ArgumentRecording::default());
        let refused = || {
            world
                .decided(&call(&raw), &ada, GateDecision::Refused(&denied()))
                .unwrap()
        };
        refused();
        world.recorder.set_argument_recording(ArgumentRecording {
            digest: true,
            show: vec![ArgumentPointer::parse("/path").unwrap()],
        });
        refused();
        let shown = world.last();
        assert_eq!(
            shown["arguments"]["shown"],
            serde_json::json!({ "password": "***", "path": "/srv" })
        );
        assert_eq!(shown["arguments"]["sha256"].as_str().unwrap().len(), 64);
        world.recorder.set_argument_recording(ArgumentRecording {
            digest: false,
            show: Vec::new(),
        });
        refused();
        assert!(world.last().get("arguments").is_none());
        assert!(!world.lines().concat().contains("CANARY"));
    }
}

// Proves F14.
#[tokio::test]
async fn hostile_text_stays_in_its_line() {
    let world = RecorderFixture::new(ArgumentRecording {
        digest: true,
        show: vec![ArgumentPointer::parse("/a").unwrap()],
    });
    let corpus = [
        "x\",\"decision\":\"allowed\",\"y\":\"",
        "\r\n{\"seq\":1}\n",
        "\u{1b}[2J\u{1b}]0;owned\u{7}",
        "\u{9b}2J",
        "\u{2028}\u{2029}\u{85}",
        "\u{202e}gnp.exe",
        "\0\0",
        "%0a%0d",
        "${jndi:ldap://x}",
        "\u{feff}\u{e0041}",
        "\\\" \\u0022,",
    ];
    for text in corpus {
        let mut subject = Subject::new(text, text);
        (subject.client, subject.actor) = (Some(text.into()), Some(text.into()));
        let hostile = principal(subject);
        let quoted = serde_json::to_string(text).unwrap();
        let raw = format!(
            r#"{{"name":{quoted},"arguments":{{"a":{quoted},{quoted}:1}},
                "_meta":{{"io.modelcontextprotocol/clientInfo":{{"name":{quoted},"version":{quoted}}}}}}}"#
        );
        let failure = Failure::unknown_tool(text);
        world
            .decided(&call(&raw), &hostile, GateDecision::Refused(&failure))
            .unwrap();
        world.entered(Ok(&hostile));
        world.recorder.record_operator_action(&OperatorAction {
            actor: text,
            action: text,
            detail: text,
            took_effect: true,
        });
        let lines = world.lines();
        for line in lines.iter().rev().take(3) {
            assert_eq!(
                line.matches(char::is_control).count(),
                1,
                "its end alone: {line:?}"
            );
            assert!(
                !line.contains(['\u{2028}', '\u{202e}', '\u{feff}', '\u{e0041}']),
                "{line:?}"
            );
            let record: Value = serde_json::from_str(line).unwrap();
            assert_ne!(record["y"], "", "a member was forged");
        }
        let record: Value = serde_json::from_str(&lines[lines.len() - 3]).unwrap();
        assert_eq!(
            (&record["decision"], &record["tool"]),
            (&"refused".into(), &text.into())
        );
        assert_eq!(record["principal"]["subject"], text);
        assert_eq!(record["software"]["name"], text);
    }
}

//! The faults of a seed.

use std::time::Duration;

use crate::links::HostName;
use crate::options::FaultScenario;
use crate::redis_server::{Refusal, Subscriptions};
use crate::seeded::Seeded;
use crate::tool_server::TOOLS_HOST;

/// The hosts of the replicas.
pub(crate) const REPLICAS: [HostName; 3] = ["r0", "r1", "r2"];
/// The host of the server of the shared store.
pub(crate) const REDIS_HOST: HostName = "redis";
/// The time in which faults begin.
pub(crate) const FAULT_TIME: Duration = Duration::from_secs(25);

/// The time before the first fault: all replicas have started.
const FIRST: u64 = 2_000;

/// A fault. It ends by itself after its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A replica is killed, and another one begins later.
    Crash(usize),
    /// A replica is stopped, and goes on.
    Freeze(usize),
    /// The server of the store is killed, and begins again with its data.
    StoreCrash,
    /// The server of the store answers nothing.
    StoreFreeze,
    /// The server of the store refuses commands.
    StoreRefusal(Refusal),
    /// Messages between replicas are lost. Their subscriptions end after that, or go on as if
    /// nothing were.
    LostMessages(Subscriptions),
    /// Two hosts do not reach each other.
    Cut(HostName, HostName),
    /// The streams between two hosts break.
    Reset(HostName, HostName),
    /// Every part of a stream takes up to so many milliseconds.
    Slow(u64),
    /// The list of tools changes: no fault, but a reason for messages.
    ListChange,
}

/// A fault with the times of its beginning and its length.
type PlannedFault = (Duration, Fault, Duration);

/// The faults of a seed, by the time of their beginning, each with the time that it lasts.
pub(crate) fn plan_faults(random: &Seeded, scenario: FaultScenario) -> Vec<PlannedFault> {
    match scenario {
        FaultScenario::All => plan_all_kinds(random),
        FaultScenario::MovingSessions => plan_moves(random),
    }
}

/// Two replicas at a time do not reach each other, for long enough to notice it: each takes over
/// the sessions of the other one that it gets requests of.
fn plan_moves(random: &Seeded) -> Vec<PlannedFault> {
    let mut plan = Vec::new();
    let mut begins = Duration::from_millis(FIRST);
    while begins < FAULT_TIME {
        let lasts = Duration::from_millis(random.between(3_000, 8_000));
        let one = usize::try_from(random.below(REPLICAS.len() as u64)).unwrap_or(0);
        let (one, other) = (REPLICAS[one], REPLICAS[(one + 1) % REPLICAS.len()]);
        plan.push((begins, Fault::Cut(one, other), lasts));
        plan.push((begins, Fault::Reset(one, other), Duration::ZERO));
        begins += lasts + Duration::from_millis(random.between(0, 1_500));
    }
    plan
}

fn plan_all_kinds(random: &Seeded) -> Vec<PlannedFault> {
    let most = u64::try_from(FAULT_TIME.as_millis()).unwrap_or(0) - 3_000;
    let count = random.between(3, 12);
    let mut plan: Vec<PlannedFault> = (0..count)
        .map(|_| {
            let begins = Duration::from_millis(random.between(FIRST, most));
            let lasts = Duration::from_millis(random.between(50, 6_000));
            (begins, draw_fault(random), lasts)
        })
        .collect();
    // Replicas that reach each other need no messages.
    let silent: Vec<_> = plan
        .iter()
        .filter(|(_, fault, _)| *fault == Fault::LostMessages(Subscriptions::GoOn))
        .map(|(begins, _, lasts)| (*begins, *lasts))
        .collect();
    for (begins, lasts) in silent {
        let one = random.pick(&[0, 1, 2]);
        for other in (0..REPLICAS.len()).filter(|other| other != one) {
            let cut = Fault::Cut(REPLICAS[*one], REPLICAS[other]);
            plan.push((begins, cut, lasts));
        }
    }
    plan.sort_by_key(|(begins, ..)| *begins);
    plan
}

fn draw_fault(random: &Seeded) -> Fault {
    let replica = usize::try_from(random.below(REPLICAS.len() as u64)).unwrap_or(0);
    let other = (replica + 1) % REPLICAS.len();
    let peers = [REPLICAS[other], REDIS_HOST, TOOLS_HOST];
    match random.below(12) {
        0 | 1 => Fault::Crash(replica),
        2 | 3 => Fault::Freeze(replica),
        4 => Fault::StoreCrash,
        5 => Fault::StoreFreeze,
        6 => Fault::StoreRefusal(*random.pick(&[Refusal::Full, Refusal::Loading])),
        7 => {
            let after = random.pick(&[Subscriptions::End, Subscriptions::GoOn]);
            Fault::LostMessages(*after)
        }
        8 | 9 => Fault::Cut(REPLICAS[replica], random.pick::<HostName>(&peers)),
        10 => Fault::Reset(REPLICAS[replica], random.pick::<HostName>(&peers)),
        _ if random.percent(50) => Fault::Slow(random.between(5, 80)),
        _ => Fault::ListChange,
    }
}

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use weir_testkit::FakeClock;

use super::*;
use crate::fake::principal;

const TTL: Duration = Duration::from_secs(1800);

fn key(principal: &Principal, n: u64) -> RecordKey {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&n.to_be_bytes());
    RecordKey {
        principal: principal.clone(),
        id,
    }
}

fn value(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_be_bytes())
}

struct RecordsBench {
    clock: Arc<FakeClock>,
    records: MemoryRecords,
}

fn records_bench(total: usize, per_principal: usize) -> RecordsBench {
    let clock = Arc::new(FakeClock::default());
    let records = MemoryRecords::new(
        clock.clone(),
        RecordCaps {
            total,
            per_principal,
        },
    );
    RecordsBench { clock, records }
}

impl RecordsBench {
    async fn put(&self, key: &RecordKey, n: u64, expect: WriteCondition) -> WriteOutcome {
        self.records
            .store(key, value(n), TTL, expect)
            .await
            .unwrap()
    }

    async fn load(&self, key: &RecordKey) -> Option<StoredRecord> {
        self.records.load(key, None).await.unwrap()
    }
}

#[tokio::test]
async fn a_record_is_found_by_its_owner_alone() {
    let bench = records_bench(10, 10);
    let (ann, bob) = (principal("ann"), principal("bob"));
    assert!(matches!(
        bench.put(&key(&ann, 1), 1, WriteCondition::Absent).await,
        WriteOutcome::Stored(_)
    ));
    assert_eq!(bench.load(&key(&ann, 1)).await.unwrap().value, value(1));
    assert!(bench.load(&key(&bob, 1)).await.is_none());
    assert!(!bench.records.remove(&key(&bob, 1)).await.unwrap());
    assert!(bench.records.remove(&key(&ann, 1)).await.unwrap());
    assert!(!bench.records.remove(&key(&ann, 1)).await.unwrap());
    assert_eq!(bench.records.count(), 0);
}

#[tokio::test]
async fn compare_and_set_lets_one_of_two_writers_win() {
    let bench = records_bench(10, 10);
    let ann = principal("ann");
    let one = key(&ann, 1);
    let WriteOutcome::Stored(first) = bench.put(&one, 1, WriteCondition::Absent).await else {
        panic!()
    };
    assert_eq!(
        bench.put(&one, 2, WriteCondition::Absent).await,
        WriteOutcome::Conflict
    );
    let WriteOutcome::Stored(second) = bench.put(&one, 2, WriteCondition::Version(first)).await
    else {
        panic!()
    };
    assert_eq!(
        bench.put(&one, 3, WriteCondition::Version(first)).await,
        WriteOutcome::Conflict
    );
    assert_eq!(bench.load(&one).await.unwrap().value, value(2));
    assert_eq!(bench.records.count(), 1);
    // A new record never looks like a removed one.
    bench.records.remove(&one).await.unwrap();
    assert_eq!(
        bench.put(&one, 4, WriteCondition::Version(second)).await,
        WriteOutcome::Conflict
    );
    let WriteOutcome::Stored(anew) = bench.put(&one, 4, WriteCondition::Absent).await else {
        panic!()
    };
    assert!(anew > second);
}

#[tokio::test]
async fn touch_prolongs_and_expiry_is_reported_once_oldest_first() {
    let bench = records_bench(10, 10);
    let ann = principal("ann");
    for n in 0..3 {
        bench.put(&key(&ann, n), n, WriteCondition::Absent).await;
        bench.clock.advance(Duration::from_secs(1));
    }
    bench
        .records
        .load(&key(&ann, 0), Some(TTL * 2))
        .await
        .unwrap()
        .unwrap();
    bench.clock.advance(TTL);
    assert!(bench.load(&key(&ann, 1)).await.is_none());
    assert!(bench.load(&key(&ann, 0)).await.is_some());
    assert!(
        !bench.records.remove(&key(&ann, 1)).await.unwrap(),
        "an expired record is not there"
    );
    assert_eq!(bench.records.expired(), [key(&ann, 1), key(&ann, 2)]);
    assert!(bench.records.expired().is_empty());
    assert_eq!(bench.records.count(), 1);
    bench.clock.advance(TTL);
    assert_eq!(bench.records.expired(), [key(&ann, 0)]);
    assert_eq!(bench.records.count(), 0);
}

#[tokio::test]
async fn touch_can_shorten_the_ttl() {
    let bench = records_bench(10, 10);
    let ann = principal("ann");
    bench.put(&key(&ann, 1), 1, WriteCondition::Absent).await;
    bench
        .records
        .load(&key(&ann, 1), Some(Duration::from_secs(1)))
        .await
        .unwrap();
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(bench.records.expired(), [key(&ann, 1)]);
}

#[tokio::test]
async fn record_caps_bind_principals_and_total_but_not_anonymous_alone() {
    let bench = records_bench(5, 2);
    let (ann, nobody) = (principal("ann"), principal(""));
    for n in 0..2 {
        assert!(matches!(
            bench.put(&key(&ann, n), n, WriteCondition::Absent).await,
            WriteOutcome::Stored(_)
        ));
    }
    assert_eq!(
        bench.put(&key(&ann, 2), 2, WriteCondition::Absent).await,
        WriteOutcome::OwnerFull
    );
    for n in 0..3 {
        assert!(matches!(
            bench.put(&key(&nobody, n), n, WriteCondition::Absent).await,
            WriteOutcome::Stored(_)
        ));
    }
    assert_eq!(
        bench.put(&key(&nobody, 3), 3, WriteCondition::Absent).await,
        WriteOutcome::Full
    );
    // Expired records make room without a query, and are still reported.
    bench.clock.advance(TTL);
    assert!(matches!(
        bench.put(&key(&nobody, 4), 4, WriteCondition::Absent).await,
        WriteOutcome::Stored(_)
    ));
    assert!(matches!(
        bench.put(&key(&ann, 5), 5, WriteCondition::Absent).await,
        WriteOutcome::Stored(_)
    ));
    assert_eq!(bench.records.expired().len(), 5);
    assert_eq!(bench.records.count(), 2);
}

#[tokio::test]
async fn every_expiry_is_reported_even_if_queries_are_rare() {
    let bench = records_bench(100, 100);
    let nobody = principal("");
    let (mut written, mut refused, mut n) = (0, 0, 0);
    for _ in 0..1500 {
        for _ in 0..100 {
            match bench.put(&key(&nobody, n), n, WriteCondition::Absent).await {
                WriteOutcome::Stored(_) => written += 1,
                WriteOutcome::Conflict | WriteOutcome::OwnerFull | WriteOutcome::Full => {
                    refused += 1
                }
            }
            n += 1;
        }
        bench.clock.advance(TTL);
    }
    assert!(refused > 0, "there is a bound of what waits to be told");
    assert_eq!(bench.records.expired().len(), written);
    assert_eq!(bench.records.count(), 0);
    assert!(matches!(
        bench.put(&key(&nobody, n), n, WriteCondition::Absent).await,
        WriteOutcome::Stored(_)
    ));
}

#[tokio::test]
async fn failed_write_takes_no_slot() {
    let bench = records_bench(2, 2);
    let ann = principal("ann");
    bench.put(&key(&ann, 1), 1, WriteCondition::Absent).await;
    for _ in 0..10 {
        assert_eq!(
            bench.put(&key(&ann, 1), 1, WriteCondition::Absent).await,
            WriteOutcome::Conflict
        );
    }
    assert!(matches!(
        bench.put(&key(&ann, 2), 2, WriteCondition::Absent).await,
        WriteOutcome::Stored(_)
    ));
    let long = Bytes::from(vec![0; MAX_VALUE_BYTES + 1]);
    assert!(
        bench
            .records
            .store(&key(&ann, 1), long, TTL, WriteCondition::Version(1))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn removed_record_leaves_no_items_behind() {
    let bench = records_bench(1000, 1000);
    let nobody = principal("");
    for n in 0..100_000 {
        bench.put(&key(&nobody, n), n, WriteCondition::Absent).await;
        assert!(bench.records.remove(&key(&nobody, n)).await.unwrap());
    }
    let left: usize = bench
        .records
        .shards
        .iter()
        .map(|shard| shard.lock().order.len())
        .sum();
    assert!(left <= RECORD_SHARDS * 65, "{left} items in the heaps");
}

#[tokio::test]
async fn a_million_idle_sessions_would_cost_under_300_bytes_each_beside_their_value() {
    const MANY: u64 = 50_000;
    let bench = records_bench(1_000_000, 1);
    let nobody = principal("");
    for n in 0..MANY {
        bench.put(&key(&nobody, n), n, WriteCondition::Absent).await;
        bench
            .records
            .load(&key(&nobody, n), Some(TTL))
            .await
            .unwrap();
    }
    let mut bytes = 0;
    for shard in &bench.records.shards {
        let shard = shard.lock();
        // A hash table of capacity c has at least 8c/7 slots, rounded up to a power of two, and a
        // control byte each.
        let slots = (shard.entries.capacity() * 8 / 7).next_power_of_two();
        bytes += slots * (size_of::<(RecordName, Box<RecordEntry>)>() + 1);
        bytes += shard.entries.len() * (size_of::<RecordEntry>() + 16);
        bytes += shard.order.capacity() * size_of::<Reverse<(u64, RecordName)>>();
    }
    let each = bytes as u64 / MANY;
    assert!(each <= 300, "{each} bytes a record");
}

#[tokio::test]
async fn moved_records_keep_version_expiry_and_owner_slots() {
    let (from, to) = (records_bench(10, 2), records_bench(2, 2));
    let (ann, nobody) = (principal("ann"), principal(""));
    let all = [key(&ann, 1), key(&ann, 2), key(&nobody, 3)];
    let mut versions = Vec::new();
    for key in &all {
        let outcome = from.put(key, 7, WriteCondition::Absent).await;
        let WriteOutcome::Stored(version) = outcome else {
            panic!("not written")
        };
        versions.push(version);
    }
    let WriteOutcome::Stored(version) = from.put(&all[0], 8, WriteCondition::Version(1)).await
    else {
        panic!("not written")
    };
    from.clock.advance(TTL / 2);
    to.clock.advance(TTL * 5);
    from.records
        .take_all()
        .into_iter()
        .for_each(|record| to.records.put(record));
    assert_eq!(
        (from.records.count(), from.load(&all[0]).await.is_none()),
        (0, true)
    );
    // Keys in one part of the table share a count of versions: the number may grow by more than 1.
    assert!(
        matches!(
            from.put(&all[1], 1, WriteCondition::Absent).await,
            WriteOutcome::Stored(newer) if newer > versions[1]
        ),
        "its owner has room again"
    );
    assert_eq!(to.records.count(), 3, "the caps do not bind what moves");
    let found = to.load(&all[0]).await.unwrap();
    assert_eq!((found.value, found.version), (value(8), version));
    assert_eq!(
        to.put(&key(&ann, 9), 1, WriteCondition::Absent).await,
        WriteOutcome::Full
    );
    assert!(
        matches!(to.put(&all[0], 9, WriteCondition::Version(version)).await, WriteOutcome::Stored(newer) if newer > version)
    );
    // The write renewed its whole time to live.
    to.clock.advance(TTL / 2);
    assert_eq!(to.records.expired().len(), 2);
    assert_eq!(to.records.count(), 1);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1000))]
    /// Compares with a plain model: same answers, same counts, every expiry reported exactly once.
    /// Ids are not used again, as random ones are not.
    #[test]
    fn records_behave_like_a_plain_map(steps in proptest::collection::vec((0..5_u8, 0..60_u64, 1..50_u64), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let bench = records_bench(4, 4);
            let nobody = principal("");
            let mut ends: Vec<u64> = Vec::new();
            let mut gone: Vec<bool> = Vec::new();
            let mut now = 0;
            for (what, pick, secs) in steps {
                let living = (0..ends.len()).filter(|&n| ends[n] > now && !gone[n]).count();
                let n = pick % (ends.len() as u64 + 1);
                let alive = ends.get(n as usize).is_some_and(|&end| end > now && !gone[n as usize]);
                match what {
                    0 => {
                        let new = key(&nobody, ends.len() as u64);
                        let ttl = Duration::from_secs(secs);
                        let wrote = bench.records.store(&new, value(secs), ttl, WriteCondition::Absent).await.unwrap();
                        assert_eq!(matches!(wrote, WriteOutcome::Stored(_)), living < 4, "{wrote:?}");
                        if living < 4 {
                            ends.push(now + secs);
                            gone.push(false);
                        }
                    }
                    1 => assert_eq!(bench.load(&key(&nobody, n)).await.is_some(), alive),
                    2 => {
                        assert_eq!(bench.records.remove(&key(&nobody, n)).await.unwrap(), alive);
                        if alive {
                            gone[n as usize] = true;
                        }
                    }
                    3 => {
                        now += secs;
                        bench.clock.advance(Duration::from_secs(secs));
                    }
                    _ => {
                        for told in bench.records.expired() {
                            let n = (0..ends.len()).find(|&n| key(&nobody, n as u64) == told).unwrap();
                            assert!(ends[n] <= now && !gone[n], "told twice, or too soon");
                            gone[n] = true;
                        }
                        let left = (0..ends.len()).filter(|&n| !gone[n]).count();
                        assert_eq!(bench.records.count(), left);
                    }
                }
            }
        });
    }
}

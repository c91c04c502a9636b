//! Tests of whole stores in one process, against a real `redis-server`.

mod access_tests;
mod bus_and_counter_tests;
mod change_tests;
mod cluster_tests;
mod lease_tests;
mod list_tests;
mod outage_tests;
mod probe_tests;
mod rate_tests;
mod record_tests;
mod refusal_tests;
mod registry_tests;
mod replay_tests;
mod replica;
mod sealing_key_tests;
mod shared_use;
mod task_tests;
mod topology_tests;

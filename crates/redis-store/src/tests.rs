//! Tests of whole stores in one process, against a real `redis-server`.

mod bus_and_counter_tests;
mod change_tests;
mod outage_tests;
mod rate_tests;
mod record_tests;
mod registry_tests;
mod replay_tests;
mod replica;
mod task_tests;
mod topology_tests;

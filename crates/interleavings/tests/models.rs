//! The models, one test each.

use weir_interleavings::models::{
    byte_budget_models, event_place_models, in_flight_models, wake_models,
};

// Proves F11.
#[test]
fn requests_that_wait_get_the_only_permit() {
    in_flight_models::requests_that_wait_get_the_only_permit();
}

// Proves F11.
#[test]
fn requests_that_wait_get_permits_of_rounds() {
    in_flight_models::requests_that_wait_get_permits_of_rounds();
}

// Proves F11.
#[test]
fn request_waits_for_no_other_below_the_limit() {
    in_flight_models::request_waits_for_no_other_below_the_limit();
}

// Proves F11.
#[test]
fn request_that_leaves_keeps_no_permit() {
    in_flight_models::request_that_leaves_keeps_no_permit();
}

// Proves F13.
#[test]
fn promised_event_finds_room() {
    event_place_models::promised_event_finds_room();
}

#[test]
fn waiting_reservations_get_returned_bytes() {
    byte_budget_models::waiting_reservations_get_returned_bytes();
}

#[test]
fn waiting_reservation_notices_a_higher_limit() {
    byte_budget_models::waiting_reservation_notices_a_higher_limit();
}

#[test]
fn reservation_that_leaves_takes_no_bytes() {
    byte_budget_models::reservation_that_leaves_takes_no_bytes();
}

#[test]
fn owner_has_no_more_than_its_share() {
    byte_budget_models::owner_has_no_more_than_its_share();
}

#[test]
fn request_of_a_connection_misses_no_wake() {
    wake_models::request_of_a_connection_misses_no_wake();
}

#[test]
fn future_that_is_polled_again_misses_no_wake() {
    wake_models::future_that_is_polled_again_misses_no_wake();
}

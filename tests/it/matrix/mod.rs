//! Every scenario over client revision x upstream revision x transport.
//!
//! One test is one pairing with one weir, and runs the scenarios of one file one after another: a process for each scenario
//! of each pairing would take longer than anybody waits. The tests' names carry what the scenarios prove.
//!
//! Each of them runs for legacy and modern clients before legacy and modern servers, over HTTP and standard streams:
//!
//! | what the bridge carries | scenarios |
//! |---|---|
//! | greetings, discovery, pings | `greeting` |
//! | lists, their pages, their changes | `lists`; `library` for those of prompts, resources and templates |
//! | calls of tools, results, errors, batches | `calls` |
//! | prompts, resources, completion, what is not there | `library` |
//! | progress, logs | `notes` |
//! | cancelling, deadlines, lost connections | `endings` |
//! | sampling (with tools in a named scenario), elicitation, roots, in calls and beside them | `asks`, `asked` |
//! | URLs to visit | `asks` |
//! | updates of resources | `updates` |
//! | tasks | `tasks` |
//! | streams taken up again; sessions that end | `resuming`; `asked` |

mod asked;
mod asks;
mod calls;
mod endings;
mod greeting;
mod library;
mod lists;
mod notes;
mod resuming;
mod tasks;
mod updates;
mod world;

use weir_wire::Revision;

use self::world::{Transport, World};

async fn lists(world: World) {
    lists::r119_r148_all_pages_are_listed_once_and_byte_for_byte(&world).await;
    lists::r201_a_change_upstream_is_told_and_then_listed(&world).await;
}

async fn greeting(world: World) {
    greeting::r051_r053_r059_weir_greets_clients_itself_with_what_its_servers_have(&world).await;
    greeting::r075_r079_servers_are_greeted_once_for_all_in_their_own_words(&world).await;
    greeting::r104_r105_pings_are_answered_where_they_arrive(&world).await;
}

async fn calls(world: World) {
    calls::r128_results_of_every_type_pass_intact(&world).await;
    calls::r129_r130_a_list_as_a_result_is_text_to_those_who_have_no_form_for_it(&world).await;
    calls::r123_an_unknown_tool_is_refused_and_reaches_nobody(&world).await;
    calls::r128_errors_of_tools_and_of_servers_pass_unchanged(&world).await;
    calls::b24_arguments_against_the_schema_never_reach_the_tool(&world).await;
    calls::r028_b14_an_unknown_method_is_refused(&world).await;
    calls::r032_b05_batches_belong_to_one_revision(&world).await;
}

async fn library(world: World) {
    library::r128_r138_prompts_are_listed_got_and_completed_under_their_names(&world).await;
    library::r134_r138_resources_and_templates_are_listed_and_read_under_their_uris(&world).await;
    library::r124_r125_r126_r127_what_is_not_there_is_refused_in_the_words_of_the_revision(&world).await;
}

async fn updates(world: World) {
    updates::r194_r197_r205_updates_reach_those_who_subscribed(&world).await;
    updates::r197_what_cannot_be_told_is_refused_or_left_out(&world).await;
    updates::r205_r206_subscriptions_end_with_their_clients(&world).await;
    updates::r204_a_lost_upstream_session_is_subscribed_again(&world).await;
}

async fn resuming(world: World) {
    resuming::r092_r094_r095_streams_of_calls_begin_with_an_id_where_the_revision_has_them(&world).await;
    resuming::r093_a_result_is_fetched_by_who_lost_its_connection(&world).await;
    resuming::r093_d06_nobody_resumes_what_is_not_its_own(&world).await;
}

async fn notes(world: World) {
    notes::r207_r208_progress_carries_the_clients_own_token(&world).await;
    notes::r215_r216_r218_logs_come_at_the_level_asked_for(&world).await;
    notes::r217_a_level_that_is_none_is_refused(&world).await;
}

async fn endings(world: World) {
    // At another upstream id of the same server, and mostly waiting: it runs beside the others.
    let deadlines = endings::r143_progress_extends_the_deadline_and_silence_does_not(&world);
    let others = async {
        endings::r210_r211_r212_r213_r214_a_cancelled_call_is_cancelled_upstream_and_no_other(&world).await;
        endings::r091_a_lost_connection_cancels_a_modern_call_alone(&world).await;
    };
    tokio::join!(deadlines, others);
}

async fn asks(world: asks::Asking) {
    asks::r168_r181_r182_what_a_server_asks_reaches_the_client_and_the_answer_the_server(&world).await;
    asks::sampling_with_tools_goes_on_for_turns(&world).await;
    asks::several_questions_at_once_are_all_answered(&world).await;
    asks::r186_a_url_goes_with_an_id_that_only_2025_11_25_has(&world).await;
    asks::r187_r188_a_url_to_visit_first_is_told_in_the_words_of_the_revision(&world).await;
    asks::e21_a_client_is_not_asked_what_it_did_not_declare(&world).await;
    asks::r167_r180_a_server_that_asks_for_nothing_or_for_ever_is_not_followed(&world).await;
    asks::r182_what_a_server_asks_beside_its_call_is_asked_in_the_call(&world).await;
    asks::r185_what_a_server_asks_outside_of_calls_is_asked_on_the_clients_own_stream_or_refused(&world).await;
    asked::r166_prompts_and_resources_ask_as_tools_do_and_nothing_else_does(&world).await;
    asked::r181_who_declines_is_taken_at_its_word(&world).await;
    asked::a_question_that_is_taken_back_is_nobodys(&world).await;
    asked::r193_a_session_of_a_clients_own_hears_of_its_roots_and_ends_with_it(&world).await;
    asks::r172_what_is_asked_and_answered_in_one_call_reaches_no_other(&world).await;
}

async fn tasks(world: tasks::Tasking) {
    tasks::r220_r227_r228_tasks_are_offered_where_both_sides_have_them(&world).await;
    tasks::r221_r235_what_can_only_be_a_task_is_refused_or_waited_for(&world).await;
    tasks::r222_r226_r229_r232_a_task_is_looked_at_until_it_has_what_its_call_gave(&world).await;
    tasks::changes_of_tasks_are_told_on_streams_that_name_them(&world).await;
    tasks::r207_progress_goes_on_when_a_call_became_a_task(&world).await;
    tasks::r207_progress_of_a_task_is_told_where_its_result_is_waited_for(&world).await;
    tasks::r207_progress_is_told_in_the_call_that_became_a_task_nobody_knows_of(&world).await;
    tasks::changes_of_tasks_are_heard_from_servers_that_tell_of_them(&world).await;
    tasks::r233_r236_a_task_is_cancelled_by_its_own_method(&world).await;
    tasks::r230_a_task_asks_and_goes_on_with_the_answer(&world).await;
    tasks::r225_r234_b20_tasks_belong_to_their_principals(&world).await;
}

macro_rules! pairings {
    ($($upstream:ident: $revision:ident over $transport:ident;)*) => {$(
        mod $upstream {
            use super::*;

            pairings!(@clients $revision over $transport:
                client_2024_11_05: V2024_11_05,
                client_2025_03_26: V2025_03_26,
                client_2025_06_18: V2025_06_18,
                client_2025_11_25: V2025_11_25,
                client_2026_07_28: V2026_07_28,
            );
        }
    )*};
    (@clients $upstream:ident over $transport:ident: $($name:ident: $client:ident,)*) => {$(
        mod $name {
            use super::*;

            async fn world() -> World {
                World::start(Revision::$client, Revision::$upstream, Transport::$transport).await
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r119_r148_r201_lists() {
                lists(world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r051_r053_r059_r075_r079_r104_r105_greeting() {
                greeting(world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r028_r032_r123_r128_r129_r130_b05_b14_b24_calls() {
                calls(world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r124_r125_r126_r127_r134_r137_r138_library() {
                library(world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r194_r197_r204_r205_r206_updates() {
                updates(world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r092_r093_r094_r095_d06_resuming() {
                resuming(world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r207_r208_r215_r216_r217_r218_notes() {
                notes(world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r091_r143_r210_r211_r212_r213_r214_endings() {
                endings(world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r154_r166_r167_r168_r170_r171_r172_r180_r181_r182_r185_r186_r187_r188_r190_r193_e21_asks_and_sampling_with_tools() {
                let world = asks::Asking::start(Revision::$client, Revision::$upstream, Transport::$transport).await;
                asks(world).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r220_r221_r222_r223_r224_r225_r226_r227_r228_r229_r230_r231_r232_r233_r234_r235_r236_b20_tasks() {
                let world = tasks::Tasking::start(Revision::$client, Revision::$upstream, Transport::$transport).await;
                tasks(world).await;
            }
        }
    )*};
}

pairings! {
    upstream_2024_11_05_http: V2024_11_05 over Http;
    upstream_2025_03_26_http: V2025_03_26 over Http;
    upstream_2025_06_18_http: V2025_06_18 over Http;
    upstream_2025_11_25_http: V2025_11_25 over Http;
    upstream_2026_07_28_http: V2026_07_28 over Http;
    upstream_2024_11_05_stdio: V2024_11_05 over Stdio;
    upstream_2025_11_25_stdio: V2025_11_25 over Stdio;
    upstream_2026_07_28_stdio: V2026_07_28 over Stdio;
}

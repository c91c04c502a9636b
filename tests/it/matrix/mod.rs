//! Every scenario over client revision x upstream revision x transport.
//!
//! One test is one pairing with one weir, and runs the scenarios of one file one after another: a
//! process for each scenario of each pairing would take too long. The tests' names have the ids of
//! the requirements that the scenarios prove.
//!
//! Each of them runs for legacy and modern clients before legacy servers, modern ones and servers
//! of both eras, over Streamable HTTP, standard streams and (legacy servers) HTTP+SSE:
//!
//! | feature of the bridge | scenarios |
//! |---|---|
//! | handshakes, discovery, pings | `greeting` |
//! | lists, their pages, their changes | `lists`; `library` for those of prompts, resources and templates |
//! | calls of tools, results, errors, batches | `calls` |
//! | prompts, resources, completion, unknown items | `library` |
//! | progress, logs | `notes` |
//! | cancellation, deadlines, lost connections | `endings` |
//! | sampling (with tools in a named scenario), elicitation, roots, in calls and beside them | `asks`, `asked` |
//! | URL elicitation | `asks` |
//! | updates of resources | `updates` |
//! | tasks | `tasks` |
//! | resumed streams; sessions that end | `resuming`; `asked` |
//!
//! Each scenario reports if its pairing has the feature ([`report::Support`]), and each test prints
//! the report: the compatibility tables are made of it.

mod asked;
mod asks;
mod calls;
mod endings;
mod greeting;
mod library;
mod lists;
mod notes;
mod report;
mod resuming;
mod tasks;
mod updates;
mod world;

use weir_wire::Revision;

use self::report::Report;
use self::world::{Transport, Upstream, World};

async fn lists(world: World) -> Report {
    let pages = lists::r119_r148_all_pages_are_listed_once_and_byte_for_byte(&world).await;
    Report::of(
        "lists",
        [
            pages,
            lists::r201_a_change_upstream_is_told_and_then_listed(&world).await,
        ],
    )
}

async fn greeting(world: World) -> Report {
    let mut report = Report::default();
    let greeted =
        greeting::r051_r053_r059_weir_greets_clients_itself_with_what_its_servers_have(&world)
            .await;
    report.add("greeting", greeted);
    report.add(
        "greeting",
        greeting::r075_r079_servers_are_greeted_once_for_all_in_their_own_words(&world).await,
    );
    report.add(
        "pings",
        greeting::r104_r105_pings_are_answered_where_they_arrive(&world).await,
    );
    report.add(
        "greeting",
        greeting::r075_a_server_of_both_eras_is_spoken_to_in_each_clients_own(&world).await,
    );
    report
}

async fn calls(world: World) -> Report {
    let mut report = Report::default();
    report.add(
        "calls",
        calls::r128_results_of_every_type_pass_intact(&world).await,
    );
    report.add(
        "calls",
        calls::r129_r130_a_list_as_a_result_is_text_to_those_who_have_no_form_for_it(&world).await,
    );
    report.add(
        "calls",
        calls::r123_an_unknown_tool_is_refused_and_reaches_nobody(&world).await,
    );
    report.add(
        "calls",
        calls::r128_errors_of_tools_and_of_servers_pass_unchanged(&world).await,
    );
    report.add(
        "calls",
        calls::b24_arguments_against_the_schema_never_reach_the_tool(&world).await,
    );
    report.add(
        "calls",
        calls::r028_b14_an_unknown_method_is_refused(&world).await,
    );
    report.add(
        "batches",
        calls::r032_b05_batches_belong_to_one_revision(&world).await,
    );
    report
}

async fn library(world: World) -> Report {
    let prompts =
        library::r128_r138_prompts_are_listed_got_and_completed_under_their_names(&world).await;
    let resources =
        library::r134_r138_resources_and_templates_are_listed_and_read_under_their_uris(&world)
            .await;
    let missing =
        library::r124_r125_r126_r127_what_is_not_there_is_refused_in_the_words_of_the_revision(
            &world,
        )
        .await;
    Report::of("library", [prompts, resources, missing])
}

async fn updates(world: World) -> Report {
    let told = updates::r194_r197_r205_updates_reach_those_who_subscribed(&world).await;
    let refused = updates::r197_what_cannot_be_told_is_refused_or_left_out(&world).await;
    let ended = updates::r205_r206_subscriptions_end_with_their_clients(&world).await;
    Report::of(
        "updates",
        [
            told,
            refused,
            ended,
            updates::r204_a_lost_upstream_session_is_subscribed_again(&world).await,
        ],
    )
}

async fn resuming(world: World) -> Report {
    let ids =
        resuming::r092_r094_r095_streams_of_calls_begin_with_an_id_where_the_revision_has_them(
            &world,
        )
        .await;
    let fetched = resuming::r093_a_result_is_fetched_by_who_lost_its_connection(&world).await;
    Report::of(
        "resuming",
        [
            ids,
            fetched,
            resuming::r093_d06_nobody_resumes_what_is_not_its_own(&world).await,
        ],
    )
}

async fn notes(world: World) -> Report {
    let mut report = Report::default();
    report.add(
        "progress",
        notes::r207_r208_progress_carries_the_clients_own_token(&world).await,
    );
    report.add(
        "logs",
        notes::r215_r216_r218_logs_come_at_the_level_asked_for(&world).await,
    );
    report.add(
        "logs",
        notes::r217_a_level_that_is_none_is_refused(&world).await,
    );
    report
}

async fn endings(world: World) -> Report {
    // It uses another upstream id of the same server, and mostly waits: it runs beside the others.
    let deadlines = endings::r143_progress_extends_the_deadline_and_silence_does_not(&world);
    let others = async {
        let cancelled =
            endings::r210_r211_r212_r213_r214_a_cancelled_call_is_cancelled_upstream_and_no_other(
                &world,
            )
            .await;
        [
            cancelled,
            endings::r091_a_lost_connection_cancels_a_modern_call_alone(&world).await,
        ]
    };
    let (deadlines, [cancelled, lost]) = tokio::join!(deadlines, others);
    Report::of("endings", [deadlines, cancelled, lost])
}

async fn asks(world: asks::Asking) -> Report {
    let mut report = Report::default();
    for (feature, question) in [
        ("elicitation", &asks::ELICITATION),
        ("sampling", &asks::SAMPLING),
        ("roots", &asks::ROOTS),
    ] {
        let found =
            asks::r168_r181_r182_what_a_server_asks_reaches_the_client_and_the_answer_the_server(
                &world, question,
            )
            .await;
        report.add(feature, found);
    }
    report.add(
        "sampling_with_tools",
        asks::sampling_with_tools_goes_on_for_turns(&world).await,
    );
    report.add(
        "elicitation",
        asks::several_questions_at_once_are_all_answered(&world).await,
    );
    report.add(
        "elicitation_url",
        asks::r186_a_url_goes_with_an_id_that_only_2025_11_25_has(&world).await,
    );
    let visit =
        asks::r187_r188_a_url_to_visit_first_is_told_in_the_words_of_the_revision(&world).await;
    report.add("elicitation_url", visit);
    report.add(
        "sampling",
        asks::e21_a_client_is_not_asked_what_it_did_not_declare(&world).await,
    );
    let not_followed =
        asks::r167_r180_a_server_that_asks_for_nothing_or_for_ever_is_not_followed(&world).await;
    report.add("elicitation", not_followed);
    report.add(
        "asked_beside",
        asks::r182_what_a_server_asks_beside_its_call_is_asked_in_the_call(&world).await,
    );
    let outside =
        asks::r185_what_a_server_asks_outside_of_calls_is_asked_on_the_clients_own_stream_or_refused(&world).await;
    report.add("asked_outside", outside);
    report.add(
        "elicitation",
        asked::r166_prompts_and_resources_ask_as_tools_do_and_nothing_else_does(&world).await,
    );
    report.add(
        "elicitation",
        asked::r181_who_declines_is_taken_at_its_word(&world).await,
    );
    report.add(
        "elicitation",
        asked::a_question_that_is_taken_back_is_nobodys(&world).await,
    );
    let own =
        asked::r193_a_session_of_a_clients_own_hears_of_its_roots_and_ends_with_it(&world).await;
    report.add("roots", own);
    report.add(
        "elicitation",
        asks::r172_what_is_asked_and_answered_in_one_call_reaches_no_other(&world).await,
    );
    report
}

async fn tasks(world: tasks::Tasking) -> Report {
    let mut report = Report::default();
    report.add(
        "tasks",
        tasks::r220_r227_r228_tasks_are_offered_where_both_sides_have_them(&world).await,
    );
    report.add(
        "tasks_alone",
        tasks::r221_r235_what_can_only_be_a_task_is_refused_or_waited_for(&world).await,
    );
    report.add(
        "tasks",
        tasks::r222_r226_r229_r232_a_task_is_looked_at_until_it_has_what_its_call_gave(&world)
            .await,
    );
    report.add(
        "tasks",
        tasks::changes_of_tasks_are_told_on_streams_that_name_them(&world).await,
    );
    report.add(
        "tasks",
        tasks::r207_progress_goes_on_when_a_call_became_a_task(&world).await,
    );
    report.add(
        "tasks",
        tasks::r207_progress_of_a_task_is_told_where_its_result_is_waited_for(&world).await,
    );
    let unknown =
        tasks::r207_progress_is_told_in_the_call_that_became_a_task_nobody_knows_of(&world).await;
    report.add("tasks_alone", unknown);
    report.add(
        "tasks",
        tasks::changes_of_tasks_are_heard_from_servers_that_tell_of_them(&world).await,
    );
    report.add(
        "tasks",
        tasks::r233_r236_a_task_is_cancelled_by_its_own_method(&world).await,
    );
    report.add(
        "tasks",
        tasks::r230_a_task_asks_and_goes_on_with_the_answer(&world).await,
    );
    report.add(
        "tasks",
        tasks::r225_r234_b20_tasks_belong_to_their_principals(&world).await,
    );
    report
}

macro_rules! pairings {
    ($($name:ident: $upstream:expr, $transport:ident;)*) => {$(
        mod $name {
            use super::*;

            const UPSTREAM: Upstream = $upstream;

            pairings!(@clients $transport:
                client_2024_11_05: V2024_11_05,
                client_2025_03_26: V2025_03_26,
                client_2025_06_18: V2025_06_18,
                client_2025_11_25: V2025_11_25,
                client_2026_07_28: V2026_07_28,
            );
        }
    )*};
    (@clients $transport:ident: $($name:ident: $client:ident,)*) => {$(
        mod $name {
            use super::*;

            async fn world() -> World {
                World::start(Revision::$client, UPSTREAM, Transport::$transport).await
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r119_r148_r201_lists() {
                lists(world().await).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r051_r053_r059_r075_r079_r104_r105_greeting() {
                greeting(world().await).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r028_r032_r123_r128_r129_r130_b05_b14_b24_calls() {
                calls(world().await).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r124_r125_r126_r127_r134_r137_r138_library() {
                library(world().await).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r194_r197_r204_r205_r206_updates() {
                updates(world().await).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r092_r093_r094_r095_d06_resuming() {
                resuming(world().await).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r207_r208_r215_r216_r217_r218_notes() {
                notes(world().await).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r091_r143_r210_r211_r212_r213_r214_endings() {
                endings(world().await).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r154_r166_r167_r168_r170_r171_r172_r180_r181_r182_r185_r186_r187_r188_r190_r193_e21_asks() {
                let world = asks::Asking::start(Revision::$client, UPSTREAM, Transport::$transport).await;
                asks(world).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r220_r221_r222_r223_r224_r225_r226_r227_r228_r229_r230_r231_r232_r233_r234_r235_r236_b20_tasks() {
                let world = tasks::Tasking::start(Revision::$client, UPSTREAM, Transport::$transport).await;
                tasks(world).await.print();
            }
        }
    )*};
}

pairings! {
    upstream_2024_11_05_http: Upstream::One(Revision::V2024_11_05), Http;
    upstream_2025_03_26_http: Upstream::One(Revision::V2025_03_26), Http;
    upstream_2025_06_18_http: Upstream::One(Revision::V2025_06_18), Http;
    upstream_2025_11_25_http: Upstream::One(Revision::V2025_11_25), Http;
    upstream_2026_07_28_http: Upstream::One(Revision::V2026_07_28), Http;
    upstream_both_eras_http: Upstream::BothEras, Http;
    upstream_2024_11_05_stdio: Upstream::One(Revision::V2024_11_05), Stdio;
    upstream_2025_03_26_stdio: Upstream::One(Revision::V2025_03_26), Stdio;
    upstream_2025_06_18_stdio: Upstream::One(Revision::V2025_06_18), Stdio;
    upstream_2025_11_25_stdio: Upstream::One(Revision::V2025_11_25), Stdio;
    upstream_2026_07_28_stdio: Upstream::One(Revision::V2026_07_28), Stdio;
    upstream_both_eras_stdio: Upstream::BothEras, Stdio;
    upstream_2024_11_05_sse: Upstream::One(Revision::V2024_11_05), Sse;
    upstream_2025_03_26_sse: Upstream::One(Revision::V2025_03_26), Sse;
    upstream_2025_06_18_sse: Upstream::One(Revision::V2025_06_18), Sse;
    upstream_2025_11_25_sse: Upstream::One(Revision::V2025_11_25), Sse;
}

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
//! Each scenario reports if its pairing has the feature ([`support_report::FeatureSupport`]), and
//! each test prints the report: the compatibility tables are made of it.

mod bridged_tasks;
mod call_ends;
mod call_notifications;
mod declined_questions;
mod handshakes;
mod list_pages;
mod pairing;
mod prompts_and_resources;
mod resource_updates;
mod server_questions;
mod stream_resumption;
mod support_report;
mod tool_calls;

use weir_wire::Revision;

use self::pairing::{PairingTransport, ScenarioPairing, UpstreamEra};
use self::support_report::SupportReport;

async fn lists(world: ScenarioPairing) -> SupportReport {
    let pages = list_pages::r119_r148_all_pages_are_listed_once_and_byte_for_byte(&world).await;
    SupportReport::of(
        "lists",
        [
            pages,
            list_pages::r201_a_change_upstream_is_told_and_then_listed(&world).await,
        ],
    )
}

async fn greeting(world: ScenarioPairing) -> SupportReport {
    let mut report = SupportReport::default();
    let greeted =
        handshakes::r051_r053_r059_weir_greets_clients_itself_with_what_its_servers_have(&world)
            .await;
    report.add("greeting", greeted);
    report.add(
        "greeting",
        handshakes::r075_r079_servers_are_greeted_once_for_all_in_their_own_words(&world).await,
    );
    report.add(
        "pings",
        handshakes::r104_r105_pings_are_answered_where_they_arrive(&world).await,
    );
    report.add(
        "greeting",
        handshakes::r075_a_server_of_both_eras_is_spoken_to_in_each_clients_own(&world).await,
    );
    report
}

async fn calls(world: ScenarioPairing) -> SupportReport {
    let mut report = SupportReport::default();
    report.add(
        "calls",
        tool_calls::r128_results_of_every_type_pass_intact(&world).await,
    );
    report.add(
        "calls",
        tool_calls::r129_r130_a_list_as_a_result_is_text_to_those_who_have_no_form_for_it(&world)
            .await,
    );
    report.add(
        "calls",
        tool_calls::r123_an_unknown_tool_is_refused_and_reaches_nobody(&world).await,
    );
    report.add(
        "calls",
        tool_calls::r128_errors_of_tools_and_of_servers_pass_unchanged(&world).await,
    );
    report.add(
        "calls",
        tool_calls::b24_arguments_against_the_schema_never_reach_the_tool(&world).await,
    );
    report.add(
        "calls",
        tool_calls::r028_b14_an_unknown_method_is_refused(&world).await,
    );
    report.add(
        "batches",
        tool_calls::r032_b05_batches_belong_to_one_revision(&world).await,
    );
    report
}

async fn library(world: ScenarioPairing) -> SupportReport {
    let prompts =
        prompts_and_resources::r128_r138_prompts_are_listed_got_and_completed_under_their_names(
            &world,
        )
        .await;
    let resources =
        prompts_and_resources::r134_r138_resources_and_templates_are_listed_and_read_under_their_uris(&world)
            .await;
    let missing =
        prompts_and_resources::r124_r125_r126_r127_what_is_not_there_is_refused_in_the_words_of_the_revision(
            &world,
        )
        .await;
    SupportReport::of("library", [prompts, resources, missing])
}

async fn updates(world: ScenarioPairing) -> SupportReport {
    let told = resource_updates::r194_r197_r205_updates_reach_those_who_subscribed(&world).await;
    let refused = resource_updates::r197_what_cannot_be_told_is_refused_or_left_out(&world).await;
    let ended = resource_updates::r205_r206_subscriptions_end_with_their_clients(&world).await;
    SupportReport::of(
        "updates",
        [
            told,
            refused,
            ended,
            resource_updates::r204_a_lost_upstream_session_is_subscribed_again(&world).await,
        ],
    )
}

async fn resuming(world: ScenarioPairing) -> SupportReport {
    let ids =
        stream_resumption::r092_r094_r095_streams_of_calls_begin_with_an_id_where_the_revision_has_them(
            &world,
        )
        .await;
    let fetched =
        stream_resumption::r093_a_result_is_fetched_by_who_lost_its_connection(&world).await;
    SupportReport::of(
        "resuming",
        [
            ids,
            fetched,
            stream_resumption::r093_d06_nobody_resumes_what_is_not_its_own(&world).await,
        ],
    )
}

async fn notes(world: ScenarioPairing) -> SupportReport {
    let mut report = SupportReport::default();
    report.add(
        "progress",
        call_notifications::r207_r208_progress_carries_the_clients_own_token(&world).await,
    );
    report.add(
        "logs",
        call_notifications::r215_r216_r218_logs_come_at_the_level_asked_for(&world).await,
    );
    report.add(
        "logs",
        call_notifications::r217_a_level_that_is_none_is_refused(&world).await,
    );
    report
}

async fn endings(world: ScenarioPairing) -> SupportReport {
    // It uses another upstream id of the same server, and mostly waits: it runs beside the others.
    let deadlines = call_ends::r143_progress_extends_the_deadline_and_silence_does_not(&world);
    let others = async {
        let cancelled =
            call_ends::r210_r211_r212_r213_r214_a_cancelled_call_is_cancelled_upstream_and_no_other(
                &world,
            )
            .await;
        [
            cancelled,
            call_ends::r091_a_lost_connection_cancels_a_modern_call_alone(&world).await,
        ]
    };
    let (deadlines, [cancelled, lost]) = tokio::join!(deadlines, others);
    SupportReport::of("endings", [deadlines, cancelled, lost])
}

async fn asks(world: server_questions::QuestionPairing) -> SupportReport {
    let mut report = SupportReport::default();
    for (feature, question) in [
        ("elicitation", &server_questions::ELICITATION),
        ("sampling", &server_questions::SAMPLING),
        ("roots", &server_questions::ROOTS),
    ] {
        let found =
            server_questions::r168_r181_r182_what_a_server_asks_reaches_the_client_and_the_answer_the_server(
                &world, question,
            )
            .await;
        report.add(feature, found);
    }
    report.add(
        "sampling_with_tools",
        server_questions::sampling_with_tools_goes_on_for_turns(&world).await,
    );
    report.add(
        "elicitation",
        server_questions::several_questions_at_once_are_all_answered(&world).await,
    );
    report.add(
        "elicitation_url",
        server_questions::r186_a_url_goes_with_an_id_that_only_2025_11_25_has(&world).await,
    );
    let visit =
        server_questions::r187_r188_a_url_to_visit_first_is_told_in_the_words_of_the_revision(
            &world,
        )
        .await;
    report.add("elicitation_url", visit);
    report.add(
        "sampling",
        server_questions::e21_a_client_is_not_asked_what_it_did_not_declare(&world).await,
    );
    let not_followed =
        server_questions::r167_r180_a_server_that_asks_for_nothing_or_for_ever_is_not_followed(
            &world,
        )
        .await;
    report.add("elicitation", not_followed);
    report.add(
        "asked_beside",
        server_questions::r182_what_a_server_asks_beside_its_call_is_asked_in_the_call(&world)
            .await,
    );
    let outside =
        server_questions::r185_what_a_server_asks_outside_of_calls_is_asked_on_the_clients_own_stream_or_refused(&world).await;
    report.add("asked_outside", outside);
    report.add(
        "elicitation",
        declined_questions::r166_prompts_and_resources_ask_as_tools_do_and_nothing_else_does(
            &world,
        )
        .await,
    );
    report.add(
        "elicitation",
        declined_questions::r181_who_declines_is_taken_at_its_word(&world).await,
    );
    report.add(
        "elicitation",
        declined_questions::a_question_that_is_taken_back_is_nobodys(&world).await,
    );
    let own =
        declined_questions::r193_a_session_of_a_clients_own_hears_of_its_roots_and_ends_with_it(
            &world,
        )
        .await;
    report.add("roots", own);
    report.add(
        "elicitation",
        server_questions::r172_what_is_asked_and_answered_in_one_call_reaches_no_other(&world)
            .await,
    );
    report
}

async fn tasks(world: bridged_tasks::TaskPairing) -> SupportReport {
    let mut report = SupportReport::default();
    report.add(
        "tasks",
        bridged_tasks::r220_r227_r228_tasks_are_offered_where_both_sides_have_them(&world).await,
    );
    report.add(
        "tasks_alone",
        bridged_tasks::r221_r235_what_can_only_be_a_task_is_refused_or_waited_for(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::r222_r226_r229_r232_a_task_is_looked_at_until_it_has_what_its_call_gave(
            &world,
        )
        .await,
    );
    report.add(
        "tasks",
        bridged_tasks::changes_of_tasks_are_told_on_streams_that_name_them(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::r207_progress_goes_on_when_a_call_became_a_task(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::r207_progress_of_a_task_is_told_where_its_result_is_waited_for(&world).await,
    );
    let unknown =
        bridged_tasks::r207_progress_is_told_in_the_call_that_became_a_task_nobody_knows_of(&world)
            .await;
    report.add("tasks_alone", unknown);
    report.add(
        "tasks",
        bridged_tasks::changes_of_tasks_are_heard_from_servers_that_tell_of_them(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::r233_r236_a_task_is_cancelled_by_its_own_method(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::r230_a_task_asks_and_goes_on_with_the_answer(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::r225_r234_b20_tasks_belong_to_their_principals(&world).await,
    );
    report
}

macro_rules! pairings {
    ($($name:ident: $upstream:expr, $transport:ident;)*) => {$(
        mod $name {
            use super::*;

            const UPSTREAM: UpstreamEra = $upstream;

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

            async fn world() -> ScenarioPairing {
                ScenarioPairing::start(Revision::$client, UPSTREAM, PairingTransport::$transport).await
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
                let world = server_questions::QuestionPairing::start(Revision::$client, UPSTREAM, PairingTransport::$transport).await;
                asks(world).await.print();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn r220_r221_r222_r223_r224_r225_r226_r227_r228_r229_r230_r231_r232_r233_r234_r235_r236_b20_tasks() {
                let world = bridged_tasks::TaskPairing::start(Revision::$client, UPSTREAM, PairingTransport::$transport).await;
                tasks(world).await.print();
            }
        }
    )*};
}

pairings! {
    upstream_2024_11_05_http: UpstreamEra::One(Revision::V2024_11_05), Http;
    upstream_2025_03_26_http: UpstreamEra::One(Revision::V2025_03_26), Http;
    upstream_2025_06_18_http: UpstreamEra::One(Revision::V2025_06_18), Http;
    upstream_2025_11_25_http: UpstreamEra::One(Revision::V2025_11_25), Http;
    upstream_2026_07_28_http: UpstreamEra::One(Revision::V2026_07_28), Http;
    upstream_both_eras_http: UpstreamEra::BothEras, Http;
    upstream_2024_11_05_stdio: UpstreamEra::One(Revision::V2024_11_05), Stdio;
    upstream_2025_03_26_stdio: UpstreamEra::One(Revision::V2025_03_26), Stdio;
    upstream_2025_06_18_stdio: UpstreamEra::One(Revision::V2025_06_18), Stdio;
    upstream_2025_11_25_stdio: UpstreamEra::One(Revision::V2025_11_25), Stdio;
    upstream_2026_07_28_stdio: UpstreamEra::One(Revision::V2026_07_28), Stdio;
    upstream_both_eras_stdio: UpstreamEra::BothEras, Stdio;
    upstream_2024_11_05_sse: UpstreamEra::One(Revision::V2024_11_05), Sse;
    upstream_2025_03_26_sse: UpstreamEra::One(Revision::V2025_03_26), Sse;
    upstream_2025_06_18_sse: UpstreamEra::One(Revision::V2025_06_18), Sse;
    upstream_2025_11_25_sse: UpstreamEra::One(Revision::V2025_11_25), Sse;
}

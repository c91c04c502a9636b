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
    let pages = list_pages::all_pages_are_listed_once_and_byte_for_byte(&world).await;
    SupportReport::of(
        "lists",
        [
            pages,
            list_pages::upstream_list_change_is_announced_and_then_listed(&world).await,
        ],
    )
}

async fn greeting(world: ScenarioPairing) -> SupportReport {
    let mut report = SupportReport::default();
    let greeted =
        handshakes::handshake_names_weir_and_offers_the_capabilities_of_its_servers(&world).await;
    report.add("greeting", greeted);
    report.add(
        "greeting",
        handshakes::servers_are_greeted_once_for_all_in_their_own_words(&world).await,
    );
    report.add(
        "pings",
        handshakes::pings_are_answered_where_they_arrive(&world).await,
    );
    report.add(
        "greeting",
        handshakes::a_server_of_both_eras_is_spoken_to_in_each_clients_own(&world).await,
    );
    report
}

async fn calls(world: ScenarioPairing) -> SupportReport {
    let mut report = SupportReport::default();
    report.add(
        "calls",
        tool_calls::results_of_every_type_pass_intact(&world).await,
    );
    report.add(
        "calls",
        tool_calls::array_result_is_text_for_revisions_without_structured_arrays(&world).await,
    );
    report.add(
        "calls",
        tool_calls::unknown_tool_is_refused_before_any_upstream(&world).await,
    );
    report.add(
        "calls",
        tool_calls::errors_of_tools_and_of_servers_pass_unchanged(&world).await,
    );
    report.add(
        "calls",
        tool_calls::arguments_against_the_schema_never_reach_the_tool(&world).await,
    );
    report.add(
        "calls",
        tool_calls::an_unknown_method_is_refused(&world).await,
    );
    report.add(
        "batches",
        tool_calls::batches_belong_to_one_revision(&world).await,
    );
    report
}

async fn library(world: ScenarioPairing) -> SupportReport {
    let prompts =
        prompts_and_resources::prompts_are_listed_got_and_completed_under_their_names(&world).await;
    let resources =
        prompts_and_resources::resources_and_templates_are_listed_and_read_under_their_uris(&world)
            .await;
    let missing =
        prompts_and_resources::unknown_prompt_or_resource_gets_the_error_code_of_the_revision(
            &world,
        )
        .await;
    SupportReport::of("library", [prompts, resources, missing])
}

async fn updates(world: ScenarioPairing) -> SupportReport {
    let told = resource_updates::resource_updates_reach_only_subscribers(&world).await;
    let refused =
        resource_updates::unsupported_resource_subscriptions_are_refused_or_omitted(&world).await;
    let ended = resource_updates::subscriptions_end_with_their_clients(&world).await;
    SupportReport::of(
        "updates",
        [
            told,
            refused,
            ended,
            resource_updates::a_lost_upstream_session_is_subscribed_again(&world).await,
        ],
    )
}

async fn resuming(world: ScenarioPairing) -> SupportReport {
    let ids =
        stream_resumption::streams_of_calls_begin_with_an_id_where_the_revision_has_them(&world)
            .await;
    let fetched = stream_resumption::result_is_resumed_after_a_lost_connection(&world).await;
    SupportReport::of(
        "resuming",
        [
            ids,
            fetched,
            stream_resumption::streams_of_other_sessions_cannot_be_resumed(&world).await,
        ],
    )
}

async fn notes(world: ScenarioPairing) -> SupportReport {
    let mut report = SupportReport::default();
    report.add(
        "progress",
        call_notifications::progress_carries_the_clients_own_token(&world).await,
    );
    report.add(
        "logs",
        call_notifications::logs_come_at_the_level_asked_for(&world).await,
    );
    report.add(
        "logs",
        call_notifications::a_level_that_is_none_is_refused(&world).await,
    );
    report
}

async fn endings(world: ScenarioPairing) -> SupportReport {
    // It uses another upstream id of the same server, and mostly waits: it runs beside the others.
    let deadlines = call_ends::progress_extends_the_deadline_and_silence_does_not(&world);
    let others = async {
        let cancelled =
            call_ends::a_cancelled_call_is_cancelled_upstream_and_no_other(&world).await;
        [
            cancelled,
            call_ends::a_lost_connection_cancels_a_modern_call_alone(&world).await,
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
        let found = server_questions::server_question_reaches_the_client_and_its_answer_the_server(
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
        server_questions::a_url_goes_with_an_id_that_only_2025_11_25_has(&world).await,
    );
    let visit =
        server_questions::required_url_elicitation_takes_the_form_of_the_revision(&world).await;
    report.add("elicitation_url", visit);
    report.add(
        "sampling",
        server_questions::client_gets_no_question_without_the_declared_capability(&world).await,
    );
    let not_followed =
        server_questions::a_server_that_asks_for_nothing_or_for_ever_is_not_followed(&world).await;
    report.add("elicitation", not_followed);
    report.add(
        "asked_beside",
        server_questions::question_beside_a_call_is_asked_within_the_call(&world).await,
    );
    let outside =
        server_questions::question_outside_of_calls_uses_the_clients_get_stream_or_is_refused(
            &world,
        )
        .await;
    report.add("asked_outside", outside);
    report.add(
        "elicitation",
        declined_questions::prompts_and_resources_ask_as_tools_do_and_nothing_else_does(&world)
            .await,
    );
    report.add(
        "elicitation",
        declined_questions::declined_question_is_reported_to_the_server_and_not_repeated(&world)
            .await,
    );
    report.add(
        "elicitation",
        declined_questions::withdrawn_server_request_reaches_no_client_or_is_cancelled_there(
            &world,
        )
        .await,
    );
    report.add(
        "elicitation",
        declined_questions::cancelled_call_withdraws_its_question(&world).await,
    );
    let own =
        declined_questions::a_session_of_a_clients_own_hears_of_its_roots_and_ends_with_it(&world)
            .await;
    report.add("roots", own);
    report.add(
        "elicitation",
        server_questions::questions_and_answers_of_parallel_calls_are_never_crossed(&world).await,
    );
    report
}

async fn tasks(world: bridged_tasks::TaskPairing) -> SupportReport {
    let mut report = SupportReport::default();
    report.add(
        "tasks",
        bridged_tasks::tasks_are_offered_where_both_sides_have_them(&world).await,
    );
    report.add(
        "tasks_alone",
        bridged_tasks::task_only_tool_is_refused_or_awaited_for_clients_without_tasks(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::polled_task_ends_with_the_result_of_its_call(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::task_changes_reach_only_streams_that_name_the_task(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::progress_goes_on_when_a_call_became_a_task(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::task_progress_arrives_on_the_stream_that_awaits_its_result(&world).await,
    );
    let unknown =
        bridged_tasks::progress_of_an_internal_task_arrives_in_the_original_call(&world).await;
    report.add("tasks_alone", unknown);
    report.add(
        "tasks",
        bridged_tasks::changes_of_tasks_are_heard_from_servers_that_tell_of_them(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::a_task_is_cancelled_by_its_own_method(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::a_task_asks_and_goes_on_with_the_answer(&world).await,
    );
    report.add(
        "tasks",
        bridged_tasks::tasks_belong_to_their_principals(&world).await,
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

            // Proves R119, R148, R201.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn lists() {
                crate::matrix::lists(world().await).await.print();
            }

            // Proves R051, R053, R059, R075, R079, R104, R105.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn greeting() {
                crate::matrix::greeting(world().await).await.print();
            }

            // Proves R028, R032, R123, R128, R129, R130, B05, B14, B24.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn calls() {
                crate::matrix::calls(world().await).await.print();
            }

            // Proves R124, R125, R126, R127, R134, R137, R138.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn library() {
                crate::matrix::library(world().await).await.print();
            }

            // Proves R194, R197, R204, R205, R206.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn updates() {
                crate::matrix::updates(world().await).await.print();
            }

            // Proves R092, R093, R094, R095, D06.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn resuming() {
                crate::matrix::resuming(world().await).await.print();
            }

            // Proves R207, R208, R215, R216, R217, R218.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn notes() {
                crate::matrix::notes(world().await).await.print();
            }

            // Proves R091, R143, R210, R211, R212, R213, R214.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn endings() {
                crate::matrix::endings(world().await).await.print();
            }

            // Proves R154, R166, R167, R168, R170, R171, R172, R180, R181, R182, R185, R186,
            // R187, R188, R190, R193, E21.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn asks() {
                let world = server_questions::QuestionPairing::start(Revision::$client, UPSTREAM, PairingTransport::$transport).await;
                crate::matrix::asks(world).await.print();
            }

            // Proves R220, R221, R222, R223, R224, R225, R226, R227, R228, R229, R230, R231,
            // R232, R233, R234, R235, R236, B20.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn tasks() {
                let world = bridged_tasks::TaskPairing::start(Revision::$client, UPSTREAM, PairingTransport::$transport).await;
                crate::matrix::tasks(world).await.print();
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

//! The section of replicas and their shared store.

use maud::{Markup, Render as _, html};
use weir_text::count;

use crate::page::page_parts::{format_millis, section};
use crate::page::page_text::{duration, facts, table, text};
use crate::views::replica_views::{ReplicaView, ReplicasView, StoreStatusView};

/// Returns the replicas and the state of their store; an empty text if the store is not shared.
pub(super) fn replicas_section(replicas: &ReplicasView) -> Markup {
    let Some(status) = &replicas.status else {
        return html! {};
    };
    let body = html! {
        (replicas_table(&replicas.replicas))
        (store_facts(status))
    };
    section("Replicas", &body)
}

/// Adds the present problems of the replicas and of their store.
pub(super) fn add_replica_problems(all: &mut Vec<Markup>, replicas: &ReplicasView) {
    let Some(status) = &replicas.status else {
        return;
    };
    if !status.connected {
        let cause = status
            .last_error
            .as_deref()
            .unwrap_or("the cause is not known");
        all.push(html! {
            "the shared store is not connected: " (text(cause))
            "; sessions of other replicas cannot be taken over"
        });
    }
    for warning in &status.warnings {
        all.push(html! { "the shared store may lose sessions: " (text(warning)) });
    }
    if let Some(next) = &replicas.next_key {
        all.push(html! {
            "key " (next.id) " opens, and does not seal before every replica has it: "
            @match next.waits_for.as_slice() {
                [] => { "the replicas change to it now" }
                missing => { (missing.join(", ")) " " (lack(missing.len())) " it" }
            }
        });
    }
    for replica in replicas.replicas.iter().filter(|one| !one.opens_all) {
        all.push(html! {
            "replica " code { (replica.id) }
            " lacks a key that others seal with, and is not ready"
        });
    }
    for difference in &replicas.differences {
        let sentence = match *difference {
            "version" => "the replicas have different versions of weir",
            "config" => "the replicas have different configs",
            _ => "the replicas have different `keys`, or in another order",
        };
        all.push(html! { (sentence) });
    }
}

fn lack(count: usize) -> &'static str {
    match count {
        1 => "lacks",
        _ => "lack",
    }
}

fn replicas_table(replicas: &[ReplicaView]) -> Markup {
    let row = |replica: &ReplicaView| {
        let keys: Vec<_> = replica.keys.iter().map(ToString::to_string).collect();
        let heard = match replica.own {
            true => "now".to_owned(),
            false => format!("{} ago", duration(replica.age)),
        };
        vec![
            html! {
                code { (replica.id) }
                @if replica.own { br; small { "this one" } }
            },
            text(&replica.address).render(),
            text(&replica.version).render(),
            html! { code { (text(&replica.config)) } },
            html! {
                (keys.join(", "))
                @if let Some(key) = replica.sealing_key { br; small { "seals with " (key) } }
            },
            html! {
                @if replica.draining { b class="odd" { "draining" } }
                @else if !replica.opens_all { b class="bad" { "lacks a key" } }
                @else { "serves" }
            },
            heard.render(),
        ]
    };
    table(
        &[
            "Replica", "Address", "Version", "Config", "Keys", "State", "Heard of",
        ],
        &replicas.iter().map(row).collect::<Vec<_>>(),
    )
}

fn store_facts(status: &StoreStatusView) -> Markup {
    let (class, state) = match status.connected {
        true => ("good", "connected"),
        false => ("bad", "not connected"),
    };
    let mut all = vec![
        ("Shared store", html! { b class=(class) { (state) } }),
        (
            "Last command",
            format_millis(Some(status.latency_ms)).render(),
        ),
        ("Pending", count(status.pending_writes, "write").render()),
    ];
    if let Some(error) = &status.last_error {
        all.push(("Last error", text(error).render()));
    }
    facts(&all)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::views::replica_views::NextKeyView;
    use super::*;

    fn replica(own: bool, config: &str) -> ReplicaView {
        ReplicaView {
            id: "0a".to_owned(),
            own,
            address: "10.0.0.1:8082".to_owned(),
            version: "<1>".to_owned(),
            config: config.to_owned(),
            keys: vec![2, 1],
            sealing_key: Some(1),
            opens_all: own,
            draining: !own,
            age_ms: 3000.0,
            age: Duration::from_secs(3),
        }
    }

    #[test]
    fn replicas_and_problems_of_their_store_are_shown() {
        let mut view = ReplicasView {
            store: "redis",
            status: Some(StoreStatusView {
                connected: false,
                last_error: Some("timed out".to_owned()),
                latency_ms: 0.3,
                pending_writes: 2,
                warnings: vec!["appendonly is no".to_owned()],
            }),
            next_key: Some(NextKeyView {
                id: 2,
                waits_for: vec!["0b".to_owned()],
            }),
            differences: vec!["config"],
            replicas: vec![replica(true, "aa"), replica(false, "bb")],
        };
        let shown = replicas_section(&view).into_string();
        for text in [
            "this one",
            "&lt;1&gt;",
            "2, 1",
            "seals with 1",
            "3 s ago",
            "draining",
            "2 writes",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        let mut problems = Vec::new();
        add_replica_problems(&mut problems, &view);
        assert_eq!(problems.len(), 5);
        let text: String = problems
            .into_iter()
            .map(maud::Markup::into_string)
            .collect();
        assert!(text.contains("0b lacks it"), "{text}");
        view.status = None;
        assert!(replicas_section(&view).into_string().is_empty());
    }
}

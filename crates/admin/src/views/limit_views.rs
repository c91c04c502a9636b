//! The exhausted limits with their owners, and the owners of calls in flight or waiting.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use data_encoding::HEXLOWER;
use serde::Serialize;
use weir_policy::limit::{ExhaustedBudget, LimitOwner, SlotUsage};

use crate::admin_error::{AdminError, json};
use crate::state::AdminState;
use crate::views::call_views::PrincipalView;
use crate::views::{AdminQuery, millis};

/// The state of the limits.
#[derive(Serialize)]
pub(crate) struct LimitsView {
    /// The number of exhausted budgets.
    pub(crate) total: usize,
    /// The exhausted budgets, the longest wait first.
    pub(crate) refusing: Vec<ExhaustedLimitView>,
    /// The taken permits for concurrent calls, the most first.
    places: Vec<PermitsView>,
}

/// An exhausted budget.
#[derive(Serialize)]
pub(crate) struct ExhaustedLimitView {
    pub limit: String,
    pub of: LimitOwnerView,
    pub(crate) allows: String,
    /// The milliseconds until the next request is admitted.
    pub(crate) wait_ms: f64,
}

#[derive(Serialize)]
struct PermitsView {
    of: LimitOwnerView,
    held: usize,
    waiting: usize,
    most: usize,
}

/// The owner of a budget.
#[derive(Serialize)]
pub(crate) struct LimitOwnerView {
    /// One of `network`, `principal`, `upstream` and `everybody`.
    kind: &'static str,
    /// A network, an upstream's id, or a principal's subject; a digest, if the principal's name is
    /// not known any more.
    name: Option<String>,
    principal: Option<PrincipalView>,
}

impl LimitOwnerView {
    fn of(whose: &LimitOwner, known: &HashMap<[u8; 16], PrincipalView>) -> Self {
        let (kind, name, principal) = match whose {
            LimitOwner::Network(network) => ("network", Some(network.clone()), None),
            LimitOwner::Upstream(id) => ("upstream", Some(id.clone()), None),
            LimitOwner::Everybody => ("everybody", None, None),
            LimitOwner::Principal(digest) => {
                let who = known.get(digest).cloned();
                let name = who
                    .as_ref()
                    .map_or_else(|| HEXLOWER.encode(digest), |who| who.name().to_owned());
                ("principal", Some(name), who)
            }
        };
        Self {
            kind,
            name,
            principal,
        }
    }

    /// Returns the owner in words.
    pub(crate) fn words(&self) -> String {
        match &self.name {
            Some(name) => format!("{} {name}", self.kind),
            None => self.kind.to_owned(),
        }
    }
}

/// Returns the state of the limits.
pub(crate) async fn all(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let limit = AdminQuery::read(query.as_deref(), &["limit"])?.limit()?;
    Ok(json(StatusCode::OK, &state.limits_now(limit)))
}

impl AdminState {
    pub(crate) fn limits_now(&self, most: usize) -> LimitsView {
        let (exhausted, usages, known) = (
            self.limits.exhausted_budgets(),
            self.limits.slot_usage(),
            self.known(),
        );
        let refusing = |budget: &ExhaustedBudget| ExhaustedLimitView {
            limit: budget.limit.to_string(),
            of: LimitOwnerView::of(&budget.owner, &known),
            allows: budget.allows.clone(),
            wait_ms: millis(budget.wait),
        };
        let permits = |usage: &SlotUsage| PermitsView {
            of: LimitOwnerView::of(&usage.owner, &known),
            held: usage.held,
            waiting: usage.waiting,
            most: usage.most,
        };
        LimitsView {
            total: exhausted.len(),
            refusing: exhausted.iter().take(most).map(refusing).collect(),
            places: usages.iter().take(most).map(permits).collect(),
        }
    }
}

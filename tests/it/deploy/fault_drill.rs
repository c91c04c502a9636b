//! The operator's drill: seven faults, one after another. For each the culprit's name is on the
//! status page in a browser, in a panel of a dashboard, and in the alert that fires.

use std::time::Duration;

use super::alerts_fire::{instance, poll_until};
use super::company_scene::{CompanyScene, LIMITED};
use super::dashboards::{board, panels, queries};
use super::prometheus::Prometheus;
use crate::harness::{peers_are_enabled, render_page};

/// The limit of looks at a page until it shows the whole cause.
const MAX_LOOKS: usize = 5;

/// The signs of a fault.
struct FaultSigns {
    alert: &'static str,
    /// The panel of the overview, and the label that names the culprit there and in the alert.
    panel: &'static str,
    label: &'static str,
    culprit: String,
    /// The words on the status page.
    page: Vec<String>,
}

impl FaultSigns {
    fn of(
        alert: &'static str,
        panel: &'static str,
        label: &'static str,
        culprit: &str,
        page: &[&str],
    ) -> Self {
        let page = page.iter().map(|text| (*text).to_owned()).collect();
        Self {
            alert,
            panel,
            label,
            culprit: culprit.to_owned(),
            page,
        }
    }

    /// Waits until all three show it, while time goes on and clients do `trouble`. Earlier faults
    /// may go on.
    async fn seen(
        self,
        drill: &mut FaultDrill<'_>,
        scene: &CompanyScene,
        trouble: impl Future<Output = ()>,
    ) {
        let (prometheus, begun) = (drill.prometheus, std::time::Instant::now());
        let signs = async {
            poll_until(self.alert, Duration::ZERO, || {
                self.fires(prometheus, &drill.found)?;
                self.shows(prometheus, &drill.found)
            })
            .await;
            // While clients go on: a limit that refused opens again in a moment, and a page may be
            // of such a moment.
            let mut page = String::new();
            for _ in 0..MAX_LOOKS {
                let admin = scene.weir.admin_url();
                page = tokio::task::spawn_blocking(move || render_page(&admin))
                    .await
                    .unwrap();
                if self.says(&page).is_ok() {
                    break;
                }
            }
            page
        };
        let page = tokio::select! {
            () = scene.run_ordinary_day() => unreachable!("it has no end"),
            () = trouble => unreachable!("it has no end"),
            page = signs => page,
        };
        self.says(&page).unwrap_or_else(|missing| {
            panic!("{}: the page does not say `{missing}`: {page}", self.alert)
        });
        println!(
            "{}: {} {} named after {:?}",
            self.alert,
            self.label,
            self.culprit,
            begun.elapsed()
        );
        drill.found.push(self.culprit);
    }

    /// Checks that the page's list of upstreams that need a look names it; returns the missing text
    /// if not.
    fn says(&self, page: &str) -> Result<(), &str> {
        let head = "Problems";
        let (_, trouble) = page.split_once(head).ok_or(head)?;
        self.page
            .iter()
            .find(|text| !trouble.contains(text.as_str()))
            .map_or(Ok(()), |text| Err(text))
    }

    fn fires(&self, prometheus: &Prometheus, found: &[String]) -> Result<(), String> {
        let firing = prometheus.firing();
        let own = firing
            .iter()
            .filter(|alert| alert.labels["alertname"] == self.alert);
        let named = own.map(|alert| alert.labels[self.label].as_str().unwrap_or_default());
        let culprits: Vec<_> = named
            .filter(|name| !found.iter().any(|one| one == name))
            .collect();
        if culprits == [self.culprit.as_str()] {
            Ok(())
        } else {
            Err(format!("it blames {culprits:?}"))
        }
    }

    /// Checks that the culprit has the panel's highest value, apart from earlier culprits.
    fn shows(&self, prometheus: &Prometheus, found: &[String]) -> Result<(), String> {
        let overview = board("overview");
        let panel =
            panels(&overview).find(|panel| panel["title"] == self.panel && panel["type"] != "stat");
        let queries = queries(panel.unwrap_or_else(|| panic!("no panel `{}`", self.panel)));
        let mut series: Vec<_> = queries
            .iter()
            .flat_map(|(query, _)| prometheus.query(query))
            .collect();
        series.retain(|one| {
            let name = one.labels[self.label].as_str();
            one.value.is_finite() && name.is_some_and(|name| !found.iter().any(|one| one == name))
        });
        series.sort_by(|a, b| b.value.total_cmp(&a.value));
        match series.first() {
            Some(first)
                if first.labels[self.label] == self.culprit.as_str() && first.value > 0.0 =>
            {
                Ok(())
            }
            first => Err(format!("the panel `{}` shows {first:?} first", self.panel)),
        }
    }
}

/// The progress of the drill.
struct FaultDrill<'p> {
    prometheus: &'p Prometheus,
    /// Culprits of earlier faults.
    found: Vec<String>,
}

// Proves R286.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_faults_are_found_on_the_page_in_a_panel_and_by_an_alert() {
    if !peers_are_enabled() {
        return;
    }
    let mut scene = CompanyScene::start().await;
    let own = instance(&scene.weir);
    let prometheus = Prometheus::over(std::slice::from_ref(&own));
    let quiet = std::future::pending::<()>;
    let mut drill = FaultDrill {
        prometheus: &prometheus,
        found: Vec::new(),
    };
    tokio::select! {
        () = scene.run_ordinary_day() => unreachable!("it has no end"),
        () = poll_until("an ordinary day", Duration::from_secs(8), || Ok(())) => {}
    }
    assert!(
        !render_page(&scene.weir.admin_url()).contains("Problems"),
        "on an ordinary day"
    );

    scene.slow_search_down();
    let signs = FaultSigns::of(
        "WeirUpstreamSlow",
        "Time of calls, p90",
        "upstream",
        "search",
        &["search", "is slow"],
    );
    signs.seen(&mut drill, &scene, scene.slow()).await;

    scene.stop_wiki().await;
    let signs = FaultSigns::of(
        "WeirUpstreamDown",
        "Down",
        "upstream",
        "wiki",
        &["wiki", "went down"],
    );
    signs.seen(&mut drill, &scene, quiet()).await;

    scene.make_tickets_fail();
    let signs = FaultSigns::of(
        "WeirUpstreamErrors",
        "Failed calls",
        "upstream",
        "tickets",
        &["tickets", "of its last"],
    );
    signs.seen(&mut drill, &scene, scene.errors()).await;

    scene.change_a_tool();
    let panel = "Tool definitions changed";
    let page = ["deploys", "changed definitions of its tools"];
    let signs = FaultSigns::of(
        "WeirToolDefinitionsChanged",
        panel,
        "upstream",
        "deploys",
        &page,
    );
    signs.seen(&mut drill, &scene, quiet()).await;

    let limit = format!("tool:{LIMITED}");
    let signs = FaultSigns::of(
        "WeirClientFlooding",
        "Refused by limits",
        "limit",
        &limit,
        &["reached, and requests are refused", LIMITED],
    );
    signs.seen(&mut drill, &scene, scene.flood()).await;

    scene.stop_the_issuer();
    let issuer = scene.idp.issuer();
    let page = [issuer.as_str(), "cannot be fetched"];
    let signs = FaultSigns::of(
        "WeirIssuerKeysUnavailable",
        "Keys of issuers",
        "issuer",
        &issuer,
        &page,
    );
    signs.seen(&mut drill, &scene, scene.forgery()).await;

    scene.write_a_bad_config();
    let page = ["config files were refused", "upstreem"];
    let signs = FaultSigns::of("WeirConfigReloadFailed", "Config", "instance", &own, &page);
    signs.seen(&mut drill, &scene, quiet()).await;
}

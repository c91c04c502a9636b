//! Two weirs that differ in one feature, called in turns: the cost of that feature.
//!
//! Each weir has an upstream of its own, so that neither has a neighbour's connections.

use crate::load_clients::{ClientGroup, LoadWork, TargetLane, run_in_turns};
use crate::protocol::Era;
use crate::settings::{RunSettings, TargetKind};
use crate::stats::RoundFigures;
use crate::test_bed::{BenchUpstream, TestBed};
use crate::upstream::upstream_shape::UpstreamShape;
use anyhow::Result;
use http::HeaderValue;
use serde::Serialize;

/// The weir without the feature, and the one with it.
pub(crate) struct WeirPair([TestBed; 2]);

/// The measurement of one weir in one era at one concurrency.
#[derive(Serialize)]
pub(crate) struct PairMeasurement {
    era: Era,
    concurrency: usize,
    #[serde(flatten)]
    medians: RoundFigures,
    error: Option<String>,
    rounds: Vec<RoundFigures>,
}

impl PairMeasurement {
    /// The median latency in microseconds.
    pub(crate) const fn p50_us(&self) -> f64 {
        self.medians.p50_us
    }

    /// The right answers of all rounds.
    pub(crate) const fn all_calls(&self) -> u64 {
        self.medians.calls
    }
}

/// The start options of one weir of a pair.
pub(crate) struct PairHalf<'a> {
    pub(crate) credential: Option<HeaderValue>,
    /// The config beside the common part.
    pub(crate) config: &'a str,
}

impl WeirPair {
    /// Starts both.
    ///
    /// # Errors
    /// A process that does not start.
    pub(crate) async fn start(settings: &RunSettings, halves: [PairHalf<'_>; 2]) -> Result<Self> {
        let [without, with] = halves;
        Ok(Self([
            stage(settings, without).await?,
            stage(settings, with).await?,
        ]))
    }

    /// The weir with the feature.
    pub(crate) fn with(&self) -> &TestBed {
        &self.0[1]
    }

    /// Calls both in turns, in both eras at every concurrency. `row` gets the results of each cell:
    /// the measurements without and with the feature, and the ratio of their throughput in the same
    /// round, the median of these.
    ///
    /// # Errors
    /// A connection that does not open, a process that ended, or an error of `row`.
    pub(crate) async fn measure(
        &mut self,
        settings: &RunSettings,
        mut row: impl FnMut([PairMeasurement; 2], Option<f64>) -> Result<()>,
    ) -> Result<()> {
        for era in [Era::Modern, Era::Legacy] {
            for concurrency in &settings.concurrency {
                let (measured, ratio) = self.cell(settings, era, *concurrency).await?;
                row(measured, ratio)?;
                for stage in &mut self.0 {
                    stage.check()?;
                }
            }
        }
        Ok(())
    }

    async fn cell(
        &self,
        settings: &RunSettings,
        era: Era,
        concurrency: usize,
    ) -> Result<([PairMeasurement; 2], Option<f64>)> {
        let upstream = &BenchUpstream::of_each_era()[usize::from(era == Era::Legacy)];
        let mut lanes = Vec::new();
        for stage in &self.0 {
            let sites = [stage.tool_address(TargetKind::Weir, upstream, "echo")?].into();
            let crew = ClientGroup::open(
                LoadWork {
                    sites,
                    era,
                    sessions: 1,
                    payload: settings.payload,
                },
                concurrency,
            )
            .await?;
            lanes.push(TargetLane::new(crew, stage.process(TargetKind::Weir)?));
        }
        run_in_turns(&mut lanes, settings).await?;
        let ratio = lanes[1].against(&lanes[0], |with, without| {
            with.per_second / without.per_second
        });
        let measured = [0, 1].map(|at| {
            let lane: &TargetLane<'_> = &lanes[at];
            let (medians, error, rounds) =
                (lane.medians(), lane.error.clone(), lane.rounds.clone());
            PairMeasurement {
                era,
                concurrency,
                medians,
                error,
                rounds,
            }
        });
        for lane in lanes {
            lane.close().await?;
        }
        Ok((measured, ratio))
    }

    /// Stops both, the one without the feature first.
    pub(crate) async fn stop(self) {
        for stage in self.0 {
            stage.stop().await;
        }
    }
}

async fn stage(settings: &RunSettings, half: PairHalf<'_>) -> Result<TestBed> {
    let mut settings = settings.clone();
    settings.weir_config_extra.push_str(half.config);
    let shape = UpstreamShape {
        servers: 1,
        tools: 50,
        page: 50,
    };
    TestBed::start_for(
        half.credential,
        &settings,
        &[TargetKind::Weir],
        shape,
        &BenchUpstream::of_each_era(),
    )
    .await
}

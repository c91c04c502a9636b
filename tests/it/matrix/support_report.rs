//! The support of each feature in a pairing, printed for the compatibility tables.

use std::collections::BTreeMap;

/// The support of a feature in one pairing, as a scenario found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a feature that is not reported stands in no table"]
pub enum FeatureSupport {
    /// The client's or the server's revision has no such feature, so the scenario did not run.
    NotInRevision,
    /// One side has the feature and the other has not: weir refused it in the form of the revision.
    Refused,
    /// The feature was carried from one side to the other.
    Carried,
}

/// The features of one pairing. The test runner keeps what a test prints beside the test's result.
#[derive(Debug, Default)]
#[must_use = "a report that is not printed is lost"]
pub struct SupportReport(BTreeMap<&'static str, FeatureSupport>);

impl SupportReport {
    /// Adds the outcome of one scenario. Several scenarios may test one feature, and some do not
    /// apply to this pairing: the highest outcome counts.
    pub fn add(&mut self, feature: &'static str, found: FeatureSupport) {
        let most = self.0.entry(feature).or_insert(found);
        *most = (*most).max(found);
    }

    /// Returns a report on one feature.
    pub fn of(feature: &'static str, found: impl IntoIterator<Item = FeatureSupport>) -> Self {
        let mut report = Self::default();
        found
            .into_iter()
            .for_each(|found| report.add(feature, found));
        report
    }

    /// Prints a line for each feature, which `cargo xtask compat` reads.
    pub fn print(self) {
        for (feature, found) in self.0 {
            println!("compat {feature} {found:?}");
        }
    }
}

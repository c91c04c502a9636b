//! Explains to an operator why a sender can use a tool, or cannot: it follows the path of a call,
//! and lists the first cause first.
//!
//! It queries the same rules, limits and lists that requests go through, and consumes no quota. No
//! call is made, and the sender in the question is never used for requests.

mod access_question;
mod call_walk;
mod decision_steps;
mod explainer;
mod explanation;
mod tool_lookup;

pub use access_question::{AccessQuestion, EXPLAIN_PATH};
use call_walk::CallWalk;
pub use explainer::{Explainer, ExplainerSources, OverrideWords};
pub use explanation::{Explanation, ExplanationStep, StepEffect};

impl Explainer {
    /// Follows the path of a call and returns the explanation.
    pub async fn answer(&self, question: &AccessQuestion) -> Explanation {
        let config = self.config.load_full();
        CallWalk::new(self, &config, question).run().await
    }
}

#[cfg(test)]
mod tests;

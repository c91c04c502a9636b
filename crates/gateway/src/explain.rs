//! Explains to an operator why a sender can use a tool, or cannot: it follows the path of a call,
//! and lists the first cause first.
//!
//! It queries the same rules, limits and lists that requests go through, and consumes no quota. No
//! call is made, and the sender in the question is never used for requests.

pub(crate) mod access_question;
mod call_walk;
mod decision_steps;
pub(crate) mod explainer;
pub(crate) mod explanation;
mod tool_lookup;

pub(crate) use access_question::{AccessQuestion, DEFAULT_ENDPOINT};
use call_walk::CallWalk;
pub(crate) use explainer::Explainer;
pub(crate) use explanation::Explanation;

impl Explainer {
    /// Follows the path of a call and returns the explanation.
    pub(crate) async fn answer(&self, question: &AccessQuestion) -> Explanation {
        let config = self.config.load_full();
        CallWalk::new(self, &config, question).run().await
    }
}

#[cfg(test)]
mod tests;

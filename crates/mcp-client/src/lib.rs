//! The MCP client of the commands, such as `weir tools` and `weir call`, and a person's logins at
//! servers that require OAuth tokens. The gateway's connections to its upstreams are
//! `weir-upstream`'s.

mod client;
pub mod login;

pub use client::answer::{Answer, Note};
pub use client::environment_proxy::environment_proxy;
pub use client::error::{ClientError, HttpRefusal};
pub use client::lists::{ListedItems, MissingUpstream, item_word};
pub use client::respondent::{Answering, DeclinedRequest, Respondent};
pub use client::transport::{Token, bearer, pool};
pub use client::unreachable::explain as explain_unreachable;
pub use client::{CONNECT_TIMEOUT, Client, arguments};

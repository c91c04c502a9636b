//! The command of rates: tokens out of a bucket in the shared store, and back.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use weir_core::port::{Rate, RateBucket, RateUnit, StoreError};

use crate::link_status::CommandEffect;
use crate::redis_link::{RedisLink, RunningCommand};
use crate::scripts::TAKE_TOKENS;
use crate::token_lease::{TokenDemand, TokenReply};

/// The numbers of the command.
#[derive(Clone, Copy, Debug)]
struct RateExchange {
    /// The least number to take; it takes no tokens if fewer are there.
    need: u32,
    /// The number to take if it is there.
    want: u32,
    /// The number to give back.
    returned: u32,
}

impl RateExchange {
    fn effect(self) -> CommandEffect {
        if self.want == 0 && self.returned == 0 {
            CommandEffect::Reads
        } else {
            CommandEffect::MayWrite
        }
    }
}

/// Commands below a namespace, each within the time limit of commands that a request waits for.
pub(crate) struct RateCommands {
    link: Arc<RedisLink>,
    namespace: String,
}

impl RateCommands {
    pub(crate) fn new(link: Arc<RedisLink>, namespace: String) -> Self {
        Self { link, namespace }
    }

    /// The time limit of a command.
    pub(crate) fn timeout(&self) -> Duration {
        self.link.command_timeout()
    }

    /// Takes tokens.
    pub(crate) async fn take(
        &self,
        bucket: &RateBucket,
        rate: &Rate,
        demand: TokenDemand,
    ) -> Result<TokenReply, StoreError> {
        let operation = match demand {
            TokenDemand { want: 0, .. } => "peek_tokens",
            TokenDemand {
                is_awaited: true, ..
            } => "take_tokens",
            TokenDemand {
                is_awaited: false, ..
            } => "refill_tokens",
        };
        let exchange = RateExchange {
            need: demand.need,
            want: demand.want,
            returned: 0,
        };
        self.run(operation, bucket, rate, exchange).await
    }

    /// Returns the time until a bucket has `cost`, zero if it has it now. Takes nothing.
    pub(crate) async fn peek(
        &self,
        bucket: &RateBucket,
        rate: &Rate,
        cost: u32,
    ) -> Result<Duration, StoreError> {
        let exchange = RateExchange {
            need: cost,
            want: 0,
            returned: 0,
        };
        let reply = self.run("peek_tokens", bucket, rate, exchange).await;
        reply.map(|reply| reply.wait)
    }

    /// Gives tokens back.
    pub(crate) async fn give_back(
        &self,
        bucket: &RateBucket,
        rate: &Rate,
        tokens: u32,
    ) -> Result<(), StoreError> {
        let exchange = RateExchange {
            need: 1,
            want: 0,
            returned: tokens,
        };
        let reply = self.run("return_tokens", bucket, rate, exchange).await;
        reply.map(drop)
    }

    async fn run(
        &self,
        operation: &'static str,
        bucket: &RateBucket,
        rate: &Rate,
        exchange: RateExchange,
    ) -> Result<TokenReply, StoreError> {
        let per = u64::try_from(rate.per.as_micros()).unwrap_or(u64::MAX);
        let mut call = TAKE_TOKENS.prepare_invoke();
        call.key(self.key(bucket))
            .arg(rate.count.get())
            .arg(per.max(1))
            .arg(rate.burst.get())
            .arg(exchange.need)
            .arg(exchange.want)
            .arg(exchange.returned);
        let command = RunningCommand::new(operation, exchange.effect());
        let (granted, wait) = self
            .link
            .run_script::<(u32, u64)>(command, self.timeout(), &call)
            .await?;
        Ok(TokenReply {
            granted,
            wait: Duration::from_micros(wait),
        })
    }

    fn key(&self, bucket: &RateBucket) -> String {
        let unit = match bucket.unit {
            RateUnit::Requests => "requests",
            RateUnit::Calls => "calls",
            RateUnit::Tool => "tool",
            RateUnit::Upstream => "upstream",
        };
        let (namespace, limit) = (&self.namespace, bucket.limit);
        let owner = HEXLOWER.encode(&bucket.owner);
        format!("{namespace}:r:{unit}:{limit:016x}:{owner}")
    }
}

//! One child process: the keeper starts it, its three streams are served here, and it is ended with
//! all its descendants.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio_util::sync::CancellationToken;
use weir_core::budget::{ConnectionSide, DescriptorPermit};
use weir_core::{Failure, FailureKind};
use weir_process::keeper::{ChildControlSocket, ChildKeeper, ChildSpec, KeptChild};
use weir_upstream_core::lease_fence::FencePass;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::child_channel::ChildChannel;
use crate::child_end::{ChildEndNotifier, supervise};
use crate::child_environment;
use crate::child_fence::{self, FencedInput};
use crate::child_streams::{
    READ_SIZE, ReadOutcome, log_error_stream, read_messages, write_messages,
};
use crate::error_tail::ErrorTail;
use crate::stdio_settings::StdioUpstreamSettings;
use crate::value_claim::{ValueClaim, ValueClaims, claim_pair};

/// A running child.
#[derive(Debug)]
pub struct UpstreamChild {
    pub(crate) channel: Arc<ChildChannel>,
    pub(crate) errors: Arc<ErrorTail>,
    /// The exit status of the process, once it has ended.
    status: Arc<OnceLock<String>>,
    /// Cancelled once all of its output is read.
    is_read: CancellationToken,
    stop: CancellationToken,
    ended: CancellationToken,
    /// The claims on its tasks' parts, until another process has taken it over. Absent for an
    /// HTTP+SSE stream.
    parts: Mutex<Option<ChildParts>>,
    /// The permission to write to it, if one replica alone runs it.
    pass: Option<FencePass>,
}

/// The claims on the parts that a child's tasks own.
#[derive(Debug)]
struct ChildParts {
    input: ValueClaim<FencedInput<Sender>>,
    output: ValueClaim<(Receiver, BytesMut)>,
    errors: ValueClaim<Receiver>,
    control: ValueClaim<(ChildControlSocket, ChildEndNotifier)>,
    /// Closes the input.
    closed: CancellationToken,
}

/// The longest time that a task of a child may take to reach the end of its step.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(1);

impl UpstreamChild {
    /// Starts the process. Its command, arguments and directory come from the config alone.
    ///
    /// # Errors
    /// `Unavailable` if it cannot be started.
    pub(crate) async fn start(
        context: &Arc<UpstreamContext>,
        keeper: &Arc<ChildKeeper>,
        settings: &StdioUpstreamSettings,
    ) -> Result<Self, Failure> {
        let env =
            child_environment::child_variables(|name| std::env::var(name).ok(), &settings.env);
        let spec = ChildSpec {
            command: settings.command.clone(),
            args: settings.args.clone(),
            env: env
                .iter()
                .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                .collect(),
            cwd: settings.cwd.clone(),
        };
        let descriptors = take_descriptors(context)?;
        let pass = child_fence::enter(context)?;
        let failed = || {
            context.label.fail(
                FailureKind::Unavailable,
                "The upstream's process cannot be started",
            )
        };
        let started = keeper
            .start(&spec)
            .await
            .map_err(|error| failed().because(explain_start_error(settings, &error)))?;
        Ok(Self::serve(
            started,
            ChildChannel::new(context.clone()),
            BytesMut::with_capacity(READ_SIZE),
            descriptors,
            pass,
        ))
    }

    /// Takes over a child of the previous process, with this unread output. Its relay to that
    /// process is set in the pipe before more output is read.
    ///
    /// # Errors
    /// The process has no descriptors left, or has no lease of the upstream.
    pub(super) fn adopt(
        kept: KeptChild,
        channel: Arc<ChildChannel>,
        unread: &[u8],
    ) -> Result<Self, Failure> {
        let descriptors = take_descriptors(&channel.context)?;
        let pass = child_fence::enter(&channel.context)?;
        Ok(Self::serve(
            kept,
            channel,
            BytesMut::from(unread),
            descriptors,
            pass,
        ))
    }

    fn serve(
        kept: KeptChild,
        channel: Arc<ChildChannel>,
        unread: BytesMut,
        descriptors: [DescriptorPermit; 5],
        pass: Option<FencePass>,
    ) -> Self {
        let KeptChild {
            input,
            output,
            errors,
            control,
        } = kept;
        let [of_input, of_output, of_errors, of_control, of_process] = descriptors;
        let context = channel.context.clone();
        let closed = CancellationToken::new();
        let ((claim_input, inputs), (claim_output, outputs)) = (claim_pair(), claim_pair());
        let ((claim_errors, of_stderr), (claim_control, controls)) = (claim_pair(), claim_pair());
        let parts = ChildParts {
            input: claim_input,
            output: claim_output,
            errors: claim_errors,
            control: claim_control,
            closed: closed.clone(),
        };
        let child = Self::with_parts(channel.clone(), Some(parts), pass.clone());
        context.label.add_open_sessions(1);
        context.tasks.spawn(run_holding(
            [of_input],
            write_messages(
                FencedInput { input, pass },
                channel.clone(),
                closed.clone(),
                inputs,
            ),
        ));
        context.tasks.spawn(run_holding(
            [of_output],
            child.reading(output, unread, outputs),
        ));
        context.tasks.spawn(run_holding(
            [of_errors],
            log_error_stream(errors, context.clone(), child.errors.clone(), of_stderr),
        ));
        let (ended, status) = (child.ended.clone(), child.status.clone());
        let mark = child.pass.as_ref().map(FencePass::child_mark);
        let watched = ChildEndNotifier {
            context: context.clone(),
            channel,
            ended,
            status,
            _mark: mark,
        };
        let supervising = supervise(control, child.stop.clone(), closed, watched, controls);
        context
            .tasks
            .spawn(run_holding([of_control, of_process], supervising));
        child
    }

    fn with_parts(
        channel: Arc<ChildChannel>,
        parts: Option<ChildParts>,
        pass: Option<FencePass>,
    ) -> Self {
        let errors = Arc::new(ErrorTail::new(channel.context.record.mask.clone()));
        let (status, is_read) = (Arc::default(), CancellationToken::new());
        // The end of the lease ends the child.
        let stop = match &pass {
            Some(pass) => pass.over().child_token(),
            None => CancellationToken::new(),
        };
        let ended = CancellationToken::new();
        Self {
            channel,
            errors,
            status,
            is_read,
            stop,
            ended,
            parts: Mutex::new(parts),
            pass,
        }
    }

    /// Reads the child's output, up to its end or until another task claims it.
    fn reading<R: AsyncRead + Unpin + Send + 'static>(
        &self,
        output: R,
        unread: BytesMut,
        claims: ValueClaims<(R, BytesMut)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (channel, is_read) = (self.channel.clone(), self.is_read.clone());
        async move {
            if read_messages(output, unread, &channel, claims).await == ReadOutcome::ToTheEnd {
                is_read.cancel();
            }
        }
    }

    /// Hands the child to another process: its streams, its unread output, and the other end of a
    /// relay, over which this process speaks to it from now on. Absent if the child does not read
    /// its messages, or is over.
    pub(super) async fn hand_over(&self) -> Option<HandedOverChild> {
        let parts = self.parts.lock().take()?;
        let (own, other) = UnixStream::pair().ok()?;
        let relay = other.into_std().ok()?;
        let (context, channel, closed) = (
            self.channel.context.clone(),
            self.channel.clone(),
            parts.closed,
        );
        let keep_writing = |input| {
            context.tasks.spawn(write_messages(
                input,
                channel.clone(),
                closed,
                ValueClaims::unclaimed(),
            ));
        };
        let keep_reading = |output, unread| {
            context
                .tasks
                .spawn(self.reading(output, unread, ValueClaims::unclaimed()));
        };
        // The input comes first because it may be stuck. A part that was taken goes on if a later
        // part cannot be taken.
        let input = parts.input.take(CLAIM_TIMEOUT).await?;
        let Some((output, unread)) = parts.output.take(CLAIM_TIMEOUT).await else {
            keep_writing(input);
            return None;
        };
        let Some(errors) = parts.errors.take(CLAIM_TIMEOUT).await else {
            keep_writing(input);
            keep_reading(output, unread);
            return None;
        };
        let Some((control, watched)) = parts.control.take(CLAIM_TIMEOUT).await else {
            keep_writing(input);
            keep_reading(output, unread);
            context.tasks.spawn(log_error_stream(
                errors,
                context.clone(),
                self.errors.clone(),
                ValueClaims::unclaimed(),
            ));
            return None;
        };
        let (from, to) = own.into_split();
        let closed = CancellationToken::new();
        context.tasks.spawn(write_messages(
            FencedInput::without_fence(to),
            channel.clone(),
            closed.clone(),
            ValueClaims::unclaimed(),
        ));
        context.tasks.spawn(self.reading(
            from,
            BytesMut::with_capacity(READ_SIZE),
            ValueClaims::unclaimed(),
        ));
        let stop = self.stop.clone();
        context.tasks.spawn(async move {
            let over = channel.closed();
            tokio::select! {
                () = stop.cancelled() => {}
                () = over.cancelled() => {}
            }
            closed.cancel();
            drop(watched);
        });
        Some(HandedOverChild {
            kept: KeptChild {
                input: input.input,
                output,
                errors,
                control,
            },
            unread: unread.freeze(),
            relay: relay.into(),
        })
    }

    /// Makes a child without a process, for an HTTP+SSE stream. Its reader ends with the token, and
    /// then cancels [`Self::ended`].
    #[must_use]
    pub fn without_process(channel: Arc<ChildChannel>) -> (Self, CancellationToken) {
        let child = Self::with_parts(channel, None, None);
        let stop = child.stop.clone();
        (child, stop)
    }

    /// Returns the token that is cancelled when the child has ended.
    #[must_use]
    pub fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Begins to end the child.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends the child, and waits for its end.
    pub(crate) async fn stopped(&self) {
        self.stop();
        self.ended.cancelled().await;
    }

    /// True once it takes no more messages. One that belongs to another process now takes them over
    /// a relay, whatever the lease of this process.
    pub(crate) fn is_over(&self) -> bool {
        let is_fenced_out = || {
            !self.channel.is_handed_over() && self.pass.as_ref().is_some_and(|pass| !pass.is_open())
        };
        self.channel.is_closed() || is_fenced_out()
    }

    /// Returns the exit status, if the process ended, and the last lines of its error stream, for
    /// operators. For a process that closed its output both are waited for, at most `most`.
    pub(crate) async fn explain_exit(&self, most: Duration) -> Option<String> {
        if self.is_over() {
            let over = async {
                tokio::join!(
                    self.ended.cancelled(),
                    self.is_read.cancelled(),
                    self.errors.closed()
                )
            };
            // A grandchild may keep the streams open.
            let _in_time = tokio::time::timeout(most, over).await;
        }
        let lines = explaining_lines(&self.channel, &self.errors);
        let parts: Vec<String> = self
            .status
            .get()
            .cloned()
            .into_iter()
            .chain(lines)
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Returns the lines of a process that may explain its failure: the first that is no message, and
/// those at the end of its error stream.
pub(super) fn explaining_lines(
    channel: &ChildChannel,
    errors: &ErrorTail,
) -> impl Iterator<Item = String> {
    let output = channel.other_lines.first();
    let output =
        output.map(|line| format!("its output has lines that are not messages, the first: {line}"));
    let last = errors
        .explanation()
        .map(|lines| format!("its last output: {lines}"));
    output.into_iter().chain(last)
}

/// Explains a failed start, with advice.
fn explain_start_error(settings: &StdioUpstreamSettings, error: &io::Error) -> String {
    let command = &settings.command;
    let missing_folder = settings.cwd.as_deref().filter(|folder| !folder.is_dir());
    let advice = match (error.kind(), missing_folder) {
        (_, Some(folder)) => format!(
            "there is no folder `{}`: create it, or correct `cwd`",
            folder.display()
        ),
        (io::ErrorKind::NotFound, _) if command.contains('/') => {
            format!("there is no program `{command}`: install it, or correct `command`")
        }
        (io::ErrorKind::NotFound, _) => {
            format!(
                "no program `{command}` is on the PATH: install it, or write its full path as `command`"
            )
        }
        (io::ErrorKind::PermissionDenied, _) => {
            format!("`{command}` may not be run: make it executable for the user that runs weir")
        }
        _ => return format!("{command}: {error}"),
    };
    format!("{error}; {advice}")
}

/// Takes the descriptors of a child from the budget: its three streams, its control socket, and its
/// process.
fn take_descriptors(context: &UpstreamContext) -> Result<[DescriptorPermit; 5], Failure> {
    let taken: Option<Vec<_>> = (0..5)
        .map(|_| context.budgets.descriptors.take(ConnectionSide::Upstream))
        .collect();
    taken
        .and_then(|taken| taken.try_into().ok())
        .ok_or_else(|| {
            let text = "weir has no file descriptors left for another process: try again shortly";
            Failure::new(FailureKind::Overloaded, text).with_upstream(&context.label.id)
        })
}

/// Runs a task that holds these descriptors.
async fn run_holding<const N: usize>(
    _descriptors: [DescriptorPermit; N],
    task: impl Future<Output = ()>,
) {
    task.await;
}

impl Drop for UpstreamChild {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A child that goes to another process.
pub(super) struct HandedOverChild {
    pub(super) kept: KeptChild,
    pub(super) unread: Bytes,
    pub(super) relay: OwnedFd,
}

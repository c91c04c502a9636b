//! A channel for one value, as tokio has it, in locks of loom.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;

#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Channel<T>>);

#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Channel<T>>);

/// The sender is dropped.
#[derive(Debug)]
pub(crate) struct RecvError;

#[derive(Debug)]
struct Channel<T>(Mutex<ChannelState<T>>);

#[derive(Debug)]
struct ChannelState<T> {
    value: Option<T>,
    waiting: Option<Waker>,
    has_sender: bool,
    has_receiver: bool,
}

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel(Mutex::new(ChannelState {
        value: None,
        waiting: None,
        has_sender: true,
        has_receiver: true,
    })));
    (Sender(channel.clone()), Receiver(channel))
}

impl<T> Sender<T> {
    pub(crate) fn is_closed(&self) -> bool {
        !self.0.0.lock().has_receiver
    }

    pub(crate) fn send(self, value: T) -> Result<(), T> {
        let mut state = self.0.0.lock();
        if !state.has_receiver {
            return Err(value);
        }
        state.value = Some(value);
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.0.lock();
            state.has_sender = false;
            state.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.lock();
        if let Some(value) = state.value.take() {
            return Poll::Ready(Ok(value));
        }
        if !state.has_sender {
            return Poll::Ready(Err(RecvError));
        }
        let earlier = state.waiting.replace(cx.waker().clone());
        drop(state);
        drop(earlier);
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let value = {
            let mut state = self.0.0.lock();
            state.has_receiver = false;
            state.value.take()
        };
        drop(value);
    }
}

//! Catches the panics of a user's connector, and of the streams that it makes.
//!
//! A panic has a payload of the user's, whose drop may panic too. tokio drops the result of a task, and a
//! panic in that drop would unwind into the runtime: the watchdog's, or a caller's. So each call of the
//! user's code is caught where it is made.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connector::Transport;
use super::failure::Failure;
use crate::panics;

/// A value of the user's; `None` once it panicked or was dropped.
pub(super) struct Caught<T>(Option<T>);

/// A stream of the user's. A panic is an error of the stream, which is dropped then.
pub(super) type CaughtStream = Caught<Box<dyn Transport>>;

/// A call of the connector, or for credentials. A panic is a failed attempt.
pub(super) type CaughtCall<T> = Caught<Pin<Box<dyn Future<Output = io::Result<T>> + Send>>>;

impl<T> Caught<T> {
    /// `None` if it panicked, now or before.
    fn call<R>(&mut self, call: impl FnOnce(&mut T) -> R) -> Option<R> {
        let value = self.0.as_mut()?;
        let done = panics::catch(|| call(value));
        if done.is_none() {
            self.end();
        }
        done
    }

    /// The value; `None` if it panicked before.
    pub(super) fn into_inner(mut self) -> Option<T> {
        self.0.take()
    }

    fn end(&mut self) {
        let value = self.0.take();
        panics::catch(|| drop(value));
    }
}

impl<T> Drop for Caught<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<T> CaughtCall<T> {
    pub(super) fn new(
        call: impl FnOnce() -> Pin<Box<dyn Future<Output = io::Result<T>> + Send>>,
    ) -> Self {
        Self(panics::catch(call))
    }
}

impl<T> Future for CaughtCall<T> {
    type Output = Result<Caught<T>, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.call(|call| {
            let opened = call.as_mut().poll(cx);
            // The `Display` of an error may be the user's code too.
            opened.map(|opened| opened.map_err(|error| error.to_string()))
        });
        let Some(polled) = polled else {
            return Poll::Ready(Err(Failure::Unsent(PANICKED.into())));
        };
        let opened = ready!(polled).map(|made| Caught(Some(made)));
        self.end();
        Poll::Ready(opened.map_err(|text| Failure::Unsent(text.into())))
    }
}

impl CaughtStream {
    fn io<R>(
        &mut self,
        call: impl FnOnce(Pin<&mut dyn Transport>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let done = self.call(|stream| call(Pin::new(&mut **stream)));
        done.unwrap_or_else(|| Poll::Ready(Err(io::Error::other(PANICKED))))
    }
}

impl AsyncRead for CaughtStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io(|stream| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for CaughtStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io(|stream| stream.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        let asked = |stream: &dyn Transport| panics::catch(|| stream.is_write_vectored());
        self.0.as_deref().and_then(asked).unwrap_or_default()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io(|stream| stream.poll_shutdown(cx))
    }
}

pub(super) const PANICKED: &str =
    "the program's code for connections (its connector, stream or credentials) panicked";

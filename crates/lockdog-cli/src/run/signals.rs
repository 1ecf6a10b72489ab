//! The signals of this process.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::failed::Failed;

/// Listens to the signals that a command may expect. A signal that was ignored when lockdog started stays
/// ignored, here and in the command: that is what `nohup` and shells in the background ask for.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// For a command, whose failure says what it could not have.
    pub(crate) fn of_command() -> Result<Self, Failed> {
        Self::new().map_err(|error| Failed::new(format_args!("no signals: {error}")))
    }

    pub(crate) fn new() -> io::Result<Self> {
        let ignored = ignored();
        let mut signals = Vec::new();
        for signal in ALL {
            // The stop of a command begins with TERM, so lockdog and the command always have it.
            if signal != Signal::TERM && is_in(ignored, signal) {
                continue;
            }
            let kind = SignalKind::from_raw(signal.as_raw());
            signals.push((signal, unix::signal(kind)?));
        }
        Ok(Self(signals))
    }

    /// Listens to TSTP, too. It then stops this process no more.
    pub(super) fn add_stop(&mut self) {
        let kind = SignalKind::from_raw(Signal::TSTP.as_raw());
        if !is_in(ignored(), Signal::TSTP)
            && let Ok(stream) = unix::signal(kind)
        {
            self.0.push((Signal::TSTP, stream));
        }
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// No signal is lost; two of the same number may become one.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal whose default is the end of the process.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ![Signal::CONT, Signal::TSTP, Signal::WINCH].contains(&signal) {
                return signal;
            }
        }
    }

    /// Such a signal, if one has arrived already.
    pub(super) async fn arrived(&mut self) -> Option<Signal> {
        tokio::select! {
            biased;
            signal = self.ending() => Some(signal),
            // The runtime reads the signals before it polls this task again.
            () = tokio::task::yield_now() => None,
        }
    }
}

/// The number of a signal, for exit codes.
pub(crate) fn number(signal: Signal) -> u8 {
    u8::try_from(signal.as_raw()).unwrap_or(0)
}

/// The signals that this process ignores, one bit each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn is_in(mask: u64, signal: Signal) -> bool {
    mask >> (number(signal) - 1) & 1 == 1
}

const ALL: [Signal; 8] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
    Signal::WINCH,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_begins_with_signal_one() {
        assert!(is_in(0b111, Signal::HUP) && is_in(0b111, Signal::QUIT));
        assert!(!is_in(0b111, Signal::TERM) && is_in(1 << 14, Signal::TERM));
    }
}

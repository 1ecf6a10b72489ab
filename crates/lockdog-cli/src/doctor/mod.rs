//! `lockdog doctor`: checks and times each step on the way to a lock.

mod found;
mod lock;
mod server;
mod stream;

use crate::args::Doctor;
use crate::connect::Settings;
use crate::failed::{CANNOT, Failed, NO, YES};
use crate::output::Output;
use crate::run::{Signals, number};
use found::State;

pub(crate) async fn doctor(
    args: &Doctor,
    settings: &Settings,
    output: Output,
) -> Result<u8, Failed> {
    let mut signals = Signals::of_command()?;
    let mut is_reached = false;
    let mut has_problem = false;
    let urls = settings.urls();
    for (index, builder) in settings.builders().into_iter().enumerate() {
        let mut all = match urls.get(index) {
            Some(url) => tokio::select! {
                all = server::check(args, url, settings, output) => all,
                signal = signals.ending() => return Err(Failed::signalled(number(signal))),
            },
            // Only the library knows the servers of a configuration file.
            None => Vec::new(),
        };
        let is_way_clear = all.iter().all(|found| found.state != State::Fail);
        // A failure on the way to the lock is reported once, by its own step.
        if is_way_clear {
            all.extend(lock::check(args, builder, settings.limit(), &mut signals, output).await?);
        }
        is_reached |= all.iter().any(|found| found.is_answer);
        has_problem |= all.iter().any(|found| found.is_problem());
    }
    Ok(match (is_reached, has_problem) {
        (false, _) => CANNOT,
        (true, true) => NO,
        (true, false) => YES,
    })
}

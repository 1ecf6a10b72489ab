//! A client for unit tests that send nothing.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{ClientSettings, Core, Reentry};
use crate::background::Background;
use crate::clock::Clock;
use crate::hold::HandOverLimits;
use crate::key::QueueTimeouts;
use crate::observe::Observers;
use crate::server::{Address, Context, Endpoint, Server};
use crate::wait::Wake;

/// The state of a client whose background is the current runtime. Jobs that it gives to its background
/// are dropped.
pub(crate) fn disconnected(clock: &Clock) -> Arc<Core> {
    disconnected_with(clock, Observers::default())
}

/// As [`disconnected`], with observers.
pub(crate) fn disconnected_with(clock: &Clock, observers: Observers) -> Arc<Core> {
    let context = Context {
        clock: clock.clone(),
        background: Background::here(),
        command_timeout: Duration::from_secs(3),
        watchdog_lease: LEASE,
        observers,
    };
    // Nothing is sent, so the client never connects.
    let address = Address::parse("redis://localhost").expect("it is a URL");
    let endpoint = Endpoint::new(Some(address), None, None, &context).expect("it is a URL");
    let server = Server::new(endpoint, context);
    let settings = ClientSettings {
        watchdog_lease: LEASE,
        poll_cap: Duration::from_secs(60),
        max_lease: Duration::from_secs(60),
        wake: Wake::PubSub,
        hand_overs: HandOverLimits {
            hand_overs: 16,
            time: Duration::from_millis(20),
        },
        queue_timeouts: QueueTimeouts::default(),
        reentry: Reentry::Counted,
        name_mapper: None,
        log_names: false,
        lock_group: None,
        quarantine_on_server: false,
        expected: None,
    };
    Arc::new(Core::new(Uuid::new_v4(), settings, clock.clone(), server, 100).0)
}

const LEASE: Duration = Duration::from_secs(30);

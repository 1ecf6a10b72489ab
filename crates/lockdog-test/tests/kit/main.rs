//! What the test server promises, checked.

mod bad_input;
mod clients;
mod commands_as_redis;
mod connectors;
mod exclusive;
mod extend;
mod failure_model;
mod faults;
mod fenced;
mod left_to_lease;
mod limits;
mod long_waits;
mod losses;
mod non_reentrant;
mod pauses;
mod permits;
mod quorum;
mod readme;
mod renewals;
mod scope;
mod scripts_as_redis;
mod semaphores;
mod several;
mod slow_releases;
mod support;
mod virtual_time;

//! What the test server promises, checked.

mod bad_input;
mod clients;
mod commands_as_redis;
mod connectors;
mod failure_model;
mod faults;
mod readme;
mod scripts_as_redis;
mod support;
mod virtual_time;

//! The examples as real processes on private servers.

mod compose;
mod demo;
mod fair_queue;
mod fenced_table;
mod leader;
mod lost_lock;
mod nested_handlers;
mod porting;
mod program;
mod rate_limit;
mod redlock;
mod small;
mod tls;

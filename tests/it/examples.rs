//! The examples as real processes on private servers, and the order of the source.

mod compose;
mod demo;
mod documents;
mod fenced_table;
mod leader;
mod lost_lock;
mod nested_handlers;
mod porting;
mod program;
mod redlock;
mod tidy;
mod tls;

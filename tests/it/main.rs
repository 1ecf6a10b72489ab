//! Every test runs against servers of its own; `tests/setup` installs what they need.

mod harness;
mod support;

//! The harness of the tests: private servers, a faulty network, an observer, and a cell that detects
//! lost exclusion.

pub(crate) mod authority;
pub(crate) mod background;
pub(crate) mod binary;
pub(crate) mod cell;
pub(crate) mod certificates;
pub(crate) mod child;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod deployment;
pub(crate) mod dice;
pub(crate) mod heartbeat;
pub(crate) mod logs;
pub(crate) mod pool;
pub(crate) mod port;
pub(crate) mod prelude;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod redisson;
pub(crate) mod replicated;
pub(crate) mod resp;
pub(crate) mod security;
pub(crate) mod sentinels;
pub(crate) mod server;
pub(crate) mod tap;
pub(crate) mod wait;
pub(crate) mod wire;

pub(crate) use authority::Authority;
pub(crate) use background::Background;
pub(crate) use binary::Binary;
pub(crate) use cell::Cell;
pub(crate) use certificates::Certificates;
pub(crate) use cluster::Cluster;
pub(crate) use deployment::Deployment;
pub(crate) use dice::Dice;
pub(crate) use heartbeat::heartbeat;
pub(crate) use logs::Logs;
pub(crate) use port::{dead_port, dead_ports, free_port};
pub(crate) use proxy::{Action, Direction, Gate, Proxy, Rule, named};
pub(crate) use redis::Redis;
pub(crate) use replicated::Replicated;
pub(crate) use sentinels::Sentinels;
pub(crate) use server::{Data, RedisServer};
pub(crate) use wait::{eventually, timed, until_ok};

//! The servers that many cases use, and a second runtime.

use std::any::Any;

use futures_util::future::join_all;
use lockdog::ClientBuilder;
use tokio::sync::Semaphore;

use super::stalls::Stalls;
use super::{LEASE, POLL_CAP, TIMEOUT};
use crate::support::{Background, Cluster, Redis, RedisServer, Sentinels};

/// The servers and the limits that many cases share.
pub(super) struct Site {
    /// One URL for each client of a case.
    pub(super) urls: Vec<String>,
    /// The test's own connection to the server of each client.
    pub(super) views: Vec<Redis>,
    /// Another runtime, in its own thread.
    pub(super) other: Background,
    pub(super) stalls: Stalls,
    /// Connecting is most of a case's work. If all cases connected at the same time, each would take long.
    pub(super) setting_up: Semaphore,
    _servers: Box<dyn Any + Send + Sync>,
}

impl Site {
    /// Independent servers.
    pub(super) async fn servers(number: usize) -> Self {
        let servers = join_all((0..number).map(|_| RedisServer::start())).await;
        let views = join_all(servers.iter().map(RedisServer::redis)).await;
        let urls = servers.iter().map(RedisServer::url).collect();
        Self::new(urls, views, Box::new(servers))
    }

    /// A master with three sentinels.
    pub(super) async fn sentinels() -> Self {
        let all = Sentinels::start().await;
        let view = all.master().await.redis().await;
        Self::new(vec![all.url()], vec![view], Box::new(all))
    }

    /// A cluster of three masters.
    pub(super) async fn cluster() -> Self {
        let cluster = Cluster::start(3, 0).await;
        let views = join_all(cluster.nodes.iter().map(|node| node.redis())).await;
        let view = Redis::of_cluster(views);
        Self::new(vec![cluster.url()], vec![view], Box::new(cluster))
    }

    fn new(urls: Vec<String>, views: Vec<Redis>, servers: Box<dyn Any + Send + Sync>) -> Self {
        Self {
            other: Background::new("other"),
            stalls: Stalls::start(views.clone()),
            setting_up: Semaphore::new(SET_UP_AT_ONCE),
            urls,
            views,
            _servers: servers,
        }
    }

    /// A client for each server. Its connections have this name.
    pub(super) fn builders(&self, name: &str) -> Vec<ClientBuilder> {
        let builder = |url: &String| {
            lockdog::Client::builder()
                .url(url)
                .client_name(name)
                .command_timeout(TIMEOUT)
                .poll_cap(POLL_CAP)
                .watchdog_lease(LEASE)
        };
        self.urls.iter().map(builder).collect()
    }

    /// Closes every connection of this name at the servers, and returns their number.
    pub(super) async fn cut(&self, name: &str) -> usize {
        let killed = join_all(self.views.iter().map(|view| view.kill_named(name))).await;
        killed.into_iter().sum()
    }
}

const SET_UP_AT_ONCE: usize = 6;

//! Lost, late and repeated commands and cut connections, at random and together.

use std::time::{Duration, Instant};

use lockdog::{Client, ClientBuilder};

use crate::support::prelude::{SOON, ms};
use crate::support::{Action, Dice, Direction, Gate, Proxy, RedisServer, Rule, named, until_ok};

/// Three clients, each with a network of its own to the server.
pub(crate) struct Nemesis {
    pub(crate) clients: Vec<Client>,
    pub(crate) dice: Dice,
    proxies: Vec<Proxy>,
}

impl Nemesis {
    pub(crate) async fn start(
        server: &RedisServer,
        set: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        let dice = Dice::from_environment();
        let (mut clients, mut proxies) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let proxy = Proxy::start(server).await;
            let client = Client::builder()
                .url(proxy.url())
                .command_timeout(ms(500))
                .poll_cap(ms(200));
            let client = set(client);
            clients.push(until_ok(SOON, async || client.clone().build().await).await);
            proxies.push(proxy);
        }
        Self {
            clients,
            dice,
            proxies,
        }
    }

    /// Injects faults for this time, and longer if on a busy machine `is_enough` is not true yet, no connection
    /// was cut, or no other fault took place. Then heals the networks.
    /// `repeats_late` names the commands of which a copy may run long after its answer.
    ///
    /// # Panics
    /// If this takes 90 s longer.
    pub(crate) async fn inject_faults(
        &mut self,
        lasts: Duration,
        repeats_late: impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static,
        is_enough: impl Fn() -> bool,
    ) {
        let Self { dice, proxies, .. } = self;
        let until = Instant::now() + lasts;
        let mut late: Vec<(Instant, Gate)> = Vec::new();
        let mut rules = Vec::new();
        let mut cuts = 0;
        while Instant::now() < until || !is_enough() || cuts == 0 || hits(&rules) == 0 {
            assert!(Instant::now() < until + SOON * 3, "too little happens");
            let proxy = &proxies[dice.roll(proxies.len() as u64) as usize];
            match dice.roll(7) {
                0 => cuts += proxy.cut_all(),
                1 => rules.push(proxy.on(named("evalsha"), Action::DropReply)),
                2 => rules.push(proxy.on(named("evalsha"), Action::ExecuteThenCut).times(2)),
                3 => rules.push(proxy.on(named("evalsha"), Action::Twice).times(3)),
                4 => {
                    let gate = Gate::new();
                    rules.push(match dice.roll(2) {
                        0 => proxy.on(repeats_late.clone(), Action::TwiceLate(gate.clone())),
                        // The command runs for the first time after its sender has given up.
                        _ => proxy.on(named("evalsha"), Action::HoldRequest(gate.clone())),
                    });
                    late.push((Instant::now() + ms(dice.roll(1_500)), gate));
                }
                5 => {
                    proxy.blackhole(Direction::ToClient);
                    tokio::time::sleep(ms(dice.roll(400))).await;
                    proxy.heal();
                }
                _ => {}
            }
            tokio::time::sleep(ms(dice.roll(150))).await;
            late.retain(|(at, gate)| {
                let is_due = Instant::now() >= *at;
                if is_due {
                    gate.open();
                }
                !is_due
            });
        }
        late.iter().for_each(|(_, gate)| gate.open());
        proxies.iter().for_each(Proxy::heal);
        println!("{cuts} cuts, {} other faults", hits(&rules));
    }
}

fn hits(rules: &[Rule]) -> u64 {
    rules.iter().map(Rule::hits).sum()
}

//! What lockdog does without a server, measured by itself: `make micro`.
//!
//! It reaches into the crate, so it is there only when built with `--cfg lockdog_bench`.

#[cfg(lockdog_bench)]
mod measured {
    use divan::Bencher;
    use lockdog::bench::{Idle, Queue, Rounds, Watched};

    /// A hold is entered, granted, ended and removed beside 100,000 others.
    #[divan::bench]
    fn watchdog_pair(bencher: Bencher<'_, '_>) {
        let watched = Watched::new(LOCKS);
        bencher.bench_local(|| watched.pair());
    }

    /// A batch of 100 of 100,000 holds is found due, and renewed.
    #[divan::bench]
    fn watchdog_batch(bencher: Bencher<'_, '_>) {
        let watched = Watched::new(LOCKS);
        bencher.bench_local(|| assert_eq!(watched.renew(), 100));
    }

    #[divan::bench]
    fn guard_drop(bencher: Bencher<'_, '_>) {
        let mut client = Idle::default();
        bencher
            .with_inputs(|| client.guard())
            .bench_local_values(drop);
    }

    /// The first of a queue leaves it, the next one is up, and the one that left queues again.
    #[divan::bench(args = [2, 16, 256])]
    fn queue_hand_over(bencher: Bencher<'_, '_>, waiting: usize) {
        let mut queue = Queue::new(waiting);
        bencher.bench_local(|| queue.hand_over());
    }

    /// A quorum is won, with all its instances, and given back: one step for each answer, and one more.
    #[divan::bench(args = [3, 5])]
    fn quorum_pair(bencher: Bencher<'_, '_>, instances: usize) {
        let rounds = Rounds::new(instances);
        bencher.bench_local(|| assert_eq!(rounds.pair(), instances));
    }

    const LOCKS: u64 = 100_000;
}

fn main() {
    #[cfg(lockdog_bench)]
    divan::main();
    #[cfg(not(lockdog_bench))]
    println!("make micro builds it as it has to be built");
}

package lockdog.bench;

/** An owner as Redisson's users have it: a thread. */
final class ThreadOwner implements Phase.Owner {
    private final Work work;

    ThreadOwner(Work work) {
        this.work = work;
    }

    @Override
    public void start(Phase phase, Tally tally) {
        Thread thread = new Thread(() -> run(phase, tally));
        thread.setDaemon(true);
        thread.start();
    }

    private void run(Phase phase, Tally tally) {
        try {
            boolean begun = attempt(tally, work::begin);
            phase.ready().join();
            if (!begun) {
                return;
            }
            while (!phase.timeIsOver()) {
                attempt(tally, () -> {
                    long latency = work.pair();
                    tally.pair(latency, !phase.timeIsOver());
                });
            }
            attempt(tally, work::end);
        } finally {
            phase.ended();
        }
    }

    private static boolean attempt(Tally tally, Step step) {
        try {
            step.take();
            return true;
        } catch (Exception e) {
            tally.failed(e);
            return false;
        }
    }

    @FunctionalInterface
    private interface Step {
        void take() throws Exception;
    }

    /** What is repeated, all of it by one thread. */
    interface Work {
        default void begin() throws Exception {}

        /** Returns the latency in nanoseconds. */
        long pair() throws Exception;

        default void end() throws Exception {}
    }
}

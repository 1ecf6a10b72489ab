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
            work.begin();
            phase.ready().join();
            while (!phase.timeIsOver()) {
                repeat(phase, tally);
            }
            work.end();
        } catch (Exception e) {
            tally.failed(e);
            phase.ready();
        } finally {
            phase.ended();
        }
    }

    private void repeat(Phase phase, Tally tally) {
        try {
            long latency = work.pair();
            tally.pair(latency, !phase.timeIsOver());
        } catch (Exception e) {
            tally.failed(e);
        }
    }

    /** What is repeated, all of it by one thread. */
    interface Work {
        default void begin() throws Exception {}

        /** Returns the latency in nanoseconds. */
        long pair() throws Exception;

        default void end() throws Exception {}
    }
}

package lockdog.redisson;

import com.google.gson.JsonObject;
import java.util.ArrayDeque;
import java.util.Queue;

/**
 * A Java thread that lives as long as its session and makes its calls in order.
 *
 * <p>Redisson's owner is the id of the calling thread, so a test's owner must be one real thread
 * and not a pool's.
 */
final class LogicalThread {
    private final Answers answers;
    private final Answers.Work work;
    private final Thread thread;
    private final Queue<JsonObject> queue = new ArrayDeque<>();
    private boolean running;
    private boolean interruptNext;
    private boolean ended;

    LogicalThread(String name, Answers answers, Answers.Work work) {
        this.answers = answers;
        this.work = work;
        thread = new Thread(this::run, name);
        thread.setDaemon(true);
        thread.start();
    }

    // Thread.getId() is what Redisson 4.7.0 itself asks; it is deprecated only from Java 19 on.
    long id() {
        return thread.getId();
    }

    synchronized void enqueue(JsonObject call) {
        queue.add(call);
        notifyAll();
    }

    /**
     * Interrupts the call that runs or is about to; false, and no effect, when there is none.
     *
     * <p>An interrupt never outlives its call, so that it cannot hit one that it was not meant for.
     */
    synchronized boolean interrupt() {
        if (running) {
            thread.interrupt();
            return true;
        }
        interruptNext = !queue.isEmpty();
        return interruptNext;
    }

    /**
     * Whether its call waits in Redisson for a message, and not for an answer of the server.
     *
     * <p>A message that ends the waits of all readers is lost for one that is on its way to this wait.
     */
    boolean waitsForMessage() {
        boolean isParked = false;
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().startsWith("java.util.concurrent.CompletableFuture")) {
                return false;
            }
            isParked |= frame.getClassName().equals("java.util.concurrent.locks.LockSupport");
        }
        return isParked;
    }

    /** Drops the calls that have not begun. The one that runs goes on. */
    synchronized void beginNoMore() {
        ended = true;
        queue.clear();
        notifyAll();
    }

    /**
     * Waits for the end of the call that runs, and interrupts it until it ends: {@code lock()} waits on
     * after its first interrupt.
     */
    void end() {
        beginNoMore();
        try {
            while (thread.isAlive()) {
                thread.interrupt();
                thread.join(INTERRUPT_EVERY_MS);
            }
        } catch (InterruptedException e) {
            // Nothing interrupts the session's thread.
            throw new IllegalStateException(e);
        }
    }

    private void run() {
        for (JsonObject call = begin(); call != null; call = begin()) {
            answers.to(call, this::perform);
        }
    }

    private Object perform(JsonObject call) throws Throwable {
        try {
            return work.perform(call);
        } finally {
            // Before the answer goes out: an answered call can no longer be interrupted.
            endCall();
        }
    }

    /** The next call; null at the end of the session. */
    private synchronized JsonObject begin() {
        while (queue.isEmpty() && !ended) {
            try {
                wait();
            } catch (InterruptedException e) {
                // interrupt() interrupts this thread only while a call runs.
                if (!ended) {
                    throw new IllegalStateException(e);
                }
            }
        }
        if (ended) {
            return null;
        }
        running = true;
        if (interruptNext) {
            interruptNext = false;
            thread.interrupt();
        }
        return queue.remove();
    }

    private synchronized void endCall() {
        running = false;
        Thread.interrupted();
    }

    private static final long INTERRUPT_EVERY_MS = 100;
}

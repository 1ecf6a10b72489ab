package main

import (
	"math/rand/v2"
	"time"
)

// W4: held is unlocked while another client, on a goroutine of its own, waits for awaited; the latency
// is that of the wake-up.
type handOver struct {
	held, awaited *mutex
	acquired      chan acquisition
}

type acquisition struct {
	at  time.Time
	err error
}

func newHandOver(held, awaited *mutex) *handOver {
	return &handOver{held, awaited, make(chan acquisition, 1)}
}

func (h *handOver) begin() error {
	return h.held.lock()
}

func (h *handOver) pair() (time.Duration, error) {
	go h.await()
	// Two to three milliseconds, so that it surely waits, and no rhythm comes about.
	time.Sleep(2*time.Millisecond + rand.N(time.Millisecond))
	released := time.Now()
	unlocked := h.held.unlock()
	acquired := <-h.acquired
	for _, err := range []error{unlocked, acquired.err, h.held.lock()} {
		if err != nil {
			return 0, err
		}
	}
	return acquired.at.Sub(released), nil
}

func (h *handOver) end() error {
	return h.held.unlock()
}

func (h *handOver) await() {
	err := h.awaited.lock()
	at := time.Now()
	if err == nil {
		err = h.awaited.unlock()
	}
	h.acquired <- acquisition{at, err}
}

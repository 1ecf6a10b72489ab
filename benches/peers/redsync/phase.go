package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// How long a pair that is under way when the time is over is waited for.
const patience = 25 * time.Second

// What an owner repeats, all of it on one goroutine.
type work interface {
	begin() error
	pair() (latency time.Duration, err error)
	end() error
}

// Work that needs no preparation.
type loop func() (time.Duration, error)

func (l loop) begin() error                 { return nil }
func (l loop) pair() (time.Duration, error) { return l() }
func (l loop) end() error                   { return nil }

// Owners that repeat their work for a while, measured from the moment when all stand ready to that when
// the last has ended its pair, or the time was over.
type phase struct {
	tallies    []*tally
	ready      sync.WaitGroup
	start      chan struct{}
	ended      sync.WaitGroup
	timeIsOver atomic.Bool

	seconds    float64
	cpuSeconds float64
}

// toTheLast: whether a pair counts that ends after the time, and the time up to its end. kept: how many
// samples of an owner are kept as they are.
func run(works []work, seconds float64, toTheLast bool, kept int) (*phase, error) {
	p := &phase{start: make(chan struct{})}
	p.ready.Add(len(works))
	for _, w := range works {
		t := newTally(kept)
		p.tallies = append(p.tallies, t)
		p.ended.Go(func() { p.repeat(w, t) })
	}
	if !within(patience, &p.ready) {
		return nil, errors.New("not all owners are ready after 25 s")
	}
	cpu, begin := cpuTime(), time.Now()
	stopClocks := func() {
		p.seconds = time.Since(begin).Seconds()
		p.cpuSeconds = (cpuTime() - cpu).Seconds()
	}
	close(p.start)
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	p.timeIsOver.Store(true)
	if !toTheLast {
		stopClocks()
	}
	within(patience, &p.ended)
	if toTheLast {
		stopClocks()
	}
	return p, nil
}

func (p *phase) repeat(w work, t *tally) {
	err := w.begin()
	p.ready.Done()
	if err != nil {
		t.failed(err)
		return
	}
	<-p.start
	for !p.timeIsOver.Load() {
		latency, err := w.pair()
		if err != nil {
			t.failed(err)
		} else {
			t.pair(latency, !p.timeIsOver.Load())
		}
	}
	if err := w.end(); err != nil {
		t.failed(err)
	}
}

// Whether the group is done in time.
func within(limit time.Duration, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// User and system time of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // cannot be refused
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

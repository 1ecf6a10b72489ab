package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const longest = 5 * time.Minute

// What one owner counts. The mutex is for those who were given up and count on.
type tally struct {
	mutex        sync.Mutex
	latencies    *hdrhistogram.Histogram
	samples      []time.Duration // the first ones as they are, as many as there is room for
	pairs        int64
	pairsInTime  int64 // of pairs, those that were done when the time was over
	failures     int64
	firstFailure error
}

func newTally(kept int) *tally {
	return &tally{latencies: newHistogram(), samples: make([]time.Duration, 0, kept)}
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(longest), 3)
}

func (t *tally) pair(latency time.Duration, inTime bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	// The bound makes the only error impossible.
	_ = t.latencies.RecordValue(int64(min(latency, longest)))
	if len(t.samples) < cap(t.samples) {
		t.samples = append(t.samples, latency)
	}
	t.pairs++
	if inTime {
		t.pairsInTime++
	}
}

func (t *tally) failed(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.failures++
	if t.firstFailure == nil {
		t.firstFailure = err
	}
}

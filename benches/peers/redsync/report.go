package main

import (
	"slices"
	"time"
)

// The fields of a result.
func report(r request, p *phase) fields {
	total := newHistogram()
	var pairs []int64
	var samples []time.Duration
	var sum, failures int64
	var firstFailure error
	for _, t := range p.tallies {
		t.mutex.Lock()
		counted := t.pairs
		if r.contended() {
			counted = t.pairsInTime
		}
		pairs = append(pairs, counted)
		sum += counted
		failures += t.failures
		if firstFailure == nil {
			firstFailure = t.firstFailure
		}
		total.Merge(t.latencies)
		samples = append(samples, t.samples...)
		t.mutex.Unlock()
	}
	// W6 may fail all the time, and that is a result.
	if failures > 0 && sum == 0 && r.Workload != "W6" {
		return fields{"failed": firstFailure.Error()}
	}
	result := fields{
		"seconds":  p.seconds,
		"pairs":    sum,
		"p50_us":   nil,
		"p99_us":   nil,
		"max_us":   nil,
		"cpu_s":    p.cpuSeconds,
		"failures": failures,
	}
	if total.TotalCount() > 0 {
		result["p50_us"] = micros(total.ValueAtPercentile(50))
		result["p99_us"] = micros(total.ValueAtPercentile(99))
		result["max_us"] = micros(total.Max())
	}
	if r.contended() {
		result["min_share"], result["max_share"] = shares(pairs)
	}
	if r.manyClients() {
		var clients []int64
		for owners := range slices.Chunk(pairs, r.Owners) {
			clients = append(clients, add(owners))
		}
		result["min_client_share"], result["max_client_share"] = shares(clients)
	}
	if r.Workload == "W4" {
		var raw []float64
		for _, sample := range samples {
			raw = append(raw, micros(int64(sample)))
		}
		result["samples_us"] = raw
	}
	return result
}

// The smallest and the largest part of the pairs, where 1 is a fair one.
func shares(pairs []int64) (smallest, largest float64) {
	fair := float64(max(1, add(pairs))) / float64(len(pairs))
	return float64(slices.Min(pairs)) / fair, float64(slices.Max(pairs)) / fair
}

func add(numbers []int64) (sum int64) {
	for _, number := range numbers {
		sum += number
	}
	return sum
}

func micros(nanoseconds int64) float64 {
	return float64(nanoseconds) / 1000
}

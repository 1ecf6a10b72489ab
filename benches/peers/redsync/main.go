// Redsync in the benchmarks: does the workloads that the runner asks for, one after the other.
//
// A line of standard input is a request. It is answered by {"cell", "event": "ready"} once clients are
// connected and warm; after the line {"cell", "go": true} the workload is measured and answered by
// {"cell", "event": "result", ...}. Nothing is sent to Redis between ready and go, so that the runner
// can count commands there, or kill a server. The end of the input ends the process at once.
//
// What redsync is given:
//   - A mutex lives 30 s, as Redisson's lease does; redsync has no watchdog.
//   - It has no waiting lock, only tries: W1 and W6 keep the default of 32. Where owners contend, that
//     would end in errors, so there they are as many as it takes. Between tries it pauses 50 to 250 ms,
//     its default.
//   - It is not re-entrant, so there is no W7.
//   - go-redis is at its default, with ten connections a core; one for each owner was no faster.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	// A server that was killed is no news; what fails for it is counted.
	redis.SetLogger(silence{})
	lines := make(chan []byte, 16)
	go read(os.Stdin, lines)
	for line := range lines {
		serve(line, lines)
	}
}

func read(stdin io.Reader, lines chan<- []byte) {
	scanner := bufio.NewScanner(stdin)
	for scanner.Scan() {
		lines <- append([]byte(nil), scanner.Bytes()...)
	}
	if err := scanner.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "redsync:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(line []byte, lines <-chan []byte) {
	request, err := parse(line)
	if err != nil {
		write(request.Cell, "result", fields{"failed": err.Error()})
		return
	}
	if !known[request.Workload] {
		write(request.Cell, "result", fields{"unsupported": "redsync has no such lock"})
		return
	}
	cell, err := connect(request)
	if err != nil {
		write(request.Cell, "result", fields{"failed": err.Error()})
		return
	}
	defer cell.close()
	if _, err := cell.run(request.WarmUpSeconds); err != nil {
		write(request.Cell, "result", fields{"failed": err.Error()})
		return
	}
	write(request.Cell, "ready", nil)
	if !isGo(request, <-lines) {
		write(request.Cell, "result", fields{"failed": "the line after ready was no go"})
		return
	}
	measured, err := cell.run(request.Seconds)
	if err != nil {
		write(request.Cell, "result", fields{"failed": err.Error()})
		return
	}
	write(request.Cell, "result", report(request, measured))
}

// One cell of the benchmarks.
type request struct {
	Cell     int64    `json:"cell"`
	Workload string   `json:"workload"`
	URLs     []string `json:"urls"`   // one server; five for W6
	Owners   int      `json:"owners"` // of one client
	Clients  int      `json:"clients"`
	Name     string   `json:"name"` // begins the name of every lock

	WarmUpSeconds float64 `json:"warmup_s"`
	Seconds       float64 `json:"seconds"`
}

func parse(line []byte) (request, error) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return r, err
	}
	if len(r.URLs) == 0 || r.Owners < 1 {
		return r, fmt.Errorf("not a request: %s", line)
	}
	return r, nil
}

func (r request) contended() bool {
	return r.Workload == "W2" || r.manyClients()
}

func (r request) manyClients() bool {
	return r.Workload == "W3" || r.Workload == "W16"
}

func isGo(r request, line []byte) bool {
	var answer struct {
		Cell int64 `json:"cell"`
		Go   bool  `json:"go"`
	}
	return json.Unmarshal(line, &answer) == nil && answer.Go && answer.Cell == r.Cell
}

type fields map[string]any

func write(cell int64, event string, rest fields) {
	line := fields{"cell": cell, "event": event}
	for key, value := range rest {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err) // numbers and strings only
	}
	os.Stdout.Write(append(text, '\n'))
}

type silence struct{}

func (silence) Printf(_ context.Context, _ string, _ ...any) {}

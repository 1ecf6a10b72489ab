package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	expiry      = 30 * time.Second
	keptSamples = 2000
)

var known = map[string]bool{"W1": true, "W2": true, "W3": true, "W4": true, "W6": true, "W16": true}

// The clients of one cell, and what its owners do with them.
type cell struct {
	request     request
	connections []*redis.Client
	clients     []*redsync.Redsync
	ends        []context.CancelFunc // of all calls of the mutexes
}

// W6 has one client with a connection pool for each server, W4 always two clients.
func connect(r request) (*cell, error) {
	c := &cell{request: r}
	count, urls := max(1, r.Clients), r.URLs[:1]
	switch r.Workload {
	case "W4":
		count = 2
	case "W6":
		count, urls = 1, r.URLs
	}
	for range count {
		if err := c.add(urls); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *cell) add(urls []string) error {
	var pools []redsyncredis.Pool
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		if err != nil {
			return err
		}
		connection := redis.NewClient(options)
		c.connections = append(c.connections, connection)
		if err := connection.Ping(context.Background()).Err(); err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
		pools = append(pools, goredis.NewPool(connection))
	}
	c.clients = append(c.clients, redsync.New(pools...))
	return nil
}

// Also ends the attempts of owners that were given up.
func (c *cell) close() {
	for _, end := range c.ends {
		end()
	}
	for _, connection := range c.connections {
		connection.Close() // a server that is gone is no reason to complain
	}
}

// Where owners contend, the window ends with the time: those who still wait would stretch it by pauses
// in which hardly any owner is served. Elsewhere a pair may take longer than the window, and then it is
// the result.
func (c *cell) run(seconds float64) (*phase, error) {
	return run(c.works(), seconds, !c.request.contended(), c.kept())
}

func (c *cell) kept() int {
	if c.request.Workload == "W4" {
		return keptSamples
	}
	return 0
}

func (c *cell) works() []work {
	if c.request.Workload == "W4" {
		return []work{newHandOver(c.mutex(0, c.request.Name), c.mutex(1, c.request.Name))}
	}
	var works []work
	for client := range c.clients {
		for range c.request.Owners {
			if c.request.contended() {
				works = append(works, waiting(c.mutex(client, c.request.Name)))
			} else {
				own := fmt.Sprintf("%s:%d", c.request.Name, len(works))
				works = append(works, pairs(c.mutex(client, own)))
			}
		}
	}
	return works
}

func (c *cell) mutex(client int, name string) *mutex {
	options := []redsync.Option{redsync.WithExpiry(expiry)}
	if c.request.contended() || c.request.Workload == "W4" {
		options = append(options, redsync.WithTries(math.MaxInt))
	}
	// One for each: calls below a context that all share would contend for it.
	ended, end := context.WithCancel(context.Background())
	c.ends = append(c.ends, end)
	return &mutex{c.clients[client].NewMutex(name, options...), ended}
}

// A mutex of redsync whose calls end with the cell.
type mutex struct {
	mutex *redsync.Mutex
	ended context.Context
}

func (m *mutex) lock() error {
	return m.mutex.LockContext(m.ended)
}

func (m *mutex) unlock() error {
	unlocked, err := m.mutex.UnlockContext(m.ended)
	if err == nil && !unlocked {
		err = errors.New("the mutex was not held any more")
	}
	return err
}

func pairs(m *mutex) loop {
	return func() (time.Duration, error) {
		begin := time.Now()
		if err := m.lock(); err != nil {
			return 0, err
		}
		err := m.unlock()
		return time.Since(begin), err
	}
}

// As pairs, but the latency is that of the wait alone.
func waiting(m *mutex) loop {
	return func() (time.Duration, error) {
		begin := time.Now()
		if err := m.lock(); err != nil {
			return 0, err
		}
		waited := time.Since(begin)
		return waited, m.unlock()
	}
}

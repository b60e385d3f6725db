// Sends lines with franz-go. The argument: "default", or "plain" for a producer without idempotence.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	milliseconds, err := strconv.Atoi(os.Getenv("SEQGATE_REQUEST_TIMEOUT_MS"))
	if err != nil {
		panic(err)
	}
	// The client waits for the broker's share of the time, and then for the overhead.
	half := time.Duration(milliseconds) * time.Millisecond / 2
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Getenv("SEQGATE_BOOTSTRAP")),
		kgo.DefaultProduceTopic(os.Getenv("SEQGATE_TOPIC")),
		kgo.ProduceRequestTimeout(half),
		kgo.RequestTimeoutOverhead(half),
	}
	if os.Args[1] == "plain" {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	var failures atomic.Int32
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		client.Produce(context.Background(), kgo.StringRecord(lines.Text()), func(record *kgo.Record, err error) {
			if err == nil {
				fmt.Println(string(record.Value))
			} else if failures.Add(1) <= 3 {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		panic(err)
	}
	client.Close()
	if failures.Load() > 0 {
		os.Exit(1)
	}
}

// Sends the lines "PARTITION VALUE" to a topic with franz-go, and prints "VALUE stored" or "VALUE ERROR" for
// each. The line "flush" begins a flush, whose end prints "flushed".
// Arguments: BOOTSTRAP TOPIC BATCH_BYTES LINGER_MS BACKOFF_MS.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	batchBytes, lingerMs, backoffMs := number(os.Args[3]), number(os.Args[4]), number(os.Args[5])
	backoff := time.Duration(backoffMs) * time.Millisecond
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.DefaultProduceTopic(os.Args[2]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(int32(batchBytes)),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(time.Duration(lingerMs)*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return backoff }),
		kgo.MetadataMinAge(backoff), // after some refusals the client asks for the leaders before it sends again
	)
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if lines.Text() == "flush" {
			go func() {
				if err := client.Flush(context.Background()); err != nil {
					panic(err)
				}
				fmt.Println("flushed")
			}()
			continue
		}
		partition, value, _ := strings.Cut(lines.Text(), " ")
		record := &kgo.Record{Partition: int32(number(partition)), Value: []byte(value)}
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			if err == nil {
				fmt.Println(string(record.Value), "stored")
			} else {
				fmt.Println(string(record.Value), err)
			}
		})
	}
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return found
}

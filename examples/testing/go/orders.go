// Package orders sends orders to Kafka.
package orders

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Sender sends orders to the topic "orders", each exactly once: franz-go's producer is idempotent by default.
type Sender struct {
	client *kgo.Client
}

// NewSender returns a sender for the brokers at an address. Further options of the client come last.
func NewSender(bootstrap string, options ...kgo.Opt) (*Sender, error) {
	own := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic("orders")}
	client, err := kgo.NewClient(append(own, options...)...)
	if err != nil {
		return nil, err
	}
	return &Sender{client}, nil
}

// Send returns when the broker has acknowledged all orders.
func (s *Sender) Send(ctx context.Context, orders ...string) error {
	for _, order := range orders {
		if err := s.client.ProduceSync(ctx, kgo.StringRecord(order)).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connections.
func (s *Sender) Close() {
	s.client.Close()
}

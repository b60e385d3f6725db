package orders_test

import (
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"example.org/orders"
	"github.com/twmb/franz-go/pkg/kgo"
)

var broker *Broker

func TestMain(m *testing.M) {
	var err error
	if broker, err = startBroker(); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	broker.stop()
	os.Exit(code)
}

func sender(t *testing.T) *orders.Sender {
	t.Helper()
	broker.reset(t)
	broker.createTopic(t, "orders")
	// After a lost connection the client asks for the leader again; by default it waits for five seconds before.
	sender, err := orders.NewSender(broker.Bootstrap, kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.Close)
	return sender
}

func TestLostAnswersDoubleNoOrder(t *testing.T) {
	sender := sender(t)
	struck := broker.order(t, map[string]any{"fault": "drop_answer", "api": "Produce", "times": 2})
	sent := []string{"one", "two", "three"}
	if err := sender.Send(t.Context(), sent...); err != nil {
		t.Fatal(err)
	}
	if struck() != 2 {
		t.Errorf("%d answers were lost, not 2", struck())
	}
	broker.expectExactlyOnce(t, "orders", sent)
}

func TestOrdersSurviveAKilledBroker(t *testing.T) {
	sender := sender(t)
	var sent []string
	for number := range 30 {
		if number == 10 || number == 20 {
			broker.kill(t)
		}
		order := fmt.Sprint("order ", number)
		if err := sender.Send(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, order)
	}
	broker.expectExactlyOnce(t, "orders", sent)
}

func TestOrdersSurviveRandomFaults(t *testing.T) {
	sender := sender(t)
	struck := broker.order(t, map[string]any{"fault": "script", "seed": 1, "api": "Produce", "rate": 0.5, "times": 10})
	var sent []string
	for number := range 30 {
		sent = append(sent, fmt.Sprint("order ", number))
	}
	if err := sender.Send(t.Context(), sent...); err != nil {
		t.Fatal(err)
	}
	if struck() == 0 {
		t.Error("no request failed")
	}
	broker.expectExactlyOnce(t, "orders", sent)
}

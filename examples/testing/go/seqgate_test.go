package orders_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Broker is a broker in a process of its own, which fails as the test orders.
type Broker struct {
	Bootstrap string
	control   string
	process   *exec.Cmd
}

// startBroker starts `seqgate serve`; the process ends with this one.
func startBroker() (*Broker, error) {
	process := exec.Command("seqgate", "serve", "--listen", "127.0.0.1:0",
		"--test-control", "127.0.0.1:0", "--exit-with", strconv.Itoa(os.Getpid()),
		"--set", "seqgate.logging.level=ERROR")
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	broker := &Broker{process: process}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if url, found := strings.CutPrefix(lines.Text(), "test control on "); found {
			broker.control = url
		}
		if ready, found := strings.CutPrefix(lines.Text(), "seqgate ready on "); found {
			address, _, _ := strings.Cut(ready, " ")
			broker.Bootstrap = strings.TrimSuffix(address, ",")
			return broker, nil
		}
	}
	return nil, fmt.Errorf("seqgate ended before it was ready: %w", process.Wait())
}

// stop ends the process.
func (b *Broker) stop() {
	b.process.Process.Signal(os.Interrupt)
	b.process.Wait()
}

// ask sends a request to the test control, and reads its answer into `answer`.
func (b *Broker) ask(t *testing.T, method, path string, body, answer any) {
	t.Helper()
	content, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(method, b.control+path, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("content-type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var refused struct{ Error string }
		json.NewDecoder(response.Body).Decode(&refused)
		t.Fatalf("%s %s: %s", method, path, refused.Error)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}

// reset begins the test with an empty broker.
func (b *Broker) reset(t *testing.T) {
	t.Helper()
	b.ask(t, "POST", "/reset", nil, &struct{}{})
}

// createTopic creates a topic with one partition.
func (b *Broker) createTopic(t *testing.T, name string) {
	t.Helper()
	b.ask(t, "POST", "/topics", map[string]any{"name": name}, &struct{}{})
}

// order lets requests fail: docs/testing.md of Seqgate has the faults. It returns what counts how many failed.
func (b *Broker) order(t *testing.T, fault map[string]any) (struck func() int) {
	t.Helper()
	var ordered struct{ ID int }
	b.ask(t, "POST", "/faults", fault, &ordered)
	return func() int {
		t.Helper()
		var now struct{ Struck int }
		b.ask(t, "GET", fmt.Sprintf("/faults/%d", ordered.ID), nil, &now)
		return now.Struck
	}
}

// kill ends the broker as kill -9 does, and starts it again.
func (b *Broker) kill(t *testing.T) {
	t.Helper()
	b.ask(t, "POST", "/restart", map[string]any{"after": "kill"}, &struct{}{})
}

// expectExactlyOnce fails the test with a sentence that names lost, doubled and reordered values.
func (b *Broker) expectExactlyOnce(t *testing.T, topic string, values []string) {
	t.Helper()
	var compared struct{ Complaint *string }
	b.ask(t, "POST", "/topics/"+topic+"/exactly-once", map[string]any{"values": values}, &compared)
	if compared.Complaint != nil {
		t.Errorf("topic %s: %s", topic, *compared.Complaint)
	}
}

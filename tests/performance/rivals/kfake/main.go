// Serves one broker of kfake on a port until it is killed. Records stay in memory, or go to files in DIRECTORY,
// which are not flushed.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: kfake PORT [DIRECTORY]")
		os.Exit(1)
	}
	port, err := strconv.Atoi(os.Args[1])
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.Ports(port)}
	if len(os.Args) == 3 {
		options = append(options, kfake.DataDir(os.Args[2]))
	}
	if err == nil {
		_, err = kfake.NewCluster(options...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	select {}
}

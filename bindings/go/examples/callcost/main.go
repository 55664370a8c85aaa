// Callcost is bench/calls/cost.c in Go: it prints the nanoseconds of a run of one node into given outputs.
//
//	callcost MODEL COUNT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	evener "evener.dev/go"
)

func main() {
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	runtime, err := evener.NewRuntime(&evener.RuntimeOptions{Threads: 1})
	if err != nil {
		log.Fatal(err)
	}
	model, err := runtime.Load(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	session, err := runtime.NewSession(ctx, model, nil)
	if err != nil {
		log.Fatal(err)
	}
	x, err := evener.NewTensor(runtime, []float32{0}, 1)
	if err != nil {
		log.Fatal(err)
	}
	y, err := evener.NewTensor(runtime, []float32{0}, 1)
	if err != nil {
		log.Fatal(err)
	}
	inputs, outputs := []*evener.Tensor{x}, []*evener.Tensor{y}
	runs := func(count int) {
		for i := 0; i < count; i++ {
			if err := session.RunInto(ctx, inputs, outputs); err != nil {
				log.Fatal(err)
			}
		}
	}
	runs(count / 5)
	begin := time.Now()
	runs(count)
	fmt.Printf("%.1f\n", float64(time.Since(begin).Nanoseconds())/float64(count))
}

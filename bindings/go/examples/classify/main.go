// Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.
//
// usage: classify MODEL.onnx [CONFIG.yaml [SIZE ...]]
//
// SIZE ... are those of the dims that the model leaves open, in their order. Without them such a dim is 1 on axis 0 and 128 elsewhere.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	evener "evener.dev/go"
)

func classify(model, config string, sizes []string) error {
	runtime, err := evener.NewRuntime(&evener.RuntimeOptions{ConfigPath: config})
	if err != nil {
		return err
	}
	defer runtime.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	loaded, err := runtime.Load(ctx, model)
	if err != nil {
		return err
	}
	defer loaded.Close()
	session, err := runtime.NewSession(ctx, loaded, nil)
	if err != nil {
		return err
	}
	defer session.Close()

	cpu, err := runtime.Device("cpu")
	if err != nil {
		return err
	}
	infos, err := session.Inputs()
	if err != nil {
		return err
	}
	var inputs []*evener.Tensor
	for _, input := range infos {
		if !input.HasRank {
			return fmt.Errorf("input %s has no rank", input.Name)
		}
		for axis, dim := range input.Dims {
			switch {
			case dim != -1:
			case len(sizes) > 0:
				if input.Dims[axis], err = strconv.ParseInt(sizes[0], 10, 64); err != nil {
					return err
				}
				sizes = sizes[1:]
			case axis == 0:
				input.Dims[axis] = 1
			default:
				input.Dims[axis] = 128
			}
		}
		tensor, err := cpu.Tensor(input.DType, false, input.Dims...)
		if err != nil {
			return err
		}
		defer tensor.Close()
		inputs = append(inputs, tensor)
	}

	outputs, err := session.Run(ctx, inputs...)
	if err != nil {
		return err
	}
	if infos, err = session.Outputs(); err != nil {
		return err
	}
	for i, output := range outputs {
		defer output.Close()
		dims, err := output.Dims()
		if err != nil {
			return err
		}
		fmt.Println(infos[i].Name, dims)
	}
	best := 0
	err = evener.Read(outputs[0], func(scores []float32) error {
		for i, score := range scores {
			if score > scores[best] {
				best = i
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println("largest:", best)

	// Requests run on threads of the library's, here several at a time; any goroutine may wait for them, or select on their Done.
	var requests []*evener.Request
	for i := 0; i < 4; i++ {
		request, err := session.Submit(ctx, nil, inputs...)
		if err != nil {
			return err
		}
		defer request.Close()
		requests = append(requests, request)
	}
	for _, request := range requests {
		later, err := request.Wait(ctx)
		if err != nil {
			return err
		}
		for _, output := range later {
			defer output.Close()
		}
	}
	text, err := session.Explain(evener.Text)
	fmt.Println(text)
	return err
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: classify MODEL.onnx [CONFIG.yaml [SIZE ...]]")
		os.Exit(2)
	}
	config, sizes := "", []string(nil)
	if len(os.Args) > 2 {
		config, sizes = os.Args[2], os.Args[3:]
	}
	if err := classify(os.Args[1], config, sizes); err != nil {
		fmt.Fprintln(os.Stderr, "classify:", err)
		os.Exit(1)
	}
}

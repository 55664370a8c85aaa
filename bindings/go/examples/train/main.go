// Trains a network on written digits, and runs what it has become.
//
// usage: train FOLDER TRAINED.onnx   (FOLDER: what tests/training/make_digits_run.py has written, a network and pictures of 28 x 28 with their
// classes, as plain numbers)
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"

	evener "evener.dev/go"
)

const batch, pixels = 32, 28 * 28

// read gives the pictures and their classes.
func read(folder string) (images []float32, labels []int64, err error) {
	bytes, err := os.ReadFile(filepath.Join(folder, "images.f32"))
	if err != nil {
		return nil, nil, err
	}
	for ; len(bytes) >= 4; bytes = bytes[4:] {
		images = append(images, math.Float32frombits(binary.LittleEndian.Uint32(bytes)))
	}
	if bytes, err = os.ReadFile(filepath.Join(folder, "labels.i64")); err != nil {
		return nil, nil, err
	}
	for ; len(bytes) >= 8; bytes = bytes[8:] {
		labels = append(labels, int64(binary.LittleEndian.Uint64(bytes)))
	}
	return images, labels, nil
}

func train(ctx context.Context, folder, trained string) error {
	images, labels, err := read(folder)
	if err != nil {
		return err
	}
	runtime, err := evener.NewRuntime(nil)
	if err != nil {
		return err
	}
	defer runtime.Close()
	options := &evener.TrainerOptions{Optimizer: evener.OptimizerAdamW, LearningRate: evener.Given(0.002)}
	trainer, err := runtime.NewTrainer(ctx, filepath.Join(folder, "simple_cnn.onnx"), options)
	if err != nil {
		return err
	}
	defer trainer.Close()

	// with calls a function with a batch.
	with := func(first int, use func(inputs map[string]*evener.Tensor, classes *evener.Tensor) error) error {
		x, err := evener.NewTensor(runtime, images[first*pixels:(first+batch)*pixels], batch, 1, 28, 28)
		if err != nil {
			return err
		}
		defer x.Close()
		classes, err := evener.NewTensor(runtime, labels[first:first+batch], batch)
		if err != nil {
			return err
		}
		defer classes.Close()
		return use(map[string]*evener.Tensor{"x": x}, classes)
	}
	held := len(labels) - batch // the last pictures are not learned
	for epoch := 1; epoch <= 4; epoch++ {
		var step evener.Step
		for first := 0; first+batch <= held; first += batch {
			if err := with(first, func(inputs map[string]*evener.Tensor, classes *evener.Tensor) (err error) {
				step, err = trainer.Step(inputs, classes)
				return err
			}); err != nil {
				return err
			}
		}
		if err := with(held, func(inputs map[string]*evener.Tensor, classes *evener.Tensor) error {
			found, err := trainer.Evaluate(inputs, classes)
			fmt.Printf("epoch %d: loss %.4f, %d of %d read rightly\n", epoch, step.Loss, found.Correct, found.Count)
			return err
		}); err != nil {
			return err
		}
	}

	if err := trainer.Export(trained); err != nil { // an ONNX file, for any engine
		return err
	}
	model, err := runtime.Load(ctx, trained)
	if err != nil {
		return err
	}
	defer model.Close()
	session, err := runtime.NewSession(ctx, model, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	return with(held, func(inputs map[string]*evener.Tensor, _ *evener.Tensor) error {
		outputs, err := session.Run(ctx, inputs["x"])
		if err != nil {
			return err
		}
		defer outputs[0].Close()
		return evener.Read(outputs[0], func(scores []float32) error {
			best := 0
			for class, score := range scores[:10] {
				if score > scores[best] {
					best = class
				}
			}
			fmt.Printf("the first of them is a %d: it was read as %d\n", labels[held], best)
			return nil
		})
	})
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: train FOLDER TRAINED.onnx")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // Ctrl-C ends the training
	defer stop()
	if err := train(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

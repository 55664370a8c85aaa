package evener

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// decode gives the text by the greedy rule of CTC: the largest class of each step, 0 is the blank, repeated ones count once.
func decode(probabilities []float32, alphabet []string) string {
	text, last := "", 0
	for ; len(probabilities) > 0; probabilities = probabilities[len(alphabet):] {
		best := 0
		for class, probability := range probabilities[:len(alphabet)] {
			if probability > probabilities[best] {
				best = class
			}
		}
		if best != 0 && best != last {
			text += alphabet[best]
		}
		last = best
	}
	return text
}

// A real recognizer reads the lines of a real page as Python's program does: EVENER_OCR is a folder that
// bindings/rust/evener/tests/make_ocr_lines.py wrote.
func TestTheRecognizerReadsWhatPythonReads(t *testing.T) {
	file := needed(t, "EVENER_OCR", "texts.txt")
	r := newRuntime(t, RuntimeOptions{})
	model := must(r.Load(background, needed(t, "EVENER_MODELS", "ch_PP-OCRv4_rec_infer.onnx")))(t)
	characters, has, err := model.Metadata("character")
	if err != nil || !has {
		t.Fatal("the model has its characters", err)
	}
	alphabet := append(append([]string{""}, strings.Split(characters, "\n")...), " ")
	s := must(r.NewSession(background, model, nil))(t)
	texts := strings.Split(strings.TrimRight(string(must(os.ReadFile(file))(t)), "\n"), "\n")
	if len(texts) < 2 {
		t.Fatal(texts)
	}
	lines := make([]*Tensor, len(texts))
	for i := range texts {
		bytes := must(os.ReadFile(filepath.Join(filepath.Dir(file), fmt.Sprintf("line%d.f32", i))))(t)
		data := make([]float32, len(bytes)/4)
		for k := range data {
			data[k] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*k:]))
		}
		lines[i] = must(Wrap(r, data, 1, 3, 48, int64(len(data)/(3*48))))(t)
	}
	read := func(outputs []*Tensor) (text string) {
		t.Helper()
		dims := must(outputs[0].Dims())(t)
		if dims[len(dims)-1] != int64(len(alphabet)) {
			t.Fatal(dims)
		}
		good(t, Read(outputs[0], func(data []float32) error { text = decode(data, alphabet); return nil }))
		return text
	}
	for i, text := range texts {
		if got := read(must(s.Run(background, lines[i]))(t)); got != text || len(text) < 3 {
			t.Fatalf("%q, Python reads %q", got, text)
		}
	}
	// And so do 16 requests at a time.
	ctx, cancel := context.WithTimeout(background, 10*time.Minute)
	defer cancel()
	requests := make([]*Request, 16)
	for i := range requests {
		requests[i] = must(s.Submit(ctx, nil, lines[i%len(lines)]))(t)
	}
	for i, request := range requests {
		if got := read(must(request.Wait(ctx))(t)); got != texts[i%len(texts)] {
			t.Fatalf("%q, Python reads %q", got, texts[i%len(texts)])
		}
	}
}

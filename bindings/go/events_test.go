package evener

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestEventsAndCopies(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	device := must(r.Device("cpu"))(t)
	x, y := vector(t, r, 4), vector(t, r, 0)
	event := must(device.RecordEvent())(t)
	copied := must(CopyAsync(x, y, event))(t)
	good(t, device.WaitEvent(copied))
	good(t, copied.Wait(background))
	holds[float32](t, y, 4)
}

// resident gives the process's memory in bytes.
func resident(t testing.TB) int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("there is no /proc/self/statm")
	}
	pages := 0
	for _, digit := range strings.Fields(string(text))[1] {
		pages = pages*10 + int(digit-'0')
	}
	return pages * os.Getpagesize()
}

func TestAMillionSmallCallsTakeNoMemory(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{Threads: 1})
	s := newTestSession(t, r, double())
	x := vector(t, r, 1)
	round := func() {
		for i := 0; i < 98000; i++ {
			must(x.Dims())(t)
		}
		for i := 0; i < 1000; i++ {
			outputs := must(s.Run(background, x))(t)
			good(t, outputs[0].Close())
			wrapped := must(Wrap(r, []float32{1}, 1))(t)
			good(t, wrapped.Close())
		}
		runtime.GC()
	}
	round()
	before := resident(t)
	for i := 0; i < 10; i++ {
		round()
	}
	if grown := resident(t) - before; grown > 16<<20 {
		t.Fatalf("%d bytes more after a million calls", grown)
	}
}

func TestRunsIntoGivenTensors(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	x, y := vector(t, r, 1, 2), vector(t, r, 0, 0)
	good(t, s.RunInto(background, []*Tensor{x}, []*Tensor{y}))
	good(t, Read(y, func(got []float32) error {
		if got[0] != 2 || got[1] != 4 {
			t.Fatalf("%v", got)
		}
		return nil
	}))
	cancelled, cancel := context.WithCancel(background)
	good(t, s.RunInto(cancelled, []*Tensor{x}, []*Tensor{y}))
	cancel()
	is(t, s.RunInto(cancelled, []*Tensor{x}, []*Tensor{y}), Cancelled)
	is(t, s.RunInto(nil, []*Tensor{x}, []*Tensor{y}), InvalidArgument) //nolint:staticcheck
	is(t, s.RunInto(background, []*Tensor{x}, []*Tensor{nil}), InvalidArgument)
	is(t, s.RunInto(background, []*Tensor{nil}, []*Tensor{y}), InvalidHandle)
	is(t, s.RunInto(background, nil, []*Tensor{y}), InvalidArgument)
	is(t, s.RunInto(background, []*Tensor{x, x, x, x, x, x, x, x, x}, []*Tensor{y}), InvalidArgument)
	is(t, (*Session)(nil).RunInto(background, []*Tensor{x}, []*Tensor{y}), InvalidHandle)
	is(t, s.RunInto(background, []*Tensor{x}, []*Tensor{vector(t, r, 0)}), InvalidArgument)
	inputs, outputs := []*Tensor{x}, []*Tensor{y}
	// The race detector has pools forget some of what they are given.
	if allocated := testing.AllocsPerRun(100, func() { good(t, s.RunInto(background, inputs, outputs)) }); allocated > 0 && !raceDetector {
		t.Fatalf("%v allocations a call", allocated)
	}
	good(t, s.Close())
	is(t, s.RunInto(background, []*Tensor{x}, []*Tensor{y}), InvalidHandle)
}

func BenchmarkOneNode(b *testing.B) {
	r := newRuntime(b, RuntimeOptions{Threads: 1})
	s := newTestSession(b, r, double())
	x, y := vector(b, r, 1), vector(b, r, 0)
	inputs, outputs := []*Tensor{x}, []*Tensor{y}
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		good(b, s.RunInto(background, inputs, outputs))
	}
}

func BenchmarkTensorInfo(b *testing.B) {
	r := newRuntime(b, RuntimeOptions{Threads: 1})
	x := vector(b, r, 1)
	for i := 0; i < b.N; i++ {
		must(x.Info())(b)
	}
}

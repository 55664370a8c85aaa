package evener

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestAModelRunsByPlaceAndByName(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	x := vector(t, r, 1, -2)
	holds[float32](t, must(s.Run(background, x))(t)[0], 2, -4)
	holds[float32](t, must(s.RunNamed(background, map[string]*Tensor{"x": x}))(t)["y"], 2, -4)
	_, err := s.RunNamed(background, map[string]*Tensor{"z": x})
	if failed := is(t, err, InvalidArgument); !strings.Contains(failed.Message, "x") {
		t.Fatal(failed)
	}
	_, err = s.RunNamed(background, nil)
	if failed := is(t, err, InvalidArgument); failed.Message != "input 'x' is missing" {
		t.Fatal(failed)
	}
	infos := must(s.Inputs())(t)
	if infos[0].Name != "x" || infos[0].Dims[0] != -1 || infos[0].Symbols[0] != "n" || infos[0].DType != DFloat32 {
		t.Fatalf("%+v", infos)
	}
	if must(s.FindOutput("y"))(t) != 0 {
		t.Fatal("y is the first output")
	}
}

func TestAnInputWithADefaultIsGivenOrLeftOut(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	m := must(r.LoadBytes(background, scale(), ""))(t)
	defer m.Close()
	_, err := r.NewSession(background, m, &SessionOptions{Overridable: []string{"x"}})
	is(t, err, InvalidArgument)
	x := vector(t, r, 1, 2)
	k, b, y := must(NewTensor(r, []float32{5}))(t), must(NewTensor(r, []float32{3}))(t), vector(t, r, 0, 0)
	for _, overridable := range [][]string{nil, {"b"}, {"k", "b"}} {
		s := must(r.NewSession(background, m, &SessionOptions{Overridable: overridable}))(t)
		for _, infos := range [][]ValueInfo{must(s.Defaults())(t), must(m.Defaults())(t)} {
			if len(infos) != 2 || infos[0].Name != "k" || infos[1].Name != "b" || len(infos[0].Dims) != 0 {
				t.Fatalf("%+v", infos)
			}
		}
		if infos := must(s.Inputs())(t); len(infos) != 1 || infos[0].Name != "x" {
			t.Fatalf("%+v", infos)
		}
		for i := 0; i < 2; i++ {
			for _, c := range []struct {
				listed []*Tensor
				named  map[string]*Tensor
				wanted []float32
			}{
				{[]*Tensor{x}, map[string]*Tensor{"x": x}, []float32{3, 5}},
				{[]*Tensor{x, k}, map[string]*Tensor{"x": x, "k": k}, []float32{6, 11}},
				{[]*Tensor{x, nil, b}, map[string]*Tensor{"x": x, "b": b}, []float32{5, 7}},
				{[]*Tensor{x, k, b}, map[string]*Tensor{"x": x, "k": k, "b": b}, []float32{8, 13}},
			} {
				holds(t, must(s.Run(background, c.listed...))(t)[0], c.wanted...)
				holds(t, must(s.RunNamed(background, c.named))(t)["y"], c.wanted...)
				good(t, s.RunInto(background, c.listed, []*Tensor{y}))
				holds(t, y, c.wanted...)
			}
		}
		_, err := s.RunNamed(background, map[string]*Tensor{"k": k})
		if failed := is(t, err, InvalidArgument); failed.Message != "input 'x' is missing" {
			t.Fatal(failed)
		}
		s.Close()
	}
}

func TestInputsThatDoNotFitAreErrors(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	_, err := s.Run(background, must(NewTensor(r, []int32{1}, 1))(t))
	if failed := is(t, err, InvalidArgument); !strings.Contains(failed.Message, "x") {
		t.Fatal(failed)
	}
	_, err = s.Run(background, must(NewTensor(r, []float32{1}, 1, 1))(t))
	is(t, err, InvalidArgument)
	x := vector(t, r, 1)
	_, err = s.Run(background, x, x)
	is(t, err, InvalidArgument)
	_, err = s.Run(background, nil)
	is(t, err, InvalidHandle)
	_, err = s.RunWith(background, &RunOptions{Skip: []int{1}}, []*Tensor{x}, nil)
	if failed := is(t, err, InvalidArgument); !strings.Contains(failed.Message, "no output 1") {
		t.Fatal(failed)
	}
	_, err = NewTensor(r, []float32{1, 2}, 3)
	is(t, err, InvalidArgument)
	_, err = Data[int32](x)
	if failed := is(t, err, InvalidArgument); failed.Message != "a tensor of float32 is no slice of int32" {
		t.Fatal(failed)
	}
}

func TestErrorsNameTheNode(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	_, err := r.LoadBytes(background, custom("NoSuch"), "")
	failed := is(t, err, Unsupported)
	if failed.Node != "the_NoSuch" || !strings.Contains(failed.Error(), "[node the_NoSuch]") {
		t.Fatal(failed)
	}
	_, err = r.LoadBytes(background, []byte("no model"), "")
	is(t, err, InvalidModel)
	_, err = r.LoadBytes(background, nil, "")
	is(t, err, InvalidModel)
	_, err = r.Load(background, "/nowhere.onnx")
	is(t, err, IO)
	_, err = r.Load(background, "with\x00nul")
	is(t, err, InvalidArgument)
}

func TestOutputsGoIntoTensorsThatThereAre(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	x, y := vector(t, r, 1, 2), vector(t, r, 0, 0)
	made := must(s.RunWith(background, nil, []*Tensor{x}, []*Tensor{y}))(t)
	if made[0] != y {
		t.Fatal("another tensor than the given one")
	}
	holds[float32](t, y, 2, 4)
	part := must(y.Part(1, 1))(t)
	holds[float32](t, part, 4)
	_, err := s.RunWith(background, nil, []*Tensor{x}, []*Tensor{vector(t, r, 0)})
	is(t, err, InvalidArgument)
	holds[float32](t, must(y.CopyTo(must(r.Device("cpu"))(t)))(t), 2, 4)
	good(t, x.CopyInto(y))
	holds[float32](t, y, 1, 2)
}

func TestContextsEndRuns(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	x := vector(t, r, 1)
	ctx, cancel := context.WithCancel(background)
	holds[float32](t, must(s.Run(ctx, x))(t)[0], 2)
	cancel()
	_, err := s.Run(ctx, x)
	is(t, err, Cancelled)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	ctx, cancel = context.WithDeadline(background, time.Now().Add(-time.Second))
	defer cancel()
	_, err = s.Run(ctx, x)
	is(t, err, Timeout)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	far, cancelFar := context.WithTimeout(background, time.Hour)
	defer cancelFar()
	holds[float32](t, must(s.Run(far, x))(t)[0], 2)
}

// A run that is under way ends when its context does: the gate's node computes meanwhile, and the run ends behind it.
func TestARunUnderWayIsCancelled(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	g := newGate(t, r)
	ends := func(name string) []message { return []message{value(name, tensorType(DFloat32, "n"))} }
	s := newTestSession(t, r, model([]message{node("Gate", []string{"x"}, []string{"m"}).text(7, "mine"), node("Neg", []string{"m"}, []string{"y"})},
		ends("x"), ends("y"), nil))
	ctx, cancel := context.WithCancel(background)
	request := must(s.Submit(ctx, nil, vector(t, r, 1)))(t)
	<-g.began
	cancel()
	<-request.request.pending.bound.told
	close(g.open)
	_, err := request.Wait(background)
	is(t, err, Cancelled)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestManyRequestsAtATimeWithDeadlines(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	ctx, cancel := context.WithTimeout(background, 10*time.Minute)
	defer cancel()
	requests := make([]*Request, 16)
	for i := range requests {
		x := vector(t, r, float32(i))
		requests[i] = must(s.Submit(ctx, nil, x))(t)
		good(t, x.Close()) // the request keeps it
	}
	runtime.GC()
	var all sync.WaitGroup
	for i, request := range requests {
		i, request := i, request
		all.Add(1)
		go func() {
			defer all.Done()
			outputs, err := request.Wait(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := Data[float32](outputs[0]); err != nil || got[0] != float32(2*i) {
				t.Error(got, err)
			}
		}()
	}
	all.Wait()
	_, err := requests[0].Wait(ctx)
	is(t, err, WrongState)
	good(t, requests[0].Close())
	_, err = requests[0].Wait(ctx)
	is(t, err, InvalidHandle)
}

func TestWaitingEndsAndTheRunGoesOn(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	g := newGate(t, r)
	s := newTestSession(t, r, custom("Gate"))
	request := must(s.Submit(background, nil, vector(t, r, 5)))(t)
	forgotten := must(s.Submit(background, nil, vector(t, r, 6)))(t)
	<-g.began
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err := request.Wait(ctx)
	is(t, err, Cancelled)
	good(t, forgotten.Close())
	good(t, forgotten.Close())
	close(g.open)
	holds[float32](t, must(request.Wait(background))(t)[0], 5)
	<-forgotten.Done()
	late, cancelLate := context.WithDeadline(background, time.Now())
	defer cancelLate()
	_, err = s.Submit(late, nil, vector(t, r, 5))
	is(t, err, Timeout)
	good(t, s.Finish(background))
	good(t, s.Close())
	_, err = s.Run(background, vector(t, r, 1))
	is(t, err, InvalidHandle)
}

func TestCloseDuringARun(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	g := newGate(t, r)
	s := newTestSession(t, r, custom("Gate"))
	x := vector(t, r, 7)
	done := make(chan error)
	go func() {
		outputs, err := s.Run(background, x)
		if err == nil {
			var got []float32
			if got, err = Data[float32](outputs[0]); err == nil && got[0] != 7 {
				err = errors.New("another result")
			}
		}
		done <- err
	}()
	<-g.began
	good(t, s.Close())
	good(t, x.Close())
	good(t, r.Close())
	runtime.GC()
	close(g.open)
	good(t, <-done)
	_, err := s.Run(background, x)
	is(t, err, InvalidHandle)
}

func TestEverythingMayBeClosedTwiceAndNotUsedThen(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	model := must(r.LoadBytes(background, double(), ""))(t)
	s := must(r.NewSession(background, model, nil))(t)
	x := vector(t, r, 1)
	device := must(r.Device("cpu"))(t)
	event := must(device.RecordEvent())(t)
	boxed := must(x.Value())(t)
	request := must(s.Submit(background, nil, x))(t)
	for i := 0; i < 2; i++ {
		for _, closer := range []interface{ Close() error }{request, boxed, event, device, x, s, model, r} {
			good(t, closer.Close())
		}
	}
	errs := []error{event.Wait(background), device.TrimMemory(), Read(x, func([]float32) error { return nil })}
	collect := func(_ any, err error) { errs = append(errs, err) }
	collect(device.Info())
	collect(x.Info())
	collect(x.Part(0, 1))
	collect(x.CopyTo(device))
	collect(x.Value())
	collect(boxed.Parts())
	collect(request.Wait(background))
	collect(s.Run(background, x))
	collect(s.Explain(Text))
	collect(s.Submit(background, nil, x))
	collect(model.Describe(Text))
	collect(r.Devices())
	collect(r.LoadBytes(background, double(), ""))
	collect(r.Session("any"))
	collect(r.NewSession(background, model, nil))
	collect(NewTensor(r, []float32{1}, 1))
	collect(Wrap(r, []float32{1}, 1))
	collect(NewStrings(r, []string{"a"}, 1))
	for i, err := range errs {
		if !errors.Is(err, InvalidHandle) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestAViewHoldsItsTensor(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	x := vector(t, r, 1, 2)
	good(t, Write(x, func(data []float32) error {
		good(t, x.Close())
		runtime.GC()
		data[1] = 3
		_, err := x.Info()
		is(t, err, InvalidHandle)
		return nil
	}))
	_, err := Data[float32](x)
	is(t, err, InvalidHandle)
}

func TestASliceIsWrappedAndStaysUntilTheLastUse(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	data := []float32{1, 2}
	x := must(Wrap(r, data, 2))(t)
	if Wraps {
		data[1] = 5
		holds[float32](t, must(s.Run(background, x))(t)[0], 2, 10)
	} else {
		holds[float32](t, must(s.Run(background, x))(t)[0], 2, 4)
	}
	for i := 0; i < 100; i++ {
		wrapped := must(Wrap(r, make([]float32, 1000), 1000))(t)
		request := must(s.Submit(background, nil, wrapped))(t)
		good(t, wrapped.Close())
		runtime.GC()
		outputs := must(request.Wait(background))(t)
		if got := must(Data[float32](outputs[0]))(t); got[999] != 0 {
			t.Fatal(got[999])
		}
	}
	empty := must(Wrap(r, []float32{}, 0))(t)
	holds[float32](t, empty)
}

func TestAStateGoesFromRunToRun(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, runningSum())
	state := must(s.NewState([]StatePair{{Output: "total", Input: "sum"}}, nil))(t)
	x := vector(t, r, 1, 2)
	run := func(state *State, values ...float32) {
		t.Helper()
		outputs := must(s.RunWith(background, &RunOptions{State: state}, []*Tensor{x, nil}, nil))(t)
		if outputs[0] != nil {
			t.Fatal("the state has it")
		}
		holds(t, outputs[1], values...)
	}
	run(state, -1, -2)
	fork, saved := must(state.Fork())(t), must(state.Save())(t)
	run(state, -2, -4)
	run(fork, -2, -4)
	good(t, state.Reset())
	run(state, -1, -2)
	good(t, state.Restore(saved))
	run(state, -2, -4)
	if must(state.Length(0))(t) != 0 {
		t.Fatal("a pair without a capacity has no length")
	}
	good(t, state.Truncate(0))
	if text := must(state.Describe(JSON))(t); !strings.Contains(text, "\"total\"") {
		t.Fatal(text)
	}
	is(t, state.Restore([]byte("other")), InvalidArgument)
	_, err := s.NewState([]StatePair{{Output: "none", Input: "sum"}}, nil)
	is(t, err, InvalidArgument)
	good(t, state.Close())
	is(t, state.Reset(), InvalidHandle)
}

func TestValuesAndStrings(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, sequences())
	x := must(vector(t, r, 3).Value())(t)
	outputs := must(s.RunValues(background, nil, x))(t)
	later := must(must(s.SubmitValues(background, nil, x))(t).Wait(background))(t)
	for _, output := range []*Value{outputs[0], later[0]} {
		if kind := must(output.Type())(t); kind != "seq(tensor(float32))" {
			t.Fatal(kind)
		}
		parts := must(output.Parts())(t)
		holds[float32](t, must(parts[1].Tensor())(t), 3)
	}
	made := must(r.NewValue("seq(tensor(float32))", x, x))(t)
	if len(must(made.Parts())(t)) != 2 {
		t.Fatal("two parts")
	}
	_, err := r.NewValue("nonsense")
	is(t, err, InvalidArgument)
	texts := must(NewStrings(r, []string{"a", "", "ünï\x00code"}, 3))(t)
	got := must(texts.Strings())(t)
	if len(got) != 3 || got[0] != "a" || got[1] != "" || got[2] != "ünï\x00code" {
		t.Fatalf("%q", got)
	}
	_, err = NewStrings(r, []string{"a"}, 3)
	is(t, err, InvalidArgument)
}

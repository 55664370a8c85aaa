package evener

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// pointers are all types that have methods on objects of the library's, once as nil and once as a value that no function has made.
var pointers = []any{
	(*Runtime)(nil), (*Device)(nil), (*Event)(nil), (*Tensor)(nil), (*Value)(nil), (*Model)(nil), (*Session)(nil), (*State)(nil),
	(*Request)(nil), (*ValueRequest)(nil), (*Quantizer)(nil), (*Trainer)(nil), (*Node)(nil), (*View)(nil),
	&Runtime{}, &Device{}, &Event{}, &Tensor{}, &Value{}, &Model{}, &Session{}, &State{}, &Request{}, &ValueRequest{}, &Quantizer{}, &Trainer{},
}

// argumentsOf gives arguments that a method could be called with.
func argumentsOf(method reflect.Type) (made []reflect.Value) {
	for i := 0; i < method.NumIn(); i++ {
		if method.IsVariadic() && i == method.NumIn()-1 {
			break
		}
		kind := method.In(i)
		switch {
		case kind == reflect.TypeOf((*context.Context)(nil)).Elem():
			made = append(made, reflect.ValueOf(background))
		case kind == reflect.TypeOf(Operator{}):
			infer := func(*Node, []*View, int) ([]Spec, error) { return nil, nil }
			run := func(*Node, []*View, []*View) error { return nil }
			made = append(made, reflect.ValueOf(Operator{Domain: "mine", Name: "None", Infer: infer, Run: run}))
		default:
			made = append(made, reflect.Zero(kind))
		}
	}
	return made
}

func TestWhatWasNotMadeIsAnErrorAndNoPanic(t *testing.T) {
	methods := 0
	for _, pointer := range pointers {
		value := reflect.ValueOf(pointer)
		for i := 0; i < value.NumMethod(); i++ {
			methods++
			method, name := value.Method(i), value.Type().String()+"."+value.Type().Method(i).Name
			results := method.Call(argumentsOf(method.Type()))
			last := results[len(results)-1].Interface()
			if channel, ok := last.(<-chan struct{}); ok {
				<-channel // Done: nothing goes on
				continue
			}
			if _, ok := last.(Spec); ok {
				continue
			}
			err, _ := last.(error)
			if strings.HasSuffix(name, ".Close") {
				good(t, err)
			} else if !errors.Is(err, InvalidHandle) {
				t.Errorf("%s of an object that is none: %v", name, err)
			}
		}
	}
	if methods < 150 {
		t.Fatal(methods)
	}
	errs := []error{Read(nil, func([]float32) error { return nil }), Write(nil, func([]int8) error { return nil })}
	collect := func(_ any, err error) { errs = append(errs, err) }
	collect(Data[float32](nil))
	collect(NewTensor(nil, []float32{1}, 1))
	collect(NewStrings(nil, []string{"a"}, 1))
	collect(Wrap(nil, []float32{1}, 1))
	collect(CopyAsync(nil, nil))
	collect(Elements[float32](nil))
	for i, err := range errs {
		if !errors.Is(err, InvalidHandle) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestAnArgumentThatIsNilIsAnError(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	x, device := vector(t, r, 1), must(r.Device("cpu"))(t)
	var errs []error
	collect := func(_ any, err error) { errs = append(errs, err) }
	collect(nil, x.CopyInto(nil))
	collect(x.CopyTo(nil))
	collect(nil, device.WaitEvent(nil))
	collect(CopyAsync(x, x, nil))
	collect(s.Compare(nil, []*Tensor{x}, Text))
	collect(s.RunWith(background, &RunOptions{State: &State{}}, []*Tensor{x}, nil))
	for i, err := range errs {
		if !errors.Is(err, InvalidHandle) {
			t.Errorf("%d: %v", i, err)
		}
	}
	errs = nil
	request := must(s.Submit(background, nil, x))(t)
	var none context.Context
	collect(s.Run(none, x))
	collect(s.Submit(none, nil, x))
	collect(request.Wait(none))
	collect(nil, must(device.RecordEvent())(t).Wait(none))
	collect(nil, s.Finish(none))
	collect(r.LoadBytes(none, double(), ""))
	collect(r.NewQuantizer(none, "", &QuantizerOptions{Data: product()}))
	collect(r.NewTrainer(none, "", &TrainerOptions{Data: product(), Loss: LossMSE}))
	for i, err := range errs {
		if !errors.Is(err, InvalidArgument) {
			t.Errorf("%d: %v", i, err)
		}
	}
	must(request.Wait(background))(t)
}

// A session that finishes while a request cannot end: the context decides how long that is waited for.
func TestFinishEndsWithItsContext(t *testing.T) {
	for _, ends := range []struct {
		status Status
		cause  error
		make   func() (context.Context, context.CancelFunc)
	}{
		{Cancelled, context.Canceled, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx, cancel
		}},
		{Cancelled, context.Canceled, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(background, time.Hour)
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx, cancel
		}},
		{Cancelled, context.Canceled, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(background)
			cancel()
			return ctx, cancel
		}},
		{Timeout, context.DeadlineExceeded, func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(background, 10*time.Millisecond)
		}},
	} {
		r := newRuntime(t, RuntimeOptions{})
		g := newGate(t, r)
		s := newTestSession(t, r, custom("Gate"))
		request := must(s.Submit(background, nil, vector(t, r, 5)))(t)
		<-g.began
		ctx, cancel := ends.make()
		err := s.Finish(ctx)
		is(t, err, ends.status)
		if !errors.Is(err, ends.cause) {
			t.Fatal(err)
		}
		cancel()
		_, err = s.Run(background, vector(t, r, 1))
		is(t, err, InvalidHandle)
		is(t, s.Finish(background), InvalidHandle)
		close(g.open)
		holds[float32](t, must(request.Wait(background))(t)[0], 5)
	}
	r := newRuntime(t, RuntimeOptions{})
	s := newTestSession(t, r, double())
	request := must(s.Submit(background, nil, vector(t, r, 2)))(t)
	ctx, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	good(t, s.Finish(ctx))
	select {
	case <-request.Done():
	default:
		t.Fatal("it was not waited for")
	}
	holds[float32](t, must(request.Wait(background))(t)[0], 4)
}

// collect has the collector look, and what it found be closed.
func collect() {
	for round := 0; round < 2; round++ { // one goroutine runs all finalizers, in any order: behind the second all of the first have run
		done := make(chan struct{})
		sentinel := &struct{ bytes [64]byte }{}
		runtime.SetFinalizer(sentinel, func(any) { close(done) })
		sentinel = nil
		for isDone := false; !isDone; {
			runtime.GC()
			select {
			case <-done:
				isDone = true
			default:
				runtime.Gosched()
			}
		}
	}
}

// lookingPool has the collector look whenever a call takes room for its error: it has its handles then, and the library not yet.
type lookingPool struct{ looks int }

func (p *lookingPool) Get() any { p.looks++; collect(); return newError() }
func (p *lookingPool) Put(any)  {}

// The collector looks within every call and between all. Nothing that a call uses is reachable by anything but the call itself.
func TestTheCollectorAtEveryStep(t *testing.T) {
	pool, usual := &lookingPool{}, *errorPool.Load()
	setErrorPool(pool)
	defer func() { setErrorPool(usual) }()
	r := newRuntime(t, RuntimeOptions{Threads: 1})
	cpu := func() *Device { collect(); return must(r.Device("cpu"))(t) }
	load := func(bytes []byte) *Model { collect(); return must(r.LoadBytes(background, bytes, ""))(t) }
	open := func(bytes []byte) *Session { collect(); return must(r.NewSession(background, load(bytes), nil))(t) }
	x := func() *Tensor { collect(); return must(Wrap(r, []float32{1, 2}, 2))(t) }
	for i := 0; i < 2; i++ {
		holds[float32](t, must(open(double()).Run(background, x()))(t)[0], 2, 4)
		holds[float32](t, must(open(double()).RunNamed(background, map[string]*Tensor{"x": x()}))(t)["y"], 2, 4)
		holds[float32](t, must(open(double()).RunWith(background, nil, []*Tensor{x()}, []*Tensor{x()}))(t)[0], 2, 4)
		holds[float32](t, must(must(open(double()).Submit(background, nil, x()))(t).Wait(background))(t)[0], 2, 4)
		holds[float32](t, must(x().CopyTo(cpu()))(t), 1, 2)
		good(t, x().CopyInto(x()))
		holds[float32](t, must(x().Part(1, 1))(t), 2)
		lists := open(sequences())
		box := func() *Value { return must(x().Value())(t) }
		later := must(lists.SubmitValues(background, nil, box()))(t)
		for _, output := range []*Value{must(lists.RunValues(background, nil, box()))(t)[0], must(later.Wait(background))(t)[0]} {
			holds[float32](t, must(must(output.Parts())(t)[1].Tensor())(t), 1, 2)
		}
		holds[float32](t, must(must(x().Value())(t).Tensor())(t), 1, 2)
		if info := must(must(cpu().Tensor(DFloat32, false, 2))(t).Info())(t); info.SizeBytes != 8 {
			t.Fatalf("%+v", info)
		}
		target := x()
		good(t, cpu().WaitEvent(must(CopyAsync(x(), target, must(cpu().RecordEvent())(t)))(t)))
		good(t, must(CopyAsync(x(), target))(t).Wait(background))
		holds[float32](t, target, 1, 2)
		contains(t, must(open(double()).Explain(Text))(t), "the_Add")
		contains(t, must(open(double()).Compare(open(double()), []*Tensor{x()}, JSON))(t), "largest_error")
		contains(t, must(load(double()).Describe(Text))(t), "Add")
		if must(open(double()).Inputs())(t)[0].Name != "x" || must(load(double()).Outputs())(t)[0].Name != "y" {
			t.Fatal("other names")
		}
		if texts := must(must(NewStrings(r, []string{"a", "b"}, 2))(t).Strings())(t); texts[1] != "b" {
			t.Fatal(texts)
		}
		parts := must(must(r.NewValue("seq(tensor(float32))", box(), box()))(t).Parts())(t)
		holds[float32](t, must(parts[1].Tensor())(t), 1, 2)

		sums := open(runningSum())
		state := func() *State {
			collect()
			return must(sums.NewState([]StatePair{{Output: "total", Input: "sum"}}, nil))(t)
		}
		used := state()
		must(sums.RunWith(background, &RunOptions{State: used}, []*Tensor{x(), nil}, nil))(t)
		good(t, state().Restore(must(must(used.Fork())(t).Save())(t)))
		contains(t, must(state().Describe(JSON))(t), "total")
		must(sums.RunWith(background, &RunOptions{State: state()}, []*Tensor{x(), nil}, nil))(t)
		must(must(sums.Submit(background, &RunOptions{State: state()}, x(), nil))(t).Wait(background))(t)
		good(t, open(double()).Finish(background))
	}
	quantizer := must(r.NewQuantizer(background, "", &QuantizerOptions{Data: product(), Progress: func(string, uint64, uint64) bool { collect(); return true }}))(t)
	good(t, quantizer.AddBatch(map[string]*Tensor{"x": rows(t, r, 1)}))
	must(must(quantizer.Finish())(t).Describe(Text))(t)
	if pool.looks < 200 {
		t.Fatalf("the collector looked within %d calls", pool.looks)
	}
}

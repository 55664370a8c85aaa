package evener

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

var background = context.Background()

// message is bytes of Protocol Buffers, as far as ONNX needs them.
type message []byte

func (m message) number(field, value uint64) message {
	return binary.AppendUvarint(binary.AppendUvarint(m, field<<3), value)
}

func (m message) bytes(field uint64, value []byte) message {
	return append(binary.AppendUvarint(binary.AppendUvarint(m, field<<3|2), uint64(len(value))), value...)
}

func (m message) text(field uint64, value string) message { return m.bytes(field, []byte(value)) }

func (m message) all(field uint64, values ...message) message {
	for _, value := range values {
		m = m.bytes(field, value)
	}
	return m
}

func tensorType(dtype DType, dims ...string) message {
	var shape message
	for _, dim := range dims {
		if value, err := strconv.ParseUint(dim, 10, 63); err == nil {
			shape = shape.all(1, message{}.number(1, value))
		} else {
			shape = shape.all(1, message{}.text(2, dim))
		}
	}
	return message{}.all(1, message{}.number(1, uint64(dtype)).all(2, shape))
}

func value(name string, kind message) message { return message{}.text(1, name).all(2, kind) }

func node(op string, inputs, outputs []string) message {
	var made message
	for _, input := range inputs {
		made = made.text(1, input)
	}
	for _, output := range outputs {
		made = made.text(2, output)
	}
	return made.text(3, "the_"+op).text(4, op)
}

func model(nodes, inputs, outputs, constants []message) []byte {
	graph := message{}.all(1, nodes...).text(2, "tiny").all(5, constants...).all(11, inputs...).all(12, outputs...)
	opset := func(domain string, version uint64) message { return message{}.text(1, domain).number(2, version) }
	return message{}.number(1, 8).all(7, graph).all(8, opset("", 17), opset("mine", 1))
}

// double is y = x + x, of any length.
func double() []byte {
	ends := func(name string) []message { return []message{value(name, tensorType(DFloat32, "n"))} }
	return model([]message{node("Add", []string{"x", "x"}, []string{"y"})}, ends("x"), ends("y"), nil)
}

// product is y = x w, with x of any number of rows of 64: a model that can be quantized.
func product() []byte {
	var weights []byte
	for i := 0; i < 64*64; i++ {
		weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(float32(i*37%101-50)/50))
	}
	constant := message{}.number(1, 64).number(1, 64).number(2, uint64(DFloat32)).text(8, "w").bytes(9, weights)
	ends := func(name string) []message { return []message{value(name, tensorType(DFloat32, "m", "64"))} }
	return model([]message{node("MatMul", []string{"x", "w"}, []string{"y"})}, ends("x"), ends("y"), []message{constant})
}

// externalProduct is product with w in another file, of which doubling is the content: y = 2 x.
func externalProduct(location string) []byte {
	entry := message{}.text(1, "location").text(2, location)
	constant := message{}.number(1, 64).number(1, 64).number(2, uint64(DFloat32)).text(8, "w").all(13, entry).number(14, 1)
	ends := func(name string) []message { return []message{value(name, tensorType(DFloat32, "m", "64"))} }
	return model([]message{node("MatMul", []string{"x", "w"}, []string{"y"})}, ends("x"), ends("y"), []message{constant})
}

func doubling() []byte {
	weights := make([]byte, 64*64*4)
	for i := 0; i < 64; i++ {
		binary.LittleEndian.PutUint32(weights[i*65*4:], math.Float32bits(2))
	}
	return weights
}

// scale is y = x k + b, where k is 2 and b is 1 unless they are given.
func scale() []byte {
	float := func(name string, value float32) message {
		bytes := binary.LittleEndian.AppendUint32(nil, math.Float32bits(value))
		return message{}.number(2, uint64(DFloat32)).text(8, name).bytes(9, bytes)
	}
	vector, scalar := tensorType(DFloat32, "n"), tensorType(DFloat32)
	return model([]message{node("Mul", []string{"x", "k"}, []string{"m"}), node("Add", []string{"m", "b"}, []string{"y"})},
		[]message{value("x", vector), value("k", scalar), value("b", scalar)}, []message{value("y", vector)},
		[]message{float("k", 2), float("b", 1)})
}

// runningSum is total = sum + x and y = -total: a state of two numbers.
func runningSum() []byte {
	kind := tensorType(DFloat32, "2")
	return model([]message{node("Add", []string{"x", "sum"}, []string{"total"}), node("Neg", []string{"total"}, []string{"y"})},
		[]message{value("x", kind), value("sum", kind)}, []message{value("total", kind), value("y", kind)}, nil)
}

// sequences is s = [x, x].
func sequences() []byte {
	sequence := message{}.all(4, message{}.all(1, tensorType(DFloat32, "n")))
	return model([]message{node("SequenceConstruct", []string{"x", "x"}, []string{"s"})},
		[]message{value("x", tensorType(DFloat32, "n"))}, []message{value("s", sequence)}, nil)
}

// custom is y = op(x), of the domain "mine", with attributes.
func custom(op string, attributes ...message) []byte {
	ends := func(name string) []message { return []message{value(name, tensorType(DFloat32, "n"))} }
	made := node(op, []string{"x"}, []string{"y"}).all(5, attributes...).text(7, "mine")
	return model([]message{made}, ends("x"), ends("y"), nil)
}

func must[T any](made T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
}

func good(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails where the error is not of the status.
func is(t testing.TB, err error, status Status) *Error {
	t.Helper()
	var failed *Error
	if !errors.Is(err, status) || !errors.As(err, &failed) {
		t.Fatalf("expected %v, got %v", status, err)
	}
	return failed
}

func newRuntime(t testing.TB, options RuntimeOptions) *Runtime {
	t.Helper()
	if options.Threads == 0 {
		options.Threads = 2
	}
	options.NoCache = true
	made := must(NewRuntime(&options))(t)
	t.Cleanup(func() { made.Close() })
	return made
}

func newTestSession(t testing.TB, r *Runtime, bytes []byte) *Session {
	t.Helper()
	model := must(r.LoadBytes(background, bytes, ""))(t)
	defer model.Close()
	made := must(r.NewSession(background, model, nil))(t)
	t.Cleanup(func() { made.Close() })
	return made
}

func vector(t testing.TB, r *Runtime, values ...float32) *Tensor {
	t.Helper()
	return must(NewTensor(r, values, int64(len(values))))(t)
}

// holds fails where the tensor has other elements.
func holds[T Element](t testing.TB, tensor *Tensor, values ...T) {
	t.Helper()
	got := must(Data[T](tensor))(t)
	if len(got) != len(values) {
		t.Fatalf("expected %v, got %v", values, got)
	}
	for i, value := range values {
		if got[i] != value {
			t.Fatalf("expected %v, got %v", values, got)
		}
	}
}

// needed gives a file of the folder that an environment variable names, or skips the test.
func needed(t testing.TB, variable, name string) string {
	path := filepath.Join(os.Getenv(variable), name)
	if _, err := os.Stat(path); os.Getenv(variable) != "" && err == nil {
		return path
	}
	if os.Getenv("EVENER_REQUIRE") != "" {
		t.Fatalf("EVENER_REQUIRE is set, and there is no %s: %s names %q", name, variable, os.Getenv(variable))
	}
	t.Skipf("%s names no folder with %s", variable, name)
	return ""
}

// gate is an operator that waits until it is told to go on: with it a test says when runs begin and end.
type gate struct {
	began chan struct{}
	open  chan struct{}
}

func newGate(t testing.TB, r *Runtime) *gate {
	made := &gate{make(chan struct{}, 1000), make(chan struct{})}
	good(t, r.RegisterOperator(Operator{
		Domain: "mine", Name: "Gate",
		Infer: func(_ *Node, inputs []*View, _ int) ([]Spec, error) { return []Spec{inputs[0].Spec()}, nil },
		Run: func(_ *Node, inputs, outputs []*View) error {
			made.began <- struct{}{}
			<-made.open
			x, err := Elements[float32](inputs[0])
			if err != nil {
				return err
			}
			y, err := Elements[float32](outputs[0])
			copy(y, x)
			return err
		},
	}))
	return made
}

package evener

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

const batches, batch, heldBack, pixels = 8, 32, 64, 28 * 28

// digits are pictures, their classes, and what Python made of them: see tests/training/make_digits_run.py.
type digits struct {
	images   []float32
	labels   []int64
	expected []float64
}

func numbersOf[T any](t testing.TB, path string) []T {
	bytes := must(os.ReadFile(path))(t)
	var one T
	made := make([]T, len(bytes)/int(unsafe.Sizeof(one)))
	good(t, binary.Read(strings.NewReader(string(bytes)), binary.LittleEndian, made))
	return made
}

func (d *digits) inputs(t testing.TB, r *Runtime, first, count int) map[string]*Tensor {
	return map[string]*Tensor{"x": must(NewTensor(r, d.images[first*pixels:(first+count)*pixels], int64(count), 1, 28, 28))(t)}
}

func (d *digits) classes(t testing.TB, r *Runtime, first, count int) *Tensor {
	return must(NewTensor(r, d.labels[first:first+count], int64(count)))(t)
}

// train takes steps, whose losses are to be those of Python, to the last bit.
func (d *digits) train(t testing.TB, r *Runtime, trainer *Trainer, first, last int) {
	t.Helper()
	for i := first; i < last; i++ {
		step := must(trainer.Step(d.inputs(t, r, i*batch, batch), d.classes(t, r, i*batch, batch)))(t)
		if step.Loss != d.expected[i] || step.Step != uint64(i)+1 || step.Skipped || step.GradientNorm <= 0 || step.LearningRate <= 0 {
			t.Fatalf("step %d: %+v, and Python's loss is %v", i, step, d.expected[i])
		}
	}
}

func digitsOptions() *TrainerOptions {
	return &TrainerOptions{
		Optimizer: OptimizerAdamW, LearningRate: Given(0.002), WeightDecay: Given(0.01), Groups: []ParameterGroup{{[]string{"*.b"}, Given(2.0), Given(0.0)}}, Frozen: []string{"conv1.b"},
		Schedule: ScheduleCosine, ScheduleSteps: 16, WarmupSteps: 2, ClipNorm: 1, Seed: 7,
	}
}

func valuesOf(t testing.TB, tensors map[string]*Tensor) map[string][]float32 {
	made := map[string][]float32{}
	for name, tensor := range tensors {
		made[name] = must(Data[float32](tensor))(t)
		good(t, tensor.Close())
	}
	return made
}

func TestDigitsAreLearnedWithTheNumbersOfPython(t *testing.T) {
	folder := filepath.Dir(needed(t, "EVENER_TRAINING", "expected.f64"))
	d := &digits{numbersOf[float32](t, folder+"/images.f32"), numbersOf[int64](t, folder+"/labels.i64"), numbersOf[float64](t, folder+"/expected.f64")}
	if len(d.labels) != batches*batch+heldBack || len(d.expected) != batches+3 {
		t.Fatal(len(d.labels), len(d.expected))
	}
	r := newRuntime(t, RuntimeOptions{})
	network, checkpoint := filepath.Join(folder, "simple_cnn.onnx"), filepath.Join(t.TempDir(), "digits.safetensors")
	trainer := must(r.NewTrainer(background, network, digitsOptions()))(t)
	d.train(t, r, trainer, 0, batches/2)
	good(t, trainer.Save(checkpoint))
	d.train(t, r, trainer, batches/2, batches)
	if d.expected[batches-1] >= d.expected[0] {
		t.Fatal("the loss does not fall", d.expected)
	}
	held, labels := d.inputs(t, r, batches*batch, heldBack), d.classes(t, r, batches*batch, heldBack)
	found := must(trainer.Evaluate(held, labels))(t)
	if found != (Evaluation{d.expected[batches], uint64(d.expected[batches+1]), heldBack}) || found.Accuracy() < 0.5 {
		t.Fatal(found, d.expected[batches:])
	}
	// From its own checkpoint and from Python's it goes on with the same bits.
	learned := valuesOf(t, must(trainer.Parameters())(t))
	for _, file := range []string{checkpoint, filepath.Join(folder, "state.safetensors")} {
		other := must(r.NewTrainer(background, network, digitsOptions()))(t)
		good(t, other.Restore(file))
		d.train(t, r, other, batches/2, batches)
		if !reflect.DeepEqual(valuesOf(t, must(other.Parameters())(t)), learned) {
			t.Fatal("the parameters have other bits")
		}
		good(t, other.Close())
	}
	exported := filepath.Join(t.TempDir(), "digits.onnx")
	good(t, trainer.Export(exported))
	for _, trained := range []*Model{must(trainer.Finish())(t), must(r.Load(background, exported))(t)} {
		s := must(r.NewSession(background, trained, nil))(t)
		logits := must(Data[float32](must(s.Run(background, held["x"]))(t)[0]))(t)
		loss, correct := 0.0, uint64(0)
		for row := 0; row < heldBack; row++ {
			of, label, best, sum := logits[row*10:row*10+10], d.labels[batches*batch+row], 0, 0.0
			for class, logit := range of {
				sum += math.Exp(float64(logit))
				if logit > of[best] {
					best = class
				}
			}
			loss += (math.Log(sum) - float64(of[label])) / heldBack
			if int64(best) == label {
				correct++
			}
		}
		if math.Abs(loss-found.Loss) > 1e-5 || correct != found.Correct {
			t.Fatal(loss, correct, found)
		}
	}
}

// linear gives logits of three classes: y = x w + b, of any rows of four columns.
func linear() []byte {
	constant := func(name string, values []float32, dims ...uint64) (made message) {
		var bytes []byte
		for _, value := range values {
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(value))
		}
		for _, dim := range dims {
			made = made.number(1, dim)
		}
		return made.number(2, uint64(DFloat32)).text(8, name).bytes(9, bytes)
	}
	weights := make([]float32, 12)
	for i := range weights {
		weights[i] = float32(i%5)/4 - 0.5
	}
	ends := func(name, columns string) []message {
		return []message{value(name, tensorType(DFloat32, "m", columns))}
	}
	return model([]message{node("MatMul", []string{"x", "w"}, []string{"p"}), node("Add", []string{"p", "b"}, []string{"y"})}, ends("x", "4"), ends("y", "3"),
		[]message{constant("w", weights, 4, 3), constant("b", make([]float32, 3), 3)})
}

func newTrainer(t testing.TB, r *Runtime, options TrainerOptions) *Trainer {
	t.Helper()
	options.Data = linear()
	made := must(r.NewTrainer(background, "", &options))(t)
	t.Cleanup(func() { made.Close() })
	return made
}

func linearInputs(t testing.TB, r *Runtime) map[string]*Tensor {
	data := make([]float32, 24)
	for i := range data {
		data[i] = float32(i*5%7)/3 - 1
	}
	return map[string]*Tensor{"x": must(NewTensor(r, data, 6, 4))(t)}
}

func classes(t testing.TB, r *Runtime, classes ...int64) *Tensor {
	return must(NewTensor(r, classes, int64(len(classes))))(t)
}

func losses(t testing.TB, r *Runtime, trainer *Trainer, steps int) (made []float64) {
	inputs, labels := linearInputs(t, r), classes(t, r, 0, 1, 2, 2, 1, 0)
	for i := 0; i < steps; i++ {
		made = append(made, must(trainer.Step(inputs, labels))(t).Loss)
	}
	return made
}

func TestMisuseOfATrainerIsAnErrorAndChangesNothing(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	trainer, same := newTrainer(t, r, TrainerOptions{}), newTrainer(t, r, TrainerOptions{})
	x, y := linearInputs(t, r), classes(t, r, 0, 1, 2, 2, 1, 0)
	refused := func(inputs map[string]*Tensor, labels *Tensor, status Status) {
		t.Helper()
		_, err := trainer.Step(inputs, labels)
		is(t, err, status)
		_, err = trainer.Evaluate(inputs, labels)
		is(t, err, status)
	}
	closed := classes(t, r, 0)
	good(t, closed.Close())
	refused(x, classes(t, r, 0, 1, 2, 3, 1, 0), InvalidArgument)
	refused(x, classes(t, r, 0, 1, 2, -1, 1, 0), InvalidArgument)
	refused(x, classes(t, r, 0, 1, 2), InvalidArgument)
	refused(x, must(NewTensor(r, []int32{0, 0, 0, 0, 0, 0}, 6))(t), InvalidArgument)
	refused(x, nil, InvalidArgument)
	refused(x, closed, InvalidHandle)
	refused(x, &Tensor{}, InvalidHandle)
	refused(map[string]*Tensor{"x": nil}, y, InvalidHandle)
	refused(map[string]*Tensor{"z": x["x"]}, y, InvalidArgument)
	refused(map[string]*Tensor{"x": must(NewTensor(r, make([]float32, 18), 6, 3))(t)}, y, InvalidArgument)
	refused(map[string]*Tensor{"x": must(NewTensor(r, make([]float64, 24), 6, 4))(t)}, y, InvalidArgument)
	if _, err := trainer.Step(nil, y); err == nil {
		t.Fatal("a step without inputs")
	}
	is(t, trainer.SetLearningRate(math.Inf(1)), InvalidArgument)
	is(t, trainer.Save("/nowhere/at/all"), IO)
	is(t, trainer.Restore("/nowhere/at/all"), IO)
	is(t, trainer.Export("/nowhere/at/all"), IO)
	is(t, trainer.Save("a\x00b"), InvalidArgument)
	broken := filepath.Join(t.TempDir(), "broken.safetensors")
	good(t, os.WriteFile(broken, []byte("nothing"), 0o600))
	if trainer.Restore(broken) == nil {
		t.Fatal("nothing was restored")
	}
	if !reflect.DeepEqual(losses(t, r, trainer, 3), losses(t, r, same, 3)) {
		t.Fatal("what failed has changed something")
	}
	good(t, trainer.Close())
	good(t, trainer.Close())
	refused(x, y, InvalidHandle)
	is(t, trainer.Save(broken), InvalidHandle)
	_, err := r.NewTrainer(background, filepath.Join(t.TempDir(), "none.onnx"), nil)
	is(t, err, IO)
}

func TestEachChoiceOfATrainerReachesTheLibrary(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	for _, options := range []TrainerOptions{
		{Nesterov: true}, {Output: "none"}, {Output: "a\x00b"}, {Trainable: []string{"none"}}, {Frozen: []string{"a\x00b"}}, {Schedule: ScheduleStep}, {PruneShare: 2},
		{Groups: []ParameterGroup{{[]string{"w"}, Given(-1.0), nil}}}, {LearningRate: Given(math.NaN())}, {PlateauPatience: Given(-1)}, {Accumulate: -1}, {RankCount: 1 << 40}, {CollectiveTimeout: -time.Second}, {CollectiveTimeout: 1e6 * time.Hour},
		{Loss: 99}, {Optimizer: -1}, {Beta1: Given(1.0)},
	} {
		options.Data = linear()
		_, err := r.NewTrainer(background, "", &options)
		is(t, err, InvalidArgument)
	}
	for _, options := range []TrainerOptions{{Device: "nowhere"}, {Replicas: []string{"nowhere", "cpu"}}, {Collective: "nothing"}} {
		options.Data = linear()
		if _, err := r.NewTrainer(background, "", &options); err == nil {
			t.Fatalf("%+v", options)
		}
	}
	x, y := linearInputs(t, r), classes(t, r, 0, 1, 2, 2, 1, 0)
	numbers := must(NewTensor(r, make([]float32, 18), 6, 3))(t)
	for _, loss := range []Loss{LossSoftmaxCrossEntropy, LossBCEWithLogits, LossMSE, LossL1} {
		labels := numbers
		if loss == LossSoftmaxCrossEntropy {
			labels = y
		}
		trainer := newTrainer(t, r, TrainerOptions{Loss: loss})
		if first := must(trainer.Step(x, labels))(t).Loss; must(trainer.Step(x, labels))(t).Loss >= first {
			t.Fatal(loss)
		}
	}
	for optimizer, name := range map[Optimizer]string{OptimizerSGD: "sgd", OptimizerAdam: "adam", OptimizerAdamW: "adamw", OptimizerAdagrad: "adagrad", OptimizerRMSprop: "rmsprop"} {
		trainer := newTrainer(t, r, TrainerOptions{Optimizer: optimizer})
		if all := losses(t, r, trainer, 5); all[4] >= all[0] {
			t.Fatal(name, all)
		}
		contains(t, must(trainer.Describe(JSON))(t), `"`+name+`"`)
	}
	trainer := newTrainer(t, r, TrainerOptions{Schedule: SchedulePlateau, Trainable: []string{"*"}, Frozen: []string{"b"}, Precision: PrecisionBF16})
	if must(trainer.InputCount())(t) != 1 || must(trainer.FindInput("x"))(t) != 0 {
		t.Fatal("the inputs")
	}
	good(t, trainer.SetLearningRate(0.5))
	before, none := valuesOf(t, must(trainer.Parameters())(t)), valuesOf(t, must(trainer.Gradients())(t))
	if len(before) != 1 || !reflect.DeepEqual(none["w"], make([]float32, 12)) {
		t.Fatal(before, none)
	}
	if rate := must(trainer.Step(x, y))(t).LearningRate; rate != 0.5 {
		t.Fatal(rate)
	}
	after, gradient := valuesOf(t, must(trainer.Parameters())(t)), valuesOf(t, must(trainer.Gradients())(t))
	for i := range after["w"] {
		if math.Abs(float64(before["w"][i]-0.5*gradient["w"][i]-after["w"][i])) > 1e-6 {
			t.Fatal(i, before, gradient, after)
		}
	}
	for i := 0; i < 12; i++ {
		good(t, trainer.NoteMetric(1))
	}
	if rate := must(trainer.Step(x, y))(t).LearningRate; math.Abs(rate-0.05) > 1e-12 {
		t.Fatal(rate)
	}
}

func TestZeroIsAValue(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	after := func(change func(*TrainerOptions)) ([]float32, float64) {
		options := TrainerOptions{Optimizer: OptimizerAdamW}
		change(&options)
		trainer := newTrainer(t, r, options)
		losses(t, r, trainer, 3)
		good(t, trainer.NoteMetric(1))
		good(t, trainer.NoteMetric(1))
		x, y := linearInputs(t, r), classes(t, r, 0, 1, 2, 2, 1, 0)
		rate := must(trainer.Step(x, y))(t).LearningRate
		return valuesOf(t, must(trainer.Parameters())(t))["w"], rate
	}
	byDefault, rate := after(func(o *TrainerOptions) {})
	if rate != 0.001 {
		t.Fatal(rate)
	}
	for _, same := range []func(*TrainerOptions){
		func(o *TrainerOptions) {
			o.LearningRate, o.WeightDecay, o.Beta1 = Given(0.001), Given(0.01), Given(0.9)
		},
		func(o *TrainerOptions) { o.Groups = []ParameterGroup{{[]string{"*"}, nil, nil}} },
	} {
		if values, _ := after(same); !reflect.DeepEqual(values, byDefault) {
			t.Fatal(values, byDefault)
		}
	}
	for _, other := range []func(*TrainerOptions){
		func(o *TrainerOptions) { o.LearningRate = Given(0.0) },
		func(o *TrainerOptions) { o.WeightDecay = Given(0.0) },
		func(o *TrainerOptions) { o.Beta1 = Given(0.0) },
		func(o *TrainerOptions) { o.Groups = []ParameterGroup{{[]string{"*"}, nil, Given(0.0)}} },
	} {
		if values, _ := after(other); reflect.DeepEqual(values, byDefault) {
			t.Fatal(values)
		}
	}
	if _, rate := after(func(o *TrainerOptions) { o.Schedule, o.PlateauPatience = SchedulePlateau, Given(0) }); math.Abs(rate-0.0001) > 1e-12 {
		t.Fatal(rate)
	}
}

func TestTheContextEndsATrainer(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	ctx, cancel := context.WithCancel(background)
	trainer := must(r.NewTrainer(ctx, "", &TrainerOptions{Data: linear()}))(t)
	losses(t, r, trainer, 1)
	cancel()
	<-trainer.bound.told
	_, err := trainer.Step(linearInputs(t, r), classes(t, r, 0, 1, 2, 2, 1, 0))
	is(t, err, Cancelled)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	_, err = trainer.Evaluate(linearInputs(t, r), classes(t, r, 0, 1, 2, 2, 1, 0))
	is(t, err, Cancelled)
	valuesOf(t, must(trainer.Parameters())(t))
	good(t, trainer.Close())
	_, err = r.NewTrainer(ctx, "", &TrainerOptions{Data: linear()})
	is(t, err, Cancelled)
}

func TestATrainerIsClosedWhileOthersUseIt(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	trainer := newTrainer(t, r, TrainerOptions{})
	x, y := linearInputs(t, r), classes(t, r, 0, 1, 2, 2, 1, 0)
	var all sync.WaitGroup
	begun := make(chan struct{}, 1000)
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for k := 0; k < 200; k++ {
				_, err := trainer.Step(x, y)
				select {
				case begun <- struct{}{}:
				default:
				}
				if err != nil {
					if !errors.Is(err, InvalidHandle) {
						t.Error(err)
					}
					return
				}
			}
		}()
	}
	<-begun
	good(t, trainer.Close())
	all.Wait()
}

func TestTheSumOverRanksOfTheHost(t *testing.T) {
	floats, doubles := []float32{1, 2}, []float64{3, 4, 5}
	var seen []any
	keep := reduce(func(given Reduced) error {
		seen = append(seen, append([]float32{}, given.Float32...), append([]float64{}, given.Float64...))
		return nil
	})
	good(t, keep.on(unsafe.Pointer(&floats[0]), 2, DFloat32))
	good(t, keep.on(unsafe.Pointer(&doubles[0]), 3, DFloat64))
	if !reflect.DeepEqual(seen, []any{floats, []float64{}, []float32{}, doubles}) {
		t.Fatal(seen)
	}
	is(t, keep.on(unsafe.Pointer(&floats[0]), 2, DInt8), InvalidArgument)
	is(t, keep.on(unsafe.Pointer(&floats[0]), math.MaxUint64, DFloat32), InvalidArgument)
	is(t, reduce(func(Reduced) error { return &Error{Status: Timeout, Message: "rank 1 is gone"} }).on(nil, 0, DFloat64), Timeout)
}

// meeting is all-reduce among two goroutines.
type meeting struct {
	sync.Mutex
	parts []*Reduced
	done  chan struct{}
}

func (m *meeting) sum(given Reduced) error {
	m.Lock()
	m.parts = append(m.parts, &given)
	if len(m.parts) == 1 {
		done := make(chan struct{})
		m.done = done
		m.Unlock()
		<-done
		return nil
	}
	one := m.parts[0]
	for i := range given.Float32 {
		given.Float32[i] += one.Float32[i]
	}
	for i := range given.Float64 {
		given.Float64[i] += one.Float64[i]
	}
	copy(one.Float32, given.Float32)
	copy(one.Float64, given.Float64)
	m.parts = nil
	close(m.done)
	m.Unlock()
	return nil
}

func TestRanksSumByTheHostAndAreAsOne(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	var m meeting
	var found [2][]float64
	var learned [2][]float32
	learn := func(rank int) error {
		trainer, err := r.NewTrainer(background, "", &TrainerOptions{Data: linear(), Rank: rank, RankCount: 2, CheckRanks: true, Reduce: m.sum})
		if err != nil {
			return err
		}
		defer trainer.Close()
		x, err := linearInputs(t, r)["x"].Part(uint64(rank)*12, 3, 4)
		if err != nil {
			return err
		}
		y, err := classes(t, r, 0, 1, 2, 2, 1, 0).Part(uint64(rank)*3, 3)
		if err != nil {
			return err
		}
		for i := 0; i < 4; i++ {
			step, err := trainer.Step(map[string]*Tensor{"x": x}, y)
			if err != nil {
				return err
			}
			found[rank] = append(found[rank], step.Loss)
		}
		parameters, err := trainer.Parameters()
		if err == nil {
			learned[rank], err = Data[float32](parameters["w"])
		}
		return err
	}
	second := make(chan error)
	go func() { second <- learn(1) }()
	good(t, learn(0))
	good(t, <-second)
	if !reflect.DeepEqual(found[0], found[1]) || !reflect.DeepEqual(learned[0], learned[1]) || len(learned[0]) != 12 {
		t.Fatal(found, learned)
	}
	for i, alone := range losses(t, r, newTrainer(t, r, TrainerOptions{}), 4) {
		if math.Abs(alone-found[0][i]) > 1e-5 {
			t.Fatal(i, alone, found[0])
		}
	}
}

func TestWhatTheHostsSumFailsWithIsTheStatus(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	refused := func(sum func(Reduced) error) error {
		_, err := r.NewTrainer(background, "", &TrainerOptions{Data: linear(), RankCount: 2, Reduce: sum})
		return err
	}
	contains(t, is(t, refused(func(Reduced) error { return &Error{Status: Timeout, Message: "rank 1 is gone"} }), Timeout).Message, "rank 1 is gone")
	contains(t, is(t, refused(func(Reduced) error { return errors.New("no network") }), Internal).Message, "no network")
	contains(t, is(t, refused(func(Reduced) error { return &Error{Message: "no status"} }), Internal).Message, "no status")
	contains(t, is(t, refused(func(Reduced) error { panic("at the disco") }), Internal).Message, "at the disco")
}

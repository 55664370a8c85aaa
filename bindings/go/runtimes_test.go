package evener

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const strict = "version: 1\nplacement:\n  default: cpu\n  rules:\n    - {match: {op: MatMul}, device: cpu, numerics: strict}\n"

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Fatalf("no %q in %s", part, text)
		}
	}
}

func TestYAMLPlacesNodesAndExplainSaysSo(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{ConfigText: strict})
	s := newTestSession(t, r, product())
	text := strings.ReplaceAll(must(s.Explain(JSON))(t), " ", "")
	contains(t, text, `"name":"the_MatMul"`, `"device":"cpu"`, `"rule_line":5`, `"numerics":"strict"`)
	contains(t, must(s.Explain(SVG))(t), "<svg")
	good(t, r.Reconfigure(background, "version: 1\n"))
	if strings.Contains(must(s.Explain(JSON))(t), "strict") {
		t.Fatal("the old configuration")
	}
	is(t, r.Reconfigure(background, "version: 9\n"), WrongConfig)
	is(t, r.ReconfigureFile(background, "/nowhere.yaml"), IO)
	_, err := NewRuntime(&RuntimeOptions{ConfigText: "version: 1\nplacemint: {}\n"})
	contains(t, is(t, err, WrongConfig).Message, "placement")
	_, err = NewRuntime(&RuntimeOptions{ConfigPath: "/nowhere.yaml"})
	is(t, err, IO)
}

func TestAModelThatTheConfigurationNames(t *testing.T) {
	folder := t.TempDir()
	good(t, os.WriteFile(filepath.Join(folder, "named.onnx"), double(), 0o600))
	config := filepath.Join(folder, "named.yaml")
	good(t, os.WriteFile(config, []byte("version: 1\nmodels:\n  twice: {path: named.onnx}\n"), 0o600))
	r := newRuntime(t, RuntimeOptions{ConfigPath: config})
	s := must(r.Session("twice"))(t)
	holds[float32](t, must(s.Run(background, vector(t, r, 2)))(t)[0], 4)
	_, err := r.Session("thrice")
	is(t, err, InvalidArgument)
	text := must(r.Inspect(filepath.Join(folder, "named.onnx"), map[string][]int64{"x": {5}}, JSON))(t)
	contains(t, strings.ReplaceAll(text, " ", ""), `"loads":true`)
}

func TestFilesOfWeightsBehindLinks(t *testing.T) {
	root := t.TempDir()
	store, models := filepath.Join(root, "store"), filepath.Join(root, "models")
	good(t, os.Mkdir(store, 0o700))
	good(t, os.Mkdir(models, 0o700))
	good(t, os.WriteFile(filepath.Join(store, "w.evener-bin"), doubling(), 0o600))
	good(t, os.Symlink("../store/w.evener-bin", filepath.Join(models, "w.bin")))
	file := filepath.Join(models, "m.onnx")
	good(t, os.WriteFile(file, externalProduct("w.bin"), 0o600))
	r := newRuntime(t, RuntimeOptions{})
	_, err := r.Load(background, file)
	is(t, err, InvalidModel)
	_, err = r.LoadWith(background, file, &ModelOptions{AllowedRoots: []string{models}})
	is(t, err, InvalidModel)
	threes, sixes := make([]float32, 64), make([]float32, 64)
	for i := range threes {
		threes[i], sixes[i] = 3, 6
	}
	x := must(NewTensor(r, threes, 1, 64))(t)
	for _, mapped := range []bool{false, true} {
		options := ModelOptions{AllowedRoots: []string{models, store}, MapFiles: mapped}
		of := options
		of.ExternalDir = models
		for _, m := range []*Model{
			must(r.LoadWith(background, file, &options))(t), must(r.LoadBytesWith(background, externalProduct("w.bin"), &of))(t),
		} {
			s := must(r.NewSession(background, m, nil))(t)
			holds(t, must(s.Run(background, x))(t)[0], sixes...)
			maps := must(os.ReadFile("/proc/self/maps"))(t)
			if strings.Contains(string(maps), "/w.evener-bin") != mapped {
				t.Fatalf("MapFiles is %v", mapped)
			}
			s.Close()
			m.Close()
		}
	}
}

func TestTheLogIsDeliveredAndItsPanicsAreNot(t *testing.T) {
	var mutex sync.Mutex
	seen := map[string]bool{}
	r := newRuntime(t, RuntimeOptions{LogLevel: LogDebug, Log: func(record *LogRecord) {
		mutex.Lock()
		defer mutex.Unlock()
		seen[record.Event] = true
		panic("a log panics")
	}})
	newTestSession(t, r, double())
	mutex.Lock()
	defer mutex.Unlock()
	if !seen["runtime.created"] || !seen["session.created"] {
		t.Fatal(seen)
	}
}

func TestMemoryIsCountedAndCapped(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{MemoryLimit: 1 << 20})
	cpu := must(r.Device("cpu"))(t)
	before := must(cpu.MemoryStats())(t)
	tensor := must(cpu.Tensor(DUint8, false, 1<<18))(t)
	if with := must(cpu.MemoryStats())(t); with.Tensors-before.Tensors != 1<<18 || with.Limit != 1<<20 {
		t.Fatalf("%+v", with)
	}
	_, err := cpu.Tensor(DUint8, false, 1<<20)
	failed := is(t, err, OutOfMemory)
	if failed.BytesRequested != 1<<20 || failed.BytesAvailable >= 1<<20 || failed.Device != "cpu" {
		t.Fatalf("%+v", failed)
	}
	good(t, cpu.SetMemoryLimit(NoLimit))
	good(t, must(cpu.Tensor(DUint8, false, 1<<20))(t).Close())
	good(t, tensor.Close())
	good(t, cpu.SetCachePolicy(0, TrimAlways))
	good(t, cpu.TrimMemory())
	good(t, cpu.ResetMemoryPeak())
	after := must(cpu.MemoryStats())(t)
	if after.Tensors != 0 || after.Cached != 0 || after.Limit != NoLimit || after.Peak != after.Current || after.Trim != TrimAlways {
		t.Fatalf("%+v", after)
	}
	is(t, cpu.SetMemoryLimit(1), InvalidArgument)
}

// What is forgotten is closed by the collector: the library's own ledger says so.
func TestWhatIsForgottenIsCollected(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{MemoryLimit: 1 << 24})
	cpu := must(r.Device("cpu"))(t)
	for i := 0; i < 200; i++ { // of 1 MiB each, under a cap of 16
		for try := 0; ; try++ {
			_, err := cpu.Tensor(DUint8, false, 1<<20)
			if err == nil {
				break
			}
			is(t, err, OutOfMemory)
			if try == 1000 {
				t.Fatal("nothing was collected")
			}
			runtime.GC()
		}
	}
}

func TestDevicesModelsAndStatisticsAreTold(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	devices := must(r.Devices())(t)
	info := must(devices[0].Info())(t)
	if info.Kind != CPU || info.Name != "cpu" || info.State != Ready || info.ComputeUnits != 2 || info.Driver == "" {
		t.Fatalf("%+v", info)
	}
	if must(devices[0].Condition())(t) != "" {
		t.Fatal("it is ready")
	}
	_, err := r.Device("nonsense")
	is(t, err, DeviceUnavailable)
	model := must(r.LoadBytes(background, double(), ""))(t)
	if inputs := must(model.Inputs())(t); inputs[0].Type != "tensor(float32)" {
		t.Fatal(inputs)
	}
	if outputs := must(model.Outputs())(t); outputs[0].Symbols[0] != "n" || outputs[0].Dims[0] != -1 {
		t.Fatal(outputs)
	}
	contains(t, must(model.Describe(Text))(t), "Add")
	if len(must(model.MetadataKeys())(t)) != 0 {
		t.Fatal("it has no metadata")
	}
	if _, has, err := model.Metadata("author"); has || err != nil {
		t.Fatal(has, err)
	}
	_, err = r.NewSession(background, model, &SessionOptions{Device: "nonsense"})
	is(t, err, DeviceUnavailable)
	_, err = r.NewSession(background, nil, nil)
	is(t, err, InvalidHandle)
	s := must(r.NewSession(background, model, &SessionOptions{Name: "exact", Numerics: NumericsStrict, KeepFP32: []string{"type:Add"},
		Batching: &Batching{MaxBatch: 4}}))(t)
	x := vector(t, r, 1)
	good(t, s.TraceStart(100))
	holds[float32](t, must(s.Run(background, x))(t)[0], 2)
	good(t, s.TraceStop())
	is(t, s.TraceStop(), WrongState)
	contains(t, must(s.Trace(Text))(t), "the_Add")
	if stats := must(s.MemoryStats())(t); stats.Plans < 1 {
		t.Fatalf("%+v", stats)
	}
	contains(t, must(s.Statistics(JSON))(t), "exact")
	contains(t, must(r.Statistics(Prometheus))(t), "evener_requests_total")
	contains(t, must(r.DescribeDevices(Text))(t), "cpu")
	contains(t, must(DescribePasses(JSON))(t), "summary")
	contains(t, must(s.Compare(newTestSession(t, r, double()), []*Tensor{x}, JSON))(t), "largest_error")
	contains(t, must(Version())(t), "0.")
	contains(t, must(r.Calibrate(background, model, JSON))(t), "devices")
}

func TestNumbersThatDoNotFitAreErrors(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	const large = math.MaxInt32 + 1
	for _, options := range []RuntimeOptions{{Threads: 2 * large}, {Threads: -1}, {ProbeTimeout: -1}} {
		options.NoCache = true
		_, err := NewRuntime(&options)
		is(t, err, InvalidArgument)
	}
	m := must(r.LoadBytes(background, double(), ""))(t)
	defer m.Close()
	for _, options := range []SessionOptions{
		{Concurrency: 2 * large}, {Concurrency: large}, {Concurrency: -1}, {Batching: &Batching{MaxDelay: -1}}, {Batching: &Batching{MaxBatch: 2*large + 4}},
		{Batching: &Batching{MaxBatch: -1}},
	} {
		_, err := r.NewSession(background, m, &options)
		is(t, err, InvalidArgument)
	}
	s, x := newTestSession(t, r, double()), vector(t, r, 1)
	for _, options := range []RunOptions{{Priority: 2 * large}, {Priority: -2 * large}, {Timeout: -1}} {
		_, err := s.RunWith(background, &options, []*Tensor{x}, nil)
		is(t, err, InvalidArgument)
		_, err = s.Submit(background, &options, x)
		is(t, err, InvalidArgument)
	}
	for _, events := range []int{-1, 2*large + 1} {
		is(t, s.TraceStart(events), InvalidArgument)
	}
	state := must(newTestSession(t, r, runningSum()).NewState([]StatePair{{Output: "total", Input: "sum"}}, nil))(t)
	for _, index := range []int{-1, 2 * large} {
		_, err := state.Length(index)
		is(t, err, InvalidArgument)
	}
	for _, options := range []QuantizerOptions{{WeightBits: -1}, {WeightBits: 2 * large}, {BlockSize: -1}, {BlockSize: 2 * large}} {
		options.Data = product()
		_, err := r.NewQuantizer(background, "", &options)
		is(t, err, InvalidArgument)
	}
	infer := func(*Node, []*View, int) ([]Spec, error) { return nil, nil }
	run := func(*Node, []*View, []*View) error { return nil }
	is(t, r.RegisterOperator(Operator{Domain: "mine", Name: "Late", SinceVersion: 2*large + 1, Infer: infer, Run: run}), InvalidArgument)
}

func TestAnOperatorOfGo(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	infer := func(node *Node, inputs []*View, outputs int) ([]Spec, error) {
		if name, err := node.Name(); err != nil || !strings.HasPrefix(name, "the_") || outputs != 1 {
			return nil, fmt.Errorf("node %q with %d outputs: %v", name, outputs, err)
		}
		return []Spec{inputs[0].Spec()}, nil
	}
	good(t, r.RegisterOperator(Operator{Domain: "mine", Name: "Scale", Infer: infer, Run: func(node *Node, inputs, outputs []*View) error {
		factor, err := node.Int("factor", 1)
		if err != nil {
			return err
		}
		if other, err := node.Float("other", 0.5); err != nil || other != 0.5 {
			return fmt.Errorf("other: %v, %v", other, err)
		}
		if text, err := node.Text("text", ""); err != nil || text != "a text" {
			return fmt.Errorf("text: %q, %v", text, err)
		}
		for _, absent := range []func(string) error{
			func(name string) error { made, err := node.Ints(name); return none(len(made), err) },
			func(name string) error { made, err := node.Floats(name); return none(len(made), err) },
			func(name string) error { made, err := node.Texts(name); return none(len(made), err) },
			func(name string) error {
				made, err := node.Tensor(name)
				if made != nil {
					return errors.New("a tensor")
				}
				return err
			},
		} {
			if err := absent("absent"); err != nil {
				return err
			}
		}
		x, err := Elements[float32](inputs[0])
		if err != nil {
			return err
		}
		if _, err := Elements[int32](inputs[0]); !errors.Is(err, InvalidArgument) {
			return fmt.Errorf("a slice of another type: %v", err)
		}
		y, err := Elements[float32](outputs[0])
		for i := range x {
			y[i] = x[i] * float32(factor)
		}
		runtime.GC()
		return err
	}}))
	factor := message{}.text(1, "factor").number(3, 3).number(20, 2)
	text := message{}.text(1, "text").text(4, "a text").number(20, 3)
	s := newTestSession(t, r, custom("Scale", factor, text))
	holds[float32](t, must(s.Run(background, vector(t, r, 1, 2)))(t)[0], 3, 6)
	contains(t, must(s.Explain(JSON))(t), "the_Scale")

	good(t, r.RegisterOperator(Operator{Domain: "mine", Name: "Panic", Infer: infer, Run: func(*Node, []*View, []*View) error { panic("at the disco") }}))
	_, err := newTestSession(t, r, custom("Panic")).Run(background, vector(t, r, 1))
	contains(t, is(t, err, Internal).Message, "at the disco")
	good(t, r.RegisterOperator(Operator{Domain: "mine", Name: "Refuse", Infer: infer, Run: func(*Node, []*View, []*View) error {
		return &Error{Status: Unsupported, Message: "not today"}
	}}))
	_, err = newTestSession(t, r, custom("Refuse")).Run(background, vector(t, r, 1))
	failed := is(t, err, Unsupported)
	contains(t, failed.Message, "not today")
	if failed.Node != "the_Refuse" {
		t.Fatal(failed)
	}
	good(t, r.RegisterOperator(Operator{Domain: "mine", Name: "Zero", Infer: infer, Run: func(*Node, []*View, []*View) error {
		return &Error{Message: "no status"}
	}}))
	_, err = newTestSession(t, r, custom("Zero")).Run(background, vector(t, r, 1))
	contains(t, is(t, err, Internal).Message, "no status")
	is(t, r.RegisterOperator(Operator{Domain: "", Name: "Scale", Infer: infer, Run: func(*Node, []*View, []*View) error { return nil }}), InvalidArgument)
	is(t, r.RegisterOperator(Operator{Domain: "mine", Name: "Half", Infer: infer}), InvalidArgument)
}

func none(count int, err error) error {
	if err == nil && count != 0 {
		return errors.New("something that is not there")
	}
	return err
}

func rows(t testing.TB, r *Runtime, seed int) *Tensor {
	data := make([]float32, 16*64)
	for i := range data {
		data[i] = float32((i*31+seed*7)%17)/17 - 0.5
	}
	return must(NewTensor(r, data, 16, 64))(t)
}

func TestAModelIsQuantized(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	calls := 0
	q := must(r.NewQuantizer(background, "", &QuantizerOptions{Data: product(), Progress: func(string, uint64, uint64) bool { calls++; return true }}))(t)
	_, err := q.Finish()
	is(t, err, WrongState)
	for seed := 0; seed < 3; seed++ {
		good(t, q.AddBatch(map[string]*Tensor{"x": rows(t, r, seed)}))
	}
	is(t, q.AddBatch(map[string]*Tensor{"x": must(NewTensor(r, []int32{1}, 1))(t)}), InvalidArgument)
	is(t, q.AddBatch(map[string]*Tensor{"z": rows(t, r, 0)}), InvalidArgument)
	good(t, q.Guard(map[string]*Tensor{"x": rows(t, r, 5)}, GuardOptions{Flags: GuardError}))
	model := must(q.Finish())(t)
	good(t, q.Verify(map[string]*Tensor{"x": rows(t, r, 6)}))
	contains(t, strings.ReplaceAll(must(q.Report(JSON))(t), " ", ""), `"quantized_nodes":1`)
	file := filepath.Join(t.TempDir(), "quantized.onnx")
	good(t, q.Save(file))
	good(t, q.Close())
	good(t, q.Close())
	is(t, q.Save(file), InvalidHandle)
	if calls == 0 {
		t.Fatal("no progress was told")
	}
	x := rows(t, r, 9)
	run := func(model *Model) []float32 {
		s := must(r.NewSession(background, model, nil))(t)
		defer s.Close()
		return must(Data[float32](must(s.Run(background, x))(t)[0]))(t)
	}
	float := must(Data[float32](must(newTestSession(t, r, product()).Run(background, x))(t)[0]))(t)
	int8s, again := run(model), run(must(r.Load(background, file))(t))
	var wrong, signal float64
	for i := range float {
		if int8s[i] != again[i] {
			t.Fatal("the file computes something else")
		}
		wrong += math.Pow(float64(float[i]-int8s[i]), 2)
		signal += math.Pow(float64(float[i]), 2)
	}
	if wrong == 0 || wrong > signal/100 {
		t.Fatalf("error %g of %g", wrong, signal)
	}
}

func TestProgressCancelsAQuantization(t *testing.T) {
	r := newRuntime(t, RuntimeOptions{})
	for _, progress := range []func(string, uint64, uint64) bool{
		func(string, uint64, uint64) bool { return false }, func(string, uint64, uint64) bool { panic("progress panics") },
	} {
		q := must(r.NewQuantizer(background, "", &QuantizerOptions{Data: product(), Progress: progress}))(t)
		is(t, q.AddBatch(map[string]*Tensor{"x": rows(t, r, 0)}), Cancelled)
		good(t, q.Close())
	}
}

// Opening another library needs a process of its own: this test runs itself with another EVENER_LIBRARY.
func TestALibraryThatDoesNotFit(t *testing.T) {
	if os.Getenv("EVENER_GO_TEST_OPENS") != "" {
		_, err := NewRuntime(nil)
		var version *VersionError
		fmt.Printf("%v|%v|%v\n", err, errors.As(err, &version), errors.Is(err, OtherVersion) || errors.Is(err, IO))
		return
	}
	must(Version())(t)
	is(t, Open("/another.so"), WrongState)
	folder := t.TempDir()
	compiled := func(name, source string) string {
		file, made := filepath.Join(folder, name+".c"), filepath.Join(folder, name+".so")
		good(t, os.WriteFile(file, []byte(source), 0o600))
		if text, err := exec.Command("cc", "-shared", "-fPIC", "-o", made, file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return made
	}
	const number = "unsigned evn_version_number(void) { return 1u << 8 | 7; }\n"
	for _, one := range []struct{ library, expected string }{
		{"/nowhere/libevener.so", "the Evener library /nowhere/libevener.so cannot be opened: "},
		{compiled("none", "int x;"), "is no Evener library of version 0.2 or later: "},
		{compiled("old", number+"int evn_get_api(unsigned version, const void **api) { return 15; }"), "expected ABI 0.3.0, found 0.1.7|true|true"},
		{compiled("short", "static const unsigned table[] = {16, 0x10000, 0, 0};\nint evn_get_api(unsigned version, const void **api) { *api = table; return 0; }"),
			"expected ABI 0.3.0, found 1.0.0|true|true"},
		{compiled("otherwise", "static int no(void) { return 1; }\nstatic struct { unsigned size, version; int (*all[400])(void); } table = {3208, 0x300, {[0 ... 399] = no}};\n"+
			"int evn_get_api(unsigned version, const void **api) { *api = &table; return 0; }"), "expected evn_error at byte 0 with 728 bytes, found it nowhere|true|true"},
	} {
		command := exec.Command(os.Args[0], "-test.run=^TestALibraryThatDoesNotFit$")
		command.Env = append(os.Environ(), "EVENER_LIBRARY="+one.library, "EVENER_GO_TEST_OPENS=1")
		text, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		contains(t, string(text), one.expected, "|true\n")
	}
}

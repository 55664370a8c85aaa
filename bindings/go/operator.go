package evener

// #include "glue.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime/cgo"
	"unsafe"
)

// Variadic, as the most inputs or outputs: any number.
const Variadic uint32 = C.EVN_VARIADIC

// Spec is what is known of a tensor before a run.
type Spec struct {
	DType   DType
	HasRank bool
	Dims    []int64 // -1: not known yet
}

// Operator is a custom operator. Its functions are called from any thread, also several at a time, and must not call the library
// but for the node that they get. A panic becomes an error of the run, with Internal.
type Operator struct {
	Domain, Name string
	SinceVersion int       // 0: 1
	Inputs       [2]uint32 // least and most; {}: one
	Outputs      [2]uint32 // least and most; {}: one
	ValueInputs  []int     // places of inputs on whose values dims of outputs depend
	// Infer says what the outputs are, one Spec for each. While a model loads ranks and dims may not be known; before a run all are.
	Infer func(node *Node, inputs []*View, outputs int) ([]Spec, error)
	// Run computes the outputs' elements. nil among inputs and outputs: not given, or not wanted.
	Run func(node *Node, inputs, outputs []*View) error
}

// Node is a node of a custom operator, for as long as the function runs that got it.
type Node struct{ raw C.evn_operator_node }

// View is a tensor in memory of the library, for as long as the function runs that got it: its slices must not be kept.
type View struct{ raw C.evn_tensor_view }

// Spec gives dtype and dims as far as they are known.
func (v *View) Spec() Spec {
	if v == nil {
		return Spec{} // an input that is not given
	}
	made := Spec{DType: DType(v.raw.dtype), HasRank: v.raw.rank != math.MaxUint32}
	for axis := 0; made.HasRank && axis < int(v.raw.rank); axis++ {
		made.Dims = append(made.Dims, int64(v.raw.dims[axis]))
	}
	return made
}

// Elements gives the elements where they lie; those of inputs must not be written. In Infer: an error, where the value is not known.
func Elements[T Element](v *View) ([]T, error) {
	if v == nil {
		return nil, &Error{Status: InvalidHandle, Message: "there is no tensor: an input that is not given, or an output that is not wanted"}
	}
	if wanted := DTypeOf[T](); DType(v.raw.dtype) != wanted {
		return nil, argument("a tensor of %v is no slice of %v", DType(v.raw.dtype), wanted)
	}
	spec := v.Spec()
	count, err := countOf(spec.Dims)
	if err != nil || !spec.HasRank {
		return nil, &Error{Status: WrongState, Message: "the shape of this tensor is not known here"}
	}
	if count == 0 {
		return nil, nil
	}
	if v.raw.data == nil {
		return nil, &Error{Status: WrongState, Message: "the value of this tensor is not known here"}
	}
	return unsafe.Slice((*T)(v.raw.data), count), nil
}

// Name gives the node's name.
func (n *Node) Name() (string, error) {
	if n == nil {
		return "", noNode()
	}
	return readText(64, func(buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_operator_node_name(n.raw, buffer, capacity, size, e)
	})
}

func noNode() error { return &Error{Status: InvalidHandle, Message: "there is no node"} }

// attribute calls a function where the node has the attribute, and says whether it has.
func (n *Node) attribute(name string, read func(*C.char) error) (bool, error) {
	if n == nil {
		return false, noNode()
	}
	var bag bag
	defer bag.free()
	text, err := bag.text(name)
	if err != nil {
		return false, err
	}
	var kind C.evn_attribute_type
	err = check(func(e *C.evn_error) C.evn_status { return C.evn_operator_attribute_type(n.raw, text, &kind, e) })
	if err != nil || kind == C.EVN_ATTRIBUTE_NONE {
		return false, err
	}
	err = read(text)
	return err == nil, err
}

// Int gives an attribute, or `otherwise` where the node does not have it.
func (n *Node) Int(name string, otherwise int64) (int64, error) {
	value := C.int64_t(otherwise)
	_, err := n.attribute(name, func(text *C.char) error {
		return check(func(e *C.evn_error) C.evn_status { return C.evn_operator_attribute_int(n.raw, text, &value, e) })
	})
	return int64(value), err
}

// Float gives an attribute, or `otherwise` where the node does not have it.
func (n *Node) Float(name string, otherwise float32) (float32, error) {
	value := C.float(otherwise)
	_, err := n.attribute(name, func(text *C.char) error {
		return check(func(e *C.evn_error) C.evn_status { return C.evn_operator_attribute_float(n.raw, text, &value, e) })
	})
	return float32(value), err
}

// Text gives an attribute, or `otherwise` where the node does not have it.
func (n *Node) Text(name, otherwise string) (string, error) {
	_, err := n.attribute(name, func(text *C.char) (err error) {
		otherwise, err = readText(64, func(buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
			return C.evn_operator_attribute_string(n.raw, text, buffer, capacity, size, e)
		})
		return err
	})
	return otherwise, err
}

// Texts gives an attribute, or nil where the node does not have it.
func (n *Node) Texts(name string) (made []string, err error) {
	_, err = n.attribute(name, func(text *C.char) error {
		var count C.uint32_t
		if err := check(func(e *C.evn_error) C.evn_status {
			return C.evn_operator_attribute_string_count(n.raw, text, &count, e)
		}); err != nil {
			return err
		}
		for i := C.uint32_t(0); i < count; i++ {
			one, err := readText(64, func(buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
				return C.evn_operator_attribute_string_at(n.raw, text, i, buffer, capacity, size, e)
			})
			if err != nil {
				return err
			}
			made = append(made, one)
		}
		return nil
	})
	return made, err
}

// Ints gives an attribute, or nil where the node does not have it.
func (n *Node) Ints(name string) (made []int64, err error) {
	_, err = n.attribute(name, func(text *C.char) error {
		var values *C.int64_t
		var count C.size_t
		err := check(func(e *C.evn_error) C.evn_status {
			return C.evn_operator_attribute_ints(n.raw, text, &values, &count, e)
		})
		if err == nil && count != 0 {
			made = append(made, unsafe.Slice((*int64)(unsafe.Pointer(values)), int(count))...)
		}
		return err
	})
	return made, err
}

// Floats gives an attribute, or nil where the node does not have it.
func (n *Node) Floats(name string) (made []float32, err error) {
	_, err = n.attribute(name, func(text *C.char) error {
		var values *C.float
		var count C.size_t
		err := check(func(e *C.evn_error) C.evn_status {
			return C.evn_operator_attribute_floats(n.raw, text, &values, &count, e)
		})
		if err == nil && count != 0 {
			made = append(made, unsafe.Slice((*float32)(unsafe.Pointer(values)), int(count))...)
		}
		return err
	})
	return made, err
}

// Tensor gives an attribute, or nil where the node does not have it.
func (n *Node) Tensor(name string) (*View, error) {
	made := &View{}
	has, err := n.attribute(name, func(text *C.char) error {
		return check(func(e *C.evn_error) C.evn_status { return C.evn_operator_attribute_tensor(n.raw, text, &made.raw, e) })
	})
	if !has {
		return nil, err
	}
	return made, nil
}

func viewsOf(raw *C.evn_tensor_view, count C.uint32_t) []*View {
	made := make([]*View, int(count))
	if count == 0 {
		return made
	}
	for i, view := range unsafe.Slice(raw, int(count)) {
		if view.dtype != C.EVN_DTYPE_UNDEFINED {
			made[i] = &View{view}
		}
	}
	return made
}

// told calls a function of the host's; an error, or a panic, is told to C.
func told(e *C.evn_error, what string, body func() error) (status C.evn_status) {
	tell := func(of Status, text string) {
		status = C.evn_status(of)
		if e == nil {
			return
		}
		at := 0
		for i := 0; i < len(text) && at < len(e.message)-1; i++ {
			if text[i] != 0 {
				e.message[at] = C.char(text[i])
				at++
			}
		}
		e.message[at] = 0
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			tell(Internal, fmt.Sprintf("%s panicked: %v", what, panicked))
		}
	}()
	err := body()
	if err == nil {
		return C.EVN_OK
	}
	var failed *Error
	switch {
	case !errors.As(err, &failed):
		tell(Internal, err.Error())
	case failed.Status == C.EVN_OK: // Status is not set
		tell(Internal, failed.Message)
	default:
		tell(failed.Status, failed.Message)
	}
	return status
}

//export evenerInfer
func evenerInfer(user C.uintptr_t, node C.evn_operator_node, inputs *C.evn_tensor_view, inputCount C.uint32_t, outputs *C.evn_tensor_view, outputCount C.uint32_t, e *C.evn_error) C.evn_status {
	return told(e, "the operator", func() error {
		specs, err := valueOf(user).(*Operator).Infer(&Node{node}, viewsOf(inputs, inputCount), int(outputCount))
		if err != nil {
			return err
		}
		if len(specs) != int(outputCount) {
			return argument("Infer gave %d outputs, the node has %d", len(specs), int(outputCount))
		}
		if outputCount == 0 {
			return nil
		}
		views := unsafe.Slice(outputs, int(outputCount))
		for i, spec := range specs {
			views[i].dtype = C.evn_dtype(spec.DType)
			if !spec.HasRank {
				views[i].rank = C.EVN_UNKNOWN_RANK
				continue
			}
			if len(spec.Dims) > len(views[i].dims) {
				return argument("Infer gave a shape of rank %d", len(spec.Dims))
			}
			views[i].rank = C.uint32_t(len(spec.Dims))
			for axis, dim := range spec.Dims {
				views[i].dims[axis] = C.int64_t(dim)
			}
		}
		return nil
	})
}

//export evenerOperatorRun
func evenerOperatorRun(user C.uintptr_t, node C.evn_operator_node, inputs *C.evn_tensor_view, inputCount C.uint32_t, outputs *C.evn_tensor_view, outputCount C.uint32_t, e *C.evn_error) C.evn_status {
	return told(e, "the operator", func() error {
		return valueOf(user).(*Operator).Run(&Node{node}, viewsOf(inputs, inputCount), viewsOf(outputs, outputCount))
	})
}

// RegisterOperator adds an operator to those that models which this runtime loads from now on may use. It runs on the CPU.
func (r *Runtime) RegisterOperator(operator Operator) error {
	if operator.Infer == nil || operator.Run == nil {
		return argument("the operator %s needs Infer and Run", operator.Name)
	}
	var bag bag
	defer bag.free()
	raw := C.evn_operator_initial()
	var err error
	if raw.domain, err = bag.text(operator.Domain); err != nil {
		return err
	}
	if raw.name, err = bag.text(operator.Name); err != nil {
		return err
	}
	one := [2]uint32{1, 1}
	if operator.Inputs == [2]uint32{} {
		operator.Inputs = one
	}
	if operator.Outputs == [2]uint32{} {
		operator.Outputs = one
	}
	if operator.SinceVersion != 0 {
		if err = setInt(&raw.since_version, operator.SinceVersion, "SinceVersion"); err != nil {
			return err
		}
	}
	raw.min_inputs, raw.max_inputs = C.uint32_t(operator.Inputs[0]), C.uint32_t(operator.Inputs[1])
	raw.min_outputs, raw.max_outputs = C.uint32_t(operator.Outputs[0]), C.uint32_t(operator.Outputs[1])
	for _, index := range operator.ValueInputs {
		if index < 0 || index > 31 {
			return argument("a value input at place %d", index)
		}
		raw.value_inputs |= 1 << uint(index)
	}
	user := cgo.NewHandle(&operator)
	raw.user = C.uintptr_t(user)
	raw.infer, raw.run = C.evn_operator_infer(C.evn_go_infer), C.evn_operator_run(C.evn_go_run)
	raw.release = C.evn_operator_release(C.evn_go_release)
	if err := r.self().with(func(of C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_runtime_register_operator(of, &raw, e) }); err != nil {
		user.Delete()
		return err
	}
	return nil
}

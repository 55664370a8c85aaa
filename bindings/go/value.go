package evener

// #include "glue.h"
import "C"

import "runtime"

// Value is a tensor, or a sequence, optional or map. It never changes.
type Value struct{ object *object }

func (v *Value) self() *object {
	if v == nil {
		return nil
	}
	return v.object
}

// Close ends the hold. It never fails; the second call does nothing.
func (v *Value) Close() error { return v.self().Close() }

func releaseValue(raw C.uintptr_t) { C.evn_value_release(raw) }

func newValues(raw []C.evn_value) []*Value {
	made := make([]*Value, len(raw))
	for i, raw := range raw {
		if raw != 0 {
			made[i] = &Value{own("value", raw, releaseValue)}
		}
	}
	return made
}

func valueHandles(values []*Value) ([]C.evn_value, error) {
	made := make([]C.evn_value, len(values))
	for i, value := range values {
		if value == nil {
			continue
		}
		raw, err := value.self().handle()
		if err != nil {
			return nil, err
		}
		made[i] = raw
	}
	return made, nil
}

// Value makes a value of the tensor, whose bytes must not be written while it is in use.
func (t *Tensor) Value() (*Value, error) {
	raw, err := t.handle()
	if err != nil {
		return nil, err
	}
	var made C.evn_value
	err = check(func(e *C.evn_error) C.evn_status { return C.evn_value_from_tensor(raw, &made, e) })
	runtime.KeepAlive(t)
	if err != nil {
		return nil, err
	}
	return &Value{own("value", made, releaseValue)}, nil
}

// NewValue makes a sequence, an optional or a map; kind as "seq(tensor(int64))".
func (r *Runtime) NewValue(kind string, parts ...*Value) (*Value, error) {
	var bag bag
	defer bag.free()
	text, err := bag.text(kind)
	if err != nil {
		return nil, err
	}
	handles, err := valueHandles(parts)
	if err != nil {
		return nil, err
	}
	made, err := r.self().make("value", releaseValue, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
		return C.evn_value_create(raw, text, first(handles), C.uint32_t(len(handles)), out, e)
	})
	runtime.KeepAlive(parts)
	if err != nil {
		return nil, err
	}
	return &Value{made}, nil
}

// Type gives the value's type, as "seq(tensor(int64))".
func (v *Value) Type() (string, error) {
	return v.self().text(64, func(raw C.uintptr_t, buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_value_get_type(raw, buffer, capacity, size, e)
	})
}

// Parts gives the elements of a sequence, what an optional has, or a map's keys and values.
func (v *Value) Parts() ([]*Value, error) {
	count, err := countBy(v.self(), func(raw C.uintptr_t, count *C.uint32_t, e *C.evn_error) C.evn_status {
		return C.evn_value_part_count(raw, count, e)
	})
	if err != nil {
		return nil, err
	}
	parts := make([]*Value, count)
	for i := range parts {
		made, err := v.self().make("value", releaseValue, func(raw C.uintptr_t, out *C.uintptr_t, e *C.evn_error) C.evn_status {
			return C.evn_value_part_at(raw, C.uint32_t(i), out, e)
		})
		if err != nil {
			return nil, err
		}
		parts[i] = &Value{made}
	}
	return parts, nil
}

// Tensor gives the tensor that the value is, without a copy.
func (v *Value) Tensor() (*Tensor, error) {
	var made C.evn_tensor
	if err := v.self().with(func(raw C.uintptr_t, e *C.evn_error) C.evn_status { return C.evn_value_get_tensor(raw, &made, e) }); err != nil {
		return nil, err
	}
	return newTensor(made), nil
}

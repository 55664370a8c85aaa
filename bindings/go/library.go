// Package evener runs ONNX models by the Evener library, which is opened when it is first needed: nothing of it is linked.
//
// Everything that has a Close should be closed; it may be closed twice, in any order, and while calls on it run in other goroutines,
// which end normally. What is used after that, or is nil, gives an error. A finalizer closes what is forgotten, at a time that nobody knows.
//
// All functions may be called from any goroutine. A context ends what it is given to: its cancellation and its deadline reach the
// library, and the error is the context's too (errors.Is(err, context.Canceled)).
package evener

// #cgo linux LDFLAGS: -ldl
// #include "glue.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
)

// LoadError says why there is no library.
type LoadError struct {
	Library string
	Reason  string
	// NoEvener: it was opened, and is no Evener library of version 0.2 or later.
	NoEvener bool
}

func (e *LoadError) Error() string {
	if e.NoEvener {
		return fmt.Sprintf("%s is no Evener library of version 0.2 or later: %s", e.Library, e.Reason)
	}
	return fmt.Sprintf("the Evener library %s cannot be opened: %s (EVENER_LIBRARY may name another)", e.Library, e.Reason)
}

// Unwrap gives IO, for errors.Is.
func (e *LoadError) Unwrap() error { return IO }

// VersionError says that the library does not fit this package. Versions are major << 16 | minor << 8 | patch.
type VersionError struct {
	Library         string
	Expected, Found uint32
	Layout          string // of one version, but with a struct that lies otherwise: which one, where it is expected and where it is; else ""
}

func dotted(version uint32) string {
	return fmt.Sprintf("%d.%d.%d", version>>16, version>>8&255, version&255)
}

func (e *VersionError) Error() string {
	if e.Layout != "" {
		return fmt.Sprintf("%s does not fit this program: %s", e.Library, e.Layout)
	}
	return fmt.Sprintf("%s does not fit this program: expected ABI %s, found %s", e.Library, dotted(e.Expected), dotted(e.Found))
}

// Unwrap gives OtherVersion, for errors.Is.
func (e *VersionError) Unwrap() error { return OtherVersion }

var library struct {
	sync.RWMutex
	name string // "": not open yet
}

func fileName() string {
	if name := os.Getenv("EVENER_LIBRARY"); name != "" {
		return name
	}
	if runtime.GOOS == "darwin" {
		return "libevener.0.dylib"
	}
	return "libevener.so.0"
}

// Open opens the library at a path, or under a name that the system's loader finds. It is opened once in a process; without it, what
// first needs the library opens what EVENER_LIBRARY names, else libevener.so.0.
func Open(path string) error {
	library.Lock()
	defer library.Unlock()
	if library.name != "" {
		if library.name == path {
			return nil
		}
		return &Error{Status: WrongState, Message: fmt.Sprintf("the library %s is open already, and cannot be %s", library.name, path)}
	}
	var bag bag
	defer bag.free()
	name, err := bag.text(path)
	if err != nil {
		return err
	}
	var reason [1024]C.char
	var found C.uint32_t
	switch C.evn_go_open(name, &reason[0], C.size_t(len(reason)), &found) {
	case C.EVN_GO_OPENED:
		library.name = path
		return nil
	case C.EVN_GO_NOT_OPENED:
		return &LoadError{Library: path, Reason: textOf(reason[:])}
	case C.EVN_GO_NO_SYMBOL:
		return &LoadError{Library: path, Reason: textOf(reason[:]), NoEvener: true}
	case C.EVN_GO_OTHER_LAYOUT:
		return &VersionError{Library: path, Expected: C.EVN_VERSION_NUMBER, Found: C.EVN_VERSION_NUMBER, Layout: textOf(reason[:])}
	}
	return &VersionError{Library: path, Expected: C.EVN_VERSION_NUMBER, Found: uint32(found)}
}

// ready opens the library where it is not open yet.
func ready() error {
	library.RLock()
	isOpen := library.name != ""
	library.RUnlock()
	if isOpen {
		return nil
	}
	err := Open(fileName())
	if err != nil {
		library.RLock()
		isOpen = library.name != "" // another goroutine opened one meanwhile
		library.RUnlock()
		if isOpen {
			return nil
		}
	}
	return err
}

// Version gives the library's version, as "0.3.0".
func Version() (string, error) {
	if err := ready(); err != nil {
		return "", err
	}
	return C.GoString(C.evn_version()), nil
}

// DescribePasses writes what is done to models so that they run faster.
func DescribePasses(format Format) (string, error) {
	if err := ready(); err != nil {
		return "", err
	}
	return readText(1<<14, func(buffer *C.char, capacity C.size_t, size *C.size_t, e *C.evn_error) C.evn_status {
		return C.evn_describe_passes(C.evn_format(format), buffer, capacity, size, e)
	})
}

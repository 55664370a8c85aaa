"""Declarations of the C API as text, for raw layers that are C or are read as C: constants, typedefs, structs, callbacks and the table of functions."""
import description as d


class Declarations:
    """Writes declarations of C. `handle` is the template of a handle's typedef, `changed` maps a name and its type to the type that the layer has
    for it, and `numbers` gives the values of named array dimensions where the reader has no macros and enums."""

    def __init__(self, handle="typedef struct {0}_handle *{0};", changed=lambda name, kind: kind, numbers=None):
        self.handle, self.changed, self.numbers = handle, changed, numbers or {}

    def declared(self, name, kind):
        """A parameter, a field or, with an empty name, a type."""
        kind = self.changed(name, kind)
        text = ("const " if kind.pointees and kind.pointees[0] else "") + kind.base + " "
        for is_const in (*kind.pointees[1:], False)[:len(kind.pointees)]:
            text += "*const " if is_const else "*"
        return (text + name + "".join(f"[{self.numbers.get(dim, dim)}]" for dim in kind.dims)).rstrip()

    def function(self, name, function):
        """A function of the type of an entry or callback; `(*name)` declares a pointer to one."""
        parameters = ", ".join(self.declared(parameter.name, parameter.type) for parameter in function.parameters) or "void"
        return f"{self.declared(name, function.result)}({parameters})"

    def lines(self, item):
        """The lines of an item of the API; none for the macros that initialize structs."""
        if isinstance(item, d.Macro):
            number = d.NAN if item.is_nan else f"{item.value}u" if not item.struct and item.value >= 2**31 else item.value
            return [] if item.struct else [f"#define {item.name} {number}"]
        if isinstance(item, d.Typedef):
            return [f"typedef {self.declared(item.name, item.type)};"]
        if isinstance(item, d.Enum):
            return ["enum {", *(f"  {constant.name} = {constant.value}," for constant in item.constants), "};"]
        if isinstance(item, d.Struct):
            return [f"typedef struct {item.name} {{", *(f"  {self.declared(field.name, field.type)};" for field in item.fields), f"}} {item.name};"]
        if isinstance(item, d.Handle):
            return [self.handle.format(item.name)]
        return [f"typedef {self.function(f'(*{item.name})', item)};"]

    def table(self, api):
        """The struct with all functions, each under its name without evn_."""
        return ["typedef struct evn_api {", "  uint32_t struct_size;", "  uint32_t api_version;",
                *(f"  {self.function(f'(*{entry.name})', entry)};" for entry in api.table), "} evn_api;"]

    def headers(self, api, variable, types=None):
        """The lines of the headers that every layer of C has, by name, each with its subject: raw_constants, raw_types, raw_table. `variable` is the
        pointer to the library's table, and `types` gives the lines of an item of raw_types, where they are not those of lines()."""
        constants, rest = [], []
        for item in api.items:
            is_constant = isinstance(item, (d.Enum, d.Typedef)) or (isinstance(item, d.Macro) and not item.struct)
            (constants if is_constant else rest).append(item)
        return {
            "raw_constants": ("Numbers: versions, statuses, enums and flags. include/evener says what they mean.",
                              ["#include <stdbool.h>", "#include <stddef.h>", "#include <stdint.h>", "", *(line for item in constants for line in self.lines(item))]),
            "raw_types": ("Handles, structs, and types of callbacks.",
                          ['#include "raw_constants.h"', "", *(line for item in rest for line in (types or self.lines)(item))]),
            "raw_table": ("The table of all functions.",
                          ['#include "raw_types.h"', "", "// Each function under its name without evn_; a later library has more behind them.", *self.table(api),
                           "typedef evn_status (*evn_get_api_function)(uint32_t version, const evn_api **api);", "",
                           "// The library's table, which glue.c sets before anything is called.", f"extern const evn_api *{variable};"]),
        }


def numbers(api):
    """The values of the macros and enum constants that are whole numbers, by name."""
    found = {macro.name: macro.value for macro in api.of(d.Macro) if isinstance(macro.value, int)}
    found.update({constant.name: constant.value for item in api.of(d.Enum) for constant in item.constants})
    return found

"""Writes a random caller for each function of the C API, from the description that the bindings are made of.

usage: make_calls.py FOLDER     writes calls_kinds.inc, calls_releases.inc and calls.inc there
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings"))
import description  # noqa: E402

# Functions whose arguments no rule below can make; scenes.cc calls them.
BY_HAND = ("evn_opencl_wrap_buffer", "evn_opencl_import_event", "evn_opencl_export_event", "evn_tensor_from_dlpack",
           "evn_tensor_to_dlpack", "evn_tensor_wrap")
USERS = ("evn_session", "evn_quantizer", "evn_trainer")  # objects that know how many inputs they have
COUNTS = ("input_count", "output_count", "tensor_count", "part_count", "wait_count", "pair_count")
NUMBERS = {  # parameters whose usual values are not 0 to 3
    "limit_bytes": "random.chance(50) ? UINT64_MAX : random.chance(50) ? (64u << 20) : random.below(8u << 20)",
    "event_capacity": "random.mostly<std::uint32_t>(random.below(2000), 95)",
    "timeout_ns": "random.chance(50) ? 0 : random.below(20'000'000)",
    "format": "random.mostly<evn_format>(random.below(5), 95)",
    "dtype": "random.chance(60) ? EVN_DTYPE_FLOAT32 : random.mostly<evn_dtype>(random.below(28))",
}


class Caller:
    """The statements of one caller: declarations, arguments and checks."""

    def __init__(self, function, handles, structs):
        self.function, self.handles, self.structs = function, handles, structs
        self.declarations, self.arguments, self.checks = [], [], []
        self.user = next((p for p in function.parameters if p.type.base in USERS and not p.type.pointees), None)
        for parameter in function.parameters:
            self.add(parameter)

    def declare(self, line):
        self.declarations.append(line)

    def user_arguments(self):
        return f"a_{self.user.name}, kind_{self.user.type.base}" if self.user else "nullptr, kind_evn_session"

    def add(self, p):
        base, pointees, name, function = p.type.base, p.type.pointees, f"a_{p.name}", self.function.name
        if base in self.handles:
            return self.add_handle(p, name)
        if base == "evn_error":
            self.declare("const ErrorArgument the_error(random);")
            self.checks.insert(0, f'the_error.check("{function}", status);')
            return self.arguments.append("the_error.get()")
        if base == "evn_state_pair":
            self.declare("const StatePairs pairs(random);")
            return self.arguments.append("random.chance(3) ? nullptr : pairs.pairs")
        if base in self.structs and pointees == (True,):
            self.declare(f"const {base}* const {name} = filled_options<{base}>(random, {self.initializer(base)});")
            return self.arguments.append(name)
        if base in self.structs and pointees == (False,):
            self.declare(f"const InfoArgument<{base}> {name}(random);")
            self.checks.append(f'{name}.check("{function}", status);')
            return self.arguments.append(f"{name}.get()")
        if p.name == "buffer" and base == "char":
            self.declare("TextArgument text(random);")
            self.checks.append(f'text.check("{function}", status);')
            return self.arguments.append("text.buffer()")
        if base == "void" and p.name in ("data", "buffer") and self.add_bytes(p):
            return None
        if p.name == "capacity":
            return self.arguments.append("text.capacity()")
        if p.name == "size" and base == "size_t" and pointees == (False,) and "TextArgument text(random);" in self.declarations:
            return self.arguments.append("text.size()")
        if p.name == "size" and base == "size_t" and not pointees and "bytes(random);" in " ".join(self.declarations):
            return self.arguments.append("bytes.size")
        if p.type.is_text:
            kind = "path" if p.name == "path" else "folder" if p.name == "folder" else p.name
            return self.arguments.append(f'text_argument(random, "{kind}")')
        if base == "char" and pointees == (True, True):
            self.declare(f'const char* {name}[8];\n  for (const char*& t : {name}) t = random.chance(2) ? nullptr : "abc";')
            return self.arguments.append(f"random.chance(3) ? nullptr : {name}")
        if p.name == "dims":
            self.declare("const Dims dims(random);")
            return self.arguments.append("random.chance(3) ? nullptr : dims.values")
        if p.name == "rank" and not pointees:
            return self.arguments.append("dims.rank")
        if p.name in COUNTS and not pointees:
            return self.arguments.append(self.count(p.name))
        return self.add_plain(p, name)

    def initializer(self, struct):
        return f"{struct.upper()}_INIT"

    def add_handle(self, p, name):
        base, pointees = p.type.base, p.type.pointees
        if not pointees:
            self.declare(f"const auto {name} = pick<{base}>(random);")
            return self.arguments.append(name)
        if pointees == (False,) and p.name in ("outputs", "tensors"):  # given slots, or slots to be filled
            self.declare(f"{base} {name}[kMostArguments], before_{name}[kMostArguments];\n"
                         f"  for ({base}& h : {name}) h = random.chance(75) ? nullptr : pick<{base}>(random);\n"
                         f"  std::memcpy(before_{name}, {name}, sizeof {name});")
            self.checks.append(f'keep_filled(random, {name}, before_{name}, "{self.function.name}", status);')
            return self.arguments.append(f"random.chance(3) ? nullptr : {name}")
        if pointees == (False,):
            self.declare(f"{base} {name} = untouched<{base}>();\n  const bool asks_{name} = random.chance(97);")
            self.checks.append(f'if (asks_{name}) keep_made(random, {name}, "{self.function.name}", status);')
            return self.arguments.append(f"asks_{name} ? &{name} : nullptr")
        self.declare(f"{base} {name}[kMostArguments];")
        if p.name == "outputs":
            self.declare(f"for ({base}& h : {name}) h = random.chance(90) ? nullptr : pick<{base}>(random);")
            return self.arguments.append(f"random.chance(20) ? nullptr : {name}")
        if base in ("evn_tensor", "evn_value"):
            self.declare(f"fill_inputs(random, {name}, {self.user_arguments()});")
        else:
            self.declare(f"for ({base}& h : {name}) h = pick<{base}>(random);")
        return self.arguments.append(f"random.chance(3) ? nullptr : {name}")

    def add_bytes(self, p):
        kind = {"evn_model_load_buffer": "ModelBytes", "evn_state_restore": "StateBytes"}.get(self.function.name)
        if kind is not None:
            self.declare(f"const {kind} bytes(random);")
            self.arguments.append("bytes.data")
            return True
        if self.function.name == "evn_state_save":
            self.declare("TextArgument text(random);")
            self.checks.append('text.check("evn_state_save", status);')
            self.arguments.append("text.buffer()")
            return True
        return False

    def count(self, name):
        if name == "pair_count":
            return "random.chance(90) ? pairs.count : static_cast<std::uint32_t>(random.below(4))"
        if name in ("input_count", "output_count"):
            return f"argument_count(random, {self.user_arguments()}, {str(name == 'input_count').lower()})"
        return "static_cast<std::uint32_t>(random.below(4))"

    def add_plain(self, p, name):
        base, pointees = p.type.base, p.type.pointees
        number = base == "double" or base.endswith("_t") or base.startswith("evn_") or base in ("bool", "float")
        if pointees == (False, False) or (pointees == (True, False)):
            const = "const " if pointees[0] else ""
            self.declare(f"{const}{base}* {name} = nullptr;")
            return self.arguments.append(f"random.chance(5) ? nullptr : &{name}")
        if pointees == (False,) and base == "void":  # user data and drivers' objects
            return self.arguments.append("nullptr")
        if pointees and number:  # room for what is written, or read: as much as random counts ask for
            self.declare(f"{base} {name}[kMostElements] = {{}};")
            return self.arguments.append(f"random.chance(5) ? nullptr : {name}")
        if not number or pointees:
            raise SystemExit(f"make_calls.py: no rule for parameter {p.name} of {self.function.name}: {p.type}")
        if base == "double":
            return self.arguments.append('random.chance(80) ? 0.01 : random.chance(50) ? -1.0 : __builtin_nan("")')
        if p.name == "count" and base == "size_t":
            return self.arguments.append("random.below(kMostStrings)")
        return self.arguments.append(NUMBERS.get(p.name, f"random.mostly<{base}>(static_cast<{base}>(random.below(4)), 85)"))

    def text(self):
        name = self.function.name
        lines = ["begin_call();"] + self.declarations
        call = f"{name}({', '.join(self.arguments)})"
        if self.function.result.base == "evn_status":
            # All arguments are made in the fuzzer's own environment.
            lines += [f"const auto call = [&]({', '.join(f'auto&&... p' for _ in [0])}) {{\n"
                      f'    const SomeEnvironment environment(random, "{name}");\n    return {name}(p...);\n  }};',
                      f"const evn_status status = call({', '.join(self.arguments)});", f'note("{name}", status);'] + self.checks
        else:
            lines += [f"static_cast<void>({call});"]
        body = "\n".join("  " + line for line in lines)
        return f"void call_{name}([[maybe_unused]] Random& random) {{\n{body}\n}}\n"


def initializer_text(function):
    """evn_..._init: any size, NULL or room for it."""
    struct = function.parameters[0].type.base
    return f"""void call_{function.name}(Random& random) {{
  const std::size_t size = random.chance(50) ? sizeof({struct}) : random.chance(80) ? random.below(sizeof({struct}) + 1) : random.below(65'537);
  char* const room = guarded((size + 7) / 8 * 8);
  {function.name}(random.chance(5) ? nullptr : reinterpret_cast<{struct}*>(room), static_cast<std::uint32_t>(size));
}}
"""


def main(folder):
    folder = pathlib.Path(folder)
    api = description.read()
    handles = [h.name for h in api.of(description.Handle)]
    structs = {s.name for s in api.of(description.Struct)}
    (folder / "calls_kinds.inc").write_text("".join(f"EVN_FUZZ_KIND({h})\n" for h in handles))
    releases = {f.parameters[0].type.base: f.name for f in api.functions
                if f.name.endswith("_release") and len(f.parameters) == 1 and f.parameters[0].type.base in handles}
    (folder / "calls_releases.inc").write_text("".join(f"EVN_FUZZ_RELEASE({h}, {f})\n" for h, f in releases.items()))
    made = [f for f in api.functions if f.name not in BY_HAND]
    out = ["// Made by tests/api_fuzz/make_calls.py."]
    out += [initializer_text(f) if f.name.endswith("_init") else Caller(f, handles, structs).text() for f in made]
    out += ["constexpr Function kFunctions[] = {"] + [f'    {{"{f.name}", call_{f.name}}},' for f in api.functions] + ["};", ""]
    (folder / "calls.inc").write_text("\n".join(out))


if __name__ == "__main__":
    main(sys.argv[1])

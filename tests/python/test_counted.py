"""Every pointer of the C API that has a number beside it is in the tables of tests/api/counted_test.cc."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings"))
import description  # noqa: E402

NUMBERS = re.compile(r"^(size|count|rank|\w+_size|\w+_count|size_bytes)$")
ELSEWHERE = {
    "evn_session_submit.output_count": "outputs may be NULL: none is given",
    "evn_session_submit_values.output_count": "outputs may be NULL: none is given",
    "evn_tensor_get_strings.count": "offsets may be NULL: they are not wanted",
    "evn_opencl_wrap_buffer.rank": "tests/api/opencl_sharing_test.cc",
    "evn_state_restore.size": "tests/api/state_test.cc: what was cut off is refused",
    "evn_trainer_step.input_count": "tests/api/trainer_test.cc",
    "evn_trainer_evaluate.input_count": "tests/api/trainer_test.cc",
    "evn_loader_next.tensor_count": "tests/api/loader_test.cc",
    "evn_trainer_options.rank": "no array: the process's number",
    "evn_trainer_options.rank_count": "no array: processes",
    "evn_loader_options.rank": "no array: the process's number",
    "evn_loader_options.rank_count": "no array: processes",
    "evn_loader_options.sample_count": "no array: samples",
    "evn_quantizer_options.block_size": "no array: elements of a block",
    "evn_log_record.field_count": "the library gives it",
    "evn_runtime_options.thread_count": "no array: threads",
    "evn_tensor_view.rank": "the library gives it, or checks it (tests/api/operator_test.cc)",
    "evn_tensor_view.size_bytes": "the library gives it",
}


def numbers_beside_pointers(entries):
    """Names of the numbers among fields or parameters; structs begin with struct_size, which is no such number."""
    if not any(entry.type.pointees and entry.name not in ("error", "buffer") for entry in entries):
        return []
    return [entry.name for entry in entries
            if NUMBERS.match(entry.name) and not entry.type.pointees and not entry.type.dims and entry.name != "struct_size"]


def test_every_counted_pointer_is_tested():
    api = description.read()
    found = [f"{struct.name}.{name}" for struct in api.of(description.Struct) if not struct.name.endswith("_info")
             for name in numbers_beside_pointers(struct.fields)]
    found += [f"{function.name}.{name}" for function in api.functions for name in numbers_beside_pointers(function.parameters)]
    table = (ROOT / "tests/api/counted_test.cc").read_text()
    tested = set(re.findall(r'\{"(evn_\w+\.\w+)"', table))
    assert len(found) > 40
    assert sorted(set(found) - tested - ELSEWHERE.keys()) == []
    assert sorted(ELSEWHERE.keys() - set(found)) == []
    assert sorted(tested - set(found)) == []

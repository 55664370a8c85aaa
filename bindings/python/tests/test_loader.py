"""evener.Loader: which samples come in which batch, where they come from, and how long a batch's tensors last."""
import subprocess
import sys

import evener
import numpy as np
import pytest


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=1) as made:
        yield made


X = np.arange(46, dtype="float32").reshape(23, 2)
LABELS = np.arange(23)


def numbers(batches):
    """The labels of the batches, whose inputs are looked at."""
    found = []
    for inputs, labels in batches:
        classes = labels.numpy().copy()
        np.testing.assert_array_equal(inputs["x"].numpy(), X[classes])
        found.append(classes.tolist())
    return found


def flat(lists):
    return [number for numbers in lists for number in numbers]


def philox(key, low, high):
    """Philox4x32-10 by its paper."""
    mask = 0xFFFFFFFF
    counter, keys = [low & mask, low >> 32, high & mask, high >> 32], [key & mask, key >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(q >> 32) ^ counter[1] ^ keys[0], q & mask, (p >> 32) ^ counter[3] ^ keys[1], p & mask]
        keys = [(keys[0] + 0x9E3779B9) & mask, (keys[1] + 0xBB67AE85) & mask]
    return counter


def test_the_philox_here_is_that_of_the_paper():
    """Known answers of the authors' library."""
    assert philox(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize("seed, epoch", [(0, 0), (1, 0), (0, 1), (2**63 + 12345, 2**33)])
def test_the_order_is_that_which_the_header_says(runtime, seed, epoch):
    order = list(range(23))
    for i in range(22, 0, -1):
        words = philox(seed, i, epoch)
        j = (words[1] << 32 | words[0]) * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    loader = evener.Loader(runtime, {"x": X}, LABELS, batch=5, shuffle=True, seed=seed)
    assert flat(numbers(loader.epoch(epoch))) == order


def test_epochs_follow_each_other_and_may_be_named(runtime):
    loader = evener.Loader(runtime, {"x": X}, LABELS, batch=5, shuffle=True)
    assert len(loader) == 5
    zero, one = numbers(loader), numbers(loader)
    assert zero != one and sorted(flat(zero)) == sorted(flat(one)) == list(range(23))
    assert numbers(loader.epoch(0)) == zero and numbers(loader) == one
    assert numbers(loader.epoch(1, first_batch=3)) == one[3:]
    assert len(evener.Loader(runtime, {"x": X}, LABELS, batch=5, drop_last=True)) == 4


def test_ranks_divide_each_batch(runtime):
    whole = numbers(evener.Loader(runtime, {"x": X}, LABELS, batch=8, shuffle=True))
    parts = [numbers(evener.Loader(runtime, {"x": X}, LABELS, batch=8, shuffle=True, rank=rank, ranks=3)) for rank in range(3)]
    assert [flat(part) for part in zip(*parts)] == whole


@pytest.mark.parametrize("labels", [LABELS.astype("uint8"), LABELS.astype(">i4"), LABELS.tolist(), np.repeat(LABELS, 2)[::2]])
def test_labels_that_are_whole_numbers_are_classes(runtime, labels):
    loader = evener.Loader(runtime, {"x": X}, labels, batch=5)
    _, first = next(iter(loader))
    assert first.dtype == np.int64
    assert flat(numbers(loader)) == LABELS.tolist()


def test_arrays_may_lie_in_any_order(runtime):
    wide = np.asfortranarray(X.astype(">f4"))
    assert flat(numbers(evener.Loader(runtime, {"x": wide, "y": LABELS}, "y", batch=5, shuffle=True))) != LABELS.tolist()
    both = evener.Loader(runtime, {"x": X[::-1][::-1], "z": X.astype("float64")}, batch=23)
    (inputs, labels), = both
    assert labels is None and inputs["z"].dtype == np.float64 and inputs.keys() == {"x", "z"}


@pytest.mark.parametrize("mapped", [False, True])
def test_archives_are_mapped(runtime, tmp_path, mapped):
    path = tmp_path / "data.npz"
    np.savez(path, x=X, labels=LABELS)
    source = {"x": np.load(save(tmp_path / "x.npy", X), mmap_mode="r")} if mapped else path
    loader = evener.Loader(runtime, source, LABELS if mapped else "labels", batch=4, shuffle=True)
    assert sorted(flat(numbers(loader))) == LABELS.tolist()
    field = next(field for field in loader._source.fields if field.name == "x")
    assert isinstance(field.data, np.memmap)


def save(path, array):
    np.save(path, array)
    return path


@pytest.mark.parametrize("change", [lambda x: x, lambda x: np.asfortranarray(x.astype(x.dtype.newbyteorder(">")))])
def test_compressed_archives_are_read(runtime, tmp_path, change):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=change(X), labels=change(LABELS))
    assert flat(numbers(evener.Loader(runtime, path, "labels", batch=5))) == LABELS.tolist()


def test_bad_archives_are_named(runtime, tmp_path):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=X.astype(object))
    with pytest.raises(ValueError):
        evener.Loader(runtime, path, batch=4)
    np.savez(path, x=X)
    with pytest.raises(ValueError, match="there is no array 'labels'; there are: x"):
        evener.Loader(runtime, path, "labels", batch=4)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Exception, match="zip"):
        evener.Loader(runtime, path, batch=4)


class Samples:
    def __init__(self, count=23):
        self.count, self.bad, self.asked = count, None, []

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        self.asked.append(i)
        if i == self.bad:
            raise LookupError(f"sample {i} is lost")
        return {"x": X[i]}, int(LABELS[i])

    def stream(self):
        for i in range(self.count):
            yield self[i]


def test_objects_with_samples(runtime):
    samples = Samples()
    loader = evener.Loader(runtime, samples, batch=5, shuffle=True)
    assert sorted(flat(numbers(loader))) == LABELS.tolist()
    assert sorted(samples.asked) == [0, *LABELS]  # the first says how samples look
    samples.bad = 7
    with pytest.raises(LookupError, match="sample 7 is lost"):
        numbers(loader)
    samples.bad = None
    assert sorted(flat(numbers(loader))) == LABELS.tolist()


class Again:
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return self.samples.stream()


@pytest.mark.parametrize("count", [23, 20, 3])
def test_iterables(runtime, count):
    loader = evener.Loader(runtime, Again(Samples(count)), batch=5)
    with pytest.raises(TypeError):
        len(loader)
    for _ in range(2):
        assert flat(numbers(loader)) == list(range(count))
    assert flat(numbers(loader.epoch(5, first_batch=1))) == list(range(5, count))


def test_an_iterator_has_one_epoch(runtime):
    loader = evener.Loader(runtime, Samples().stream(), batch=5)
    assert flat(numbers(loader)) == LABELS.tolist()
    with pytest.raises(ValueError, match="an iterator has one epoch"):
        numbers(loader)


@pytest.mark.parametrize("second, error", [(({"x": X[0, :1]}, 1), "shape"), (({"y": X[0]}, 1), "first one"), (({"x": X[0].astype("complex64")}, 1), "complex64"),
                                           (({"x": X[0]}, 1.5), "float64"), (X[0], "ndarray"), ({"x": X[0]}, "first one")])
def test_samples_unlike_the_first_are_refused(runtime, second, error):
    with pytest.raises((TypeError, ValueError), match=error):
        numbers(evener.Loader(runtime, [({"x": X[0]}, 0), second], batch=2))


@pytest.mark.parametrize("data, labels, error", [({}, None, "no arrays"), ({"x": X}, LABELS[1:], "different numbers of samples: x 23, labels 22"),
                                                 ({"x": X, "labels": X}, LABELS, "there are an array"), ([], None, "no samples"), (iter(()), None, "no samples"),
                                                 ({"x": np.float32(1)}, None, "scalar"), ({"x": np.array(["a"])}, None, "dtype"), ([({"x": X[0]}, 1)], LABELS, "themselves")])
def test_wrong_data_is_refused(runtime, data, labels, error):
    with pytest.raises((TypeError, ValueError), match=error):
        evener.Loader(runtime, data, labels, batch=2)


def test_wrong_numbers_are_refused(runtime):
    for wrong in ({"batch": 0}, {"batch": 4, "rank": 1}, {"batch": 4, "ranks": 5}, {"batch": 4, "prefetch": 4096}, {"batch": 4, "device": "nobody"}):
        with pytest.raises(evener.Error):
            evener.Loader(runtime, {"x": X}, **wrong)
        with pytest.raises(evener.Error):
            evener.Loader(runtime, Samples(), **wrong)


def test_a_loader_without_prefetch_is_refused(runtime):
    with pytest.raises(ValueError, match="prefetch is 0"):
        evener.Loader(runtime, {"x": X}, batch=2, prefetch=0)


def test_tensors_end_with_their_batch(runtime):
    loader = evener.Loader(runtime, {"x": X}, LABELS, batch=5)
    batches = iter(loader)
    inputs, labels = next(batches)
    kept = inputs["x"].numpy().copy()
    next(batches)
    with pytest.raises(Exception):
        inputs["x"].numpy()
    np.testing.assert_array_equal(kept, X[:5])
    other = iter(loader)
    next(other)
    with pytest.raises(RuntimeError, match="another epoch has begun"):
        next(batches)
    loader.close()
    with pytest.raises(evener.Error):
        next(other)


def test_a_program_may_end_while_samples_are_being_made():
    program = """
import evener, numpy, time
class Slow:
    def __len__(self): return 100
    def __getitem__(self, i):
        time.sleep(0.001)
        return {"x": numpy.zeros(3, "float32")}, 0
runtime = evener.Runtime(threads=1)
loader = evener.Loader(runtime, Slow(), batch=2, prefetch=50)
next(iter(loader))
print("over")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")

// Rows of the conformance tables made long enough that their references look at the clock several times.
#pragma once

#include <optional>

#include "tests/conformance/case.h"

namespace evn::test {

// What a reference made: bytes, and for strings the texts, whose addresses differ from run to run.
std::vector<std::string> results_of(const KernelSubject& subject);

// `base` with larger dims, such that its reference does at least `least` units of work, and not far more; nullopt where none is
// found.
std::optional<KernelSubject> enlarged(const conformance::Case& base, std::int64_t least);

// `base` with larger dims, such that its inputs and outputs have from `least` to `most` bytes together, and its reference does at
// most `most_work` units of work; nullopt if none is found.
std::optional<KernelSubject> enlarged_to_bytes(const conformance::Case& base, std::uint64_t least, std::uint64_t most,
                                               std::int64_t most_work);

}  // namespace evn::test

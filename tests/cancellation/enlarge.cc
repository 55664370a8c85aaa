#include "tests/cancellation/enlarge.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <set>
#include <utility>

#include "base/error.h"

namespace evn::test {
namespace {

using conformance::Case;
using conformance::Ints;
using conformance::Operand;

constexpr std::int64_t kMostElements = 1 << 19;  // of a tensor
constexpr std::int64_t kMostWork = 600 * kWorkPerLook;

// Which numbers of a case become `factor` times as large.
struct Growth {
  std::int64_t number = 0;  // dims of this size; 0: of any but 1
  int axis = -1;            // of operand 0 alone, whatever its size; -1: as `number` says
  std::int64_t factor = 1;
  bool literals = false;    // numbers in constant lists follow
  bool attributes = false;  // and those in attributes
};

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // larger numbers, as INT64_MAX, stand for "to the end"

std::int64_t grown(const Growth& g, std::int64_t n) {
  return n > 1 && n < kLargest && (g.number == 0 || n == g.number) ? n * g.factor : n;
}

Case apply(const Case& base, const Growth& g) {
  Case c = base;
  if (g.axis >= 0) {
    c.operands[0].desc.shape[g.axis] *= g.factor;
    return c;
  }
  for (Operand& o : c.operands) {
    for (int i = 0; o.random && i < o.desc.shape.rank(); ++i) o.desc.shape[i] = grown(g, o.desc.shape[i]);
    const bool whole = o.desc.dtype == DType::kInt64 || o.desc.dtype == DType::kInt32 || c.op == "Range";
    for (double& v : o.literal) {
      if (std::fabs(v) >= static_cast<double>(kLargest)) continue;
      if (g.literals && whole && v == static_cast<double>(static_cast<std::int64_t>(v)))
        v = static_cast<double>(grown(g, static_cast<std::int64_t>(v)));
    }
  }
  for (Attribute& a : c.attributes) {
    if (!g.attributes) continue;
    if (auto* v = std::get_if<std::int64_t>(&a.value)) *v = grown(g, *v);
    if (auto* list = std::get_if<Ints>(&a.value)) {
      for (std::int64_t& v : *list) v = grown(g, v);
    }
  }
  return c;
}

// From the least growth on. Later ones cost more to try.
std::vector<Growth> growths(const Case& c) {
  std::set<std::int64_t> numbers = {0};
  for (const Operand& o : c.operands) {
    for (const std::int64_t dim : o.desc.shape.dims()) {
      if (dim > 1) numbers.insert(dim);
    }
    for (const double v : o.literal) {
      if (v > 1 && v < 1000) numbers.insert(static_cast<std::int64_t>(v));
    }
  }
  for (const Attribute& a : c.attributes) {
    if (const auto* list = std::get_if<Ints>(&a.value)) numbers.insert(list->begin(), list->end());
  }
  std::vector<Growth> all = {{}};
  const int rank = c.operands.empty() ? 0 : c.operands[0].desc.shape.rank();
  for (const std::int64_t factor : {4, 16, 64, 256, 1024, 4096, 16384, 65536}) {
    for (int axis = 0; axis < rank; ++axis) all.push_back({.number = 0, .axis = axis, .factor = factor});
    for (const int follow : {0, 1, 2, 3}) {
      for (const std::int64_t number : numbers) {
        all.push_back({.number = number,
                       .axis = -1,
                       .factor = number == 0 && factor > 64 ? factor / 64 : factor,
                       .literals = (follow & 1) != 0,
                       .attributes = (follow & 2) != 0});
      }
    }
  }
  return all;
}

bool is_small(const Case& c) {
  return std::all_of(c.operands.begin(), c.operands.end(), [](const Operand& o) {
    return o.desc.dtype == DType::kUndefined || o.desc.shape.elements() <= kMostElements;
  });
}

}  // namespace

std::vector<std::string> results_of(const KernelSubject& s) {
  TextPool texts(nullptr);
  std::vector<Bytes> out;
  for (const TensorDesc& d : s.outputs) out.emplace_back(d.dtype == DType::kUndefined ? 0 : d.size_bytes(), '\0');
  std::vector<ConstTensor> in;
  std::vector<MutableTensor> to;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) in.push_back({s.inputs[i], s.values[i].data()});
  for (std::size_t i = 0; i < out.size(); ++i) to.push_back({s.outputs[i], out[i].data()});
  run_reference({s.node, in, to, {&texts, 7}});
  std::vector<std::string> results;
  for (std::size_t k = 0; k < out.size(); ++k) {
    if (s.outputs[k].dtype != DType::kString) {
      results.emplace_back(out[k].begin(), out[k].end());
      continue;
    }
    std::string all;
    for (std::int64_t i = 0; i < s.outputs[k].shape.elements(); ++i) (all += text_of(to[k].as<TextElement>()[i])) += '\n';
    results.push_back(std::move(all));
  }
  return results;
}

std::optional<KernelSubject> enlarged(const Case& base, std::int64_t least) {
  for (const Growth& g : growths(base)) {
    const Case c = apply(base, g);
    if (!is_small(c)) continue;
    const Cancel never;
    const CancelScope scope(never, kMostWork);
    try {
      KernelSubject s = conformance::make_subject(c, 1, {});
      const std::int64_t before = scope.work();
      for (const TensorDesc& d : s.outputs) {
        if (d.dtype != DType::kUndefined && (!d.shape.is_known() || d.shape.elements() > kMostElements))
          fail(EVN_ERROR_LIMIT, "too large");
      }
      results_of(s);
      if (scope.work() - before >= least) return s;
    } catch (const Error&) {           // no legal node, or too much work
    } catch (const std::exception&) {  // a literal that has too few numbers for its dims
    }
  }
  return std::nullopt;
}

namespace {

std::uint64_t bytes_of(const TensorDesc& d) { return d.dtype == DType::kUndefined ? 0 : d.size_bytes(); }

}  // namespace

std::optional<KernelSubject> enlarged_to_bytes(const Case& base, std::uint64_t least, std::uint64_t most, std::int64_t most_work) {
  bool was_too_long = false;  // later ones take longer
  for (const Growth& g : growths(base)) {
    const Cancel never;
    const CancelScope scope(never, most_work);
    try {
      const Case c = apply(base, g);
      std::uint64_t bytes = 0;
      for (const Operand& o : c.operands) bytes += bytes_of(o.desc);
      if (bytes > most) continue;
      KernelSubject s = conformance::make_subject(c, 1, {});
      for (const TensorDesc& d : s.outputs) bytes += bytes_of(d);
      if (bytes < least || bytes > most) continue;
      results_of(s);
      return s;
    } catch (const Error&) {  // no legal node, or too much work
      if (scope.is_spent() && std::exchange(was_too_long, true)) return std::nullopt;
    } catch (const std::exception&) {  // a literal that has too few numbers for its dims
    }
  }
  return std::nullopt;
}

}  // namespace evn::test

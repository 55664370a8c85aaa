#include "tests/conformance/case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "ops/infra/numeric.h"
#include "ops/infra/small_types.h"

namespace evn::conformance {
namespace {

// ----------------------------------------------------------------------------------------------------- values --

template <typename T>
void put(char* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// The text of a small number, the same element for the same number.
TextElement numeral(int n) {
  static TextPool pool(nullptr);
  static std::map<int, TextElement> known;
  const auto [it, is_new] = known.try_emplace(n, nullptr);
  if (is_new) it->second = pool.add(std::to_string(n));
  return it->second;
}

// Writes element i. `x` is in the range of the dtype, but for those of 8 bits and less.
void store(DType dtype, char* data, std::size_t i, double x) {
  if (is_small_type(dtype)) return set_small_value(dtype, data, static_cast<std::int64_t>(i), x, true, Rounding::kNearestEven);
  char* to = data + i * dtype_size(dtype);
  switch (dtype) {
    case DType::kString: return put(to, numeral(static_cast<int>(std::floor(x))));
    case DType::kFloat32: return put(to, static_cast<float>(x));
    case DType::kFloat64: return put(to, x);
    case DType::kFloat16: return put(to, Float16::from(x));
    case DType::kBfloat16: return put(to, Bfloat16::from(x));
    case DType::kBool: return put(to, static_cast<std::uint8_t>(x != 0 ? 1 : 0));
    case DType::kComplex64: put(to, static_cast<float>(x)); return put(to + 4, static_cast<float>(-x / 4));
    case DType::kComplex128: put(to, x); return put(to + 8, -x / 4);
    default: break;
  }
  dispatch_numbers(dtype, [&](auto zero) { put(to, saturate_to<decltype(zero)>(std::floor(x))); });
}

bool is_unsigned(DType dtype) { return (kUnsignedInts & dtype_bit(dtype)) != 0; }

double draw(const Operand& o, test::Random& random) {
  if (o.desc.dtype == DType::kBool) return static_cast<double>(random.next() >> 40 & 1u);
  if (is_small_type(o.desc.dtype)) {  // another range would saturate
    const double x = -2 + 6 * static_cast<double>(random.uniform(0, 1));
    return o.whole ? std::floor(x) : x;
  }
  const double low = is_unsigned(o.desc.dtype) ? std::max(o.low, 0.0) : o.low;
  const double x = low + (o.high - low) * static_cast<double>(random.uniform(0, 1));
  return o.whole ? std::floor(x) : x;
}

double special(std::size_t i, double drawn) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (i % 13) {
    case 2: return std::numeric_limits<double>::quiet_NaN();
    case 4: return kInfinity;
    case 5: return -kInfinity;
    case 7: return 0.0;
    case 8: return -0.0;
    default: return drawn;
  }
}

test::Bytes values_of(const Operand& o, test::Random& random) {
  if (o.desc.dtype == DType::kUndefined) return {};
  test::Bytes bytes(o.desc.size_bytes());
  const auto count = static_cast<std::size_t>(o.desc.shape.elements());
  for (std::size_t i = 0; i < count; ++i) {
    double x = o.random ? draw(o, random) : o.literal.at(i);
    if (o.specials) x = special(i, x);
    store(o.desc.dtype, bytes.data(), i, x);
  }
  return bytes;
}

// -------------------------------------------------------------------------------------------------- epilogues --

Epilogue make_chain(std::initializer_list<EpilogueOp> steps) {
  Epilogue e;
  for (const EpilogueOp& s : steps) e.push(s);
  return e;
}

// Bounds are wide, so that clamping hides few errors.
const std::vector<Epilogue>& chains() {
  static const std::vector<Epilogue> all = {
      make_chain(
          {{EpilogueOpKind::kScale, 0.75f, 0}, {EpilogueOpKind::kOffset, 0.25f, 0}, {EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f}}),
      make_chain({{EpilogueOpKind::kLeakyRelu, 0.1f, 0}, {EpilogueOpKind::kTanh, 0, 0}}),
      make_chain({{EpilogueOpKind::kOffset, 0.3f, 0}, {EpilogueOpKind::kRelu, 0, 0}}),
      make_chain({{EpilogueOpKind::kSwish, 1.5f, 0}, {EpilogueOpKind::kOffset, -0.2f, 0}, {EpilogueOpKind::kSwish, 1.0f, 0}}),
      make_chain({{EpilogueOpKind::kClip, -3.0f, 2.5f}, {EpilogueOpKind::kScale, -2.0f, 0}, {EpilogueOpKind::kSigmoid, 0, 0}}),
      make_chain({{EpilogueOpKind::kHardSigmoid, 0.05f, 0.5f}}),
      make_chain({{EpilogueOpKind::kGelu, 0, 0}, {EpilogueOpKind::kOffset, 0.5f, 0}}),
      make_chain({{EpilogueOpKind::kSwish, 1.5f, 0}, {EpilogueOpKind::kGeluTanh, 0, 0}, {EpilogueOpKind::kOffset, 0.5f, 0}}),
      make_chain({{EpilogueOpKind::kScale, 0.5f, 0},
                  {EpilogueOpKind::kOffset, 0.1f, 0},
                  {EpilogueOpKind::kLeakyRelu, 0.2f, 0},
                  {EpilogueOpKind::kHardSwish, 0.1f, 0.5f},
                  {EpilogueOpKind::kClip, -3.0f, 3.0f},
                  {EpilogueOpKind::kTanh, 0, 0},
                  {EpilogueOpKind::kHardSigmoid, 0.4f, 0.5f},
                  {EpilogueOpKind::kSigmoid, 0, 0}}),
  };
  return all;
}

std::string text_of(const AttributeValue& value) {
  const auto list = [](const auto& values) {
    std::string s = "[";
    for (const auto& v : values) s += (s.size() > 1 ? "," : "") + std::to_string(v);
    return s + "]";
  };
  if (const auto* v = std::get_if<std::int64_t>(&value)) return std::to_string(*v);
  if (const auto* v = std::get_if<float>(&value)) return std::to_string(*v);
  if (const auto* v = std::get_if<std::string>(&value)) return *v;
  if (const auto* v = std::get_if<Ints>(&value)) return list(*v);
  if (const auto* v = std::get_if<Floats>(&value)) return list(*v);
  return "a tensor";
}

}  // namespace

std::string Case::describe() const {
  std::string s = op + "-" + std::to_string(opset);
  for (const Operand& o : operands) {
    s += std::string(" ") + (o.constant ? "constant " : "") + dtype_name(o.desc.dtype) + o.desc.shape.to_string();
  }
  for (const Attribute& a : attributes) s += " " + a.name + "=" + text_of(a.value);
  return s;
}

const Cases& cases() {
  static const Cases all = [] {
    Cases rows;
    add_elementwise_cases(&rows);
    add_binary_cases(&rows);
    add_window_cases(&rows);
    add_product_cases(&rows);
    add_row_cases(&rows);
    add_move_cases(&rows);
    add_resize_cases(&rows);
    add_recurrent_cases(&rows);
    add_index_cases(&rows);
    add_attention_cases(&rows);
    add_signal_cases(&rows);
    add_vision_cases(&rows);
    add_contrib_cases(&rows);
    add_ml_cases(&rows);
    add_gradient_cases(&rows);
    add_quantized_cases(&rows);
    return rows;
  }();
  return all;
}

std::vector<std::string> case_ops() {
  std::vector<std::string> names;
  for (const Case& c : cases()) names.push_back(c.op);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

const Epilogue& chain(std::size_t number) { return chains().at(number % kChains); }

std::size_t chain_of(const Case& c) { return static_cast<std::size_t>(&c - cases().data()) % kChains; }

bool is_random(const Case& c) {
  const auto drawn = [](const Operand& o) { return o.random && o.desc.shape.elements() > 0; };
  return std::any_of(c.operands.begin(), c.operands.end(), drawn);
}

test::KernelSubject make_subject(const Case& c, std::uint64_t seed, const Epilogue& epilogue) {
  test::KernelSubject s;
  for (const Operand& o : c.operands) {
    test::Random random(seed * 1009 + s.inputs.size() + 1);
    test::add_operand(&s, o.desc, values_of(o, random), o.constant);
  }
  test::finish_subject(&s, c.op, c.opset, c.attributes, c.output_count, epilogue);
  return s;
}

}  // namespace evn::conformance

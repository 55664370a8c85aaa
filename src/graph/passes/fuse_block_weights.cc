// MatMul and Gemm by a constant that DequantizeLinear gives in blocks of k, of 8 or 4 bits (ONNX from opset 21 on), become
// com.microsoft's MatMulNBits, whose kernels read the weights as they are: neither float32 weights in memory nor that work in each
// run. A constant vector that is added to a MatMul's result is its bias.
#include <cstring>

#include "base/checked.h"
#include "graph/passes/match.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"
#include "ops/gemm.h"

namespace evn {
namespace {

// What MatMulNBits reads of one weight.
struct Blocks {
  std::int64_t k = 0, n = 0, bits = 0, block = 0;
  ValueId elements = kNoValue, scales = kNoValue, zeros = kNoValue;
  int node = -1, axis = 0;  // that dequantizes it
};

// A constant of rows of elements, several to a byte or one, seen as unsigned numbers: those of signed types moved by the middle.
class Numbers {
 public:
  explicit Numbers(const Weight& w) : bytes_(static_cast<const std::uint8_t*>(w.bytes())), four_(is_sub_byte(w.desc.dtype)) {
    if (w.desc.dtype == DType::kInt8) flip_ = 0x80;
    if (w.desc.dtype == DType::kInt4) flip_ = 8;
  }
  std::uint8_t at(std::int64_t i) const {
    const int byte = bytes_[four_ ? i / 2 : i];
    return static_cast<std::uint8_t>((four_ ? byte >> (i % 2 * 4) & 15 : byte) ^ flip_);
  }

 private:
  const std::uint8_t* bytes_;
  bool four_;
  int flip_ = 0;
};

// Puts number i of those that are packed into bytes.
void put(std::uint8_t* bytes, std::int64_t bits, std::int64_t i, std::uint8_t number) {
  if (bits == 8) {
    bytes[i] = number;
  } else {
    bytes[i / 2] = static_cast<std::uint8_t>(bytes[i / 2] | number << (i % 2 * 4));
  }
}

class Fuser {
 public:
  Fuser(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && (match_.is(n, "MatMul") || match_.is(n, "Gemm"))) from_product(n);
    }
    return edit_.commit();
  }

 private:
  const Weight* constant(const Node& node, std::size_t i) const {
    return i < node.inputs.size() && node.inputs[i] != kNoValue ? edit_.value(node.inputs[i]).constant.get() : nullptr;
  }

  static std::int64_t attribute(const Node& node, const char* name, std::int64_t otherwise) {
    for (const Attribute& a : node.attributes) {
      if (a.name == name && attribute_type(a.value) == AttributeType::kInt) return std::get<std::int64_t>(a.value);
    }
    return otherwise;
  }

  // The weight that node `d` dequantizes, k along `axis`; null: none of blocks that MatMulNBits has.
  const Blocks* blocks_of(int d, int axis) {
    for (const Blocks& b : made_) {
      if (b.node == d && b.axis == axis) return &b;
    }
    const Node& node = edit_.node(d);
    const Weight *x = constant(node, 0), *scale = constant(node, 1), *zero = constant(node, 2);
    const bool has_zero = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    if (x == nullptr || scale == nullptr || (has_zero && zero == nullptr) || x->desc.shape.rank() != 2) return nullptr;
    const DType dtype = x->desc.dtype;
    const bool is_signed = dtype == DType::kInt8 || dtype == DType::kInt4;
    if (!is_signed && dtype != DType::kUint8 && dtype != DType::kUint4) return nullptr;
    const std::int64_t block = attribute(node, "block_size", 0), given = attribute(node, "axis", 1);
    if (block < 16 || (block & (block - 1)) != 0 || (given < 0 ? given + 2 : given) != axis) return nullptr;
    Blocks b{x->desc.shape[axis], x->desc.shape[1 - axis], static_cast<std::int64_t>(dtype_bits(dtype)), block};
    const std::int64_t blocks = ceil_div(b.k, block);
    const Shape numbers = axis == 0 ? Shape{blocks, b.n} : Shape{b.n, blocks};
    if (b.k < 1 || b.n < 1 || (block > 16 && block / 2 >= b.k)) return nullptr;  // blocks are stored whole
    if (scale->desc.dtype != DType::kFloat32 || scale->desc.shape != numbers) return nullptr;
    if (zero != nullptr && (zero->desc.dtype != dtype || zero->desc.shape != numbers)) return nullptr;
    add_elements(*x, axis, blocks, &b);
    add_scales(*scale, axis, blocks, &b);
    if (zero != nullptr || !is_signed) add_zeros(zero, axis, blocks, &b);
    b.node = d;
    b.axis = axis;
    return &made_.emplace_back(b);
  }

  void add_elements(const Weight& x, int axis, std::int64_t blocks, Blocks* b) {
    void* bytes = nullptr;
    const std::int64_t blob = b->block * b->bits / 8;
    std::shared_ptr<Weight> weight = make_weight({DType::kUint8, Shape{b->n, blocks, blob}}, context_.ledger, &bytes);
    const Numbers numbers(x);
    const std::int64_t k_step = axis == 0 ? b->n : 1, n_step = axis == 0 ? 1 : b->k;
    for (std::int64_t j = 0; j < b->n; ++j) {
      cancellation_point();
      std::uint8_t* const to = static_cast<std::uint8_t*>(bytes) + j * blocks * blob;
      for (std::int64_t k = 0; k < b->k; ++k) {
        cancellation_point();
        put(to, b->bits, k, numbers.at(k * k_step + j * n_step));
      }
    }
    b->elements = edit_.add_constant("weight_blocks", std::move(weight));
  }

  void add_scales(const Weight& scale, int axis, std::int64_t blocks, Blocks* b) {
    void* bytes = nullptr;
    std::shared_ptr<Weight> weight = make_weight({DType::kFloat32, Shape{b->n, blocks}}, context_.ledger, &bytes);
    const char* const from = static_cast<const char*>(scale.bytes());
    for (std::int64_t j = 0; j < b->n; ++j) {
      cancellation_point();
      for (std::int64_t i = 0; i < blocks; ++i) {
        cancellation_point();
        const std::int64_t at = axis == 0 ? i * b->n + j : j * blocks + i;
        std::memcpy(static_cast<float*>(bytes) + j * blocks + i, from + at * static_cast<std::int64_t>(sizeof(float)),
                    sizeof(float));
      }
    }
    b->scales = edit_.add_constant("weight_scales", std::move(weight));
  }

  // Null: they are 0.
  void add_zeros(const Weight* zero, int axis, std::int64_t blocks, Blocks* b) {
    const std::int64_t row = ceil_div(blocks * b->bits, std::int64_t{8});
    void* bytes = nullptr;
    std::shared_ptr<Weight> weight = make_weight({DType::kUint8, Shape{b->n, row}}, context_.ledger, &bytes);
    for (std::int64_t j = 0; zero != nullptr && j < b->n; ++j) {
      cancellation_point();
      const Numbers numbers(*zero);
      std::uint8_t* const to = static_cast<std::uint8_t*>(bytes) + j * row;
      for (std::int64_t i = 0; i < blocks; ++i) {
        cancellation_point();
        put(to, b->bits, i, numbers.at(axis == 0 ? i * b->n + j : j * blocks + i));
      }
    }
    b->zeros = edit_.add_constant("weight_zero_points", std::move(weight));
  }

  bool is_bias(ValueId v, std::int64_t columns) const {
    const Weight* w = v == kNoValue ? nullptr : edit_.value(v).constant.get();
    return w != nullptr && w->desc.dtype == DType::kFloat32 && w->desc.shape == Shape{columns};
  }

  void from_product(int product) {
    const Node& node = edit_.node(product);
    if (!match_.plain(product) || node.inputs.size() < 2 || node.inputs[0] == kNoValue || node.inputs[1] == kNoValue) return;
    if (edit_.value(node.inputs[0]).dtype != DType::kFloat32 || value_rank(edit_.value(node.inputs[0])) < 1) return;
    const int d = edit_.producer(node.inputs[1]);
    if (!match_.is(d, "DequantizeLinear") || !match_.plain(d)) return;
    const bool gemm = match_.is(product, "Gemm");
    const bool turned = gemm && attr_int(node, GemmAttr::kTransB) != 0;
    if (gemm && (attr_int(node, GemmAttr::kTransA) != 0 || attr_float(node, GemmAttr::kAlpha) != 1.0f)) return;
    ValueId bias = gemm && node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    const Weight* const x = constant(edit_.node(d), 0);
    if (bias != kNoValue && (x == nullptr || x->desc.shape.rank() != 2 || attr_float(node, GemmAttr::kBeta) != 1.0f ||
                             !is_bias(bias, x->desc.shape[turned ? 0 : 1]))) {
      return;
    }
    const Blocks* const b = blocks_of(d, turned ? 1 : 0);
    if (b == nullptr) return;
    int last = product;
    if (const int add = gemm ? -1 : match_.next(product);
        match_.is(add, "Add") && match_.plain(add) && edit_.node(add).region == node.region) {
      const ValueId other = match_.beside(add, match_.out(product));
      if (is_bias(other, b->n)) {
        bias = other;
        last = add;
      }
    }
    const std::vector<Attribute> attributes = {{"K", b->k}, {"N", b->n}, {"bits", b->bits}, {"block_size", b->block}};
    const std::vector<ValueId> inputs = {node.inputs[0], b->elements, b->scales, b->zeros, kNoValue, bias};
    if (!match_.set_op(last, "MatMulNBits", 1, attributes, "com.microsoft")) return;
    for (std::size_t i = inputs.size(); i > 0; --i) {
      cancellation_point();
      edit_.set_input(last, static_cast<int>(i) - 1, inputs[i - 1]);
    }
    if (bias == kNoValue) edit_.shrink_inputs(last, b->zeros == kNoValue ? 3 : 4);
    if (last != product) {
      std::swap(edit_.node(last).name, edit_.node(product).name);
      match_.absorb(last, product);
    }
    if (edit_.is_dead(match_.out(d))) match_.absorb(last, d);
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
  std::vector<Blocks> made_;
};

}  // namespace

bool fuse_block_weights(Graph& graph, const PassContext& context) { return Fuser(graph, context).run(); }

}  // namespace evn

// Arithmetic of two broadcast float32 inputs. Axes along which both inputs move alike are merged, so that same shapes, scalars,
// per-channel and trailing vectors all become a few axes around one long inner loop. A tile is a run of elements of the output.
#include "backends/cpu/simd/elementwise.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

using simd_elementwise::Binary;

struct BinaryState {
  Isa isa;
  std::int32_t rank;  // of the merged axes, at least 1
  std::int64_t count;
  std::int64_t dims[kMaxRank], x_step[kMaxRank], z_step[kMaxRank];
};

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.inputs.size() != 2) return "only two inputs";
  return nullptr;
}

// Element strides of an input along the axes of the output, 0 where it is broadcast.
void broadcast_steps(const Shape& in, const Shape& out, std::int64_t* steps) {
  std::int64_t step = 1;
  for (int i = out.rank() - 1; i >= 0; --i) {
    const int axis = i - (out.rank() - in.rank());
    const std::int64_t dim = axis < 0 ? 1 : in[axis];
    steps[i] = dim == 1 ? 0 : step;
    step *= dim;
  }
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<BinaryState>();
  const Shape& out = d.outputs[0].shape;
  std::int64_t x[kMaxRank], z[kMaxRank];
  broadcast_steps(d.inputs[0].shape, out, x);
  broadcast_steps(d.inputs[1].shape, out, z);
  s.isa = cpu_isa();
  s.count = out.elements();
  // From the innermost axis outwards, merged axes are collected in reverse.
  int rank = 0;
  for (int i = out.rank() - 1; i >= 0; --i) {
    if (out[i] == 1) continue;
    if (rank > 0 && x[i] == s.x_step[rank - 1] * s.dims[rank - 1] && z[i] == s.z_step[rank - 1] * s.dims[rank - 1]) {
      s.dims[rank - 1] *= out[i];
      continue;
    }
    s.dims[rank] = out[i];
    s.x_step[rank] = x[i];
    s.z_step[rank] = z[i];
    ++rank;
  }
  if (rank == 0) {
    s.dims[0] = 1;
    s.x_step[0] = s.z_step[0] = 0;
    rank = 1;
  }
  s.rank = rank;
  p->tiles = ceil_div(s.count, kElementsPerTile);
  p->in_place = (d.inputs[0].shape == out ? 1u : 0u) | (d.inputs[1].shape == out ? 2u : 0u);
  p->flops = 2.0 * static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

template <Binary Op>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<BinaryState>();
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  const Epilogue* epilogue = epilogue_of(*args.desc);
  const std::int64_t inner = s.dims[0];
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    std::int64_t at = index * kElementsPerTile;
    const std::int64_t last = s.count - at < kElementsPerTile ? s.count : at + kElementsPerTile;
    while (at < last) {
      const std::int64_t start = at % inner;
      std::int64_t row = at / inner;
      std::int64_t x = start * s.x_step[0];
      std::int64_t z = start * s.z_step[0];
      for (int i = 1; i < s.rank; ++i) {
        x += row % s.dims[i] * s.x_step[i];
        z += row % s.dims[i] * s.z_step[i];
        row /= s.dims[i];
      }
      const std::int64_t n = last - at < inner - start ? last - at : inner - start;
      loops.binary(Op, args.in<float>(0) + x, s.x_step[0], args.in<float>(1) + z, s.z_step[0], args.out<float>() + at, n, epilogue);
      at += n;
    }
  }
}

template <Binary Op>
constexpr Kernel row(const char* name, const char* op) {
  return {name, op, "", 10, supports, nullptr, nullptr, nullptr, plan, run<Op>};
}

constexpr Kernel kKernels[] = {
    row<Binary::kAdd>("add", "Add"), row<Binary::kSub>("sub", "Sub"), row<Binary::kMul>("mul", "Mul"), row<Binary::kDiv>("div", "Div"),
    row<Binary::kMin>("min", "Min"), row<Binary::kMax>("max", "Max"), row<Binary::kPow>("pow", "Pow"), row<Binary::kPRelu>("prelu", "PRelu"),
    row<Binary::kAdd>("sum", "Sum"),
};

}  // namespace

extern const KernelFamily binary_kernels;
const KernelFamily binary_kernels = {kKernels};

}  // namespace evn

// The kernel interface: how a backend's implementation of an operator is described, planned and run. Each kernel file of a
// backend defines `<family>_kernels`; configure finds it by its name.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/cancel.h"
#include "base/os/os.h"
#include "core/graph.h"
#include "core/numerics.h"
#include "core/precision.h"
#include "core/products.h"
#include "device/fusion.h"
#include "device/layout.h"
#include "device/prepack.h"

namespace evn {

struct RunServices;

// The values of the graph that a segment's inputs and outputs are: each value that its nodes read and do not make, once, and each
// that nodes outside of it read.
struct SegmentValues {
  std::vector<ValueId> inputs, outputs;
};

// What a kernel is asked about. Dims may be -1 (and a shape may be missing: rank 0 with has_shape false is never passed; such a
// node goes to the reference) while nodes are placed; all are known in `plan` and `run`.
struct OpDesc {
  const Node* node = nullptr;
  std::span<const TensorDesc> inputs;    // dtype kUndefined: not given
  std::span<const TensorDesc> outputs;   // dtype kUndefined: not wanted
  std::span<const WeightPtr> constants;  // per input: its constant, or null. In `plan` also what is known only then (shapes)
  const Layout* layouts = nullptr;       // per input, then per output: what Kernel::layouts said; null: all plain
  std::uint32_t threads = 1;             // that share the tiles, where the host's own run them: tiles may depend on it, results not
  bool strict = false;                   // sums are plain, and subnormal numbers are kept (Numerics::kStrict)
  bool small = false;                    // packed copies are no larger than they must be (MemoryPlan::kSmall)
  // The lowest that the node's products may round their operands to: one that the device has, never kDefault or kAuto.
  Precision precision = Precision::kFloat32;
  Products products = Products::kAuto;  // which library multiplies, never kDefault: a kernel of another one refuses
  // What the nodes are asked about that run as one step. Of a segment: in topological order, the descs do not overlap, and
  // Node::inputs and Node::outputs say which values they read and make. Of a cascade (device/cascade.h): `inputs` has the inputs of
  // all. Empty: one node.
  std::span<const OpDesc> nodes = {};
  // The inputs and outputs of a segment that the device claimed (Device::claim). null: no segment.
  const SegmentValues* values = nullptr;
  Fusion fusion = {};  // what the lowering passes added to the node

  // Whether the node has input i; operands of fused sums are none of its inputs.
  bool has_input(int i) const {
    return static_cast<std::size_t>(i) < inputs.size() && inputs[i].dtype != DType::kUndefined && i != fusion.bias &&
           i != fusion.residual;
  }
  Layout input_layout(int i) const { return layouts == nullptr ? Layout::kPlain : layouts[i]; }
  Layout output_layout(int i = 0) const {
    return layouts == nullptr ? Layout::kPlain : layouts[inputs.size() + static_cast<std::size_t>(i)];
  }
  const Weight* constant(int i) const { return static_cast<std::size_t>(i) < constants.size() ? constants[i].get() : nullptr; }

  // The input that is the bias: the node's own, `own`, or one that is fused; -1: there is none.
  int bias_input(int own) const { return has_input(own) ? own : fusion.bias; }
  bool has_residual() const { return fusion.residual >= 0; }

  // Elements from one position to the next of an argument that lies channels last.
  std::int64_t input_pitch(int i) const {
    const std::int64_t pitch = fusion.pitches == nullptr ? 0 : fusion.pitches[i];
    return pitch == 0 ? inputs[static_cast<std::size_t>(i)].shape[1] : pitch;
  }
  std::int64_t output_pitch(int i = 0) const {
    const std::size_t k = static_cast<std::size_t>(i);
    const std::int64_t pitch = fusion.pitches == nullptr ? 0 : fusion.pitches[inputs.size() + k];
    return pitch == 0 ? outputs[k].shape[1] : pitch;
  }
  std::int64_t residual_pitch() const { return has_residual() ? input_pitch(fusion.residual) : 0; }

  // Whether arguments are stored as 16 bits.
  bool reads_16bit(int i = 0) const { return (fusion.stored_16bit >> i & 1u) != 0; }
  bool writes_16bit() const { return (fusion.stored_16bit & Fusion::kOutputStored16Bit) != 0; }
};

// Why a kernel does not take a node: a static sentence ("only float32"), or nullptr when it does.
using Refusal = const char*;

// What a kernel decides once per shape. `state` is the kernel's own.
struct KernelPlan {
  std::int64_t tiles = 1;                // units of threads, cancellation and tracing; independent of each other
  std::size_t scratch_bytes = 0;         // one block for the whole call, on the device
  std::size_t thread_scratch_bytes = 0;  // a block for each thread (CPU only)
  std::size_t cleared_bytes = 0;         // so many first ones of scratch_bytes are 0 when the first tile begins (CPU only)
  std::uint32_t in_place = 0;            // bit i: output 0 may have the memory of input i
  double flops = 0;                      // operations, for the cost estimate: a multiply-add is two
  double bytes = 0;                      // bytes read and written

  static constexpr std::size_t kStateBytes = 512;
  template <typename T>
  T& state() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kStateBytes && alignof(T) <= 16);
    return *reinterpret_cast<T*>(state_);
  }
  template <typename T>
  const T& state() const {
    return const_cast<KernelPlan*>(this)->state<T>();
  }

 private:
  alignas(16) unsigned char state_[kStateBytes] = {};
};

// A place on a device: `memory` is the device's own handle (on the CPU: an address), `offset` in bytes.
struct Buffer {
  void* memory = nullptr;
  std::size_t offset = 0;
  std::size_t size = 0;

  // CPU only.
  void* address() const { return static_cast<char*>(memory) + offset; }
};

struct KernelArgs {
  const OpDesc* desc = nullptr;
  const KernelPlan* plan = nullptr;
  std::span<const Buffer> inputs;  // in the layouts of the desc; memory null: not given
  std::span<const Buffer> outputs;
  std::span<const Buffer> packed;  // per input: what `prepack` wrote; memory null: not packed
  Buffer scratch;
  void* thread_scratch = nullptr;         // CPU: this thread's block
  void* context = nullptr;                // the device's own (OpenCL: what enqueues)
  const RunServices* services = nullptr;  // of the run (ops/op.h)

  // CPU only: typed addresses.
  template <typename T>
  const T* in(int i) const {
    return static_cast<const T*>(inputs[i].address());
  }
  template <typename T>
  T* out(int i = 0) const {
    return static_cast<T*>(outputs[i].address());
  }
  // Where rows of an input are read (Kernel::reads_rows); null: the input is in memory.
  const WeightSource* rows(int i) const {
    return inputs[i].memory == nullptr && static_cast<std::size_t>(i) < packed.size() ? pack<WeightSource>(i) : nullptr;
  }
  template <typename T>
  const T* pack(int i) const {
    return static_cast<const T*>(packed[i].address());
  }
  // nullptr: there is none.
  template <typename T>
  const T* bias(int own) const {
    return in_or_null<T>(desc->bias_input(own));
  }
  template <typename T>
  const T* residual() const {
    return in_or_null<T>(desc->fusion.residual);
  }

 private:
  template <typename T>
  const T* in_or_null(int i) const {
    return i < 0 ? nullptr : in<T>(i);
  }
};

// Inputs whose memory an output may have: as bits, and one more; -1: no more.
struct InPlace {
  std::uint32_t bits;
  int input;
  bool any() const { return bits != 0 || input >= 0; }
  bool allows(std::size_t i) const { return (i < 32 && (bits >> i & 1) != 0) || static_cast<int>(i) == input; }
};

// Kernel::prepack where there are parts: one of all rows.
template <auto Run, int Axes = 1>
void prepack_all(const OpDesc& desc, int input, void* packed) {
  const Weight& weight = *desc.constant(input);
  Run(desc, input, weight.bytes(), 0, weight.desc.shape.elements(0, Axes), packed);
}

struct Kernel {
  const char* name;         // unique in its backend: "conv_gemm"
  const char* op = "";      // operator name
  const char* domain = "";  // "" is ai.onnx
  int rank;                 // the highest rank that supports a node runs it; two equal ranks for one operator are a test failure
  // Looks at dtypes, attributes, ranks, constants and the epilogue; at dims only where they are constant (weights).
  Refusal (*supports)(const OpDesc& desc);
  // Bytes that the kernel wants of a packed copy of constant input i; 0: none. Nullable: packs nothing. Plain bytes of such an
  // input are there for `prepack` only: `run` has no input buffer of it, and on the CPU `plan` and `run` find the constant in the
  // desc, but not its data. `supports` looks at the values of small constants only.
  std::size_t (*prepack_bytes)(const OpDesc& desc, int input) = nullptr;
  // Tells apart packed copies of one weight that differ by more than the kernel (the group of a convolution, say). Nullable: 0.
  std::uint64_t (*prepack_variant)(const OpDesc& desc, int input) = nullptr;
  // Writes the packed copy to host memory; devices upload it.
  void (*prepack)(const OpDesc& desc, int input, void* packed) = nullptr;
  // All dims are known. Allocates nothing; below 1 us.
  void (*plan)(const OpDesc& desc, KernelPlan* plan);
  // Runs tiles [begin, end). On the CPU: called from several threads with disjoint ranges. On other devices: called once with all
  // tiles, enqueues, and does not wait. May throw Error.
  void (*run)(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel);
  // Copes with inputs that have no elements where the output has some (a cache that is empty yet, concatenated with what is new).
  // The memory of such an input may be null. Other kernels are not asked to: the device's reference runs then, if it has one.
  bool takes_empty = false;
  // In which layouts the kernel wants its inputs and gives its outputs. `inputs` comes with those in which the inputs lie already,
  // constants plain, `outputs` all plain; the kernel writes its wishes over them, the same for any dims of these ranks. Nullable:
  // all are plain.
  void (*layouts)(const OpDesc& desc, std::span<Layout> inputs, std::span<Layout> outputs) = nullptr;
  // What its products round their operands to. Only nodes that may have it so low are offered to the kernel (OpDesc::precision).
  Precision operands = Precision::kFloat32;
  Products library = Products::kOwn;  // that multiplies in it
  PrepackParts prepack_parts = {};    // CPU only
  // The input, of the same size, whose memory an output may have, beside what KernelPlan::in_place says of output 0; -1: none.
  // Nullable: none of any output.
  int (*written_over)(const OpDesc& desc, int output) = nullptr;
  KernelFusion fusion = {};
  // Returns true if the kernel reads some rows of constant input i where the constant stands in a file: `run` has its WeightSource
  // in the place of a packed copy then, and no input buffer. Nullable: of no input. CPU only.
  bool (*reads_rows)(const OpDesc& desc, int input) = nullptr;

  // The inputs whose memory output k may have.
  InPlace in_place(const OpDesc& desc, const KernelPlan& planned, std::size_t k) const {
    return {k == 0 ? planned.in_place : 0, written_over == nullptr ? -1 : written_over(desc, static_cast<int>(k))};
  }

  // Whether it is for the node's operator. Most are not, and differ in the first letter.
  [[gnu::always_inline]] bool is_for(const Node& node) const {
    return node.op_type[0] == op[0] && node.op_type == op && node.domain == domain;
  }
};

struct KernelFamily {
  std::span<const Kernel> kernels;
};

}  // namespace evn

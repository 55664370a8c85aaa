#include "backends/cpu/cascade.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/cpu/bfloat/bfloat_plan.h"
#include "backends/cpu/conv/conv_plan.h"
#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/qconv/byte_line_buffer.h"
#include "kept_operators.h"
#include "ops/conv.h"

namespace evn {

namespace {

// Where it pays. What a product of more columns of A writes is hidden behind its multiply-adds; depthwise layers never are.
constexpr std::int64_t kLeastBetween = 192 << 10;  // elements between two stages, where other threads made some of them
constexpr std::int64_t kLeastAlone = 256 << 10;    // the same behind one thread's first stage: fewer stay in L2 anyway
constexpr std::int64_t kWideShare = 4;   // so many times these where bytes are widened for products, B for each group of lines anew
constexpr std::int64_t kDeepest = 48;    // channels that a product reads
constexpr std::int64_t kMostAhead = 96;  // channels of a depthwise layer, that the product behind it has not too many weights
constexpr std::int64_t kMostWithin = 192;  // the same where others stand before it
constexpr double kMostTwice = 0.125;       // of the multiply-adds, for lines that two tiles need

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kFewChannels = 4;                  // of a first layer
constexpr std::int64_t kMostLineBytes = 1 << 20;          // bytes of all lines that a thread keeps
constexpr std::size_t kFarOutput = std::size_t{1} << 20;  // bytes of the output that the lines leave no room for in L2
constexpr std::int64_t kUsualLines = 4;                   // lines of the last stage
constexpr std::int64_t kInt8Lines = 8;                    // the same of bytes, which are fewer, where one thread keeps them
constexpr std::int64_t kEnoughRows = 128;  // pixels of a group of lines, so that panels of weights are read for many of them

// Whether there are stages of bytes in this build.
constexpr bool kHasBytes = keeps_operator("QLinearConv");

// The weight among the inputs.
int weight_of(const OpDesc& d) { return !kHasBytes || d.inputs[0].dtype == DType::kFloat32 ? 1 : kQLinearConvInputs.w; }

Window window_of(const OpDesc& d) {
  return conv_window(*d.node, d.inputs[0].shape, d.inputs[static_cast<std::size_t>(weight_of(d))].shape);
}

bool is_one_pixel(const Window& window) {
  const auto is_one = [](const WindowAxis& a) { return a.kernel == 1 && a.stride == 1 && a.pad_begin == 0 && a.pad_end == 0; };
  return is_one(window.axis[0]) && is_one(window.axis[1]);
}

// A stage without its memory. Lines are rows of the output's pixels; a line of it is made of lines of the stage before.
struct Stage {
  enum class Kind { kFirstLayer, kDepthwise, kPointwise } kind;
  bool of_bytes, of_bfloat;  // of_bfloat: a product whose operands are rounded; lines between stages are float32
  std::int64_t in_height, height;
  std::int64_t kernel, stride, pad;  // between these lines
  std::int64_t in_line, line;        // bytes of a line
  double work;                       // multiply-adds of a line

  Stage() = default;
  explicit Stage(const OpDesc& d) {
    const Shape& w = d.inputs[static_cast<std::size_t>(weight_of(d))].shape;
    const Window window = window_of(d);
    const WindowAxis& v = window.axis[0];
    of_bytes = kHasBytes && weight_of(d) != 1;
    of_bfloat = d.precision == Precision::kBfloat16;
    if (attr_int(*d.node, ConvAttr::kGroup) > 1) {
      kind = Kind::kDepthwise;
    } else {
      kind = d.input_layout(0) == Layout::kPlain || !is_one_pixel(window) ? Kind::kFirstLayer : Kind::kPointwise;
    }
    in_height = v.input;
    height = v.output;
    kernel = v.kernel;
    stride = v.stride;
    pad = v.pad_begin;
    const auto element = static_cast<std::int64_t>(dtype_size(d.inputs[0].dtype));
    in_line = window.axis[1].input * d.input_pitch(0) * element;
    line = window.axis[1].output * d.output_pitch() * element;
    work = static_cast<double>(window.axis[1].output * w[0]) * static_cast<double>(w.elements(1, w.rank()));
  }

  // The lines [first_line, end_line) of the input are those that lines [from, to) are made of.
  std::int64_t first_line(std::int64_t from) const { return std::clamp<std::int64_t>(from * stride - pad, 0, in_height); }
  std::int64_t end_line(std::int64_t to) const { return std::clamp<std::int64_t>((to - 1) * stride - pad + kernel, 0, in_height); }
};

struct Stages {
  int count;
  Stage stage[kMaxStages] = {};

  explicit Stages(std::span<const OpDesc> descs) : count(static_cast<int>(descs.size())) {
    EVN_CHECK(count > 0 && count <= kMaxStages);
    for (std::size_t i = 0; i < descs.size(); ++i) stage[i] = Stage(descs[i]);
  }
  const Stage& last() const { return stage[count - 1]; }

  // Lines that a thread keeps of each stage but the last, where `group` lines of that are computed at a time. Returns their bytes.
  std::int64_t room_for(std::int64_t group, std::int64_t* lines) const {
    std::int64_t bytes = 0, needed = group;
    for (int p = count - 1; p > 0; --p) {
      needed = std::min((needed - 1) * stage[p].stride + stage[p].kernel, stage[p].in_height);
      lines[p - 1] = needed;
      bytes = checked_add(bytes, checked_mul(needed, stage[p - 1].line));
    }
    return bytes;
  }

  // Multiply-adds for the lines that a tile makes though another does, too; `extra`: so many of the last stage's.
  double work_twice(std::int64_t extra) const {
    double work = static_cast<double>(extra) * last().work;
    for (int p = count - 1; p > 0; --p) {
      extra = std::min(extra * stage[p].stride + stage[p].kernel - stage[p].stride, stage[p - 1].height);
      if (extra > 0) work += static_cast<double>(extra) * stage[p - 1].work;
    }
    return work;
  }

  double work() const {
    double all = 0;
    for (int p = 0; p < count; ++p) all += stage[p].work * static_cast<double>(stage[p].height);
    return all;
  }
};

bool takes(const Kernel& kernel, const OpDesc& d) {
  const std::uint8_t stages = kernel.fusion.stages;
  if (kernel.operands == Precision::kBfloat16 && bfloat16_isa() != Isa::k_avx512_bf16) return false;  // not measured with tiles
  if (stages == 0 || CascadeChoice::get() == CascadeUse::kNever || d.inputs[0].shape.rank() != 4) return false;
  const Window window = window_of(d);
  const bool dense = window.axis[0].dilation == 1 && window.axis[1].dilation == 1;
  if ((stages & kDepthwiseStage) != 0) return dense;
  if (attr_int(*d.node, ConvAttr::kGroup) != 1) return false;
  const bool few_channels = d.inputs[static_cast<std::size_t>(weight_of(d))].shape[1] <= kFewChannels;
  return ((stages & kPointwiseStage) != 0 && is_one_pixel(window)) || ((stages & kFirstLayerStage) != 0 && dense && few_channels);
}

// What comes is taken for a 3 x 3 window.
bool joins(std::span<const OpDesc> descs) {
  const Shape& y = descs.back().outputs[0].shape;
  const CascadeUse use = CascadeChoice::get();
  if (y.elements() == 0 || use != CascadeUse::kWhereItPays) return y.elements() != 0 && use == CascadeUse::kAlways;
  const Stages stages(descs);
  const Stage& last = stages.last();
  const bool depthwise = last.kind == Stage::Kind::kDepthwise;
  const std::int64_t threads = descs.back().threads;
  const std::int64_t share = kHasBytes && last.of_bytes && simd_qgemm::loops(integer_isa()).wide_columns != 0 ? kWideShare : 1;
  const bool enough = y.elements(1, 4) >= share * (descs.size() == 1 && threads == 1 ? kLeastAlone : kLeastBetween);
  const std::int64_t ahead = depthwise ? kUsualLines : kUsualLines + 2;
  std::int64_t lines[kMaxStages];
  if (stages.room_for(ahead, lines) + ahead * last.line > kMostLineBytes) return false;
  if (depthwise) return descs.size() > 1 ? y[1] <= kMostWithin : y[1] <= kMostAhead && enough;
  if (!enough || (last.kind == Stage::Kind::kPointwise && descs.back().inputs[0].shape[1] > kDeepest)) return false;
  return y[0] >= threads || stages.work_twice(2) * static_cast<double>(threads) <= kMostTwice * stages.work();
}

struct CascadeState {
  std::int64_t rows, row_tiles;  // of the last stage's lines
  std::int64_t group;
  std::int64_t lines[kMaxStages],
      at[kMaxStages];                 // of each stage but the last: its buffer, in lines, and where it begins, in bytes
  std::int64_t copied_at;             // of lines that a first layer copies
  std::int64_t rounded_at;            // of a product's operands of bfloat16
  std::int64_t stage_at[kMaxStages];  // of bytes: its own memory
};

// Lines that begin at a multiple of a line of the cache.
std::int64_t padded(std::int64_t bytes) { return round_up(bytes, 64); }

// Elements of a row of A of a product of bfloat16.
std::int64_t rounded_row(const OpDesc& d) { return bfloat_padded(simd_bfloat_gemm::loops(bfloat16_isa()), d.inputs[0].shape[1]); }

const ByteLineBufferKernel& lines_kernel(const OpDesc& d, const Stage& stage) {
  if (stage.kind != Stage::Kind::kDepthwise) return conv_lines;
  return runs_by_planes(d) ? planes_lines : depthwise_lines;
}

// How the i-th stage stands among the others.
Int8Stage int8_stage(const CascadeState& s, int i, bool is_last) { return {is_last ? s.group : s.lines[i], i > 0}; }

// Tiles such that the last thread ends soonest, when each takes the next tile as it gets free; few, as each begins with lines that
// another has as well.
std::int64_t rows_of_tile(const Stages& stages, std::int64_t images, std::int64_t threads) {
  const std::int64_t height = stages.last().height;
  const double work = stages.work(), twice = stages.work_twice(0);
  double least = 0;
  std::int64_t best = height;
  for (std::int64_t tiles = 1; tiles <= std::min(height, 4 * threads); ++tiles) {
    const std::int64_t rows = ceil_div(height, tiles);
    const double tile = work * static_cast<double>(rows) / static_cast<double>(height) + (tiles > 1 ? twice : 0);
    const double span = tile * static_cast<double>(ceil_div(images * ceil_div(height, rows), threads));
    if (tiles > 1 && span >= least) continue;
    least = span;
    best = rows;
  }
  return best;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<CascadeState>();
  const Stages stages(d.nodes);
  const std::int64_t images = d.nodes[0].inputs[0].shape[0];
  const std::int64_t height = stages.last().height;
  s.rows = rows_of_tile(stages, images, std::max<std::uint32_t>(1, d.threads));
  s.row_tiles = ceil_div(height, s.rows);
  const std::int64_t width = d.nodes.back().outputs[0].shape[3];
  const std::int64_t usual = stages.stage[0].of_bytes && d.threads <= 1 ? kInt8Lines : kUsualLines;
  s.group = std::min(height, std::max(usual, ceil_div(ceil_div(kEnoughRows, width), kUsualLines) * kUsualLines));
  while (s.group > 1 && stages.room_for(s.group, s.lines) > kMostLineBytes) s.group = ceil_div(s.group, std::int64_t{2});
  stages.room_for(s.group, s.lines);
  std::int64_t bytes = 0;
  for (int i = 0; i + 1 < stages.count; ++i) {
    s.at[i] = bytes;
    bytes = checked_add(bytes, padded(checked_mul(s.lines[i], stages.stage[i].line)));
    if (stages.stage[i].of_bytes) bytes += simd_qgemm::kOverread;
  }
  s.copied_at = bytes;
  if (stages.stage[0].kind == Stage::Kind::kFirstLayer && !stages.stage[0].of_bytes) {
    bytes += static_cast<std::int64_t>(sizeof(float)) *
             few_channels_line_floats(simd_few_channels::loops(cpu_isa()), few_channels_geometry(d.nodes[0]));
  }
  s.rounded_at = bytes = padded(bytes);
  std::int64_t rounded = 0;
  for (int i = 0; i < stages.count; ++i) {
    if (!stages.stage[i].of_bfloat) continue;
    const std::int64_t pixels =
        checked_mul(i + 1 < stages.count ? s.lines[i] : s.group, d.nodes[static_cast<std::size_t>(i)].outputs[0].shape[3]);
    rounded = std::max(rounded, checked_mul(pixels, rounded_row(d.nodes[static_cast<std::size_t>(i)])));
  }
  bytes = checked_add(bytes, checked_mul<std::int64_t>(rounded, sizeof(std::uint16_t)));
  for (int i = 0; kHasBytes && i < stages.count && stages.stage[i].of_bytes; ++i) {
    const OpDesc& stage = d.nodes[static_cast<std::size_t>(i)];
    s.stage_at[i] = bytes;
    const std::size_t own = lines_kernel(stage, stages.stage[i]).bytes(stage, int8_stage(s, i, i + 1 == stages.count));
    bytes = checked_add(bytes, padded(static_cast<std::int64_t>(own)));
  }
  p->thread_scratch_bytes = static_cast<std::size_t>(bytes);
  p->tiles = checked_mul(images, s.row_tiles);
  for (const OpDesc& stage : d.nodes) {
    const Shape& w = stage.inputs[static_cast<std::size_t>(weight_of(stage))].shape;
    p->flops += 2.0 * static_cast<double>(w.elements(1, w.rank())) * static_cast<double>(stage.outputs[0].shape.elements());
    const TensorDesc& between = stage.inputs[0];
    p->bytes += bytes_of(stage) - 2 * static_cast<double>(between.size_bytes());
  }
  p->bytes += 2 * static_cast<double>(d.nodes[0].inputs[0].size_bytes());
}

// A stage with its memory, for one thread.
struct Worker : Stage {
  const OpDesc* desc;
  simd_depthwise::Geometry depthwise;
  simd_few_channels::Geometry few_channels;
  ByteLineBuffer* bytes;  // null: floats, with what follows
  const void* weight;
  const float* bias;
  const std::uint8_t* residual;  // of all images
  // Whether the cascade's own input, the residual and the output are stored as bfloat16.
  bool reads_16bit, residual_is_16bit, writes_16bit;
  std::int64_t width, channels, in_channels;
  bool is_last;
  // Bytes of a line as it is stored.
  std::int64_t stored_line() const { return writes_16bit ? line / 2 : line; }
  std::int64_t stored_in_line() const { return reads_16bit ? in_line / 2 : in_line; }
  std::int64_t end;    // lines up to here are made or skipped
  std::int64_t first;  // the line at which the buffer begins
  std::uint8_t* buffer;
};

class Runner {
 public:
  Runner(const KernelArgs& args, CancelPoints* points)
      : args_(args), points_(points), s_(args.plan->state<CascadeState>()), isa_(cpu_isa()) {
    for (const OpDesc& stage : args.desc->nodes) add(stage);
  }

  void tile(std::int64_t index) {
    image_ = index / s_.row_tiles;
    Worker& last = stage_[count_ - 1];
    const std::int64_t begin = index % s_.row_tiles * s_.rows;
    const std::int64_t end = std::min(last.height, begin + s_.rows);
    last.end = begin;
    for (int p = count_ - 1; p > 0; --p) stage_[p - 1].end = stage_[p - 1].first = stage_[p].first_line(stage_[p].end);
    last.first = 0;
    last.buffer = args_.out<std::uint8_t>() + image_ * last.height * last.stored_line();
    for (std::int64_t y = begin; y < end && !points_->stopped; y += s_.group) group(std::min(end, y + s_.group));
  }

 private:
  const KernelArgs& args_;
  CancelPoints* const points_;
  const CascadeState& s_;
  const Isa isa_;
  int count_ = 0;
  std::int64_t image_ = 0;
  Worker stage_[kMaxStages];

  void add(const OpDesc& d) {
    const auto input = static_cast<int>(d.inputs.data() - args_.desc->inputs.data());
    auto* const memory = static_cast<std::uint8_t*>(args_.thread_scratch);
    const int i = count_++;
    Worker& w = stage_[i];
    static_cast<Stage&>(w) = Stage(d);
    w.desc = &d;
    w.is_last = &d == &args_.desc->nodes.back();
    w.residual = d.has_residual() ? args_.in<std::uint8_t>(input + d.fusion.residual) : nullptr;
    w.buffer = memory + s_.at[i];
    w.bytes = nullptr;
    // A row of the next stage may read beside its own line, where no line may be yet.
    for (std::int64_t line = 0; kHasBytes && w.of_bytes && !w.is_last && line <= s_.lines[i]; ++line) {
      std::memset(memory + s_.at[i] + line * w.line, 0, simd_qgemm::kOverread);
    }
    w.reads_16bit = i == 0 && args_.desc->reads_16bit();
    w.residual_is_16bit = d.has_residual() && args_.desc->reads_16bit(input + d.fusion.residual);
    w.writes_16bit = w.is_last && args_.desc->writes_16bit();
    if (kHasBytes && w.of_bytes) {
      w.bytes = lines_kernel(d, w).begin(args_, d, input, int8_stage(s_, i, w.is_last), memory + s_.stage_at[i], points_);
      return;
    }
    w.weight = args_.pack<void>(input + 1);
    w.bias = d.has_input(2) ? args_.in<float>(input + 2) : nullptr;
    w.in_channels = d.inputs[0].shape[1];
    w.width = d.outputs[0].shape[3];
    w.channels = d.outputs[0].shape[1];
    if (w.kind == Stage::Kind::kDepthwise) w.depthwise = depthwise_geometry(d);
    if (w.kind == Stage::Kind::kFirstLayer) w.few_channels = few_channels_geometry(d);
  }

  // Makes the last stage's lines up to `to`, from where they end.
  void group(std::int64_t to) {
    std::int64_t ends[kMaxStages];
    for (int p = count_ - 1; p >= 0; --p) {
      ends[p] = to;
      to = stage_[p].end_line(to);
    }
    // Skips the lines between two groups that no later stage reads: a stride may be larger than its kernel.
    for (int p = count_ - 1; p > 0; --p) stage_[p - 1].end = std::max(stage_[p - 1].end, stage_[p].first_line(stage_[p].end));
    for (int p = 0; p < count_; ++p) {
      if (ends[p] <= stage_[p].end) continue;
      if (p + 1 < count_) make_room(p, ends[p]);
      make(p, stage_[p].end, ends[p]);
      stage_[p].end = ends[p];
    }
  }

  // Lines that the next stage has used make room for others.
  void make_room(int p, std::int64_t to) {
    Worker& w = stage_[p];
    if (to - w.first <= s_.lines[p]) return;
    const std::int64_t keep = std::max(w.first, stage_[p + 1].first_line(stage_[p + 1].end));
    if (keep < w.end) std::copy(w.buffer + (keep - w.first) * w.line, w.buffer + (w.end - w.first) * w.line, w.buffer);
    w.first = keep;
  }

  void make(int p, std::int64_t from, std::int64_t to) {
    Worker& w = stage_[p];
    const std::uint8_t* const first = p == 0 ? args_.in<std::uint8_t>(0) + image_ * w.in_height * w.stored_in_line()
                                             : stage_[p - 1].buffer - stage_[p - 1].first * w.in_line;
    std::uint8_t* const to_lines = w.buffer - w.first * w.stored_line();
    if (kHasBytes && w.bytes != nullptr) {
      return w.bytes->make(first, from, to, to_lines, w.residual == nullptr ? nullptr : w.residual + image_ * w.height * w.line);
    }
    if (w.of_bfloat) return make_pointwise_bfloat(w, first, to_lines, from, to);
    const auto* const x = reinterpret_cast<const float*>(first);
    auto* const y = reinterpret_cast<float*>(to_lines);
    switch (w.kind) {
      case Stage::Kind::kFirstLayer: return make_first_layer(w, x, y, from, to);
      case Stage::Kind::kDepthwise: return make_depthwise(w, x, y, from, to);
      case Stage::Kind::kPointwise: return make_pointwise(w, x, y, from, to);
    }
  }

  void make_first_layer(const Worker& w, const float* x, float* y, std::int64_t from, std::int64_t to) const {
    simd_few_channels::Tile t{};
    t.geometry = &w.few_channels;
    t.x = x;
    t.y = y;
    t.row_begin = from;
    t.row_end = to;
    t.weight = static_cast<const float*>(w.weight);
    t.bias = w.bias;
    t.epilogue = epilogue_of(*w.desc);
    t.lines = reinterpret_cast<float*>(static_cast<std::uint8_t*>(args_.thread_scratch) + s_.copied_at);
    t.points = points_;
    simd_few_channels::loops(isa_).run(t);
  }

  void make_depthwise(const Worker& w, const float* x, float* y, std::int64_t from, std::int64_t to) const {
    simd_depthwise::Tile t{};
    t.geometry = &w.depthwise;
    t.x = x;
    t.y = y;
    t.row_begin = from;
    t.row_end = to;
    t.channels = w.channels;
    t.weight = static_cast<const float*>(w.weight);
    t.weight_step = depthwise_weight_step(w.desc->inputs[1].shape);
    t.bias = w.bias;
    t.epilogue = epilogue_of(*w.desc);
    t.points = points_;
    simd_depthwise::loops(isa_).run(t);
  }

  void make_pointwise(const Worker& w, const float* x, float* y, std::int64_t from, std::int64_t to) const {
    simd_packed_gemm::Tile t{};
    t.large_l2 = has_large_l2();
    t.m = (to - from) * w.width;
    t.n = w.channels;
    t.k = w.in_channels;
    t.a = x + from * w.in_line / kFloat;
    t.lda = w.desc->input_pitch(0);
    t.b = static_cast<const float*>(w.weight);
    t.c = y + from * w.line / kFloat;
    t.ldc = w.desc->output_pitch();
    t.init = w.bias;
    t.init_column = 1;
    t.init_scale = 1;
    if (w.residual != nullptr) {
      t.ldr = w.desc->residual_pitch();
      t.residual = reinterpret_cast<const float*>(w.residual) + (image_ * w.height + from) * w.width * t.ldr;
    }
    t.epilogue = epilogue_of(*w.desc);
    t.far = w.is_last && args_.outputs[0].size >= kFarOutput;
    t.points = points_;
    simd_packed_gemm::loops(isa_).run(t);
  }

  void make_pointwise_bfloat(const Worker& w, const std::uint8_t* x, std::uint8_t* y, std::int64_t from, std::int64_t to) const {
    const simd_bfloat_gemm::Loops& loops = simd_bfloat_gemm::loops(bfloat16_isa());
    const std::int64_t rows = (to - from) * w.width, k = w.in_channels, pitch = w.desc->input_pitch(0), start = 0;
    simd_bfloat_gemm::Tile t{};
    t.padded = rounded_row(*w.desc);
    const std::uint8_t* const pixels = x + from * w.stored_in_line();
    if (w.reads_16bit && t.padded == k) {
      t.a = reinterpret_cast<const std::uint16_t*>(pixels);
      t.lda = pitch;
    } else {
      auto* const rounded = reinterpret_cast<std::uint16_t*>(static_cast<std::uint8_t*>(args_.thread_scratch) + s_.rounded_at);
      t.a = rounded;
      t.lda = t.padded;
      if (!copy_bfloat_rows(loops, {pixels, w.reads_16bit, pitch, rows, k}, t.padded, rounded, points_)) return;
    }
    t.lines = 1;
    t.width = rows;
    t.offsets = &start;
    t.segments = 1;
    t.b = static_cast<const std::uint16_t*>(w.weight);
    t.n = w.channels;
    t.init = w.bias;
    t.init_column = 1;
    t.init_scale = 1;
    if (w.residual != nullptr) {
      t.ldr = w.desc->residual_pitch();
      t.residual_is_bfloat = w.residual_is_16bit;
      t.residual = w.residual + (image_ * w.height + from) * w.width * t.ldr * (w.residual_is_16bit ? 2 : kFloat);
    }
    t.epilogue = epilogue_of(*w.desc);
    t.to_bfloat = w.writes_16bit;
    t.c = y + from * w.stored_line();
    t.ldc = w.desc->output_pitch();
    t.points = points_;
    loops.run(t);
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  Runner runner(args, &points);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) runner.tile(index);
}

Refusal supports(const OpDesc&) { return "only as a stage of a cascade"; }

}  // namespace

constinit std::atomic<CascadeUse> CascadeChoice::use_{CascadeUse::kWhereItPays};

const Cascades cpu_cascades = {
    .takes = takes,
    .joins = joins,
    .kernel = {.name = "conv_cascade",
               .op = "",
               .domain = "",
               .rank = 0,
               .supports = supports,
               .plan = plan,
               .run = run,
               .fusion = {.storage_16bit = storage_16bit(Precision::kBfloat16)}},
};

}  // namespace evn

#include "runtime/lower/compile.h"

#include <algorithm>
#include <optional>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/heap.h"
#include "graph/inline_if.h"
#include "runtime/lower/compile_segments.h"
#include "runtime/lower/constant_uses.h"
#include "runtime/lower/device_room.h"
#include "runtime/lower/pass_list.h"
#include "runtime/lower/product_trials.h"
#include "runtime/lower/row_sources.h"

namespace evn {
namespace {

std::uint8_t slot_of(CompiledGraph& c, Device* device) {
  const auto it = std::find(c.devices.begin(), c.devices.end(), device);
  if (it != c.devices.end()) return static_cast<std::uint8_t>(it - c.devices.begin());
  if (c.devices.size() >= kMaxSlots) fail(EVN_ERROR_LIMIT, "a session uses at most %d devices", kMaxSlots);
  c.devices.push_back(device);
  return static_cast<std::uint8_t>(c.devices.size() - 1);
}

void compile_values(CompiledGraph& c) {
  const Graph& graph = c.graph();
  c.needed = values_needed_for_shapes(graph);
  c.conditions = region_conditions(graph);
  c.last_user.assign(graph.values.size(), -1);
  c.constants.resize(graph.values.size());
  c.input_of.assign(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) c.input_of[graph.inputs[i]] = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    cancellation_point(8);
    for (const ValueId v : graph.nodes[i].inputs) {
      cancellation_point();
      if (v != kNoValue) c.last_user[v] = static_cast<std::int32_t>(i);
    }
  }
  for (const ValueId v : graph.outputs) c.last_user[v] = INT32_MAX;
  for (const ValueId v : graph.inputs) c.has_runtime_values |= static_cast<bool>(graph.values[v].wraps);
}

// What may be fused into a node is read by it as well.
void find_readers(CompiledGraph& c) {
  const Graph& graph = c.graph();
  const auto each = [&](const auto& visit) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      cancellation_point(8);
      for (const ValueId v : graph.nodes[i].inputs) {
        cancellation_point(2);
        if (v != kNoValue) visit(v, i);
      }
      for (const FusedOperand& f : c.nodes[i].fused) {
        if (f.role == FusedOperand::Role::kResidual) visit(f.value, i);  // others are constants
      }
    }
  };
  c.reader_begin.assign(graph.values.size() + 1, 0);
  each([&](ValueId v, std::size_t) { ++c.reader_begin[static_cast<std::size_t>(v) + 1]; });
  for (std::size_t v = 0; v < graph.values.size(); ++v) c.reader_begin[v + 1] += c.reader_begin[v];
  c.readers.resize(c.reader_begin.back());
  std::vector<std::uint32_t> next(c.reader_begin.begin(), c.reader_begin.end() - 1);
  each([&](ValueId v, std::size_t i) { c.readers[next[v]++] = static_cast<std::int32_t>(i); });
}

// `made`: per value, the layout in which its node makes it.
void choose_layouts(const Node& node, std::span<const TensorDesc> descs, CompiledNode* n, std::vector<Layout>* made) {
  const std::size_t inputs = node.inputs.size();
  std::vector<Layout> layouts(descs.size(), Layout::kPlain);
  for (std::size_t k = 0; k < inputs; ++k) {
    if (node.inputs[k] != kNoValue && n->slot == 0) layouts[k] = (*made)[node.inputs[k]];
  }
  const std::span<Layout> all(layouts);
  const OpDesc desc = desc_of(node, *n, descs);
  n->kernel->layouts(desc, all.first(inputs), all.subspan(inputs));
  if (std::all_of(layouts.begin(), layouts.end(), [](Layout l) { return l == Layout::kPlain; })) return;
  EVN_CHECK(n->slot == 0);
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] != kNoValue) (*made)[node.outputs[k]] = layouts[inputs + k];
  }
  // Before the outputs, what may be fused: a residual lies as the output does.
  const Layout output = layouts[inputs];
  auto at = layouts.begin() + static_cast<std::ptrdiff_t>(inputs);
  for (const FusedOperand& f : n->fused)
    at = layouts.insert(at, f.role == FusedOperand::Role::kResidual ? output : Layout::kPlain) + 1;
  n->layouts = std::move(layouts);
  if (n->kernel->fusion.channel_views != nullptr) n->views = n->kernel->fusion.channel_views(desc);
}

void compile_node(CompiledGraph& c, std::size_t index) {
  const Graph& graph = c.graph();
  const Node& node = graph.nodes[index];
  const NodePlacement& p = c.placement.nodes[index];
  CompiledNode& n = c.nodes[index];
  n.mode = p.mode;
  c.has_runtime_values |= p.mode == NodeMode::kHost;
  n.slot = slot_of(c, p.device);
  n.kernel = p.kernel;
  n.segment = p.segment;
  n.precision = p.precision;
  n.strict = p.numerics == Numerics::kStrict;
  n.small = c.is_small;
  n.products = p.products;
  n.rival = p.rival;
  if (n.rival != nullptr && c.trials == nullptr) c.trials = std::make_shared<ProductTrials>();
  for (const ValueId v : node.inputs) {
    cancellation_point(8);
    n.constants.push_back(v == kNoValue ? nullptr : graph.values[v].constant);
    n.has_planned_input |= v != kNoValue && c.needed[v];
    n.choose_late |= v != kNoValue && !graph.values[v].has_shape;
  }
  for (const ValueId v : node.outputs) n.choose_late |= v != kNoValue && !graph.values[v].has_shape;
  n.packed.resize(node.inputs.size());
  c.packed_count += node.inputs.size();
  c.kernel_nodes += n.mode == NodeMode::kKernel || n.mode == NodeMode::kSegment ? 1u : 0u;
}

bool packs_now(const CompiledNode& n) { return n.mode == NodeMode::kKernel && !n.choose_late; }

// Calls body(index) for a node; an error says which it was.
template <typename F>
void with_node(const CompiledGraph& c, std::size_t index, F&& body) {
  naming_node(c.graph().nodes[index].name, [&] { body(index); });
}

template <typename F>
void for_each_node(const CompiledGraph& c, F&& body) {
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    cancellation_point(kNodeWork);
    with_node(c, i, body);
  }
}

// Packs constants node by node and lets plain ones go. Where most are in the file yet, nodes with one that is not packed in parts
// and large come first, the largest before all: its plain and its packed bytes are there together, and little else then. With
// threads, small ones of several nodes at once: as many as make kWindowBytes, since so much of plain and packed bytes is there
// together for longer than it needs to be.
class Packer {
 public:
  // `cache` is nullable.
  Packer(CompiledGraph& c, WeightCache* cache) : c_(c), cpu_(*c.devices[0]), store_(c.model->store), cache_(cache), uses_(c) {
    window_bytes_ = cpu_.traits().compute_units > 1 ? kWindowBytes : 1;
    pages_ =
        (cpu_.pool().is_limited() || store_.has_pages()) && cache == nullptr && c.model->file != nullptr && c.ordered == nullptr;
    if (pages_) store_.pager().join(c.model->runtime->weight_pagers());
    store_.open(cpu_, cache);
  }
  ~Packer() { store_.close(); }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  void run() {
    const std::size_t block_bytes = open_slab();
    PackedStore::Batch batch(store_, c_.kept.get());
    try {
      pack_all(batch, block_bytes);
    } catch (...) {
      batch.undo();
      throw;
    }
    uses_.set_constants(&c_.constants);
  }

 private:
  void pack_all(PackedStore::Batch& batch, std::size_t block_bytes) {
    batch.reserve(cpu_, block_bytes);
    std::ranges::sort(large_,
                      [](const Large& a, const Large& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.node < b.node; });
    std::vector<bool> done(c_.nodes.size());
    for (const Large& l : large_) {
      if (batch.trim(l.bytes)) cpu_.pool().trim_models();
      with_node(c_, l.node, [&](std::size_t i) { pack(i, &batch); });
      done[l.node] = true;
    }
    if (batch.trim(small_bytes_)) cpu_.pool().trim_models();
    batch.reserve(cpu_, small_bytes_);
    for_each_node(c_, [&](std::size_t i) {
      if (!done[i]) pack(i, &batch);
    });
    settle(&batch);
    batch.finish();
  }

  static constexpr std::size_t kWindowBytes = std::size_t{2} << 20;
  static constexpr std::size_t kWindows = 16;  // of a small model
  static constexpr std::size_t kWindowNodes = 64;

  bool is_large(const Weight& weight) const { return weight.size_bytes > largest_small_; }

  // Returns the bytes that constants on their way out of the file need: one large block, or a small one for each thread.
  std::size_t open_slab() {
    std::size_t room = 0, from_file = 0, large = 0, small = 0;
    std::vector<Large> blocks;  // that constants in the file need
    for_each_node(c_, [&](std::size_t i) {
      const CompiledNode& n = c_.nodes[i];
      if (!packs_now(n) || n.slot != 0) return;
      const std::vector<TensorDesc> descs = descs_of(c_.graph(), c_.graph().nodes[i]);
      const OpDesc desc = desc_of(c_.graph().nodes[i], n, descs);
      for (std::size_t k = 0; k < n.packed.size(); ++k) {
        const PackedStore::Need need = store_.need_of(cpu_, *n.kernel, desc, static_cast<int>(k));
        if (need.room == 0) continue;
        room = checked_add(room, need.room);
        const Weight& weight = *n.constants[k];
        if (weight.data != nullptr || weight.source == nullptr) continue;
        from_file += need.room;
        blocks.push_back({i, need.block});
      }
    });
    largest_small_ = std::min(kWindowBytes, room / kWindows);
    window_bytes_ = std::min(window_bytes_, largest_small_);
    for (const Large& b : blocks) {
      std::size_t& most = b.bytes > largest_small_ ? large : small;
      most = std::max(most, b.bytes);
      if (b.bytes <= largest_small_) continue;
      if (large_.empty() || large_.back().node != b.node) large_.push_back({b.node, 0});
      large_.back().bytes = std::max(large_.back().bytes, b.bytes);
    }
    // Plain constants that are in memory make room for packed ones as they go: a slab would be memory beside theirs, and large ones
    // between them find no room.
    if (from_file >= room / 2) {
      if (!pages_) store_.open_slab(room);
    } else {
      large_.clear();
    }
    small_bytes_ = checked_mul<std::size_t>(small, cpu_.traits().compute_units);
    return std::max(large, small_bytes_);
  }

  void pack(std::size_t index, PackedStore::Batch* batch) {
    CompiledNode& n = c_.nodes[index];
    const Node& node = c_.graph().nodes[index];
    bool large = false;
    if (packs_now(n)) {
      std::vector<TensorDesc> descs = descs_of(c_.graph(), node);
      const OpDesc desc = desc_of(node, n, descs);
      Device& device = *c_.devices[n.slot];
      for (std::size_t k = 0; k < n.packed.size(); ++k) {
        large |= device.traits().host_addressable && n.constants[k] != nullptr && is_large(*n.constants[k]) &&
                 batch->packs(device, *n.kernel, desc, static_cast<int>(k));
      }
      if (large) settle(batch);
      descs_.push_back(std::move(descs));
      for (std::size_t k = 0; k < n.packed.size(); ++k) {
        n.packed[k] = cache_ == nullptr || !cache_->wants_plain() ? row_source(n, desc, k) : Buffer{};
        if (n.packed[k].memory != nullptr) continue;
        n.packed[k] = is_pageable(n, k) ? batch->add_paged(device, *n.kernel, desc, static_cast<int>(k))
                                        : batch->add(device, *n.kernel, desc, static_cast<int>(k), uses_.plain());
        c_.is_paged |= is_paged(n.packed[k]);
        if (large) batch->run(uses_.plain());
      }
    }
    window_.push_back(index);
    if (large || batch->bytes() >= window_bytes_ || window_.size() >= kWindowNodes) settle(batch);
  }

  // Under a limit, a constant that lies in the model's file may be packed again.
  bool is_pageable(const CompiledNode& n, std::size_t k) const {
    const Weight* const w = n.constants[k].get();
    return pages_ && n.slot == 0 && n.rival == nullptr && w != nullptr && w->source != nullptr &&
           w->size_bytes >= PlainWeights::kLeastBytes && uses_.may_go(*w);
  }

  void settle(PackedStore::Batch* batch) {
    batch->run(uses_.plain());
    for (const std::size_t index : window_) {
      const CompiledNode& n = c_.nodes[index];
      const bool on_host = c_.devices[n.slot]->traits().host_addressable;
      for (std::size_t k = 0; k < n.packed.size(); ++k) {
        const bool packed = n.packed[k].memory != nullptr && on_host && n.rival == nullptr;
        const bool plain = !packed && n.constants[k] != nullptr && cache_ != nullptr;
        if (plain) map_plain(*n.constants[k]);
        uses_.done(c_.graph().nodes[index].inputs[k], packed);
        if (plain) note_plain(*n.constants[k]);
      }
    }
    window_.clear();
    descs_.clear();
  }

  // Large constants that kernels read as they are: in a mapped file they have the alignment that they lack in the model's.
  static WeightCache::Copy plain_copy(const Weight& weight) { return {&weight, nullptr, 0, 0, weight.size_bytes}; }

  void map_plain(const Weight& weight) {
    if (weight.data != nullptr || weight.source == nullptr || !cache_->maps()) return;
    const WeightCache::Entry* const entry = cache_->find(plain_copy(weight));
    if (entry != nullptr) uses_.plain()->supply(weight, cache_->map(*entry, weight.size_bytes, MemoryClass::kWeights));
  }

  void note_plain(const Weight& weight) {
    if (!cache_->wants_plain() || weight.source == nullptr || weight.data == nullptr) return;
    cache_->note(plain_copy(weight), weight.data.get());
  }

  CompiledGraph& c_;
  Device& cpu_;
  PackedStore& store_;
  WeightCache* const cache_;
  ConstantUses uses_;
  struct Large {
    std::size_t node, bytes;
  };
  std::vector<Large> large_;     // nodes with a constant that is read from the file into a large block
  bool pages_ = false;           // packed copies may be dropped
  std::size_t small_bytes_ = 0;  // the others' blocks
  std::size_t window_bytes_;
  std::size_t largest_small_ = kWindowBytes;  // of constants that are packed beside others
  std::vector<std::size_t> window_;           // nodes whose constants the batch packs, or that have none
  std::vector<std::vector<TensorDesc>> descs_;
};

using Names = std::vector<std::string>;

bool is_among(const char* name, const Names& names) { return std::find(names.begin(), names.end(), name) != names.end(); }

void find_passes(CompiledGraph& c, bool of_storage, const Names& configured, const Names& requested) {
  const std::span<const LoweringPassInfo* const> all = lowering_passes();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->of_storage != of_storage || is_among(all[i]->name, configured) || is_among(all[i]->name, requested)) continue;
    std::unique_ptr<LoweringPass> pass = all[i]->find(c);
    if (pass == nullptr) continue;
    c.passes.push_back({static_cast<std::uint8_t>(i), std::move(pass)});
    if (!of_storage) find_readers(c);
  }
}

// Everything but the packing, for a graph whose nodes have been placed.
void analyse(CompiledGraph& c, const Names& configured, const Names& requested) {
  order_nodes(c);
  compile_values(c);
  c.nodes.resize(c.graph().nodes.size());
  for_each_node(c, [&](std::size_t i) { compile_node(c, i); });
  find_readers(c);
  c.pipeline_depth = pipeline_depth_of(c);
  compile_segments(c);
  find_passes(c, false, configured, requested);
  std::vector<Layout> layouts(c.graph().values.size(), Layout::kPlain);
  for_each_node(c, [&](std::size_t i) {
    const Node& node = c.graph().nodes[i];
    CompiledNode& n = c.nodes[i];
    const std::size_t args = node.inputs.size() + n.fused.size() + node.outputs.size();
    c.most_step_args = std::max(c.most_step_args, args);
    if (packs_now(n) && n.kernel->layouts != nullptr) choose_layouts(node, descs_of(c.graph(), node), &n, &layouts);
  });
  find_passes(c, true, configured, requested);
  find_sharing(c);
}

}  // namespace

CompiledGraph compile(ModelPtr model, const SessionRequest& request, const CacheConfig& cache) {
  CompiledGraph c;
  c.model = std::move(model);
  c.source = &c.model->graph();
  c.settings = request.settings;
  check_pass_names(request.disabled_passes, true, EVN_ERROR_INVALID_ARGUMENT, "disabled_passes");
  c.is_small = request.memory == MemoryPlan::kSmall;
  c.placement = place(*c.model, request);
  c.assigned = request.role.assigned;
  c.raw_outputs = request.role.raw_outputs;
  c.devices.push_back(&c.model->runtime->cpu());
  analyse(c, c.settings->config.disabled_passes, request.disabled_passes);
  require_room(c);
  std::optional<WeightCache> file;
  if (!cache.file.empty()) file.emplace(*c.model, cache);
  Packer(c, file ? &*file : nullptr).run();
  if (file) file->save();
  c.devices[0]->pool().trim_models();
  return c;
}

namespace {

// Buffers of the sizes of packed copies, which lie nowhere.
void pretend_to_pack(CompiledGraph& c) {
  c.unpacked = true;
  for (std::size_t v = 0; v < c.graph().values.size(); ++v) {
    if (const Weight* w = c.graph().values[v].constant.get()) c.constants[v] = {w->desc, w->data.get()};
  }
  for_each_node(c, [&](std::size_t i) {
    CompiledNode& n = c.nodes[i];
    n.rival = nullptr;  // nothing can be measured
    if (!packs_now(n) || n.kernel->prepack_bytes == nullptr) return;
    const std::vector<TensorDesc> descs = descs_of(c.graph(), c.graph().nodes[i]);
    const OpDesc desc = desc_of(c.graph().nodes[i], n, descs);
    for (std::size_t k = 0; k < n.packed.size(); ++k) {
      if (n.constants[k] == nullptr) continue;
      const std::size_t bytes = n.kernel->prepack_bytes(desc, static_cast<int>(k));
      if (bytes != 0) n.packed[k] = {&n, 0, bytes};  // somewhere: nobody looks
    }
  });
}

}  // namespace

CompiledGraph compile_unpacked(ModelPtr model, const SessionRequest& request) {
  CompiledGraph c;
  c.model = std::move(model);
  c.source = &c.model->graph();
  c.settings = request.settings != nullptr ? request.settings : c.model->runtime->settings();
  c.is_small = request.memory == MemoryPlan::kSmall;
  c.placement = place(*c.model, request);
  c.raw_outputs = request.role.raw_outputs;
  c.devices.push_back(&c.model->runtime->cpu());
  analyse(c, c.settings->config.disabled_passes, request.disabled_passes);
  pretend_to_pack(c);
  return c;
}

CompiledGraph compile_for_estimate(const Graph& graph, Runtime& runtime) {
  CompiledGraph c;
  c.source = &graph;
  c.settings = runtime.settings();
  c.placement = place_on(graph, runtime.cpu());
  c.devices.push_back(&runtime.cpu());
  analyse(c, c.settings->config.disabled_passes, {});
  pretend_to_pack(c);
  return c;
}

}  // namespace evn

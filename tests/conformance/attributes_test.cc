// Attributes are honoured or refused: each attribute that a row of the operator tables takes is read by its shape rule, its dtype
// rule, its reference, or a kernel; and what a reference computes by, each faster kernel of the operator looks at too, if only to
// refuse the node. The linker puts the readers at the end of this file before the library's (cmake/tests.cmake).
// docs/decisions/0048-attributes.md
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "base/error.h"
#include "core/text.h"
#include "tests/api/support.h"
#include "tests/conformance/check.h"
#include "tests/ops/op_runner.h"

namespace evn::conformance {
namespace {

using test::KernelRun;
using test::KernelSubject;

// Rows that differ in their number alone, and share a table, are one: a case of either reaches both.
using RowKey = std::tuple<std::string, const AttributeSpec*, void (*)(InferContext&), void (*)(const ReferenceContext&),
                          void (*)(HostContext&)>;

RowKey key_of(const OpDef& op, std::size_t index) {
  return {std::string(op.domain) + "::" + op.name, &op.attributes[index], op.infer, op.reference, op.host};
}

struct Reads {
  std::set<RowKey> rows;
  std::set<std::string> names;
};

std::mutex g_mutex;        // kernels read on threads of the device
Reads* g_reads = nullptr;  // where they are noted, if anywhere

// Notes what `body` reads.
void watch(Reads* reads, const std::function<void()>& body) {
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    g_reads = reads;
  }
  try {
    body();
  } catch (const Error&) {  // a refusal has looked, too
  }
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_reads = nullptr;
}

}  // namespace

void note_read(const Node& node, int index) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_reads == nullptr || node.op == nullptr || static_cast<std::size_t>(index) >= node.op->attributes.size()) return;
  const auto i = static_cast<std::size_t>(index);
  g_reads->rows.insert(key_of(*node.op, i));
  g_reads->names.insert(node.op->attributes[i].name);
}

// That an attribute with a default "is given" says nothing of its value.
void note_question(const Node& node, int index) {
  if (node.op == nullptr || static_cast<std::size_t>(index) >= node.op->attributes.size()) return;
  const AttributeSpec& spec = node.op->attributes[static_cast<std::size_t>(index)];
  const bool has_default =
      spec.required || spec.type == AttributeType::kFloat || spec.type == AttributeType::kInt || spec.default_string != nullptr;
  if (!has_default) note_read(node, index);
}

namespace {

struct Observed {
  Reads all;
  std::map<std::string, Reads> references;  // by operator
  std::map<const Kernel*, Reads> kernels;
  std::map<const Kernel*, std::string> target;  // on which it was seen
  std::set<const Kernel*> ran;                  // that take a case on this machine
};

void observe_kernel(const Target& target, const Kernel& kernel, const KernelSubject& s, bool takes, Observed* seen) {
  seen->target[&kernel] = target.name;
  Reads& reads = seen->kernels[&kernel];
  watch(&reads, [&] { kernel.supports(s.desc()); });
  if (!takes) return;
  seen->ran.insert(&kernel);
  watch(&reads, [&] { KernelRun(*target.device, kernel, s).run(); });
}

void observe(const Case& c, Observed* seen) {
  KernelSubject s;
  watch(&seen->all, [&] { s = make_subject(c, 1, {}); });
  if (s.node.op == nullptr || s.outputs.empty()) return;
  Reads& reference = seen->references[c.op];
  watch(&reference, [&] { test::reference_result(s); });
  if (needs_no_kernel(s)) return;
  for (const Target& target : targets()) {
    if (target.isa && *target.isa != integer_isa()) continue;
    const KernelSubject given = target.subject(s);
    const std::vector<const Kernel*> taking = test::supporting_kernels(*target.device, given.desc());
    for (const KernelFamily* family : target.device->kernels()) {
      for (const Kernel& k : family->kernels) {
        if (given.node.op_type != k.op || given.node.domain != k.domain || k.operands != given.precision) continue;
        observe_kernel(target, k, given, std::find(taking.begin(), taking.end(), &k) != taking.end(), seen);
      }
    }
  }
}

// What has no cases: operators that make texts.
void observe_texts(Reads* reads) {
  using test::Op;
  using Texts = std::vector<std::string>;
  static TextPool pool(nullptr);
  const TextElement word = pool.add("Aa bb");
  test::Tensor text = test::blank(DType::kString, {1});
  std::memcpy(text.bytes.data(), &word, sizeof word);
  watch(reads, [&] {
    Op("StringNormalizer", 10).with("case_change_action", "UPPER").with("stopwords", Texts{"x"}).with("locale", "C").run({text});
  });
  watch(reads, [&] { Op("StringSplit", 20).outputs(2).run({text}); });
  watch(reads, [&] { Op("RegexFullMatch", 20).with("pattern", "a").run({text}); });
  watch(reads, [&] { Op("com.microsoft::Tokenizer", 1).with("separators", Texts{" "}).with("pad_value", "#").run({text}); });
  watch(reads, [&] { Op("com.microsoft::Tokenizer", 1).with("tokenexp", "a").with("pad_value", "#").run({text}); });
  for (const int opset : {1, 2, 4}) {
    watch(reads, [&] {
      Op op("ai.onnx.ml::LabelEncoder", opset);
      if (opset == 1) op.with("classes_strings", Texts{"x"});
      if (opset != 1) op.with("keys_int64s", test::Ints{1}).with("values_strings", Texts{"x"});
      op.run({test::i64({7})});
    });
  }
  watch(reads, [&] {
    Op("ai.onnx.ml::CategoryMapper", 1).with("cats_int64s", test::Ints{1}).with("cats_strings", Texts{"x"}).run({test::i64({7})});
  });
  watch(reads, [&] { Op("Constant", 13).with("value_string", "x").run({}); });
  watch(reads, [&] { Op("Constant", 13).with("value_strings", Texts{"x"}).run({}); });
  watch(reads, [&] { Op("ImageDecoder", 20).with("pixel_format", "BGR").infer({test::desc({9}, DType::kUint8)}); });
}

// Loads and runs a model over x of [3, 4], which may come to an error.
void use(const test::OnnxWriter& writer) {
  const std::string bytes = test::OnnxWriter(writer).serialize();
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = 1;
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_tensor x = nullptr, y = nullptr;
  float values[12] = {};
  const int64_t dims[] = {3, 4};
  evn_runtime_create(&options, &runtime, &error);
  EXPECT_EQ(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_session_create(runtime, model, nullptr, &session, &error), EVN_OK) << error.message;
  evn_tensor_wrap(runtime, values, sizeof values, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &x, &error);
  EXPECT_EQ(evn_session_run(session, &x, 1, &y, 1, nullptr, &error), EVN_OK) << error.message;
  for (evn_tensor t : {x, y}) evn_tensor_release(t);
  evn_session_release(session);
  evn_model_release(model);
  evn_runtime_release(runtime);
}

test::Proto scan_body() {
  test::OnnxWriter body;
  return body.add_input("e", test::kF32, {4}).add_node("Neg", {"e"}, {"f"}).add_output("f", test::kF32).graph();
}

// And those that run on the host, in models.
void observe_host(Reads* reads) {
  using test::Attr;
  const auto model = [](std::int64_t opset) { return std::move(test::OnnxWriter(opset, 8).add_input("x", test::kF32, {3, 4})); };
  const Ints one = {1}, none = {0};
  watch(reads, [&] {
    auto w = model(17);
    w.add_node("SplitToSequence", {"x"}, {"parts"}, {Attr("axis", 1), Attr("keepdims", 0)});
    w.add_node("ConcatFromSequence", {"parts"}, {"y"}, {Attr("axis", 1), Attr("new_axis", 1)});
    use(w.add_output("y", test::kF32));
  });
  watch(reads, [&] {
    auto w = model(17);
    w.add_node("SequenceEmpty", {}, {"none"}, {Attr("dtype", 1)}).add_node("SequenceInsert", {"none", "x"}, {"parts"});
    use(w.add_node("ConcatFromSequence", {"parts"}, {"y"}, {Attr("axis", 0)}).add_output("y", test::kF32));
  });
  watch(reads, [&] {
    auto w = model(9);
    w.add_node("Scan", {"x"}, {"y"},
               {Attr::graph("body", scan_body()), Attr("num_scan_inputs", 1), Attr("scan_input_axes", none),
                Attr("scan_input_directions", one), Attr("scan_output_axes", one), Attr("scan_output_directions", one)});
    use(w.add_output("y", test::kF32));
  });
  watch(reads, [&] {
    auto w = model(8);  // whose Scan has a batch in front
    w.add_node("Unsqueeze", {"x"}, {"xs"}, {Attr("axes", none)});
    w.add_node("Scan", {"", "xs"}, {"ys"}, {Attr::graph("body", scan_body()), Attr("num_scan_inputs", 1), Attr("directions", one)});
    use(w.add_node("Squeeze", {"ys"}, {"y"}, {Attr("axes", none)}).add_output("y", test::kF32));
  });
}

const Observed& observed() {
  static const Observed* const seen = [] {
    auto* o = new Observed;
    for (const Case& c : cases()) observe(c, o);
    observe_texts(&o->all);
    observe_host(&o->all);
    for (const auto& [op, reads] : o->references) o->all.rows.insert(reads.rows.begin(), reads.rows.end());
    for (const auto& [kernel, reads] : o->kernels) o->all.rows.insert(reads.rows.begin(), reads.rows.end());
    return o;
  }();
  return *seen;
}

struct Exemption {
  const char* names;  // of operators, or of kernels; "*": all
  const char* attribute;
  const char* why;
};

bool names_it(const char* names, const std::string& name) {
  return std::string_view(names) == "*" || (" " + std::string(names) + " ").find(" " + name + " ") != std::string::npos;
}

const Exemption* exemption(std::span<const Exemption> all, const std::string& name, const char* attribute) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Exemption& e) {
    return std::string_view(e.attribute) == attribute && names_it(e.names, name);
  });
  return found == all.end() ? nullptr : &*found;
}

// Attributes that say nothing of a result, and those that are read by other ways than the readers.
constexpr Exemption kUnread[] = {
    {"Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike", "seed",
     "ops/infra/random.cc finds it by its name, as only the model itself can tell whether it is given"},
    {"Dropout", "ratio", "before 12 Dropout is Identity outside of training, which was not the operator's to tell"},
    {"TopK", "sorted", "0 allows any order"},
    {"Optional", "type", "a value of its own kind, which ops/optional.cc takes without a reader"},
    {"LinearAttention", "chunk_size", "how a kernel may cut its work"},
    {"TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor", "nodes_hitrates",
     "how often nodes are visited, for kernels that care"},
    {"TreeEnsembleClassifier TreeEnsembleRegressor", "nodes_hitrates_as_tensor", "the same"},
    {"LinearClassifier", "multi_class",
     "how the classifier was trained; its scores are those of coefficients, intercepts and post_transform"},
    {"CastMap", "cast_to", "maps: tests/models/test_ml_maps.py gives it each of its values"},
    {"CastMap", "map_form", "the same"},
    {"CastMap", "max_map", "the same"},
    {"DictVectorizer", "int64_vocabulary", "the same"},
    {"DictVectorizer", "string_vocabulary", "the same"},
    {"ZipMap", "classlabels_int64s", "the same"},
    {"ZipMap", "classlabels_strings", "the same"},
    {"Attention", "rotary_embedding_dim", "of do_rotary, which is refused"},
    {"EmbedLayerNormalization", "mask_index_type",
     "whether there is a mask, which the inputs tell; ONNX Runtime computes nothing by it"},
    {"FusedGemm", "activation_gamma", "no activation that is taken has a third parameter"},
    {"GroupQueryAttention", "qk_norm_epsilon", "of normalized queries and keys, which are refused"},
    {"RotaryEmbedding", "is_packed_batching", "position_ids say where each step is, packed or not"},
    {"MaxPoolGradient", "storage_order", "of indices, which it does not have"},
    {"Merge", "if", "the library's own; ops/merge.h reads it"},
};

// What kernels need not look at, as they refuse the nodes for which it counts by something else, or as shapes have it already.
constexpr Exemption kUnreadByKernels[] = {
    {"attention attention_rows", "qk_matmul_output_mode", "takes no nodes whose scores are an output"},
    {"batch_norm", "momentum", "takes no training"},
    {"group_query_attention", "qk_output", "takes no nodes whose scores are an output"},
    {"group_query_attention", "kv_cache_bit_width", "takes no quantized caches"},
    {"group_query_attention", "v_quant_type", "of k_quant_type's kind, which it looks at"},
    {"max_pool max_pool_bytes", "storage_order", "takes no nodes whose indices are an output"},
    {"conv_input_gradient_pointwise", "auto_pad", "1 x 1 without strides has no pads that it would choose"},
    {"conv_input_gradient_pointwise", "dilations", "1 x 1 has no distances between taps"},
    {"conv_input_gradient_pointwise", "kernel_shape", "the weight's own dims, with which the shape rule has compared it"},
    {"conv_transpose_nhwc", "kernel_shape", "the weight's own dims, with which the shape rule has compared it"},
    {"quantize quantize_linear cast cast_like cast_to_half cast_from_half", "saturate",
     "of floating formats of 8 bits, which it does not take"},
    {"cast cast_like cast_to_half cast_from_half", "round_mode", "of float8e8m0, which it does not take"},
    {"clip_integer", "min", "of versions before 11, which take floats alone"},
    {"clip_integer", "max", "the same"},
    {"resize_nearest", "antialias", "changes nothing of the nearest element"},
    {"resize_nearest", "cubic_coeff_a", "of cubic interpolation"},
    {"resize_nearest", "exclude_outside", "of cubic interpolation"},
    {"resize_nearest", "extrapolation_value", "of tf_crop_and_resize, which it does not take"},
    {"resize_nearest", "keep_aspect_ratio_policy", "the output's shape has it"},
    {"shape", "end", "the output's length has it"},
    {"split", "split", "the outputs' shapes have it, and nodes that leave one out are not taken"},
};

TEST(Attributes, EachIsReadByARuleAReferenceOrAKernel) {
  std::set<const Exemption*> used;
  for (const OpFamily* family : op_families()) {
    for (const OpDef& op : family->ops) {
      for (std::size_t i = 0; i < op.attributes.size(); ++i) {
        const AttributeSpec& spec = op.attributes[i];
        if (spec.type == AttributeType::kGraph && op.body != nullptr) continue;  // the node's body by the time that it has a row
        if (observed().all.rows.count(key_of(op, i)) == 1) continue;
        const Exemption* const exempt = exemption(kUnread, op.name, spec.name);
        EXPECT_NE(exempt, nullptr) << op.domain << "::" << op.name << " since " << op.since << ": nothing reads \"" << spec.name
                                   << "\"";
        used.insert(exempt);
      }
    }
  }
  for (const Exemption& e : kUnread)
    EXPECT_EQ(used.count(&e), 1u) << e.names << ": \"" << e.attribute << "\" is read, or is no more";
}

TEST(Attributes, KernelsLookAtWhatTheReferenceComputesBy) {
  for (const auto& [kernel, reads] : observed().kernels) {
    const std::string op = *kernel->domain == '\0' ? std::string(kernel->op) : std::string(kernel->domain) + "::" + kernel->op;
    const auto reference = observed().references.find(op);
    if (reference == observed().references.end() || observed().ran.count(kernel) == 0) continue;
    for (const std::string& name : reference->second.names) {
      EXPECT_TRUE(reads.names.count(name) == 1 || exemption(kUnreadByKernels, kernel->name, name.c_str()) != nullptr)
          << observed().target.at(kernel) << ", " << kernel->name << " of " << op << " does not read \"" << name << "\"";
    }
  }
}

}  // namespace
}  // namespace evn::conformance

// ------------------------------------------------------------------------------------------------ before the library's --

#define EVN_READER(result, name, mangled, note)                               \
  namespace evn {                                                             \
  result real_##name(const Node& node, int index) __asm__("__real_" mangled); \
  result wrap_##name(const Node& node, int index) __asm__("__wrap_" mangled); \
  result wrap_##name(const Node& node, int index) {                           \
    conformance::note(node, index);                                           \
    return real_##name(node, index);                                          \
  }                                                                           \
  }

EVN_READER(std::int64_t, attr_int, "_ZN3evn8attr_intERKNS_4NodeEi", note_read)
EVN_READER(float, attr_float, "_ZN3evn10attr_floatERKNS_4NodeEi", note_read)
EVN_READER(const std::string&, attr_string, "_ZN3evn11attr_stringB5cxx11ERKNS_4NodeEi", note_read)
EVN_READER(std::span<const std::int64_t>, attr_ints, "_ZN3evn9attr_intsERKNS_4NodeEi", note_read)
EVN_READER(std::span<const float>, attr_floats, "_ZN3evn11attr_floatsERKNS_4NodeEi", note_read)
EVN_READER(std::span<const std::string>, attr_strings, "_ZN3evn12attr_stringsB5cxx11ERKNS_4NodeEi", note_read)
EVN_READER(const evn::Weight*, attr_tensor, "_ZN3evn11attr_tensorERKNS_4NodeEi", note_read)
EVN_READER(bool, attr_given, "_ZN3evn10attr_givenERKNS_4NodeEi", note_question)

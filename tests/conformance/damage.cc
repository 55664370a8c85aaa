#include "tests/conformance/damage.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace evn::conformance {
namespace {

using test::Proto;

constexpr char kConfig[] =
    "limits: {run_time: 2s, load_time: 5s, tensor_bytes: 16MiB}\ndevices:\n  cpu: {type: cpu, threads: 1, memory_limit: 128MiB}\n";

std::string_view text(const test::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::vector<std::int64_t> dims_of(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

std::string input_name(std::size_t i) { return "x" + std::to_string(i); }

}  // namespace

Proto attribute_proto(const std::string& name, const AttributeValue& value) {
  Proto p;
  p.bytes(1, name);
  if (const auto* f = std::get_if<float>(&value)) p.fixed32(2, *f).varint(20, 1);
  if (const auto* i = std::get_if<std::int64_t>(&value)) p.varint(3, *i).varint(20, 2);
  if (const auto* s = std::get_if<std::string>(&value)) p.bytes(4, *s).varint(20, 3);
  if (const auto* t = std::get_if<WeightPtr>(&value)) {
    const Weight& w = **t;
    p.message(5, test::tensor_proto("", static_cast<int>(w.desc.dtype), dims_of(w.desc.shape), {w.as<char>(), w.size_bytes}))
        .varint(20, 4);
  }
  if (const auto* fs = std::get_if<Floats>(&value)) {
    for (const float f : *fs) p.fixed32(7, f);
    p.varint(20, 6);
  }
  if (const auto* is = std::get_if<Ints>(&value)) {
    for (const std::int64_t i : *is) p.varint(8, i);
    p.varint(20, 7);
  }
  if (const auto* ss = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& s : *ss) p.bytes(9, s);
    p.varint(20, 8);
  }
  return p;
}

// ---------------------------------------------------------------------------------------------------------- drafts --

void Draft::set(const std::string& name, AttributeValue value) {
  std::erase_if(attributes, [&](const Given& g) { return g.name == name; });
  attributes.push_back({name, attribute_proto(name, value), std::move(value)});
}

Draft::Given* Draft::find(const std::string& name) {
  const auto it = std::find_if(attributes.begin(), attributes.end(), [&](const Given& g) { return g.name == name; });
  return it == attributes.end() ? nullptr : &*it;
}

std::string Draft::model() const {
  const std::string domain = op->domain;
  test::OnnxWriter w(domain.empty() ? opset : 21, 12);
  if (!domain.empty()) w.import(domain, opset);
  std::vector<std::string> in, out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Input& x = inputs[i];
    const int dtype = static_cast<int>(x.desc.dtype);
    in.push_back(dtype == 0 ? "" : input_name(i));
    if (dtype == 0) continue;
    const std::vector<std::int64_t> dims = dims_of(x.desc.shape);
    if (x.constant) {
      w.add_initializer(test::tensor_proto(in.back(), dtype, dims, text(x.bytes)));
    } else {
      std::vector<test::Dim> declared(dims.begin(), dims.end());
      for (std::size_t d = 0; d < declared.size() && symbolic; ++d) declared[d] = (input_name(i) + "_" + std::to_string(d)).c_str();
      w.add_input(in.back(), dtype, declared);
    }
  }
  for (int k = 0; k < output_count; ++k) out.push_back("y" + std::to_string(k));
  std::vector<test::Attr> given;
  for (const Given& a : attributes) given.push_back(test::Attr(a.proto));
  w.add_node(op->name, in, out, given, "n", domain);
  for (const std::string& y : out) w.add_output(y, 0);
  if (out.empty()) w.add_output("x0", 0);
  return w.serialize();
}

std::string Draft::describe() const {
  std::string s = std::string(op->domain) + " " + op->name + "-" + std::to_string(opset) + (symbolic ? " (symbolic)" : "");
  for (const Input& x : inputs) {
    s += x.desc.dtype == DType::kUndefined
             ? " none"
             : std::string(x.constant ? " constant " : " ") + dtype_name(x.desc.dtype) + x.desc.shape.to_string();
  }
  for (const Given& a : attributes) {
    s += " " + a.name;
    if (const auto* i = std::get_if<std::int64_t>(&a.value)) s += "=" + std::to_string(*i);
    if (const auto* is = std::get_if<Ints>(&a.value)) {
      s += "=[";
      for (const std::int64_t i : *is) s += std::to_string(i) + " ";
      s += "]";
    }
  }
  return s;
}

Draft make_draft(const Case& c) {
  Draft d;
  const auto [domain, name] = test::split_domain(c.op);
  d.op = find_op(domain, name, c.opset);
  d.opset = c.opset;
  d.output_count = c.output_count;
  const test::KernelSubject s = make_subject(c, 1, {});
  for (std::size_t i = 0; i < s.inputs.size(); ++i) d.inputs.push_back({s.inputs[i], s.values[i], s.constants[i] != nullptr});
  for (const Attribute& a : c.attributes) d.set(a.name, a.value);
  return d;
}

std::vector<const Case*> samples(const OpDef& op) {
  std::vector<const Case*> all;
  const auto weight = [](const Case& c) { return c.operands.size() + c.attributes.size(); };
  for (const Case& c : cases()) {
    const auto [domain, name] = test::split_domain(c.op);
    if (name != op.name || find_op(domain, name, c.opset) != &op) continue;
    // The lab hands in bytes, and strings are none.
    if (!c.operands.empty() && c.operands[0].desc.dtype == DType::kString) continue;
    if (all.empty()) {
      all = {&c, &c};
    } else if (weight(c) > weight(*all[1])) {
      all[1] = &c;
    }
  }
  if (all.size() == 2 && all[0] == all[1]) all.pop_back();
  return all;
}

// ------------------------------------------------------------------------------------------------------------- lab --

Lab::Lab() {
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.config_text = kConfig;
  options.config_size = sizeof kConfig - 1;
  evn_error error = EVN_ERROR_INIT;
  EXPECT_EQ(evn_runtime_create(&options, &runtime_, &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_runtime_device_at(runtime_, 0, &cpu_, &error), EVN_OK) << error.message;
}

Lab::~Lab() {
  evn_device_release(cpu_);
  evn_runtime_release(runtime_);
}

std::uint64_t Lab::peak_bytes() const {
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
  evn_error error = EVN_ERROR_INIT;
  EXPECT_EQ(evn_device_get_memory_stats(cpu_, &stats, &error), EVN_OK);
  return stats.peak;
}

evn_status Lab::run(evn_session session, const Draft& draft, evn_error* error) {
  std::vector<evn_tensor> inputs, outputs;
  std::vector<test::Bytes> copies;  // wrapped memory stays where it is
  copies.reserve(draft.inputs.size());
  evn_status s = EVN_OK;
  for (const Draft::Input& x : draft.inputs) {
    if (x.desc.dtype == DType::kUndefined || x.constant) continue;
    const std::vector<std::int64_t> dims = dims_of(x.desc.shape);
    copies.push_back(x.bytes);
    evn_tensor t = nullptr;
    s = evn_tensor_create(cpu_, static_cast<evn_dtype>(x.desc.dtype), dims.data(), static_cast<uint32_t>(dims.size()), 0, &t,
                          error);
    if (s != EVN_OK) break;
    void* data = nullptr;
    size_t size = 0;
    s = evn_tensor_map(t, EVN_MAP_WRITE, &data, &size, error);
    if (s == EVN_OK && size > 0) std::memcpy(data, copies.back().data(), std::min(size, copies.back().size()));
    if (s == EVN_OK) s = evn_tensor_unmap(t, error);
    inputs.push_back(t);
    if (s != EVN_OK) break;
  }
  outputs.resize(static_cast<std::size_t>(draft.output_count));
  if (s == EVN_OK) {
    s = evn_session_run(session, inputs.data(), static_cast<uint32_t>(inputs.size()), outputs.data(),
                        static_cast<uint32_t>(outputs.size()), nullptr, error);
  }
  for (evn_tensor t : inputs) evn_tensor_release(t);
  for (evn_tensor t : outputs) evn_tensor_release(t);
  return s;
}

Outcome Lab::use(const Draft& draft) {
  Outcome outcome;
  const std::string bytes = draft.model();
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_status s = evn_model_load_buffer(runtime_, bytes.data(), bytes.size(), nullptr, &model, &outcome.error);
  if (s == EVN_OK) {
    outcome.stage = Outcome::kSession;
    s = evn_session_create(runtime_, model, nullptr, &session, &outcome.error);
  }
  if (s == EVN_OK) {
    outcome.stage = Outcome::kRun;
    s = run(session, draft, &outcome.error);
  }
  EXPECT_EQ(s, outcome.error.status) << draft.describe();
  evn_session_release(session);
  evn_model_release(model);
  return outcome;
}

}  // namespace evn::conformance

// Operators of a program's own, in C++: functions as the callbacks of evn_operator.
//
//   evener::Operator op;
//   op.domain = "mine", op.name = "Twice";
//   op.infer = [](const evener::OperatorNode&, evener::Span<const evn_tensor_view> in, evener::Span<evn_tensor_view> out) { out[0]
//   = in[0]; }; op.run = ...;
//   evener::register_operator(runtime, std::move(op));      // before the model is loaded
#ifndef EVENER_OPERATOR_HPP
#define EVENER_OPERATOR_HPP

#include <new>

#include "evener.hpp"

namespace evener {
inline namespace EVENER_SPANS {

// A node of a custom operator, while one of its functions runs.
class OperatorNode {
 public:
  explicit OperatorNode(evn_operator_node node) noexcept : node_(node) {}
  evn_operator_node get() const noexcept { return node_; }

  std::string name() const {
    return detail::text(
        [&](char* b, std::size_t c, std::size_t* s, evn_error* e) { return evn_operator_node_name(node_, b, c, s, e); });
  }
  bool has(const char* attribute) const {
    evn_attribute_type type = EVN_ATTRIBUTE_NONE;
    detail::check([&](evn_error* e) { return evn_operator_attribute_type(node_, attribute, &type, e); });
    return type != EVN_ATTRIBUTE_NONE;
  }
  // Attributes that the node must have; those with `otherwise` need not be given.
  std::int64_t get_int(const char* attribute) const { return value<std::int64_t>(evn_operator_attribute_int, attribute); }
  std::int64_t get_int(const char* attribute, std::int64_t otherwise) const {
    return has(attribute) ? get_int(attribute) : otherwise;
  }
  float get_float(const char* attribute) const { return value<float>(evn_operator_attribute_float, attribute); }
  float get_float(const char* attribute, float otherwise) const { return has(attribute) ? get_float(attribute) : otherwise; }
  std::string get_string(const char* attribute) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_operator_attribute_string(node_, attribute, b, c, s, e);
    });
  }
  std::vector<std::string> get_strings(const char* attribute) const {
    std::vector<std::string> all(value<std::uint32_t>(evn_operator_attribute_string_count, attribute));
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
        return evn_operator_attribute_string_at(node_, attribute, static_cast<std::uint32_t>(i), b, c, s, e);
      });
    }
    return all;
  }
  Span<const std::int64_t> get_ints(const char* attribute) const {
    return list<std::int64_t>(evn_operator_attribute_ints, attribute);
  }
  Span<const float> get_floats(const char* attribute) const { return list<float>(evn_operator_attribute_floats, attribute); }
  evn_tensor_view get_tensor(const char* attribute) const {
    return value<evn_tensor_view>(evn_operator_attribute_tensor, attribute);
  }

 private:
  template <typename T, typename F>
  T value(F f, const char* attribute) const {
    T v{};
    detail::check([&](evn_error* e) { return f(node_, attribute, &v, e); });
    return v;
  }
  template <typename T, typename F>
  Span<const T> list(F f, const char* attribute) const {
    const T* values = nullptr;
    std::size_t count = 0;
    detail::check([&](evn_error* e) { return f(node_, attribute, &values, &count, e); });
    return Span<const T>(values, count);
  }
  evn_operator_node node_;
};

// A custom operator. Its functions throw what is wrong: an Error gives its status, another exception EVN_ERROR_INTERNAL.
struct Operator {
  std::string domain;
  std::string name;
  std::int32_t since_version = 1;
  std::uint32_t min_inputs = 1;
  std::uint32_t max_inputs = 1;  // EVN_VARIADIC: any number
  std::uint32_t min_outputs = 1;
  std::uint32_t max_outputs = 1;
  std::uint32_t value_inputs = 0;
  std::uint64_t flags = 0;  // EVN_OPERATOR_CALLER_THREAD
  std::function<void(const OperatorNode&, Span<const evn_tensor_view> inputs, Span<evn_tensor_view> outputs)> infer;
  std::function<void(const OperatorNode&, Span<const evn_tensor_view> inputs, Span<const evn_tensor_view> outputs)> run;
};

namespace detail {

inline evn_status on_infer(void* user, evn_operator_node node, const evn_tensor_view* inputs, std::uint32_t input_count,
                           evn_tensor_view* outputs, std::uint32_t output_count, evn_error* error) {
  return guarded(error, [&] {
    static_cast<Operator*>(user)->infer(OperatorNode(node), Span<const evn_tensor_view>(inputs, input_count),
                                        Span<evn_tensor_view>(outputs, output_count));
  });
}

inline evn_status on_run(void* user, evn_operator_node node, const evn_tensor_view* inputs, std::uint32_t input_count,
                         const evn_tensor_view* outputs, std::uint32_t output_count, evn_error* error) {
  return guarded(error, [&] {
    static_cast<Operator*>(user)->run(OperatorNode(node), Span<const evn_tensor_view>(inputs, input_count),
                                      Span<const evn_tensor_view>(outputs, output_count));
  });
}

}  // namespace detail

// Models that the runtime loads from now on may use the operator; see evn_runtime_register_operator.
inline void register_operator(const Runtime& runtime, Operator op) {
  auto kept = std::make_unique<Operator>(std::move(op));
  if (!kept->infer || !kept->run) throw Error(EVN_ERROR_INVALID_ARGUMENT, "the operator has no infer or no run");
  evn_operator o = EVN_OPERATOR_INIT;
  o.domain = kept->domain.c_str();
  o.name = kept->name.c_str();
  o.since_version = kept->since_version;
  o.min_inputs = kept->min_inputs;
  o.max_inputs = kept->max_inputs;
  o.min_outputs = kept->min_outputs;
  o.max_outputs = kept->max_outputs;
  o.value_inputs = kept->value_inputs;
  o.user = kept.get();
  o.infer = detail::on_infer;
  o.run = detail::on_run;
  o.flags = kept->flags;
  o.release = [](void* user) { delete static_cast<Operator*>(user); };
  detail::check([&](evn_error* e) { return evn_runtime_register_operator(runtime.get(), &o, e); });
  static_cast<void>(kept.release());  // the runtime has it now
}

}  // inline namespace
}  // namespace evener
#endif

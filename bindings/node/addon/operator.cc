// Custom operators in JavaScript. The library calls `infer` and `run` inside of calls that JavaScript made, on their thread
// (EVN_OPERATOR_CALLER_THREAD): what runs on a thread of the addon's own is refused there. lib/operator.js has the functions that
// are called.
#include <cstdio>
#include <cstring>

#include "hand.h"

namespace evn_node {
namespace {

struct Operator {
  std::shared_ptr<Instance> instance;
  napi_ref infer = nullptr, run = nullptr;
};

void Released(void* user) {
  auto* op = static_cast<Operator*>(user);
  for (napi_ref reference : {op->infer, op->run}) {
    if (reference != nullptr) op->instance->Delete(reference, true);
  }
  delete op;
}

// A node's slot, by which JavaScript's side asks about it while a function runs.
class NodeSlot {
 public:
  NodeSlot(Instance& instance, evn_operator_node node) : instance_(instance), id_(instance.Add(kKind_evn_operator_node, node)) {}
  ~NodeSlot() { instance_.Take(id_, kKind_evn_operator_node); }
  NodeSlot(const NodeSlot&) = delete;
  NodeSlot& operator=(const NodeSlot&) = delete;
  double id() const { return id_; }

 private:
  Instance& instance_;
  const double id_;
};

napi_value Null(napi_env env) {
  napi_value null;
  Check(env, napi_get_null(env, &null));
  return null;
}

// {dtype, dims, sizeBytes}, and `bytes`, a copy of its memory, where it has some; null where it is not given. An unknown rank is
// dims: null.
napi_value Described(Call& c, const evn_tensor_view& view, bool with_bytes) {
  if (view.dtype == EVN_DTYPE_UNDEFINED) return Null(c.env);
  evn_tensor_view shown = view;
  if (view.rank == EVN_UNKNOWN_RANK) shown.rank = 0;
  napi_value object = c.Object(kStruct_evn_tensor_view, &shown);
  if (view.rank == EVN_UNKNOWN_RANK) Check(c.env, napi_set_named_property(c.env, object, "dims", Null(c.env)));
  if (with_bytes && (view.data != nullptr || view.size_bytes == 0)) {
    void* data = nullptr;
    napi_value bytes;
    Check(c.env, napi_create_arraybuffer(c.env, view.size_bytes, &data, &bytes));
    if (view.size_bytes != 0) std::memcpy(data, view.data, view.size_bytes);
    Check(c.env, napi_set_named_property(c.env, object, "bytes", bytes));
  }
  return object;
}

napi_value AllDescribed(Call& c, const evn_tensor_view* views, uint32_t count, bool with_bytes) {
  napi_value array = c.Array(count);
  // In `infer` the library gives the value of some inputs, and no size of the others.
  for (uint32_t i = 0; i < count; ++i) c.Put(array, i, Described(c, views[i], with_bytes || views[i].data != nullptr));
  return array;
}

std::string TextProperty(napi_env env, napi_value object, const char* name) {
  napi_value value;
  napi_valuetype type = napi_undefined;
  if (napi_typeof(env, object, &type) != napi_ok || type != napi_object ||
      napi_get_named_property(env, object, name, &value) != napi_ok)
    return "";
  if (napi_typeof(env, value, &type) != napi_ok || type != napi_string) return "";
  char text[sizeof(evn_error::message)];
  size_t size = 0;
  return napi_get_value_string_utf8(env, value, text, sizeof(text), &size) == napi_ok ? std::string(text, size) : "";
}

// Makes the exception that is pending the callback's error.
evn_status Failed(Instance& instance, evn_error* error) {
  napi_env env = instance.env;
  napi_value thrown = nullptr;
  if (napi_get_and_clear_last_exception(env, &thrown) != napi_ok || thrown == nullptr) return EVN_ERROR_INTERNAL;
  std::string message = TextProperty(env, thrown, "message");
  const std::string status = TextProperty(env, thrown, "status");
  bool pending = false;  // a property may be a getter that throws
  if (napi_is_exception_pending(env, &pending) == napi_ok && pending) napi_get_and_clear_last_exception(env, &thrown);
  if (message.empty()) message = "something was thrown that is no Error";
  std::snprintf(error->message, sizeof(error->message), "%s", message.c_str());
  for (evn_status each = EVN_OK + 1; each <= EVN_ERROR_FORKED; ++each) {
    if (status == instance.api->status_name(each)) return each;
  }
  return EVN_ERROR_INTERNAL;
}

// Calls a function of JavaScript with the slot of the node, inputs and outputs, and has `take` read what it returns.
template <class Outputs, class Take>
evn_status Enter(Operator& op, napi_ref function, evn_operator_node node, const evn_tensor_view* inputs, uint32_t input_count,
                 bool with_bytes, evn_error* error, Outputs outputs, Take take) {
  Instance& instance = *op.instance;
  if (!instance.IsHere()) {
    std::snprintf(error->message, sizeof(error->message),
                  "functions of JavaScript run on the thread of their environment only, where no calibration, quantizer or "
                  "reconfiguration runs");
    return EVN_ERROR_UNSUPPORTED;
  }
  napi_env env = instance.env;
  napi_handle_scope scope;
  if (napi_open_handle_scope(env, &scope) != napi_ok) return EVN_ERROR_INTERNAL;
  evn_status status = EVN_OK;
  try {
    Call call(instance, false);
    const NodeSlot slot(instance, node);
    napi_value called, self, result;
    napi_value arguments[3] = {call.Value(slot.id()), AllDescribed(call, inputs, input_count, with_bytes), outputs(call)};
    Check(env, napi_get_reference_value(env, function, &called));
    Check(env, napi_get_undefined(env, &self));
    Check(env, napi_call_function(env, self, called, 3, arguments, &result));
    take(call, result);
  } catch (const Thrown&) {
    status = Failed(instance, error);
  } catch (const std::bad_alloc&) {
    status = EVN_ERROR_OUT_OF_MEMORY;
  }
  napi_close_handle_scope(env, scope);
  return status;
}

evn_status Infer(void* user, evn_operator_node node, const evn_tensor_view* inputs, uint32_t input_count, evn_tensor_view* outputs,
                 uint32_t output_count, evn_error* error) {
  auto& op = *static_cast<Operator*>(user);
  return Enter(
      op, op.infer, node, inputs, input_count, false, error, [&](Call& c) { return c.Number(output_count); },
      [&](Call& c, napi_value result) {
        uint32_t k = 0;
        c.Each(result, [&](napi_value answer) {
          if (k == output_count) c.Refuse("infer gave more outputs than the node has");
          napi_value dims;
          Check(c.env, napi_get_named_property(c.env, answer, "dtype", &c.arguments[0]));
          Check(c.env, napi_get_named_property(c.env, answer, "dims", &dims));
          outputs[k].dtype = c.Word(kWordsOf_evn_dtype, 0);
          outputs[k].rank = EVN_UNKNOWN_RANK;
          if (!IsNothing(c.env, dims)) {
            const std::vector<int64_t>& all = *c.IntegersOf(dims);
            if (all.size() > EVN_MAX_RANK) c.Refuse("infer gave an output of more than 8 dims");
            outputs[k].rank = static_cast<uint32_t>(all.size());
            std::copy(all.begin(), all.end(), outputs[k].dims);
          }
          ++k;
        });
        if (k != output_count) c.Refuse("infer gave fewer outputs than the node has");
      });
}

evn_status Run(void* user, evn_operator_node node, const evn_tensor_view* inputs, uint32_t input_count,
               const evn_tensor_view* outputs, uint32_t output_count, evn_error* error) {
  auto& op = *static_cast<Operator*>(user);
  return Enter(
      op, op.run, node, inputs, input_count, true, error, [&](Call& c) { return AllDescribed(c, outputs, output_count, false); },
      [&](Call& c, napi_value result) {
        uint32_t k = 0;
        c.Each(result, [&](napi_value made) {
          const evn_tensor_view& view = outputs[k++];  // lib/operator.js gives as many as it got
          if (view.dtype == EVN_DTYPE_UNDEFINED || view.size_bytes == 0) return;
          const TypedArray array = c.TypedArrayOf(made);
          if (array.size != view.size_bytes) c.Refuse("the array of an output has been detached, or has another size");
          std::memcpy(view.data, array.data, array.size);
        });
      });
}

// Keeps an operator until the library has taken it over.
struct Offered : Kept {
  ~Offered() override {
    if (op != nullptr) Released(op.release());
  }
  std::unique_ptr<Operator> op;
};

// (runtime, options, infer, run)
napi_value Register(Call& c) {
  auto runtime = c.Handle<evn_runtime>(0);
  auto* options = static_cast<evn_operator*>(const_cast<void*>(c.Options(kStruct_evn_operator, 1)));
  if (options == nullptr) c.Refuse("an object is wanted");
  auto* offered = c.Keep<Offered>();
  offered->op = std::make_unique<Operator>();
  offered->op->instance = c.instance.shared_from_this();
  Check(c.env, napi_create_reference(c.env, c.arguments[2], 1, &offered->op->infer));
  Check(c.env, napi_create_reference(c.env, c.arguments[3], 1, &offered->op->run));
  options->flags = EVN_OPERATOR_CALLER_THREAD;
  options->infer = Infer;
  options->run = Run;
  options->release = Released;
  options->user = offered->op.get();
  return c.Finish(
      [=, api = c.api](evn_error* error) {
        const evn_status status = api->runtime_register_operator(runtime, options, error);
        if (status == EVN_OK) offered->op.release();
        return status;
      },
      [](Call& call) { return call.Undefined(); });
}

void Must(Call& c, evn_status status, const evn_error& error) {
  if (status != EVN_OK) Throw(c.instance, error);
}

template <class T>
napi_value ListOf(Call& c, const T* values, size_t count) {
  napi_value array = c.Array(count);
  for (size_t i = 0; i < count; ++i) c.Put(array, static_cast<uint32_t>(i), c.Value(values[i]));
  return array;
}

// (node, name): the value of an attribute; undefined where it is not given.
napi_value Attribute(Call& c) {
  auto node = c.Handle<evn_operator_node>(0);
  const char* name = c.Chars(1);
  const evn_api* api = c.api;
  evn_error error = EVN_ERROR_INIT;
  evn_attribute_type type = EVN_ATTRIBUTE_NONE;
  size_t count = 0;
  Must(c, api->operator_attribute_type(node, name, &type, &error), error);
  switch (type) {
    case EVN_ATTRIBUTE_NONE: return c.Undefined();
    case EVN_ATTRIBUTE_INT: {
      int64_t value = 0;
      Must(c, api->operator_attribute_int(node, name, &value, &error), error);
      return c.Value(value);
    }
    case EVN_ATTRIBUTE_FLOAT: {
      float value = 0;
      Must(c, api->operator_attribute_float(node, name, &value, &error), error);
      return c.Value(static_cast<double>(value));
    }
    case EVN_ATTRIBUTE_INTS: {
      const int64_t* values = nullptr;
      Must(c, api->operator_attribute_ints(node, name, &values, &count, &error), error);
      return ListOf(c, values, count);
    }
    case EVN_ATTRIBUTE_FLOATS: {
      const float* values = nullptr;
      Must(c, api->operator_attribute_floats(node, name, &values, &count, &error), error);
      napi_value array = c.Array(count);
      for (size_t i = 0; i < count; ++i) c.Put(array, static_cast<uint32_t>(i), c.Value(static_cast<double>(values[i])));
      return array;
    }
    case EVN_ATTRIBUTE_STRING: {
      auto* text = c.Text();
      Must(c,
           text->Read([&](char* to, size_t room, size_t* size,
                          evn_error* e) { return api->operator_attribute_string(node, name, to, room, size, e); },
                      &error),
           error);
      return c.String(text);
    }
    case EVN_ATTRIBUTE_STRINGS: {
      uint32_t strings = 0;
      Must(c, api->operator_attribute_string_count(node, name, &strings, &error), error);
      napi_value array = c.Array(strings);
      for (uint32_t i = 0; i < strings; ++i) {
        auto* text = c.Text();
        Must(c,
             text->Read([&](char* to, size_t room, size_t* size,
                            evn_error* e) { return api->operator_attribute_string_at(node, name, i, to, room, size, e); },
                        &error),
             error);
        c.Put(array, i, c.String(text));
      }
      return array;
    }
    case EVN_ATTRIBUTE_TENSOR: {
      evn_tensor_view view{};
      Must(c, api->operator_attribute_tensor(node, name, &view, &error), error);
      return Described(c, view, true);
    }
    default: Throw(c.instance, EVN_ERROR_UNSUPPORTED, std::string("attribute ") + name + " is of a kind that cannot be read");
  }
}

}  // namespace

const Entry kOperatorEntries[] = {
    {"runtime_register_operator", Register, false},
    {"operator_attribute", Attribute, false},
    {nullptr, nullptr, false},
};

}  // namespace evn_node

#include "runtime/placement/placement_settings.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/placement/placement_rules.h"

namespace evn {
SessionRequest with_settings(SessionRequest request, const Runtime& runtime) {
  if (request.settings == nullptr) request.settings = runtime.settings();
  return request;
}

bool is_absent(const Settings& settings, const Device* device, std::string* why) {
  std::string out = device != nullptr ? device->why_out() : "";
  const bool is_out = !out.empty();
  if (is_out) *why = std::move(out);
  return device == nullptr || (is_out && settings.config.moves_off_lost_devices);
}

Device* device_for_rule(const Runtime& runtime, const SessionRequest& request, const std::string& name, std::string* why) {
  Device* const device = runtime.known_device(name, *request.settings, why);
  return is_absent(*request.settings, device, why) ? nullptr : device;
}

bool is_full(const SessionRequest& request, const Device& device) {
  return std::any_of(request.role.full.begin(), request.role.full.end(), [&](const FullDevice& f) { return f.device == &device; });
}

WantedSetting wanted_setting(NodeSetting setting, const LoadedModel& model, const SessionRequest& request, const Node& node,
                             const Device* device) {
  const Config& config = request.settings->config;
  static_assert(static_cast<int>(Precision::kDefault) == 0 && static_cast<int>(Numerics::kDefault) == 0);
  static_assert(static_cast<int>(Products::kDefault) == 0);
  const auto said_by = [setting](const auto& authority) {
    return setting == NodeSetting::kPrecision  ? static_cast<std::int32_t>(authority.precision)
           : setting == NodeSetting::kNumerics ? static_cast<std::int32_t>(authority.numerics)
                                               : static_cast<std::int32_t>(authority.products);
  };
  for (const PlacementRule& rule : config.rules) {
    const std::int32_t said = said_by(rule);
    if (said == 0) continue;
    const bool is_strict = setting == NodeSetting::kNumerics && rule.numerics == Numerics::kStrict;
    if (matches(rule, node, model.file_name) || (is_strict && matches_fused(rule, node, model.file_name)))
      return {said, "rule at line " + std::to_string(rule.line), &rule};
  }
  if (const std::int32_t said = said_by(request)) return {said, "the session's options"};
  if (const std::int32_t said = said_by(config.session)) return {said, "the configuration's session"};
  const DeviceConfig* const configured = setting == NodeSetting::kNumerics ? nullptr : config.find_device(device->name());
  if (configured != nullptr) {
    const std::int32_t said = static_cast<std::int32_t>(configured->precision);
    const std::int32_t products = static_cast<std::int32_t>(configured->products);
    if (setting == NodeSetting::kPrecision ? said != 0 : products != 0)
      return {setting == NodeSetting::kPrecision ? said : products, "the device's"};
  }
  static_assert(static_cast<int>(Precision::kFloat32) == static_cast<int>(Numerics::kFast));
  return {static_cast<std::int32_t>(setting == NodeSetting::kProducts ? Products::kAuto : Products::kOwn), kDefaultPrecision};
}

KeptNodes::KeptNodes(const SessionRequest& request)
    : configured_(request.settings->config.session.keep_fp32), requested_(request.keep_fp32) {}

const std::string* KeptNodes::find(const Node& node) const {
  const std::string* const pattern = configured_.find(node, true);
  return pattern != nullptr ? pattern : requested_.find(node, true);
}

WantedSetting wanted_precision(const KeptNodes& kept, const LoadedModel& model, const SessionRequest& request, const Node& node,
                               const Device* device) {
  if (const std::string* const pattern = kept.find(node))
    return {static_cast<std::int32_t>(Precision::kFloat32), "keep_fp32 \"" + *pattern + "\""};
  return wanted_setting(NodeSetting::kPrecision, model, request, node, device);
}

void explain_precision(const Node& node, NodePlacement* p) {
  const Precision lowest = p->precision;
  const bool has = p->kernel != nullptr && p->kernel->operands == lowest;
  if (lowest == Precision::kFloat32 || has) return;
  bool is_product = false;
  for (const KernelFamily* family : p->device->kernels()) {
    for (const Kernel& kernel : family->kernels) {
      is_product |= kernel.operands == lowest && kernel.is_for(node);
    }
  }
  if (p->kernel != nullptr && p->kernel->library != Products::kOwn) {
    p->precision_reason.append("; ").append(products_name(p->kernel->library)).append(" multiplies in fp32");
  } else if (is_product) {
    p->precision_reason.append("; no ").append(precision_name(lowest)).append(" kernel takes it");
  } else {
    p->precision_reason.append("; ").append(node.op_type).append(" stays fp32");
  }
}

void settle_products(const LoadedModel& model, const SessionRequest& request, const OpDesc& desc, bool ranks_known,
                     NodePlacement* p) {
  const Device& device = *p->device;
  WantedSetting wanted = wanted_setting(NodeSetting::kProducts, model, request, *desc.node, &device);
  p->products = desc.products;
  p->products_reason = std::move(wanted.reason);
  const bool measures = p->products == Products::kMeasured && device.traits().host_addressable;
  if (!measures && (!asks_for_library(p->products) || p->kernel->library == p->products)) return;
  OpDesc asked = desc;
  asked.products = measures ? Products::kOpenBlas : p->products;
  const char* why = nullptr;
  if (!ranks_known) {
    why = "a rank is not known before a run";
  } else if (measures && request.joins_requests()) {
    why = "requests that are joined have the bits that they have alone";
  } else if (measures && p->kernel->operands != Precision::kFloat32) {
    why = "its operands are rounded";
  } else {
    why = device.why_not_by(asked.products, asked);
  }
  if (why == nullptr) {  // of two that are measured: where it is another one
    if (p->kernel->library != asked.products) p->rival = device.find_kernel(asked, nullptr);
    return;
  }
  const char* const name = measures ? "not measured" : products_name(p->products);
  if (!measures && wanted.rule != nullptr && wanted.rule->policy == Policy::kRequire) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "%s:%d: the rule requires products: %s, which device %s cannot have for %s: %s",
                     request.settings->config.source.c_str(), wanted.rule->line, name, device.name().c_str(),
                     desc.node->op_type.c_str(), why)
        .with_node(desc.node->name.c_str())
        .with_device(device.name().c_str());
  }
  p->products_reason.append("; ").append(name).append(": ").append(why);
}

}  // namespace evn

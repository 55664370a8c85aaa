// Which version of each domain a model, or one of its functions, imports.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "core/graph.h"

namespace evn {

using Domains = std::map<std::string_view, int>;  // views into the imports

// Throws EVN_ERROR_INVALID_MODEL for a domain that is there twice, a version below 1 or the library's own domain, and
// EVN_ERROR_UNSUPPORTED for an opset of ai.onnx that is newer than the operator tables.
Domains import_domains(const std::vector<OpsetImport>& opsets);

// "ai.onnx" for "".
const char* shown_domain(const Node& node);

// The operator that stands in a node's place, or in that of a part of it. Throws EVN_ERROR_UNSUPPORTED with the node's name where
// this build lacks it (EVN_OPERATORS).
const OpDef* stand_in(const Node& node, const char* domain, const char* op_type, int since);

// The version that applies to the node: its own, if it has one already, else that of `domains`. Throws EVN_ERROR_INVALID_MODEL
// with the node's name where the domain is not imported.
int imported_version(const Node& node, const Domains& domains);

}  // namespace evn

// Requests that are under way.
#ifndef EVENER_NODE_REQUEST_H
#define EVENER_NODE_REQUEST_H

#include "instance.h"

namespace evn_node {

// The library's threads have it until the request's callback has returned, the JavaScript thread until it has told of the end.
struct Pending {
  std::shared_ptr<Instance> instance;
  evn_request request = nullptr;
  bool has_values = false;
  std::vector<bool> given;  // outputs that are written in place
  napi_deferred deferred = nullptr;
};

}  // namespace evn_node

#endif

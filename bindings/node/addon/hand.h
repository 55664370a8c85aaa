// The functions that are written by hand, as lists that end with an entry without a name.
#ifndef EVENER_NODE_HAND_H
#define EVENER_NODE_HAND_H

#include "call.h"

namespace evn_node {

extern const Entry kRequestEntries[];   // request.cc
extern const Entry kTensorEntries[];    // tensor.cc
extern const Entry kCallbackEntries[];  // callbacks.cc
extern const Entry kOperatorEntries[];  // operator.cc

napi_value RunWith(napi_env env, napi_callback_info info);  // request.cc

}  // namespace evn_node

#endif

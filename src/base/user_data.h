// What a host gave to be handed to its callbacks, and the function that takes it back.
#pragma once

#include "base/float_environment.h"
#include "evener/evener.h"

namespace evn {

// Once adopted, `user` goes back to the host when this object goes; before that a failure leaves it with the host.
class UserData {
 public:
  UserData() = default;
  UserData(const UserData&) = delete;
  UserData& operator=(const UserData&) = delete;
  ~UserData() {
    if (release_ == nullptr) return;
    const HostFloatEnvironment hosts;
    try {
      release_(user_);
    } catch (...) {  // nobody is there to be told
    }
  }
  void adopt(evn_user_release release, void* user) {
    release_ = release;
    user_ = user;
  }

 private:
  evn_user_release release_ = nullptr;
  void* user_ = nullptr;
};

}  // namespace evn

// libevener_gloo.so: all-reduce by Gloo over TCP. Ranks meet by files in a folder that all of them see. The interface is that of
// the environment variable GLOO_SOCKET_IFNAME, else the one with the address of the host's name, else the loopback.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include "modules/collective/report.h"

namespace {

struct Collective {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::uint32_t tag = 0;
  bool is_broken = false;
};

template <typename F>
evn_status guarded(evn_error* error, evn_status status, F&& body) {
  try {
    body();
    return EVN_OK;
  } catch (const std::bad_alloc&) {
    return collective_fail(error, EVN_ERROR_OUT_OF_MEMORY, "the system has no memory");
  } catch (const std::exception& e) {
    const std::string text = e.what();
    const bool timed_out = text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
    return collective_fail(error, timed_out ? EVN_ERROR_TIMEOUT : status, "Gloo: %.400s", text.c_str());
  } catch (...) {
    return collective_fail(error, EVN_ERROR_INTERNAL, "Gloo threw what is no std::exception");
  }
}

std::shared_ptr<gloo::transport::Device> make_device() {
  gloo::transport::tcp::attr attributes;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface != nullptr && *interface != '\0') {
    attributes.iface = interface;
    return gloo::transport::tcp::CreateDevice(attributes);
  }
  try {
    return gloo::transport::tcp::CreateDevice(attributes);  // by the host's name
  } catch (const std::exception&) {
    attributes.hostname = "127.0.0.1";
    return gloo::transport::tcp::CreateDevice(attributes);
  }
}

template <typename T>
void all_reduce(Collective& c, void* data, std::uint64_t count) {
  gloo::AllreduceOptions options(c.context);
  options.setOutput(static_cast<T*>(data), count);
  options.setReduceFunction([](void* to, const void* a, const void* b, std::size_t n) { gloo::sum<T>(to, a, b, n); });
  options.setTag(c.tag++);
  gloo::allreduce(options);
}

evn_status reduce(void* context, void* data, std::uint64_t count, evn_dtype dtype, evn_error* error) {
  Collective& c = *static_cast<Collective*>(context);
  if (dtype != EVN_DTYPE_FLOAT32 && dtype != EVN_DTYPE_FLOAT64)
    return collective_fail(error, EVN_ERROR_UNSUPPORTED, "dtype %d cannot be summed over ranks", static_cast<int>(dtype));
  if (c.is_broken) return collective_fail(error, EVN_ERROR_WRONG_STATE, "an earlier reduction has failed");
  if (count == 0) return EVN_OK;
  const evn_status status = guarded(error, EVN_ERROR_DEVICE_LOST, [&] {
    if (dtype == EVN_DTYPE_FLOAT32) all_reduce<float>(c, data, count);
    else all_reduce<double>(c, data, count);
  });
  c.is_broken = status != EVN_OK;
  return status;
}

evn_status open(const evn_collective_settings* s, void** collective, std::uint32_t* rank, std::uint32_t* rank_count,
                evn_error* error) {
  if (s->rank_count == 0 || s->rank >= s->rank_count)
    return collective_fail(error, EVN_ERROR_INVALID_ARGUMENT, "Gloo needs rank and rank_count, and they are %u and %u", s->rank,
                           s->rank_count);
  if (s->store == nullptr || *s->store == '\0')
    return collective_fail(error, EVN_ERROR_INVALID_ARGUMENT, "Gloo needs collective_store, a folder that all ranks see");
  struct stat folder;
  if (stat(s->store, &folder) != 0 || !S_ISDIR(folder.st_mode))
    return collective_fail(error, EVN_ERROR_IO, "collective_store \"%.256s\" is no folder", s->store);
  return guarded(error, EVN_ERROR_DEVICE_UNAVAILABLE, [&] {
    auto made = std::make_unique<Collective>();
    made->context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(s->rank), static_cast<int>(s->rank_count));
    made->context->setTimeout(std::chrono::milliseconds(s->timeout_ms));
    gloo::rendezvous::FileStore store(s->store);
    auto device = make_device();
    made->context->connectFullMesh(store, device);
    *rank = s->rank;
    *rank_count = s->rank_count;
    *collective = made.release();
  });
}

void give_up(void* collective) { static_cast<Collective*>(collective)->is_broken = true; }

void close(void* collective) { delete static_cast<Collective*>(collective); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const evn_collective_module_table* evn_collective_module(void) {
  static const evn_collective_module_table table = {EVN_COLLECTIVE_MODULE_ABI, EVN_VERSION_NUMBER, open, reduce, give_up, close};
  return &table;
}

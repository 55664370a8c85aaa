// The trial of CLBlast on each OpenCL device, CPUs too: its speed against the library's own kernels by the side of the matrices.
#include <cstdio>

#include "backends/opencl/device.h"
#include "base/os/os.h"

int main() {
  std::string why;
  const std::size_t count = evn::find_opencl_devices(&why).size();
  if (count == 0) return std::fprintf(stderr, "no OpenCL device: %s\n", why.c_str()), 1;
  for (std::size_t i = 0; i < count; ++i) {
    evn::DeviceRequest request;
    request.name = "opencl:" + std::to_string(i);
    request.index = static_cast<int>(i);
    request.settings.set_text("clblast", "always");
    try {
      const std::shared_ptr<evn::Device> device = evn::opencl_backend.open(request);
      const std::string found = static_cast<evn::OpenClDevice&>(*device).clblast_trial(evn::os::now_ns).text;
      std::printf("%s, %s: %s\n", request.name.c_str(), device->traits().description.c_str(), found.c_str());
    } catch (const evn::Error& e) {
      std::printf("%s: %s\n", request.name.c_str(), e.message);
    }
  }
  return 0;
}

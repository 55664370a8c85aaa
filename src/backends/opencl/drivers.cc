// The drivers that OpenCL's loader would load, and how it is made to load one of them alone (ocl-icd; the loader of Khronos for
// libraries that are named).
#include "backends/opencl/drivers.h"

#include <algorithm>

#include "base/os/folder.h"
#include "base/os/os.h"

namespace evn {
namespace {

constexpr char kFiles[] = "OCL_ICD_VENDORS";        // a folder of .icd files, or one
constexpr char kLibraries[] = "OCL_ICD_FILENAMES";  // drivers, with colons between them
constexpr char kDefaultFolder[] = "/etc/OpenCL/vendors";

bool is_icd(const std::string& name) { return name.size() > 4 && name.compare(name.size() - 4, 4, ".icd") == 0; }

}  // namespace

std::vector<DriverSet> opencl_drivers() {
  std::vector<DriverSet> drivers;
  std::string place = os::environment(kFiles);
  if (place.empty()) place = kDefaultFolder;
  std::vector<std::string> files;
  if (is_icd(place)) {
    files.push_back(place);
  } else {
    for (const std::string& name : os::names_in(place)) {
      if (is_icd(name)) files.push_back(place + "/" + name);
    }
  }
  std::ranges::sort(files);
  for (const std::string& file : files) drivers.push_back({file, {{kFiles, file}, {kLibraries, ""}}});
  const std::string libraries = os::environment(kLibraries);
  for (std::size_t begin = 0; begin < libraries.size();) {
    const std::size_t end = std::min(libraries.find(':', begin), libraries.size());
    const std::string library = libraries.substr(begin, end - begin);
    if (!library.empty()) drivers.push_back({library, {{kFiles, "/nonexistent"}, {kLibraries, library}}});
    begin = end + 1;
  }
  return drivers;
}

}  // namespace evn

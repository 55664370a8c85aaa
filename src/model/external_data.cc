// Tensors whose bytes stand in a file of their own beside the model. All that the model says about that file is hostile; where it
// lies is checked by os::open_external. A checksum is accepted and not looked at: it guards against nothing that whoever
// wrote the model could not also write.
#include <climits>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/os/beneath.h"
#include "base/text.h"
#include "model/external_files.h"
#include "model/loader.h"

namespace evn {
namespace {

struct Place {
  std::optional<std::string_view> location, offset, length, checksum;
};

Place read_place(const Loader& loader, std::span<const StringEntry> entries, const std::uint8_t* at) {
  Place place;
  const auto refuse = [&](const char* what) { loader.file.fail_field("TensorProto", "external_data", at, what); };
  for (const StringEntry& entry : entries) {
    std::optional<std::string_view>* to = entry.key == "location"   ? &place.location
                                          : entry.key == "offset"   ? &place.offset
                                          : entry.key == "length"   ? &place.length
                                          : entry.key == "checksum" ? &place.checksum
                                                                    : nullptr;
    if (to == nullptr) refuse("has a key other than location, offset, length and checksum");
    if (to->has_value()) refuse("has a key twice");
    *to = entry.value;
  }
  if (!place.location) refuse("has no location");
  return place;
}

std::uint64_t number(const Loader& loader, std::string_view text, const std::uint8_t* at) {
  const std::optional<std::uint64_t> value = parse_u64(text);
  if (!value) loader.file.fail_field("TensorProto", "external_data", at, "has an offset or length that is not a decimal number");
  return *value;
}

}  // namespace

ExternalRange find_external(Loader& loader, std::size_t size_bytes, std::span<const StringEntry> entries, const std::uint8_t* at) {
  const Place place = read_place(loader, entries, at);
  const std::uint64_t offset = place.offset ? number(loader, *place.offset, at) : 0;
  const std::uint64_t length = place.length ? number(loader, *place.length, at) : size_bytes;
  if (length != size_bytes)
    loader.file.fail_field("TensorProto", "external_data", at, "has a length that does not fit the tensor's shape");
  ExternalFiles* const files = loader.options.external;
  if (files == nullptr || files->folder().empty()) {
    loader.file.fail_field("TensorProto", "external_data", at, "is used, but no folder for external data is given");
  }
  loader.file.check_time();
  const std::string location(*place.location);
  ExternalFiles::Opened opened = files->open(location);
  const std::uint64_t size = opened.file->size();
  if (offset > size || length > size - offset)
    fail(EVN_ERROR_INVALID_MODEL, "external data location '%.200s' is shorter than its offset and length", location.c_str());
  return {std::move(opened.file), std::move(opened.mapping), offset, opened.stays_open};
}

namespace {

// The path from the root of the file system on. A relative path stays if it can be opened in no other way.
std::string absolute_path(std::string path) {
  if (path.empty() || path[0] == '/') return path;
  std::string whole = os::current_folder() + "/" + path;
  return whole[0] == '/' && whole.size() < PATH_MAX ? whole : path;
}

os::FileAccess absolute_access(os::FileAccess access) {
  for (std::string& root : access.allowed_roots) root = absolute_path(std::move(root));
  return access;
}

}  // namespace

// Files may be opened again long after the model was loaded, when the process is in another folder.
ExternalFiles::ExternalFiles(std::string folder, os::FileAccess access)
    : folder_(absolute_path(std::move(folder))), access_(absolute_access(std::move(access))) {}

ExternalFiles::Opened ExternalFiles::open(const std::string& location) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto it = opened_.find(location); it != opened_.end()) return it->second;
  }
  Opened opened;
  opened.file = os::open_external(folder_, location, access_.allowed_roots);
  if (access_.map) opened.mapping = opened.file->map();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (opened_.size() >= kMostOpen) {
    has_others_ = true;
    return opened;
  }
  opened.stays_open = true;
  return opened_.emplace(location, std::move(opened)).first->second;  // another thread may have been first
}

void ExternalFiles::check_unchanged() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [location, opened] : opened_) opened.file->check_unchanged();
}

bool ExternalFiles::list(std::vector<os::FileIdentity>* identities) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [location, opened] : opened_) identities->push_back(opened.file->identity());
  return !has_others_;
}

}  // namespace evn

// Tensors whose bytes stand in a file of their own beside the model. All that the model says about that file is hostile; where it
// lies is checked by os::read_file_beneath. A checksum is accepted and not looked at: it guards against nothing that whoever
// wrote the model could not also write.
#include <optional>
#include <string>

#include "base/error.h"
#include "base/os/os.h"
#include "base/text.h"
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

std::shared_ptr<const void> read_external_bytes(Loader& loader, std::size_t size_bytes, std::span<const StringEntry> entries,
                                                const std::uint8_t* at) {
  const Place place = read_place(loader, entries, at);
  const std::uint64_t offset = place.offset ? number(loader, *place.offset, at) : 0;
  const std::uint64_t length = place.length ? number(loader, *place.length, at) : size_bytes;
  if (length != size_bytes)
    loader.file.fail_field("TensorProto", "external_data", at, "has a length that does not fit the tensor's shape");
  const LoadOptions& options = loader.options;
  if (options.external_dir.empty()) {
    loader.file.fail_field("TensorProto", "external_data", at, "is used, but no folder for external data is given");
  }
  loader.file.check_time();
  loader.has_external_data = true;
  return os::read_file_beneath(options.external_dir, std::string(*place.location), offset, length, options.limits.tensor_bytes,
                               options.ledger, MemoryClass::kWeights)
      .data;
}

}  // namespace evn

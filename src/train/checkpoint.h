// Files of the safetensors format: a length, a JSON header and the bytes of tensors (huggingface.co/docs/safetensors). The header's
// metadata has a checksum of everything in the file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace evn_train {

struct SavedTensor {
  std::string name;
  std::vector<std::int64_t> dims;  // of float32
  const void* data = nullptr;
  std::size_t size = 0;  // bytes
};

struct Checkpoint {
  std::map<std::string, std::string> metadata;
  std::vector<SavedTensor> tensors;
  std::shared_ptr<const void> file;  // what the tensors' data refers to
};

// An older file at `path` stays whole until all is on the disk. Throws EVN_ERROR_IO, EVN_ERROR_UNSUPPORTED (a name that is not
// UTF-8).
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);
// Throws EVN_ERROR_IO, EVN_ERROR_INVALID_ARGUMENT (the file is none, cut off or changed).
Checkpoint read_checkpoint(const std::string& path);

}  // namespace evn_train

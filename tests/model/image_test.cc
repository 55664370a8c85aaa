// What is read of a file to find its large tensors.
#include "model/image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/cancel.h"
#include "tests/model/onnx_writer.h"

namespace evn {
namespace {

using namespace test;

struct CountingFile final : os::File {
  explicit CountingFile(std::string of) : File(of.size()), bytes(std::move(of)) {}
  os::FileIdentity identity() const noexcept override { return {}; }
  std::shared_ptr<const void> map() const override { return nullptr; }
  void read(std::uint64_t offset, void* to, std::size_t size) const override {
    ASSERT_LE(offset + size, bytes.size());
    std::memcpy(to, bytes.data() + offset, size);
    count += size;
  }
  void check_unchanged() const override {}

  const std::string bytes;
  mutable std::uint64_t count = 0;
};

TEST(FileImage, ReadsLittleBesideLargeTensors) {
  constexpr int kTensors = 100;
  constexpr std::size_t kFloats = 16 << 10;
  const std::string values(kFloats * sizeof(float), 'x');
  OnnxWriter w;
  for (int i = 0; i < kTensors; ++i) {
    w.add_initializer(Proto().varint(1, std::int64_t{kFloats}).varint(2, 1).bytes(8, "t" + std::to_string(i)).bytes(9, values));
  }
  const auto file = std::make_shared<CountingFile>(w.add_output("t0", 0).serialize());
  const FileImage image = read_image(file, nullptr, UINT64_MAX);
  ASSERT_EQ(image.gaps.size(), std::size_t{kTensors});
  EXPECT_LT(file->count, (kTensors + 1) * (std::uint64_t{5} << 10) + (64 << 10));
  std::string expected = file->bytes;
  for (const Gap& gap : image.gaps) std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(gap.offset), gap.size, '\0');
  EXPECT_TRUE(std::memcmp(image.bytes.get(), expected.data(), expected.size()) == 0);
}

// Only raw_data is left in the file: a tensor that is written in other ways is read with the model, at a cost that is counted.
TEST(FileImage, ReadsBytesBesideGapsInPieces) {
  constexpr std::size_t kFloats = 1 << 20;
  const std::string values(kFloats * sizeof(float), '\0');
  OnnxWriter w;
  w.add_initializer(Proto().varint(1, std::int64_t{kFloats}).varint(2, 1).bytes(8, "t").bytes(4, values));
  const auto path = std::filesystem::temp_directory_path() / ("evener_image_" + std::to_string(os::process_id()) + ".onnx");
  std::ofstream(path, std::ios::binary) << w.add_output("t", 0).serialize();
  const std::shared_ptr<const os::File> file = os::open_for_reading(path.string(), UINT64_MAX);
  std::filesystem::remove(path);
  const Cancel never;
  const CancelScope scope(never);
  EXPECT_TRUE(read_image(file, nullptr, UINT64_MAX).gaps.empty());
  EXPECT_GE(scope.work(), static_cast<std::int64_t>(file->size()) / kBytesPerWork);
  EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
}

}  // namespace
}  // namespace evn

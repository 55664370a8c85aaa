// ImageDecoder's shape rule, and the module behind it: how it is found, what it makes of good and damaged files. Pixels are
// compared with Pillow's in tests/models/test_image_decoder.py; here it is memory that matters, under AddressSanitizer.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "base/os/os.h"
#include "ops/infra/image_decoders.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/picture_files.h"

namespace evn::test {
namespace {

using Bytes = std::vector<unsigned char>;

TEST(ImageModule, IsThereWhenItIsBuilt) {
  std::string why;
#ifdef EVN_IMAGE_BUILT
  EXPECT_NE(image_module(&why), nullptr) << why;
#else
  EXPECT_EQ(image_module(&why), nullptr);
  EXPECT_NE(why.find("libevener_image.so"), std::string::npos) << why;
#endif
}

TEST(ImageModule, AMissingFileIsAReason) {
  std::string why;
  EXPECT_EQ(open_image_module(os::own_folder() + "no_such_module.so", &why), nullptr);
  EXPECT_NE(why.find("no_such_module.so"), std::string::npos) << why;
}

TEST(ImageModule, AnotherLibraryIsNone) {
  std::string why;
  EXPECT_EQ(open_image_module("libm.so.6", &why), nullptr);
  EXPECT_EQ(why, "it is no module of this library");
}

Bytes bytes_of(const PictureFile& file) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Bytes bytes(file.hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(digit(file.hex[2 * i]) * 16 + digit(file.hex[2 * i + 1]));
  return bytes;
}

int never(void*) { return 0; }
int always(void*) { return 1; }

class Decoders : public testing::Test {
 protected:
  static constexpr std::uint64_t kMostPixels = 1 << 20;

  void SetUp() override {
    std::string why;
    module_ = image_module(&why);
    if (module_ == nullptr) GTEST_SKIP() << why;
  }

  static evn_image_call call_for(const Bytes& bytes, int pixels) {
    evn_image_call call{};
    call.bytes = bytes.data();
    call.size = bytes.size();
    call.pixels = pixels;
    call.work_bytes = 256 << 20;
    call.stop = never;
    return call;
  }

  // The status of the first of the two steps that fails; `out` has exactly the bytes that are to be written.
  int decode(evn_image_call* call, Bytes* out) const {
    const int status = module_->measure(call);
    if (status != EVN_IMAGE_OK) return status;
    EXPECT_GT(call->width, 0u);
    EXPECT_GT(call->height, 0u);
    const std::uint64_t count = std::uint64_t{call->width} * call->height;
    if (count > kMostPixels) return EVN_IMAGE_LIMIT;
    out->assign(count * (call->pixels == EVN_IMAGE_GRAY ? 1 : 3), 0xA5);
    return module_->decode(call, out->data());
  }

  const evn_image_module_table* module_ = nullptr;
};

TEST_F(Decoders, MeasureAndDecodeEveryFile) {
  for (const PictureFile& file : kPictureFiles) {
    for (const int pixels : {EVN_IMAGE_RGB, EVN_IMAGE_BGR, EVN_IMAGE_GRAY}) {
      const Bytes bytes = bytes_of(file);
      evn_image_call call = call_for(bytes, pixels);
      Bytes out;
      EXPECT_EQ(decode(&call, &out), EVN_IMAGE_OK) << file.name << ": " << call.why;
      EXPECT_EQ(call.width, file.width) << file.name;
      EXPECT_EQ(call.height, file.height) << file.name;
    }
  }
}

TEST_F(Decoders, BgrIsRgbTurnedAroundAndGrayIsTheirSum) {
  for (const PictureFile& file : kPictureFiles) {
    const Bytes bytes = bytes_of(file);
    Bytes out[3];
    for (const int pixels : {EVN_IMAGE_RGB, EVN_IMAGE_BGR, EVN_IMAGE_GRAY}) {
      evn_image_call call = call_for(bytes, pixels);
      ASSERT_EQ(decode(&call, &out[pixels]), EVN_IMAGE_OK) << file.name;
    }
    for (std::size_t i = 0; i < out[EVN_IMAGE_GRAY].size(); ++i) {
      const unsigned char* rgb = &out[EVN_IMAGE_RGB][3 * i];
      for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(out[EVN_IMAGE_BGR][3 * i + k], rgb[2 - k]) << file.name;
      EXPECT_NEAR(out[EVN_IMAGE_GRAY][i], 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2], 0.51) << file.name;
    }
  }
}

TEST_F(Decoders, AFileOfAnotherSizeThanMeasuredIsRefused) {
  for (const PictureFile& file : kPictureFiles) {
    const Bytes bytes = bytes_of(file);
    evn_image_call call = call_for(bytes, EVN_IMAGE_RGB);
    ASSERT_EQ(module_->measure(&call), EVN_IMAGE_OK);
    call.height -= 1;
    Bytes out(std::size_t{3} * call.width * call.height, 0);
    EXPECT_EQ(module_->decode(&call, out.data()), EVN_IMAGE_BAD) << file.name;
  }
}

TEST_F(Decoders, EveryTruncationIsAnErrorOrAPicture) {
  for (const PictureFile& file : kPictureFiles) {
    const Bytes whole = bytes_of(file);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const Bytes bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      evn_image_call call = call_for(bytes, EVN_IMAGE_RGB);
      Bytes out;
      const int status = decode(&call, &out);
      EXPECT_EQ(status != EVN_IMAGE_OK, call.why[0] != '\0') << file.name << " cut to " << length;
      EXPECT_TRUE(status != EVN_IMAGE_OK || length >= whole.size() / 2) << file.name << " cut to " << length;
    }
  }
}

TEST_F(Decoders, DamagedFilesGiveAnErrorOrAPicture) {
  const char* full = std::getenv("EVN_TEST_FULL");
  const int turns = full != nullptr && std::strcmp(full, "1") == 0 ? 20'000 : 400;
  std::mt19937 generator(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(generator()) % n; };
  constexpr unsigned char kWords[][4] = {{0, 0, 0, 0}, {255, 255, 255, 255}, {127, 255, 255, 255}, {0, 0, 255, 255}, {1, 0, 0, 0}};
  for (const PictureFile& file : kPictureFiles) {
    const Bytes whole = bytes_of(file);
    int good = 0;
    for (int i = 0; i < turns; ++i) {
      Bytes bytes = whole;
      for (std::size_t n = 1 + below(3); n > 0; --n) bytes[below(bytes.size())] = static_cast<unsigned char>(generator());
      if (i % 4 == 0) std::memcpy(&bytes[below(std::min<std::size_t>(bytes.size(), 100) - 4)], kWords[below(5)], 4);
      evn_image_call call = call_for(bytes, static_cast<int>(below(3)));
      Bytes out;
      const int status = decode(&call, &out);
      good += status == EVN_IMAGE_OK;
      EXPECT_TRUE(status == EVN_IMAGE_OK || status == EVN_IMAGE_LIMIT || call.why[0] != '\0') << file.name << ", turn " << i;
    }
    EXPECT_LT(good, turns) << file.name;
  }
}

TEST_F(Decoders, WhatMayNotBeAllocatedIsNot) {
  for (const PictureFile& file : kPictureFiles) {
    const Bytes bytes = bytes_of(file);
    evn_image_call call = call_for(bytes, EVN_IMAGE_GRAY);
    ASSERT_EQ(module_->measure(&call), EVN_IMAGE_OK);
    call.work_bytes = 1;
    Bytes out(std::size_t{3} * call.width * call.height, 0);
    if (file.name.find("JPEG of") != std::string_view::npos || file.name == "a baseline JPEG")
      continue;  // a row of blocks is always allowed
    EXPECT_NE(module_->decode(&call, out.data()), EVN_IMAGE_OK) << file.name;
  }
}

TEST_F(Decoders, StopWhenAsked) {
  for (const PictureFile& file : kPictureFiles) {
    const Bytes bytes = bytes_of(file);
    evn_image_call call = call_for(bytes, EVN_IMAGE_RGB);
    ASSERT_EQ(module_->measure(&call), EVN_IMAGE_OK);
    call.stop = always;
    Bytes out(std::size_t{3} * call.width * call.height, 0);
    EXPECT_EQ(module_->decode(&call, out.data()), EVN_IMAGE_STOPPED) << file.name;
  }
}

TEST_F(Decoders, RunInThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int turn = 0; turn < 20; ++turn) {
        for (const PictureFile& file : kPictureFiles) {
          Bytes bytes = bytes_of(file);
          if ((turn + t) % 2 == 0) bytes.resize(bytes.size() / 2);
          evn_image_call call = call_for(bytes, EVN_IMAGE_RGB);
          Bytes out;
          wrong += (decode(&call, &out) == EVN_IMAGE_OK) == ((turn + t) % 2 == 0);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace evn::test

// ImageDecoder's shape rule, and the module behind it: how it is found, what it makes of good and damaged files. Pixels are
// compared with Pillow's in tests/models/test_image_decoder.py; here it is memory that matters, under AddressSanitizer.
#include <algorithm>
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

Bytes from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Bytes bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
  return bytes;
}

Bytes bytes_of(const PictureFile& file) { return from_hex(file.hex); }

Bytes text(std::string_view characters) { return Bytes(characters.begin(), characters.end()); }

Bytes joined(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes little_endian(std::uint32_t value, std::size_t bytes) {
  Bytes all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<unsigned char>(value >> (8 * i));
  return all;
}

Bytes big_endian(std::uint32_t value) {
  const Bytes turned = little_endian(value, 4);
  return Bytes(turned.rbegin(), turned.rend());
}

int never(void*) { return 0; }
int always(void*) { return 1; }

// Stop condition that holds from the `last`-th call on.
struct Stop {
  int last;
  int asked = 0;

  static int ask(void* user) {
    auto& stop = *static_cast<Stop*>(user);
    return ++stop.asked >= stop.last ? 1 : 0;
  }
};

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

// A PNG of one pixel, up to the chunk behind its header.
Bytes png_of_a_pixel() { return from_hex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"); }

// A chunk without its check sum, whose data begins with `data`.
Bytes png_chunk(std::uint32_t length, std::string_view name, const Bytes& data) {
  Bytes padded = data;
  padded.resize(length);
  return joined({big_endian(length), text(name), padded});
}

// Deflate's blocks of 65,535 zeros that are stored as they are.
Bytes stored_zeros(int blocks) {
  Bytes stream = from_hex("7801");
  for (int i = 0; i < blocks; ++i) stream = joined({stream, from_hex("00ffff0000"), Bytes(65535)});
  return stream;
}

// A PNG of one row of 131,072 zeros, which take 149 bytes. The chunk behind them is missing.
Bytes png_of_a_row() {
  Bytes zeros = from_hex("78daedc13101000000c2a0f54fed630ca0");
  zeros.resize(144);
  return joined({from_hex("89504e470d0a1a0a0000000d494844520002000000000001080000000039876ef4"), big_endian(149), text("IDAT"),
                 zeros, from_hex("6e001f0001"), from_hex("72786a07")});
}

// A BMP whose colours are black. `packing` 1 means runs of 8 bits.
Bytes bmp(std::uint32_t width, std::uint32_t height, std::uint32_t bits, std::uint32_t packing, const Bytes& data) {
  const std::uint32_t colours = bits == 8 ? 1 : 0;
  return joined({text("BM"), Bytes(8), little_endian(54 + 4 * colours, 4), little_endian(40, 4), little_endian(width, 4),
                 little_endian(height, 4), little_endian(1, 2), little_endian(bits, 2), little_endian(packing, 4), Bytes(12),
                 little_endian(colours, 4), Bytes(4), Bytes(std::size_t{4} * colours), data});
}

Bytes runs(std::string_view hex, std::size_t times, std::size_t padding) {
  Bytes data;
  for (std::size_t i = 0; i < times; ++i) data = joined({data, from_hex(hex)});
  return joined({data, from_hex("0000"), Bytes(padding)});
}

// A TIFF of zeros: gray, or YCbCr with chroma halved both ways. All strips share the same bytes, which begin at offset 16.
Bytes tiff(std::uint32_t width, std::uint32_t height, std::uint32_t strip_rows, bool ycbcr) {
  const std::uint32_t bytes = ycbcr ? width / 2 * (strip_rows / 2) * 6 : width * strip_rows;
  const std::uint32_t strips = height / strip_rows;
  const std::uint32_t offsets = 16 + bytes + bytes % 2, sizes = offsets + 4 * strips;  // two lists, of all strips
  const Bytes eight = little_endian(8, 2);
  Bytes tags, lists;
  for (std::uint32_t i = 0; i < strips; ++i) lists = joined({lists, little_endian(16, 4)});
  for (std::uint32_t i = 0; i < strips; ++i) lists = joined({lists, little_endian(bytes, 4)});
  std::uint32_t count = 0;
  const auto tag = [&](std::uint32_t number, std::uint32_t type, std::uint32_t values, std::uint32_t value) {
    tags = joined({tags, little_endian(number, 2), little_endian(type, 2), little_endian(values, 4), little_endian(value, 4)});
    ++count;
  };
  constexpr std::uint32_t kShort = 3, kLong = 4;
  tag(256, kLong, 1, width);
  tag(257, kLong, 1, height);
  tag(258, kShort, ycbcr ? 3 : 1, 8);  // three of them lie at offset 8
  tag(259, kShort, 1, 1);
  tag(262, kShort, 1, ycbcr ? 6 : 1);
  tag(273, kLong, strips, strips == 1 ? 16 : offsets);
  tag(277, kShort, 1, ycbcr ? 3 : 1);
  tag(278, kLong, 1, strip_rows);
  tag(279, kLong, strips, strips == 1 ? bytes : sizes);
  if (ycbcr) tag(530, kShort, 2, 2 | 2 << 16);
  return joined({from_hex("49492a00"), little_endian(sizes + 4 * strips, 4), eight, eight, eight, Bytes(offsets - 14), lists,
                 little_endian(count, 2), tags, Bytes(4)});
}

TEST_F(Decoders, StopInTheMiddleOfLongWork) {
  struct Row {
    const char* name;
    Bytes bytes;
    int last;
  };
  const Bytes stored = stored_zeros(16);
  const std::uint32_t stored_size = static_cast<std::uint32_t>(stored.size());
  const std::vector<Row> rows = {
      {"a PNG with a long chunk beside the picture", joined({png_of_a_pixel(), png_chunk(1 << 20, "teSt", {})}), 40},
      {"a PNG with data behind its last row", joined({png_of_a_pixel(), png_chunk(stored_size, "IDAT", stored)}), 40},
      {"a PNG of one wide row", png_of_a_row(), 20},
      {"a BMP of wide rows", bmp(60000, 8, 24, 0, Bytes(180000 * 8)), 5},
      {"a BMP of one wide row", bmp(200000, 1, 24, 0, Bytes(600000)), 5},
      {"a BMP of runs of one wide row", bmp(200000, 1, 8, 1, runs("0001", 1, 200)), 5},
      {"a BMP of runs that ends before its first row", bmp(300, 300, 8, 1, runs("0001", 1, 200)), 5},
      {"a BMP of runs that skips its rows", bmp(300, 300, 8, 1, runs("000200ff", 2, 200)), 5},
      {"a BMP of runs behind the end of a row", bmp(10, 1, 8, 1, runs("ff00", 1000, 0)), 5},
      {"a PNM of wide rows", joined({text("P5 60000 8 255\n"), Bytes(60000 * 8)}), 5},
      {"a PNM of one wide row", joined({text("P5 200000 1 255\n"), Bytes(200000)}), 5},
      {"a PNM of one wide row of bits", joined({text("P4 200000 1\n"), Bytes(25000)}), 5},
      {"a PNM of one wide row of digits", joined({text("P1 200000 1\n"), Bytes(200000, '0')}), 5},
      {"a PNM of a long comment", joined({text("P5 #"), Bytes(200000, 'x'), text("\n1 1 255\na")}), 5},
      {"a PNM of a long number", joined({text("P5 "), Bytes(200000, '0'), text("1 1 255\na")}), 5},
      {"a TIFF of one strip", tiff(64, 1024, 1024, false), 5},
      {"a TIFF of one strip of YCbCr", tiff(64, 1024, 1024, true), 5},
      {"a TIFF of one wide row", tiff(200000, 1, 1, false), 5},
      {"a TIFF of two wide rows of YCbCr", tiff(200000, 2, 2, true), 5},
      {"a TIFF of strips of one pixel", tiff(1, 16, 1, false), 5},
      {"a TIFF of small strips of YCbCr", tiff(2, 32, 2, true), 5},
  };
  for (const Row& row : rows) {
    evn_image_call call = call_for(row.bytes, EVN_IMAGE_GRAY);
    Stop stop{row.last};
    call.stop = Stop::ask;
    call.user = &stop;
    Bytes out;
    EXPECT_EQ(decode(&call, &out), EVN_IMAGE_STOPPED) << row.name << ": " << call.why;
    EXPECT_EQ(stop.asked, row.last) << row.name;
  }
}

TEST_F(Decoders, WideRowsHaveAllTheirPixels) {
  constexpr std::uint32_t kWidth = 20000;
  Bytes gray, colours, blocks, light;
  std::string numbers = "P2 20000 1 255\n";
  for (std::uint32_t x = 0; x < kWidth; ++x) {
    const auto value = static_cast<unsigned char>(x / 2 % 251);
    gray.push_back(value);
    colours.insert(colours.end(), 3, value);
    numbers += std::to_string(value) + " ";
    light.push_back(x % 8 < 4 ? 255 : 0);
    if (x % 2 != 0) continue;
    blocks.insert(blocks.end(), 4, value);
    blocks.insert(blocks.end(), 2, 128);
  }
  Bytes strip = tiff(kWidth, 1, 1, false), ycbcr = tiff(kWidth, 2, 2, true);
  std::copy(gray.begin(), gray.end(), strip.begin() + 16);
  std::copy(blocks.begin(), blocks.end(), ycbcr.begin() + 16);
  struct Row {
    const char* name;
    Bytes bytes, pixels;
  };
  const std::vector<Row> rows = {
      {"a BMP", bmp(kWidth, 1, 24, 0, colours), gray},
      {"a plain PNM", text(numbers), gray},
      {"a PNM of bits", joined({text("P4 20000 1\n"), Bytes(kWidth / 8, 0x0f)}), light},
      {"a PNM of gray", joined({text("P5 20000 1 255\n"), gray}), gray},
      {"a PNM of colours", joined({text("P6 20000 1 255\n"), colours}), gray},
      {"a TIFF", strip, gray},
      {"a TIFF of YCbCr", ycbcr, joined({gray, gray})},
  };
  for (const Row& row : rows) {
    evn_image_call call = call_for(row.bytes, EVN_IMAGE_GRAY);
    Bytes out;
    EXPECT_EQ(decode(&call, &out), EVN_IMAGE_OK) << row.name << ": " << call.why;
    EXPECT_TRUE(out == row.pixels) << row.name;
  }
}

TEST_F(Decoders, NumbersOfAPnmDoNotWrap) {
  const Bytes bytes = text("P5 4294967300 1 255\nabcd");
  evn_image_call call = call_for(bytes, EVN_IMAGE_GRAY);
  EXPECT_EQ(module_->measure(&call), EVN_IMAGE_LIMIT) << call.width;
}

// A tile part's first marker. `length` is that of the whole part; 0: the rest of the file.
Bytes tile_part(std::uint32_t length) { return joined({from_hex("ff90000a0000"), big_endian(length), from_hex("0001")}); }

// OpenJPEG has no bound on memory, so the module must count every header that OpenJPEG would read.
TEST_F(Decoders, HeadersOfJpeg2000AreReadAsOpenJpegReadsThem) {
  const Bytes size =
      from_hex("ff4fff51002f0000000003e8000003e80000000000000000000003e8000003e800000000000000000003070101070101070101");
  const Bytes style = from_hex("ff52000c00000001000104040001ff5c00074040484850");
  const Bytes costly = from_hex("ff52000e010000010001040400010000");  // each pixel is a precinct
  const Bytes layers = from_hex("ff52000e0100ffff0001040400015555");
  const Bytes data = from_hex("ff93"), end = from_hex("ffd9"), rest = Bytes(2);
  const Bytes jp2 = from_hex("0000000c6a5020200d0a870a00000014667479706a703220000000006a703220");
  const Bytes palette = from_hex("0000000b70636c72000105");
  // Read one byte too early, this begins with a marker of 0x9000 bytes.
  Bytes behind_a_byte = joined({from_hex("ff"), tile_part(0), costly, data});
  behind_a_byte.resize(2 + 0x9000);
  struct Row {
    const char* name;
    Bytes bytes;
    int status;
  };
  const std::vector<Row> rows = {
      {"a whole header", joined({size, style, tile_part(0), data, rest}), EVN_IMAGE_OK},
      {"many precincts", joined({size, costly}), EVN_IMAGE_LIMIT},
      {"many layers", joined({size, layers}), EVN_IMAGE_LIMIT},
      {"a style within a comment", joined({size, style, from_hex("ff6400140001"), costly}), EVN_IMAGE_OK},
      {"a style within an unknown marker", joined({size, style, from_hex("ff700012"), costly}), EVN_IMAGE_UNSUPPORTED},
      {"a style behind an end", joined({size, style, end, costly}), EVN_IMAGE_UNSUPPORTED},
      {"a style behind data without a part", joined({size, style, data, costly}), EVN_IMAGE_UNSUPPORTED},
      {"a style behind the end of the box", joined({jp2, from_hex("0000003b6a703263"), size, costly}), EVN_IMAGE_LIMIT},
      {"a palette beside the header box", joined({jp2, palette, from_hex("000000006a703263"), size, style}), EVN_IMAGE_UNSUPPORTED},
      {"data behind data", joined({size, style, tile_part(16), data, rest, data, end, rest}), EVN_IMAGE_BAD},
      {"a part that ends within a marker",
       joined({size, style, tile_part(20), from_hex("ff640005000141"), data, behind_a_byte, end, rest}), EVN_IMAGE_BAD},
  };
  for (const Row& row : rows) {
    evn_image_call call = call_for(row.bytes, EVN_IMAGE_RGB);
    EXPECT_EQ(module_->measure(&call), row.status) << row.name << ": " << call.why;
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

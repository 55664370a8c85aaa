// What kernels/conv.cl and tiled.cl want to know of a convolution, and how conv.cl's matrices of weights are cut.
#pragma once

#include "backends/opencl/kernels/product.h"
#include "backends/opencl/kernels/support.h"
#include "ops/conv.h"

namespace evn {

// The struct that conv.cl takes, laid out as there.
struct ConvParams {
  std::int32_t channels, outputs, groups, blocks;
  std::int32_t in_h, in_w, out_h, out_w;
  std::int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  std::int32_t padded_h, phase_w;
  std::int32_t row_chunk;
  std::int32_t has_bias, pixels_first;

  std::int64_t taps() const { return std::int64_t{kernel_h} * kernel_w; }
  std::int64_t depth() const { return checked_mul(std::int64_t{channels}, taps()); }
  std::int64_t out_plane() const { return checked_mul(std::int64_t{out_h}, std::int64_t{out_w}); }
  // Elements of the padded copy of an image.
  std::int64_t padded_elements() const {
    return checked_mul(checked_mul(std::int64_t{channels} * groups, std::int64_t{padded_h}), std::int64_t{stride_w} * phase_w);
  }
  // Floats of weights in blocks of 8 outputs.
  std::int64_t packed_floats() const {
    return checked_mul(checked_mul(std::int64_t{groups} * blocks, std::int64_t{kBlockRows}), depth());
  }
};

// The image's axes; those of a one-dimensional convolution are one row.
struct ConvAxes {
  WindowAxis h, w;
};

inline ConvAxes conv_axes(const OpDesc& desc, const Shape& x, const Shape& w) {
  const Window window = conv_window(*desc.node, x, w);
  if (window.rank == 1) return {WindowAxis{}, window.axis[0]};
  return {window.axis[0], window.axis[1]};
}

// Columns of a row of the padded copy that are stride_w apart in the input.
inline std::int32_t conv_phase_w(std::int64_t output, const WindowAxis& w) {
  return to_int(ceil_div(output, std::int64_t{kMaxTileColumns}) * kMaxTileColumns + (w.extent() - 1) / w.stride + 1);
}

// Whether a block of outputs has all its pixels before the next: blocks that take turns over a few pixels bring all weights to the
// core once for each few, which only those that stay in its cache do not cost.
inline std::int32_t has_pixels_first(const ConvParams& p, std::int64_t pixels) {
  constexpr std::int64_t kCachedElements = 128 << 10;  // of weights that stay in a core's cache while blocks take turns
  const std::int64_t inputs = checked_mul(std::int64_t{p.channels} * p.groups, pixels);
  return p.packed_floats() > kCachedElements && p.packed_floats() > inputs;
}

// Images whose padded copies are made at once, so that they stay in a cache.
inline std::int64_t images_at_once(std::int64_t images, std::int64_t bytes_of_image) {
  constexpr std::int64_t kMostBytes = 2 << 20;
  return std::clamp<std::int64_t>(kMostBytes / std::max<std::int64_t>(bytes_of_image, 1), 1, std::max<std::int64_t>(images, 1));
}

// On a CPU: which kernel of conv.cl, over what; it makes `images` images.
struct DirectConv {
  const OpenClFunction& function;
  Grid grid;
};

inline DirectConv direct_conv(const Launcher& cl, const ConvParams& p, std::int64_t images, const OpenClFunction& tiles,
                              const OpenClFunction& rows) {
  const std::int64_t blocks = std::int64_t{p.groups} * p.blocks;
  if (p.out_w <= cl.lanes() && p.out_h > 1 && cl.tile_columns() > cl.lanes()) {
    const std::int64_t groups = ceil_div(p.out_h, cl.lanes() == 16 && p.out_w <= 8 ? 4 : 2) * images;
    return {rows, p.pixels_first != 0 ? Grid{groups, blocks} : Grid{blocks, groups}};
  }
  const std::int64_t columns = ceil_div(p.out_w, cl.tile_columns()), lines = std::int64_t{p.out_h} * images;
  return {tiles, p.pixels_first != 0 ? Grid{columns, lines, blocks} : Grid{blocks, columns, lines}};
}

inline Buffer from_element(const Buffer& buffer, std::int64_t index, std::int64_t elements, std::size_t size = sizeof(float)) {
  Buffer b = buffer;
  b.offset += static_cast<std::size_t>(index * elements) * size;
  return b;
}

// On a GPU: weights times the input's pixels under the taps, which are found as they are read (implicit GEMM).
inline Product conv_product(const ConvParams& p) {
  Product product{};
  product.m = p.outputs;
  product.n = p.out_plane();
  product.k = p.depth();
  product.c_row = 1;
  product.alpha = product.beta = 1.0f;
  product.has_c = p.has_bias;
  return product;
}

}  // namespace evn

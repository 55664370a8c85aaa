// evener quantize.
#pragma once

#include "cli/library.h"

namespace evn::cli {

inline constexpr Option kQuantizeOptions[] = {
    {"-o", "FILE", "where the quantized model goes"},
    {"--calibration", "FILE.npz", "inputs to calibrate with, or a folder of such files; may be repeated", true},
    {"--verify", "FILE.npz", "inputs to compare both models with, or a folder; may be repeated", true},
    {"--guard", "FILE.npz",
     "inputs by which layers that lose too much or time go back to float32, or a\nfolder; may be repeated. Default: the first of "
     "--verify, else the last of\n--calibration",
     true},
    {"--no-guard", nullptr, "quantize whatever can be"},
    {"--guard-only", "WHAT", "look at error or speed alone"},
    {"--min-cosine", "C", "of each output with the float32 model's; default 0.99"},
    {"--min-layer-sqnr", "DB", "of each layer alone; default 10"},
    {"--method", "METHOD", "how ranges are chosen: minmax (the default), percentile, entropy, mse"},
    {"--percentile", "P", "of --method percentile: how many percent of elements stay; default 99.99"},
    {"--mode", "MODE", "static (the default), dynamic, weights (alone, in 8 or 4 bits), float16, bfloat16"},
    {"--dynamic", nullptr, "quantize MatMul, Gemm and Conv alone, with scales made in each run: no calibration"},
    {"--int8", nullptr, "activations as symmetric int8 in place of uint8"},
    {"--per-tensor", nullptr, "one scale for each weight in place of one for each output channel"},
    {"--qoperator", nullptr, "QLinearConv and other operators on bytes, where there are such"},
    {"--equalize", nullptr, "balance the channels of layers that follow each other, before calibration"},
    {"--smooth", nullptr, "SmoothQuant: move large columns of a product's input into its weight"},
    {"--correct-bias", nullptr, "put the mean error of each channel into biases"},
    {"--bits", "N", "of --mode weights: 8 (the default) or 4"},
    {"--block", "N", "of --mode weights: so many elements share a scale; default 32"},
    {"--contrib", nullptr,
     "operators of com.microsoft: of --mode weights MatMulNBits in place of\nDequantizeLinear, with --dynamic DynamicQuantizeLSTM "
     "in place of LSTM"},
    {"--external-data", nullptr, "larger constants go into OUTPUT.data (always, where the file would have 2 GiB)"},
    {"--keep", "PATTERN", "nodes that stay float32: a glob of their names, or type:Softmax; may be\nrepeated", true},
    kConfigOption,
    kThreadsOption,
    kJsonOption,
};

int run_quantize(const Arguments& arguments);

}  // namespace evn::cli

/* Quantization: a float32 ONNX model becomes one that computes with 8-bit numbers, on the machine where it is to run and
 * without another tool. The conventions of evener.h hold.
 *
 *   evn_quantizer_create(runtime, "model.onnx", &options, &quantizer, &error);
 *   for (...) evn_quantizer_add_batch(quantizer, inputs, input_count, &error);      what the model sees in use
 *   evn_quantizer_guard(quantizer, inputs, input_count, NULL, &error);              layers that lose too much, or time
 *   for (...) evn_quantizer_verify(quantizer, inputs, input_count, &error);         others than those, if there are
 *   evn_quantizer_save(quantizer, "model.int8.onnx", &error);                       ONNX, for any engine
 *   evn_quantizer_finish(quantizer, &model, &error);                                or to be run here
 *
 * Weights become int8, symmetric, with a scale for each output channel; biases int32. Static: activations have scales too,
 * from calibration; the model then has QuantizeLinear and DequantizeLinear around what is quantized (ONNX's QDQ form).
 * Rows that a Gather takes from a constant matrix (embeddings) have a scale each.
 * Dynamic: MatMul, Gemm, Conv and such a Gather alone are quantized, and each run makes the scales of their inputs
 * (DynamicQuantizeLinear, MatMulInteger, ConvInteger); with EVN_QUANTIZE_CONTRIB also LSTM. A model of an opset that lacks these
 * operators, 7 or newer, is written in opset 13. What lies in the branches of an If and the bodies of Loop, Scan and SequenceMap is
 * quantized with the rest; what no batch of calibration runs stays float32.
 *
 * Weights alone: those of MatMul and Gemm get 8 bits, symmetric, or 4, with zero points, and a scale for each block of
 * `block_size` (DequantizeLinear with blocks: the model is written in opset 21; or com.microsoft's MatMulNBits); Conv and
 * tables of Gather (embeddings) 8 bits, symmetric, with a scale for each channel or row. Computed is in float32. Float16:
 * MatMul, Gemm, Conv and what follows them compute in float16, as far as it is not sensitive (softmax, normalizations,
 * reductions, ... stay float32), and so are their weights; inputs and outputs of the model stay float32. A node with a
 * constant beyond 65504 stays float32. Bfloat16: the same weights alone are bfloat16, with a Cast behind each. Evener
 * computes in float32 with either, and widens such weights when it loads them. */
#ifndef EVENER_QUANTIZE_H
#define EVENER_QUANTIZE_H

#include "evener/evener.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------- quantization -- */

typedef struct evn_quantizer_handle *evn_quantizer; /* a model that is being quantized */

typedef int32_t evn_quantize_mode;
enum {
  EVN_QUANTIZE_STATIC = 0,
  EVN_QUANTIZE_DYNAMIC = 1,
  EVN_QUANTIZE_WEIGHTS = 2,  /* weights alone, in 8 or 4 bits; no calibration, as in the two below */
  EVN_QUANTIZE_FLOAT16 = 3,
  EVN_QUANTIZE_BFLOAT16 = 4
};

/* How the range of an activation is chosen from what calibration has seen of it. */
typedef int32_t evn_calibration;
enum {
  EVN_CALIBRATION_MINMAX = 0,     /* all of it */
  EVN_CALIBRATION_PERCENTILE = 1, /* without the outermost elements: `percentile` of them stay */
  EVN_CALIBRATION_ENTROPY = 2,    /* the least Kullback-Leibler divergence from its 8-bit image */
  EVN_CALIBRATION_MSE = 3         /* the least mean square error */
};

enum {
  EVN_QUANTIZE_PER_TENSOR = 1,    /* one scale for each weight */
  EVN_QUANTIZE_CONTRIB = 2,       /* EVN_QUANTIZE_WEIGHTS: MatMul and Gemm as com.microsoft's MatMulNBits, for which ONNX Runtime
                                     has kernels too (accuracy_level 4: what they multiply is quantized to 8 bits, block by block).
                                     EVN_QUANTIZE_DYNAMIC: LSTM too, as com.microsoft's DynamicQuantizeLSTM */
  EVN_QUANTIZE_EXTERNAL_DATA = 128, /* a file that is saved has its larger constants in another beside it, which is called as it is,
                                       and
                                     ".data"; files of 2 GiB and more have that without being asked */
  /* Static quantization only: */
  EVN_QUANTIZE_QOPERATOR = 4,     /* QLinearConv, QLinearMatMul and com.microsoft's operators on bytes (QGemm, QLinearAdd, ...)
                                     where there are such; the others stay between DequantizeLinear and QuantizeLinear */
  EVN_QUANTIZE_EQUALIZE = 16,     /* cross-layer equalization, before calibration: between two Conv or two Gemm, of which one alone
                                     reads the other through Relu and pools, ranges of channels are balanced */
  EVN_QUANTIZE_SMOOTH = 32,       /* SmoothQuant: what columns of a MatMul's or Gemm's input are larger than others goes, by half,
                                     into its weight, at the price of a Mul where no LayerNormalization takes it up */
  EVN_QUANTIZE_CORRECT_BIAS = 64  /* the mean error of each channel of a Conv or Gemm over the last calibration batch, of which a
                                     copy is kept, goes into its bias */
};

/* Called while a quantizer works: `what` ("calibrate", "guard", "verify", "quantize"), and how much of it is done. `total` is 0
 * where it is not known. Returning anything but 0 cancels the call that is under way. It must not call the quantizer. */
typedef int32_t (*evn_quantize_progress)(void *user, const char *what, uint64_t done, uint64_t total);

typedef struct evn_quantizer_options {
  uint32_t struct_size;
  evn_quantize_mode mode;
  evn_calibration calibration;
  evn_dtype activation;          /* EVN_DTYPE_UINT8 (asymmetric; also 0) or EVN_DTYPE_INT8 (symmetric) */
  double percentile;             /* of EVN_CALIBRATION_PERCENTILE: 50 to 100; 0: 99.99 */
  uint32_t flags;                /* EVN_QUANTIZE_... */
  uint32_t keep_count;           /* of `keep` */
  const char *const *keep;       /* nodes that stay float32: globs of their names, or "type:Softmax" */
  evn_quantize_progress progress; /* NULL: none */
  void *progress_user;           /* handed to progress */
  const void *data;              /* the model's bytes, which are copied, when path is NULL */
  size_t size;                   /* bytes of data */
  const char *external_dir;      /* as in evn_model_options, for a model from `data` */
  uint32_t weight_bits;          /* of EVN_QUANTIZE_WEIGHTS: 8 or 4, of MatMul and Gemm; 0: 8 */
  uint32_t block_size;           /* of EVN_QUANTIZE_WEIGHTS: so many elements of a column share a scale, a power of two from 16
                                    on; 0: 32 */
  evn_user_release progress_release; /* nullable; takes back progress_user when the quantizer has gone. @since 0.2 */
  evn_cancel cancel;             /* nullable: once it is requested, calls of the quantizer end with EVN_ERROR_CANCELLED.
                                    @since 0.2 */
  uint64_t deadline_ns;          /* of CLOCK_MONOTONIC, or 0: from then on they end with EVN_ERROR_TIMEOUT. @since 0.2 */
} evn_quantizer_options;
#define EVN_QUANTIZER_OPTIONS_INIT \
  {sizeof(evn_quantizer_options), 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, NULL, NULL, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_quantizer_options_init(evn_quantizer_options *options, uint32_t struct_size);

/* Reads a float32 model and decides which of its nodes are to be quantized.
 *   path     an ONNX file, or NULL: `data` of the options
 *   options  NULL: static, from the smallest to the largest value
 * Returns what evn_model_load_file returns; EVN_ERROR_UNSUPPORTED (an opset that is too old; a node with a body, which
 * is named; a model that is quantized already);
 * EVN_ERROR_INVALID_ARGUMENT (no node can be quantized: the message has the reasons). Blocks; allocates. Thread-safe;
 * calls on one quantizer wait for each other. */
EVN_API evn_status evn_quantizer_create(evn_runtime runtime, const char *path, const evn_quantizer_options *options,
                                        evn_quantizer *quantizer, evn_error *error);

/* NULL is fine. */
EVN_API evn_status evn_quantizer_release(evn_quantizer quantizer);

/* The model's inputs, in the order in which batches give them. `index` gets the position of the input of that name.
 * Return EVN_ERROR_INVALID_ARGUMENT where there is none. Inputs with a default are not counted and cannot be given: their
 * defaults count in all batches. */
EVN_API evn_status evn_quantizer_input_count(evn_quantizer quantizer, uint32_t *count, evn_error *error);
EVN_API evn_status evn_quantizer_find_input(evn_quantizer quantizer, const char *name, uint32_t *index, evn_error *error);

/* Runs the float32 model over one calibration batch and keeps what its activations show. Tensors: as evn_session_run takes
 * them. Returns what evn_session_run returns; EVN_ERROR_INVALID_ARGUMENT (an activation is NaN or infinite: it is named);
 * EVN_ERROR_WRONG_STATE (after finish or save, or with another mode than EVN_QUANTIZE_STATIC); EVN_ERROR_CANCELLED. A batch that
 * fails has no effect. */
EVN_API evn_status evn_quantizer_add_batch(evn_quantizer quantizer, const evn_tensor *inputs, uint32_t input_count,
                                           evn_error *error);

/* What the guard looks at; see evn_quantizer_guard. */
enum { EVN_GUARD_ERROR = 1, EVN_GUARD_SPEED = 2 };

typedef struct evn_guard_options {
  uint32_t struct_size;
  uint32_t flags;            /* EVN_GUARD_...; 0: both */
  double min_cosine;         /* of each output with the float32 model's: up to 1; 0: 0.99 */
  double min_layer_sqnr_db;  /* signal to quantization noise of each layer alone; 0: 10 */
} evn_guard_options;
#define EVN_GUARD_OPTIONS_INIT {sizeof(evn_guard_options), 0, 0, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_guard_options_init(evn_guard_options *options, uint32_t struct_size);

/* Takes back layers that are not worth it: they stay float32, and the report says why. Looked at are, over these inputs
 * (best others than those of calibration), Conv, Gemm and MatMul nodes alone, with their float32 inputs in 8 bits; the
 * outputs of the whole, for which layers go back from the worst on, as few as do; and on this machine the time of each
 * layer in 8 bits and in float32. When the whole would be slower than float32, all layers go back. Each call looks at
 * what the calls before it have left.
 *   options  NULL: as EVN_GUARD_OPTIONS_INIT
 * Returns EVN_ERROR_WRONG_STATE (after finish, save or verify; static, and no batch was added); EVN_ERROR_INVALID_ARGUMENT
 * (a budget or a flag that is none); what evn_session_run returns; EVN_ERROR_CANCELLED. A call that fails takes nothing
 * back. Blocks: it builds and runs the model several times. */
EVN_API evn_status evn_quantizer_guard(evn_quantizer quantizer, const evn_tensor *inputs, uint32_t input_count,
                                       const evn_guard_options *options, evn_error *error);

/* Makes the quantized model. Later calls give handles to the same one. It still has the inputs with a default, unless the default
 * was quantized, converted or folded.
 * Returns EVN_ERROR_WRONG_STATE (static, and no batch was added), what evn_model_load_buffer returns,
 * EVN_ERROR_CANCELLED. */
EVN_API evn_status evn_quantizer_finish(evn_quantizer quantizer, evn_model *model, evn_error *error);

/* Writes the quantized model as an ONNX file, made first where it is not yet. What was at `path` is replaced at the end,
 * in one step; where that fails it stays whole.
 * Returns what evn_quantizer_finish returns; EVN_ERROR_IO; EVN_ERROR_LIMIT (2 GiB or more). */
EVN_API evn_status evn_quantizer_save(evn_quantizer quantizer, const char *path, evn_error *error);

/* Runs the float32 and the quantized model, made first where it is not yet, over the same inputs, several times each in
 * turns, and adds to the report how far their float32 outputs are apart and how long each takes on this machine. Returns
 * what evn_session_run and evn_quantizer_finish return. */
EVN_API evn_status evn_quantizer_verify(evn_quantizer quantizer, const evn_tensor *inputs, uint32_t input_count, evn_error *error);

/* Writes what was done: nodes that are quantized, those that could be and are not, and why; bytes of the model before and
 * after; what evn_quantizer_guard saw of each layer; and, after evn_quantizer_verify, for each output cosine, signal to
 * quantization noise in dB, the share of rows (of the last axis) whose largest element is at the same place, the largest error; and
 * median times.
 *   format   EVN_FORMAT_TEXT or EVN_FORMAT_JSON: {"mode", "calibration", "batches", "quantized_nodes", "equalized_pairs",
 *            "smoothed_inputs", "corrected_biases", "unmatched" (patterns of `keep` that match no node), "nodes": [{"name",
 *            "op", "quantized", "reason", "cosine", "sqnr_db", "top1", "largest_error", "float_ns", "quantized_ns"}],
 *            "guard": {"batches", "error", "speed", "min_cosine", "min_layer_sqnr_db", "taken_back"}, "float_bytes",
 *            "quantized_bytes", "outputs": [{"name", "cosine", "sqnr_db", "top1", "largest_error"}], "float_ns", "quantized_ns",
 *            "slower"}; what is not known yet is null */
EVN_API evn_status evn_quantizer_report(evn_quantizer quantizer, evn_format format, char *buffer, size_t capacity, size_t *size,
                                        evn_error *error);

#ifdef __cplusplus
}
#endif
#endif

// TfIdfVectorizer: how often each n-gram of a pool occurs in a list, or in each row of a batch of them.
//   The pool holds the n-grams one behind the other; ngram_counts says where those of each length begin, ngram_indexes which
//   element of the output counts each. N-grams of min_gram_length to max_gram_length elements are looked for, with 0 to
//   max_skip_count elements left out between two of theirs (the same number throughout). `mode`: TF the count; IDF the weight where
//   it is not 0; TFIDF their product. A weight belongs to an n-gram of the pool; of several that one element counts TFIDF adds up,
//   IDF takes the last found.
// dtypes: int32 and int64 with pool_int64s, strings with pool_strings; gives float32. Failures: both pools or none, lists of unlike
// lengths, counts that do not rise or pass the pool, indexes below 0 or above 2^24, lengths below 1, a negative skip. Exact.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/key_less.h"

namespace evn {
namespace {

enum : int { kMaxGram, kMaxSkip, kMinGram, kMode, kCounts, kIndexes, kInts, kStrings, kWeights };
constexpr std::int64_t kMaxOutput = std::int64_t{1} << 24;

struct Pool {
  std::int64_t min_length, max_length, max_skip;
  std::size_t size;  // elements of the pool
  std::int64_t outputs = 0;
};

Pool pool_of(const Node& node, DType dtype) {
  const auto refuse = [](const char* what) { fail(EVN_ERROR_INVALID_MODEL, "TfIdfVectorizer: %s", what); };
  Pool p{attr_int(node, kMinGram), attr_int(node, kMaxGram), attr_int(node, kMaxSkip), 0};
  const bool strings = dtype == DType::kString;
  if (attr_given(node, kInts) == attr_given(node, kStrings)) refuse("one of pool_int64s and pool_strings is wanted");
  if (attr_given(node, kStrings) != strings) refuse("the pool is not of the input's element type");
  p.size = strings ? attr_strings(node, kStrings).size() : attr_ints(node, kInts).size();
  const std::span<const std::int64_t> counts = attr_ints(node, kCounts);
  const std::span<const std::int64_t> indexes = attr_ints(node, kIndexes);
  if (p.min_length < 1 || p.max_length < p.min_length || static_cast<std::uint64_t>(p.max_length) > counts.size()) {
    refuse("min_gram_length and max_gram_length do not fit ngram_counts");
  }
  if (p.max_skip < 0) refuse("max_skip_count is negative");
  std::size_t grams = 0;
  for (std::size_t n = 0; n < counts.size(); ++n) {
    cancellation_point();
    const std::int64_t end = n + 1 < counts.size() ? counts[n + 1] : static_cast<std::int64_t>(p.size);
    if (counts[n] < 0 || end < counts[n] || end > static_cast<std::int64_t>(p.size) || (n == 0 && counts[0] != 0)) {
      refuse("ngram_counts does not rise from 0 to the pool's size");
    }
    const auto length = static_cast<std::int64_t>(n) + 1;
    if ((end - counts[n]) % length != 0) refuse("ngram_counts cuts an n-gram in two");
    grams += static_cast<std::size_t>((end - counts[n]) / length);
  }
  if (grams != indexes.size()) refuse("ngram_indexes has another length than the pool has n-grams");
  for (const std::int64_t i : indexes) {
    cancellation_point();
    if (i < 0 || i >= kMaxOutput) refuse("an index is outside [0, 2^24)");
    p.outputs = std::max(p.outputs, i + 1);
  }
  const std::size_t weights = attr_floats(node, kWeights).size();
  if (weights != 0 && weights != indexes.size()) refuse("weights has another length than ngram_indexes");
  const std::string& mode = attr_string(node, kMode);
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") refuse("mode is none of TF, IDF, TFIDF");
  return p;
}

DType float_dtype(const Node&, std::span<const DType>, int) { return DType::kFloat32; }

void infer(InferContext& c) {
  require_rank(c, 0, 1, 2);
  const Pool p = pool_of(c.node, c.inputs[0].dtype);
  c.outputs[0].shape = c.shape(0).rank() == 2 ? Shape{c.shape(0)[0], p.outputs} : Shape{p.outputs};
}

// Reads an element as a key, which is an int64 or a text.
template <typename Key>
Key key_at(const ConstTensor& x, std::int64_t i) {
  if constexpr (std::is_same_v<Key, std::string_view>) {
    return text_of(x.as<TextElement>()[i]);
  } else {
    return int_at(x, i);
  }
}

template <typename Key>
using Gram = std::vector<Key>;

// Orders n-grams by their first keys that differ.
struct GramLess {
  template <typename Key>
  bool operator()(const std::vector<Key>& a, const std::vector<Key>& b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), KeyLess());
  }
};

// Maps each n-gram of the pool to its number.
template <typename Key>
using Grams = std::map<Gram<Key>, std::int64_t, GramLess>;

template <typename Key, typename Element>
Grams<Key> grams_of(const Node& node, std::span<const Element> pool) {
  Grams<Key> grams;
  const std::span<const std::int64_t> counts = attr_ints(node, kCounts);
  std::size_t number = 0;
  for (std::size_t n = 0; n < counts.size(); ++n) {
    cancellation_point();
    const std::int64_t end = n + 1 < counts.size() ? counts[n + 1] : static_cast<std::int64_t>(pool.size());
    for (std::int64_t at = counts[n]; at < end; at += static_cast<std::int64_t>(n) + 1, ++number) {
      cancellation_point();
      Gram<Key> gram;
      for (std::size_t k = 0; k <= n; ++k) {
        cancellation_point();
        gram.push_back(pool[static_cast<std::size_t>(at) + k]);
      }
      grams.emplace(std::move(gram), static_cast<std::int64_t>(number));
    }
  }
  return grams;
}

template <typename Key, typename Element>
void count_grams(const ReferenceContext& c, std::span<const Element> pool) {
  const ConstTensor& x = c.input(0);
  const Pool p = pool_of(c.node, x.desc.dtype);
  const Grams<Key> grams = grams_of<Key>(c.node, pool);
  const Shape& shape = x.desc.shape;
  const std::int64_t rows = shape.rank() == 2 ? shape[0] : 1;
  const std::int64_t length = shape[shape.rank() - 1];
  const std::span<const std::int64_t> indexes = attr_ints(c.node, kIndexes);
  const std::span<const float> weights = attr_floats(c.node, kWeights);
  const std::string& mode = attr_string(c.node, kMode);
  for (std::int64_t row = 0; row < rows; ++row) {
    cancellation_point();
    std::vector<std::int64_t> found(indexes.size(), 0);  // of each n-gram of the pool
    for (std::int64_t n = p.min_length; n <= std::min(p.max_length, length); ++n) {
      cancellation_point();
      for (std::int64_t skip = 0; skip <= (n == 1 ? 0 : std::min(p.max_skip, length)); ++skip) {
        cancellation_point();
        for (std::int64_t first = 0; first + (n - 1) * (skip + 1) < length; ++first) {
          cancellation_point();
          Gram<Key> gram;
          for (std::int64_t k = 0; k < n; ++k) {
            cancellation_point();
            gram.push_back(key_at<Key>(x, row * length + first + k * (skip + 1)));
          }
          if (const auto it = grams.find(gram); it != grams.end()) ++found[static_cast<std::size_t>(it->second)];
        }
      }
    }
    float* y = c.output().as<float>() + row * p.outputs;
    fill_in_pieces(y, p.outputs, 0.0f);
    for (std::size_t i = 0; i < found.size(); ++i) {
      cancellation_point();
      const auto count = static_cast<float>(found[i]);
      const float weight = weights.empty() || mode == "TF" ? 1 : weights[i];
      if (count == 0) continue;
      y[indexes[i]] = mode == "IDF" ? weight : y[indexes[i]] + count * weight;
    }
  }
}

void reference(const ReferenceContext& c) {
  if (c.input(0).desc.dtype == DType::kString) return count_grams<std::string_view>(c, attr_strings(c.node, kStrings));
  count_grams<std::int64_t>(c, attr_ints(c.node, kInts));
}

constexpr AttributeSpec kAttributes[] = {
    required_attribute("max_gram_length", AttributeType::kInt), required_attribute("max_skip_count", AttributeType::kInt),
    required_attribute("min_gram_length", AttributeType::kInt), required_attribute("mode", AttributeType::kString),
    required_attribute("ngram_counts", AttributeType::kInts),   required_attribute("ngram_indexes", AttributeType::kInts),
    optional_attribute("pool_int64s", AttributeType::kInts),    optional_attribute("pool_strings", AttributeType::kStrings),
    optional_attribute("weights", AttributeType::kFloats)};
constexpr OpDef kOps[] = {
    {.name = "TfIdfVectorizer",
     .since = 9,
     .attributes = kAttributes,
     .dtypes = kIndexDtypes | kString,
     .output_dtype = float_dtype,
     .infer = infer,
     .reference = reference},
};

}  // namespace

extern const OpFamily tf_idf_family;
const OpFamily tf_idf_family = {kOps};

}  // namespace evn

// How structs of the C API are described to what fills and reads them: raw_structs.cc has the tables.
#ifndef EVENER_NODE_FIELDS_H
#define EVENER_NODE_FIELDS_H

#include <cstddef>
#include <cstdint>

namespace evn_node {

enum FieldKind : uint8_t {
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kSize,
  kDouble,
  kWord,       // an enum
  kFlags,      // a list of words, whose values are or'ed
  kText,       // a string that ends in NUL, nullable
  kTextSized,  // and `other` is the field with its size
  kBytes,      // memory, and `other` is the field with its size
  kHandle,
  kTexts,      // strings, and `other` is the field with their number. So it is of
  kInts,       //   int64_t
  kStructs,    //   structs
  kStruct,     // a pointer to one, nullable
  kMask,       // bytes whose number the other arguments of the function tell
  kChars,      // an array of `length` characters in the struct
  kCharsList,  // `many` of these
  kDims,       // an array of `length` int64_t, of which as many count as the uint32_t at `other` says
  kNumbers     // an array of `length` 64-bit numbers
};

// A word of an enum; behind the last one comes one without a word.
struct Word {
  const char* word;
  int64_t value;
};

struct Struct;

struct Field {
  const char* name;  // of the property
  FieldKind kind;
  uint8_t handle;  // Kind of a handle
  size_t offset;
  size_t other;
  size_t length;
  size_t many;
  const Word* words;
  const Struct* nested;
};

struct Struct {
  const char* name;
  size_t size;
  size_t count;
  const Field* fields;
  const void* initial;  // what the struct is without options
};

}  // namespace evn_node

#endif

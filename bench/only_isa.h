/* What CPUID shows of each class of instruction sets. A class shows what it is named after and what the processors have that
 * brought it, and nothing wider or newer. isa.py has the same classes with the flags of /proc/cpuinfo. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define BIT(n) (1u << (n))

enum { kEax = 0, kEbx, kEcx, kEdx };

enum isa_class { kAvx2, kAvx2Vnni, kAvx512, kAvx512Vnni, kAvx512Bf16, kAvx512Amx, kClasses, kNoClass = -1 };

static const char* const kClassNames[kClasses] = {"avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx"};

/* Sets of classes. */
#define NO_CLASS 0u
#define FROM_AVX512 (BIT(kAvx512) | BIT(kAvx512Vnni) | BIT(kAvx512Bf16) | BIT(kAvx512Amx))
#define FROM_AVX512_BF16 (BIT(kAvx512Bf16) | BIT(kAvx512Amx))
#define VECTOR_BITS (BIT(kAvx2Vnni) | FROM_AVX512_BF16)

/* The features of leaf 7 beyond AVX2, by their flags in /proc/cpuinfo. What else subleaf 1 and later ones tell is always hidden. */
static const struct feature {
  const char* flag;
  unsigned subleaf, reg, bit;
  unsigned classes; /* that show it */
} kFeatures[] = {
    {"avx512f", 0, kEbx, 16, FROM_AVX512},
    {"avx512dq", 0, kEbx, 17, FROM_AVX512},
    {"avx512ifma", 0, kEbx, 21, FROM_AVX512_BF16},
    {"avx512pf", 0, kEbx, 26, NO_CLASS},
    {"avx512er", 0, kEbx, 27, NO_CLASS},
    {"avx512cd", 0, kEbx, 28, FROM_AVX512},
    {"avx512bw", 0, kEbx, 30, FROM_AVX512},
    {"avx512vl", 0, kEbx, 31, FROM_AVX512},
    {"avx512vbmi", 0, kEcx, 1, FROM_AVX512_BF16},
    {"avx512_vbmi2", 0, kEcx, 6, FROM_AVX512_BF16},
    {"gfni", 0, kEcx, 8, VECTOR_BITS},
    {"vaes", 0, kEcx, 9, VECTOR_BITS},
    {"vpclmulqdq", 0, kEcx, 10, VECTOR_BITS},
    {"avx512_vnni", 0, kEcx, 11, BIT(kAvx512Vnni) | FROM_AVX512_BF16},
    {"avx512_bitalg", 0, kEcx, 12, FROM_AVX512_BF16},
    {"avx512_vpopcntdq", 0, kEcx, 14, FROM_AVX512_BF16},
    {"avx512_4vnniw", 0, kEdx, 2, NO_CLASS},
    {"avx512_4fmaps", 0, kEdx, 3, NO_CLASS},
    {"avx512_vp2intersect", 0, kEdx, 8, NO_CLASS},
    {"amx_bf16", 0, kEdx, 22, BIT(kAvx512Amx)},
    {"avx512_fp16", 0, kEdx, 23, BIT(kAvx512Amx)},
    {"amx_tile", 0, kEdx, 24, BIT(kAvx512Amx)},
    {"amx_int8", 0, kEdx, 25, BIT(kAvx512Amx)},
    {"avx_vnni", 1, kEax, 4, BIT(kAvx2Vnni) | BIT(kAvx512Amx)},
    {"avx512_bf16", 1, kEax, 5, FROM_AVX512_BF16},
};

/* The class of that name; kNoClass where there is none. */
static inline enum isa_class find_class(const char* name) {
  for (int i = 0; name != NULL && i < kClasses; ++i) {
    if (strcmp(name, kClassNames[i]) == 0) return (enum isa_class)i;
  }
  return kNoClass;
}

/* State components of XCR0: 5 to 7 are AVX-512's, 17 and 18 AMX's, 19 APX's. */
static inline bool hides_state(enum isa_class shown, unsigned component) {
  if (component >= 5 && component <= 7) return !(FROM_AVX512 & BIT(shown));
  return component == 19 || ((component == 17 || component == 18) && shown != kAvx512Amx);
}

static inline void hide_features(enum isa_class shown, unsigned subleaf, unsigned r[4]) {
  unsigned hidden[4] = {0}, kept = 0, more = 0;
  for (size_t i = 0; i < sizeof kFeatures / sizeof *kFeatures; ++i) {
    const struct feature* f = &kFeatures[i];
    const bool is_shown = f->classes & BIT(shown);
    if (f->subleaf == 1 && is_shown) more = 1;
    if (f->subleaf != subleaf) continue;
    if (is_shown) {
      kept |= BIT(f->bit);
    } else {
      hidden[f->reg] |= BIT(f->bit);
    }
  }
  if (subleaf == 0) {
    for (int reg = kEbx; reg <= kEdx; ++reg) r[reg] &= ~hidden[reg];
    if (r[kEax] > more) r[kEax] = more; /* the last subleaf */
  } else {
    const unsigned eax = subleaf == 1 ? r[kEax] & kept : 0; /* not AVX10, APX, AVX-VNNI-INT8, AMX-FP16, ... */
    memset(r, 0, 4 * sizeof *r);
    r[kEax] = eax;
  }
}

/* Clears what is beyond the class in what CPUID has answered. */
static inline void hide(enum isa_class shown, unsigned leaf, unsigned subleaf, unsigned r[4]) {
  if (leaf == 7) {
    hide_features(shown, subleaf, r);
  } else if (leaf == 0xd && subleaf == 0) {
    /* The sizes in EBX and ECX stay: XSAVE stores as much as the kernel has enabled. */
    for (unsigned component = 0; component < 32; ++component) {
      if (hides_state(shown, component)) r[kEax] &= ~BIT(component);
    }
  } else if ((leaf == 0xd && subleaf < 32 && hides_state(shown, subleaf)) || leaf == 0x19 || leaf == 0x24 ||
             ((leaf == 0x1d || leaf == 0x1e) && shown != kAvx512Amx)) {
    memset(r, 0, 4 * sizeof *r); /* key locker; AVX10; AMX's tiles and products */
  }
}

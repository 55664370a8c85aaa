# The instruction sets of the CPU device, from the least on: the one table that the build, the enumeration Isa, its detection and the tests go
# by. docs/adding-an-instruction-set.md.
#
#   evn_isa(name CLUSTER | EXTENSION   a cluster has all of simd/ compiled for it; an extension only simd/<family>_<name>.cc, and else has
#                                      the code of its cluster
#     ARCH    processor                as CMAKE_SYSTEM_PROCESSOR says it; left out: every one. Elsewhere it is never available
#     BASE    name                     what it extends: its flags and its needs are added to those of the base
#     FLAGS   options...               of the compiler
#     NEEDS   words...                 features that the CPU and the system must have, as __builtin_cpu_supports knows them
#     DETECT  function                 of isa.cc, for a feature that a compiler has no word for
#     INT8 | BF16 | FP16 name          whose loops multiply such operands on it; left out: as its base (INT8), or there are no such products
#     PERMIT  function  UNTIL name)    of isa.cc, which asks the system; while it refuses, products are those of the other one
evn_isa(baseline CLUSTER INT8 baseline)
evn_isa(avx2 CLUSTER ARCH x86_64 BASE baseline FLAGS -mavx2 -mfma -mf16c NEEDS avx2 fma DETECT has_f16c INT8 avx2)
evn_isa(avx2_vnni EXTENSION ARCH x86_64 BASE avx2 FLAGS -mavxvnni DETECT has_avx_vnni INT8 avx2_vnni)
evn_isa(avx512 CLUSTER ARCH x86_64 BASE avx2 FLAGS -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
  NEEDS avx512f avx512bw avx512vl avx512dq INT8 avx512)
evn_isa(avx512_vnni EXTENSION ARCH x86_64 BASE avx512 FLAGS -mavx512vnni NEEDS avx512vnni INT8 avx512_vnni)
evn_isa(avx512_bf16 EXTENSION ARCH x86_64 BASE avx512_vnni FLAGS -mavx512bf16 DETECT has_avx512_bf16 BF16 avx512_bf16)
evn_isa(avx512_fp16 EXTENSION ARCH x86_64 BASE avx512_bf16 FLAGS -mavx512fp16 DETECT has_avx512_fp16 BF16 avx512_bf16 FP16 avx512_fp16)
evn_isa(avx512_amx EXTENSION ARCH x86_64 BASE avx512_bf16 FLAGS -mamx-tile -mamx-int8 -mamx-bf16 DETECT has_amx
  INT8 avx512_amx BF16 avx512_amx FP16 avx512_fp16 PERMIT tiles_are_allowed UNTIL avx512_bf16)
evn_isa(neon_dotprod EXTENSION ARCH aarch64 BASE baseline FLAGS -march=armv8.2-a+dotprod DETECT has_dotprod INT8 neon_dotprod)
evn_isa(neon_i8mm EXTENSION ARCH aarch64 BASE neon_dotprod FLAGS -march=armv8.2-a+dotprod+i8mm DETECT has_i8mm INT8 neon_i8mm)

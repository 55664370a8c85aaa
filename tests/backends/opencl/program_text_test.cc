// Sources that are cut down to one kernel.
#include "backends/opencl/program_text.h"

#include <algorithm>
#include <set>

#include "backends/opencl/source.h"
#include "base/inflate.h"
#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

constexpr char kSource[] =
    "#define EVN_KERNEL kernel\n"
    "static inline float twice(float x) {\n"
    "return 2 * x;\n"
    "}\n"
    "EVN_KERNEL void one(global float* x) {\n"
    "#define EVN_PART(i) \\\n"
    "{ x[i] = 0; }\n"
    "#if EVN_LANES == 4\n"
    "if (x[0] > 0) {\n"
    "#else\n"
    "for (;;) {\n"
    "#endif\n"
    "#pragma unroll\n"
    "EVN_PART(1)\n"
    "}\n"
    "}\n"
    "kernel __attribute__((reqd_work_group_size(8, 1, 1))) void two(\n"
    "global float* x) {\n"
    "x[0] = twice(x[0]);\n"
    "}\n"
    "#define EVN_DEFINE(NAME, T) \\\n"
    "EVN_KERNEL void NAME(global T* x) { \\\n"
    "x[0] = 1; \\\n"
    "}\n"
    "EVN_DEFINE(three, float)\n"
    "EVN_DEFINE(four, int)\n"
    "EVN_OTHER(five, int)\n";

TEST(OpenClProgramText, KernelsAreFunctionsAndUsesOfMacros) {
  EXPECT_EQ(kernels_of(kSource), (std::vector<std::string>{"one", "two", "three", "four"}));
  EXPECT_TRUE(kernels_of("").empty());
  EXPECT_TRUE(kernels_of("static void one(int x) {\n}\nvoid EVN_KERNEL two(\n").empty());
}

TEST(OpenClProgramText, TheOthersGoAndDirectivesStay) {
  const std::string two = only_kernel(kSource, "two");
  EXPECT_EQ(two.find("void one("), std::string::npos);
  EXPECT_NE(two.find("void two(\nglobal float* x) {\nx[0] = twice(x[0]);\n}\n"), std::string::npos);
  EXPECT_NE(two.find("static inline float twice(float x) {\nreturn 2 * x;\n}\n"), std::string::npos);
  EXPECT_NE(two.find("#define EVN_PART(i) \\\n{ x[i] = 0; }\n"), std::string::npos);
  EXPECT_EQ(two.find("EVN_PART(1)"), std::string::npos);
  EXPECT_EQ(two.find("#pragma"), std::string::npos);
  EXPECT_EQ(two.find("EVN_DEFINE(three"), std::string::npos);
  EXPECT_NE(two.find("EVN_OTHER(five, int)\n"), std::string::npos);
  const std::string four = only_kernel(kSource, "four");
  EXPECT_NE(four.find("EVN_DEFINE(four, int)\n"), std::string::npos);
  EXPECT_EQ(four.find("EVN_DEFINE(three"), std::string::npos);
  EXPECT_EQ(four.find("void two("), std::string::npos);
}

TEST(OpenClProgramText, LinesKeepTheirNumbers) {
  const std::string source = kSource;
  for (const char* const kernel : {"one", "two", "three", "four"}) {
    const std::string kept = only_kernel(source, kernel);
    EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'), std::count(source.begin(), source.end(), '\n')) << kernel;
    EXPECT_EQ(kernels_of(kept), std::vector<std::string>{kernel});
  }
}

TEST(OpenClProgramText, WhatIsNotFoundAndWhatDoesNotEndStays) {
  EXPECT_EQ(only_kernel(kSource, "five"), kSource);
  EXPECT_EQ(only_kernel(kSource, ""), kSource);
  EXPECT_EQ(only_kernel("EVN_KERNEL void one(int x) {\nx", "one"), "EVN_KERNEL void one(int x) {\nx");
  EXPECT_EQ(only_kernel("EVN_KERNEL void one(int x) {\nx\nEVN_KERNEL void two(int x) {\n}", "two"),
            "EVN_KERNEL void one(int x) {\nx\nEVN_KERNEL void two(int x) {\n}")
      << "braces that are not closed";
}

// A kernel that a run wants and that is not known here would be built with all others of its source.
TEST(OpenClProgramText, EachSourceHasItsKernelsOnce) {
  std::size_t kernels = 0;
  for (const OpenClSource& source : opencl_sources()) {
    const std::string text = inflate(source.deflated, source.size);
    const std::vector<std::string> names = kernels_of(text);
    EXPECT_EQ(names.empty(), std::string(source.name) == "common") << source.name;
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size()) << source.name;
    for (const std::string& name : names) EXPECT_EQ(kernels_of(only_kernel(text, name)), std::vector<std::string>{name});
    kernels += names.size();
  }
  EXPECT_GT(kernels, 90u);
}

}  // namespace
}  // namespace evn::test

#include "backends/opencl/program_text.h"

#include <algorithm>

namespace evn {
namespace {

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

std::string_view word_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_word(text[end])) ++end;
  return text.substr(at, end - at);
}

std::string_view without_indent(std::string_view line) {
  const std::size_t first = line.find_first_not_of(' ');
  return line.substr(first == std::string_view::npos ? line.size() : first);
}

// "copy_tile" of "EVN_KERNEL void copy_tile(..." or "kernel __attribute__((...)) void copy_tile(..."; empty: no kernel begins here.
std::string_view kernel_name(std::string_view line) {
  constexpr std::string_view kVoid = " void ";
  line = without_indent(line);
  const std::string_view first = word_at(line, 0);
  const std::size_t at = line.find(kVoid);
  if ((first != "kernel" && !first.ends_with("_KERNEL")) || at == std::string_view::npos) return {};
  const std::string_view name = word_at(line, at + kVoid.size());
  const std::size_t end = at + kVoid.size() + name.size();
  return end < line.size() && line[end] == '(' ? name : std::string_view();
}

// One line after the other, each with its end.
struct Lines {
  std::string_view rest;
  bool next(std::string_view* line) {
    if (rest.empty()) return false;
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
    *line = rest.substr(0, end + 1);
    rest.remove_prefix(end + 1);
    return true;
  }
};

bool goes_on(std::string_view line) { return line.ends_with("\\\n"); }

// Macros whose first parameter names the kernel that they define.
class KernelMacros {
 public:
  explicit KernelMacros(std::string_view source) {
    Lines lines{source};
    for (std::string_view line; lines.next(&line);) {
      constexpr std::string_view kDefine = "#define ";
      if (!line.starts_with(kDefine)) continue;
      const std::string_view macro = word_at(line, kDefine.size());
      const std::string_view parameter = word_at(line, kDefine.size() + macro.size() + 1);
      while (goes_on(line) && lines.next(&line)) {
        if (!parameter.empty() && kernel_name(line) == parameter) names_.push_back(macro);
      }
    }
  }
  // "copy_2" of "EVN_DEFINE_COPY(copy_2, ushort)"; empty: the line is no use of such a macro.
  std::string_view kernel_of(std::string_view line) const {
    const std::string_view macro = word_at(line, 0);
    if (std::find(names_.begin(), names_.end(), macro) == names_.end() || !line.substr(macro.size()).starts_with('(')) return {};
    return line.ends_with(")\n") || line.ends_with(')') ? word_at(line, macro.size() + 1) : std::string_view();
  }

 private:
  std::vector<std::string_view> names_;
};

// Where a function ends, by its braces. What the branches of a condition have is counted once.
class Braces {
 public:
  void add_directive(std::string_view line) {
    if (line.starts_with("#if")) saved_.push_back(depth_);
    else if (line.starts_with("#el") && !saved_.empty()) depth_ = saved_.back();
    else if (line.starts_with("#endif") && !saved_.empty()) saved_.pop_back();
  }
  // True: the function ends on this line.
  bool add(std::string_view line) {
    for (const char c : line) {
      if (c == '{') {
        ++depth_;
        has_begun_ = true;
      } else if (c == '}') {
        --depth_;
      }
    }
    return has_begun_ && depth_ == 0;
  }

 private:
  std::vector<int> saved_;
  int depth_ = 0;
  bool has_begun_ = false;
};

// Calls keep(line) or drop(line) for each line; false of `wanted` drops the kernel of that name.
template <typename Wanted, typename Keep, typename Drop>
void each_line(std::string_view source, Wanted wanted, Keep keep, Drop drop) {
  const KernelMacros macros(source);
  Lines lines{source};
  std::string_view line;
  const auto keep_directive = [&](Braces* braces) {
    if (braces != nullptr) braces->add_directive(line);
    keep(line);
    while (goes_on(line) && lines.next(&line)) keep(line);
  };
  while (lines.next(&line)) {
    if (line.starts_with('#')) {
      keep_directive(nullptr);
      continue;
    }
    if (const std::string_view made = macros.kernel_of(line); !made.empty()) {
      wanted(made) ? keep(line) : drop(line);
      continue;
    }
    const std::string_view name = kernel_name(line);
    const bool stays = name.empty() || wanted(name);
    stays ? keep(line) : drop(line);
    if (name.empty()) continue;
    Braces braces;
    for (bool ended = braces.add(line); !ended && lines.next(&line);) {
      if (line.starts_with('#') && (stays || !line.starts_with("#pragma"))) {  // a pragma is of a statement that goes
        keep_directive(&braces);
        continue;
      }
      ended = braces.add(line);
      stays ? keep(line) : drop(line);
    }
  }
}

}  // namespace

std::vector<std::string> kernels_of(std::string_view source) {
  std::vector<std::string> names;
  const auto note = [&](std::string_view name) { return names.emplace_back(name), true; };
  each_line(
      source, note, [](std::string_view) {}, [](std::string_view) {});
  return names;
}

std::string only_kernel(std::string_view source, std::string_view kernel) {
  std::string kept;
  bool found = false;
  const auto wanted = [&](std::string_view name) {
    found |= name == kernel;
    return name == kernel;
  };
  each_line(
      source, wanted, [&](std::string_view line) { kept += line; },
      [&](std::string_view line) {
        if (line.ends_with('\n')) kept += '\n';
      });
  return found ? kept : std::string(source);
}

}  // namespace evn
